#!/bin/sh
# Ten nights in a row with fresh people each: the job runs until the budget of its ledger is used up.
#
#   ten_nights.sh FOLDER [ROWS]
set -eu
folder=$1
rows=${2:-3000}
here=$(dirname "$0")
mkdir -p "$folder"

for night in 1 2 3 4 5 6 7 8 9 10; do
  justitia datasets write synthetic --rows "$rows" --seed "$night" --out "$folder/people.csv" --overwrite > /dev/null
  code=0
  "$here/night.sh" "$folder/people.csv" "$folder" > "$folder/night-$night.log" || code=$?
  echo "night $night: exit code $code, model in use: $(readlink "$folder/model")"
  [ "$code" -eq 0 ] || exit "$code"
done
