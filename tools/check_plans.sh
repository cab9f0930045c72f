#!/bin/sh
# Plans one batch of each model set-up, by search and as the fixed fallback, and checks the plans: all with the dip command.
#
#   MICROBATCHES  of each batch (16)
set -eu
cd "$(dirname "$0")/.."
PATH=$PWD/.venv/bin:$PATH
export PATH
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
passed=0 failed=0
for config in vlm-s vlm-m vlm-l t2v-s t2v-l; do
    dip workload "$config" --microbatches "${MICROBATCHES:-16}" --out "$folder/request.json"
    for mode in "" --fallback; do
        printf '\n%s%s\n' "$config" "${mode:+, fallback}"
        if dip plan "$folder/request.json" --out "$folder/plan.json" $mode && dip check --strict "$folder/request.json" "$folder/plan.json"
        then passed=$((passed + 1)); else failed=$((failed + 1)); fi
    done
done
printf '\nplans: %s passed, %s failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
