#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
# The program itself, in a pipeline of three ranks: one is killed, or stopped, from outside and at any moment
# of a step. It ends with status 1 and with lines that name rank, stage, micro-batch and action; no rank stays.
set -eu
# shellcheck source-path=SCRIPTDIR source=ranks.sh
. "$GW_TESTS_DIR/dist/ranks.sh"

cat > run.yaml <<'EOF'
model: {family: llama, layers: 6, hidden: 16, heads: 2, ffn: 32}
data: {train: t, tokenizer: bytes}
train: {steps: 1000, seq_len: 16, micro_batch: 1, accumulate: 4, threads: 1}
layout: {pp: 3, timeout: 1}
checkpoint: {every: 0}
EOF

rank() { # PARENT NUMBER
    for p in $(ranks_of "$1"); do
        if grep -qx "gradwright:$2" "/proc/$p/comm" 2> /dev/null; then echo "$p"; fi
    done
}

where='in (forward|backward|input gradients|weight gradients|receive of activations|receive of gradients|send of activations|send of gradients)'
where="$where of micro-batch [0-3] of stage [0-5] \\([sr]?[FIWB][0-5]\\.[0-3], action [0-9]+ of [0-9]+\\)"
where="$where|in the optimizer" # a loaded machine may be late with its strike
lost() { # SCHEDULE SIGNAL RANK PAUSE TEXT
    rm -rf out
    GW_PACE=0.05,0.05,0.05 "$GW_BIN" train run.yaml --ranks 3 --set layout.schedule="$1" --out out > run.out 2> run.log & pid=$!
    i=0
    while [ ! -s out/metrics.jsonl ]; do
        kill -0 $pid 2> /dev/null || { echo "the run ended early"; cat run.log; exit 1; }
        i=$((i + 1)); [ $i -lt 600 ] || { echo "no step in 60 s"; exit 1; }
        sleep 0.1
    done
    sleep "$4"
    ranks=$(ranks_of $pid)
    kill -"$2" "$(rank $pid "$3")"
    code=0; wait $pid || code=$?
    grep "^error" run.log > errors || :
    if [ $code -ne 1 ] || ! grep -qE "rank $3 .*$5" errors || [ "$(grep -cvE "$where" errors)" -ne 0 ] ||
        [ "$(grep -c . errors)" -ne 1 ]; then
        echo "$*: exit $code"; cat run.log; exit 1
    fi
    for p in $ranks; do
        if [ -d "/proc/$p" ]; then echo "$*: process $p is left"; exit 1; fi
    done
}
lost zb-h1 KILL 1 0.13 "was killed by signal 9"
lost interleaved KILL 2 0.31 "was killed by signal 9"
lost zb-h1 STOP 0 0.22 "process is stopped by a signal"
lost interleaved STOP 1 0.37 "process is stopped by a signal"
