#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The product in ten minutes on two cores: prepare text, plan, prove the layout, train the first half
# on two ranks, resume, train the rest, validate, continue a text, and hold the result against gzip.
#
#   QUICKSTART_RANKS=N    local ranks (default 2)
#   QUICKSTART_OUT=DIR    the run directory (default runs/quickstart, made anew)
#   QUICKSTART_SET="..."  overrides for every step, as words of --set (for a shorter run)
set -euo pipefail
cd "$(dirname "$0")/.."

gradwright=${GW_BIN:-./gradwright}
run=examples/quickstart.yaml
out=${QUICKSTART_OUT:-runs/quickstart}
data=${BUILD:-build}/data
ranks=${QUICKSTART_RANKS:-2}
sets=()
for word in ${QUICKSTART_SET:-}; do sets+=(--set "$word"); done

say() { printf '\n== %s\n' "$*"; }

say "text and tokens"
scripts/data.sh

say "what a step will take: $gradwright plan $run --ranks $ranks"
"$gradwright" plan "$run" --ranks "$ranks" "${sets[@]}"

say "is it what one rank computes? $gradwright verify $run --ranks $ranks --steps 1"
"$gradwright" verify "$run" --ranks "$ranks" --steps 1 "${sets[@]}"

steps=$("$gradwright" config "$run" "${sets[@]}" --json | sed -n 's/.*"steps": *\([0-9]*\).*/\1/p' | head -1)
half=$((steps / 2))
# A run directory of an earlier quickstart is moved aside, never removed.
if [ -e "$out" ]; then mv "$out" "$out.$(date +%Y%m%d-%H%M%S)"; fi

say "train to step $half of $steps, then stop: $gradwright train $run --ranks $ranks --out $out --until $half"
"$gradwright" train "$run" --ranks "$ranks" "${sets[@]}" --out "$out" --until "$half"

say "go on from the checkpoint: $gradwright train $run --ranks $ranks --out $out --resume"
"$gradwright" train "$run" --ranks "$ranks" "${sets[@]}" --out "$out" --resume

say "a sample: $gradwright generate $out --prompt \"And it came to pass\""
"$gradwright" generate "$out" --prompt "And it came to pass" --max-tokens 60

say "against gzip"
bpb=$(sed -n 's/.*"valid_bpb": *\([0-9.]*\).*/\1/p' "$out/metrics.jsonl" | tail -1)
bytes=$(wc -c <"$data/valid.txt")
packed=$(gzip -9 -n -c "$data/valid.txt" | wc -c)
awk -v b="$bpb" -v n="$bytes" -v z="$packed" 'BEGIN {
    g = 8 * z / n
    printf "held-out text: %.3f bits per byte; gzip -9 needs %.3f: %s\n", b, g, b < g ? "the model wins" : "gzip wins"
    exit !(b < g) }'
echo "the run is in $out: open $out/report.html"
