#!/bin/sh
# Night after night with new people each; in the last night the world has changed, and the monitor alerts.
#
#   nights.sh FOLDER [ROWS] [NIGHTS]
set -eu
folder=$1
rows=${2:-3000}
nights=${3:-12}
here=$(dirname "$0")
mkdir -p "$folder"

night=0
while [ "$night" -lt "$nights" ]; do
  night=$((night + 1))
  justitia datasets write synthetic --rows "$rows" --seed "$night" --out "$folder/rows.csv" --overwrite > /dev/null
  # In the last night a column comes in another unit.
  moved=$([ "$night" -eq "$nights" ] && echo 5 || echo 0)
  awk -F , -v OFS=, -v moved="$moved" 'NR > 1 { $1 += moved } { print (NR == 1 ? "id" : NR - 1), $0 }' \
    "$folder/rows.csv" > "$folder/people.csv"
  code=0
  "$here/night.sh" "$folder/people.csv" "$folder" "night-$night" > "$folder/night-$night.log" || code=$?
  echo "night $night: exit code $code, model in use: $(readlink "$folder/model")"
  [ "$code" -eq 0 ] || exit "$code"
done
