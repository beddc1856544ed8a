#!/bin/sh
# Night after night with fresh people each: ten nights work, and on the eleventh the budget of the ledger is used up.
#
#   ten_nights.sh FOLDER [ROWS]
set -eu
folder=$1
rows=${2:-3000}
here=$(dirname "$0")
mkdir -p "$folder"

for night in 1 2 3 4 5 6 7 8 9 10 11; do
  justitia datasets write synthetic --rows "$rows" --seed "$night" --out "$folder/rows.csv" --overwrite > /dev/null
  awk '{ print (NR == 1 ? "id" : NR - 1) "," $0 }' "$folder/rows.csv" > "$folder/people.csv"
  code=0
  "$here/night.sh" "$folder/people.csv" "$folder" > "$folder/night-$night.log" || code=$?
  echo "night $night: exit code $code, model in use: $(readlink "$folder/model")"
  [ "$code" -eq 0 ] || exit "$code"
done
