#!/bin/sh
# One night of a job: tonight's people in; a model, two measurements and a page out, all paid from one ledger.
#
#   night.sh DATA FOLDER     DATA: a CSV with the columns id, y and group. FOLDER: where ledger and models stay.
#
# FOLDER/model is the model in use. It changes only when all of a night has worked; when the budget is used up the night
# ends with exit code 3 and one sentence, and the last model stays in place.
set -eu
data=$1
folder=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir -p "$folder"
if [ ! -e "$folder/people.ledger" ]; then
  justitia budget create "$folder/people.ledger" --name people --epsilon 2.05
fi
night=$(date +%Y%m%dT%H%M%S)-$$

cp "$data" "$work/people.csv"
justitia split "$work/people.csv" --test 0.4
justitia train "$work/people-train.csv" --target y --sensitive group --groups a,b \
  --epsilon 0.4 --ledger "$folder/people.ledger" --out "$work/model"
justitia evaluate "$work/model" "$work/people-test.csv" --epsilon 0.3 --ledger "$folder/people.ledger"

# What was decided about tonight's people: by the model in use or, on the first night, by the new one.
deciding=$folder/model
[ -e "$deciding" ] || deciding=$work/model
justitia predict "$deciding" "$work/people.csv" --key id --out "$work/decisions.csv"
justitia measure "$work/decisions.csv" --decision decision --sensitive-file "$work/people.csv" --key id \
  --sensitive group --groups a,b --epsilon 0.2 --ledger "$folder/people.ledger" --out "$work/decisions.json"

justitia report "$work/model" --out "$work/report.html"

mv "$work/decisions.json" "$folder/decisions-$night.json"
mv "$work/report.html" "$folder/report-$night.html"
mv "$work/model" "$folder/model-$night"
ln -sfn "model-$night" "$folder/model"
