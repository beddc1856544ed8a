#!/bin/sh
# One night of a job: tonight's people in; a model, a measurement for the monitor and two pages out.
#
#   night.sh DATA FOLDER NAME   DATA: a CSV with the columns id, y and group. NAME: of the night, such as 2026-03-01.
#                               FOLDER: where ledgers, models and the monitor stay.
#
# Tonight's people are new, so they have ledgers of their own: one that pays for training and evaluation, and that of
# the monitor, which pays for the measurement of their decisions; epsilon of a person is bounded by the sum.
# FOLDER/model is the model in use. It changes only when all of a night has worked. The exit code is 5 where the monitor
# alerts; the new model is then not put in use.
set -eu
data=$1
folder=$2
night=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir -p "$folder/ledgers"
cp "$data" "$work/people.csv"
justitia split "$work/people.csv" --test 0.4
if [ ! -e "$folder/monitor" ]; then
  justitia monitor create "$folder/monitor" --name "the model in use" --limit 0.35 --planned 180 --people new \
    --epsilon 0.5 --sensitive group --groups a,b --reference "$work/people-train.csv" --watch x0 --watch x1
fi
justitia train "$work/people-train.csv" --target y --sensitive group --groups a,b \
  --epsilon 0.5 --ledger "$folder/ledgers/$night.ledger" --ledger-name "people of $night" --ledger-epsilon 1 \
  --out "$work/model"
justitia evaluate "$work/model" "$work/people-test.csv" --epsilon 0.5 --ledger "$folder/ledgers/$night.ledger"
justitia report "$work/model" --out "$work/report.html"

# What was decided about tonight's people: by the model in use or, on the first night, by the new one.
deciding=$folder/model
[ -e "$deciding" ] || deciding=$work/model
justitia predict "$deciding" "$work/people.csv" --key id --out "$work/decisions.csv"
cut -d , -f 2- "$work/people.csv" | paste -d , "$work/decisions.csv" - > "$work/decided.csv"
code=0
# --target says which decisions there are, should all of tonight's be the same.
justitia monitor add "$folder/monitor" "$work/decided.csv" --decision decision --target y --sensitive group \
  --groups a,b --when "$night" || code=$?
justitia monitor show "$folder/monitor" --out "$folder/monitor.html" --overwrite || [ "$code" -ne 0 ]
[ "$code" -eq 0 ] || exit "$code"

mv "$work/report.html" "$folder/report-$night.html"
mv "$work/model" "$folder/model-$night"
ln -sfn "model-$night" "$folder/model"
