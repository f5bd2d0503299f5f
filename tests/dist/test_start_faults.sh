#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# timeout: 1200
# A rank is stopped, killed or paused at any moment from the start of the run on, with stages and without. A rank
# that is lost ends the run with status 1 and one line that names it, well within the usual patience; one that was
# only paused is no fault; and SIGTERM ends the launcher and its ranks whatever state these are in. No rank stays.
# GW_TEST_LONG: every 20 ms of the first second, all kinds, 100 runs and more.
set -eu
# shellcheck source-path=SCRIPTDIR source=ranks.sh
. "$GW_TESTS_DIR/dist/ranks.sh"

cat > run.yaml <<'EOF_RUN'
model: {family: llama, layers: 4, hidden: 16, heads: 2, ffn: 32}
data: {train: t, tokenizer: bytes}
train: {steps: 100000, seq_len: 16, micro_batch: 1, accumulate: 4, threads: 1, log_every: 1000}
layout: {timeout: 1}
checkpoint: {every: 0}
EOF_RUN

bad() { echo "$case: $1 (exit $code)"; cat run.log; exit 1; }

# FAULT N LAYOUT MILLISECONDS WHICH: the WHICH-th process that the launcher has then suffers it.
strike() {
    case="$*"
    rm -rf out
    # shellcheck disable=SC2086
    "$GW_BIN" train run.yaml --ranks "$2" --set layout.$3 --out out > run.out 2> run.log & pid=$!
    sleep "$(printf '%d.%03d' $(($4 / 1000)) $(($4 % 1000)))"
    victim=''; tries=0
    while [ -z "$victim" ] && [ $tries -lt 100 ]; do # the launcher may not have forked yet
        victim=$(ranks_of $pid | sed -n "$5p")
        tries=$((tries + 1))
    done
    ranks=$(ranks_of $pid)
    case $1 in
    pause) kill -STOP "$victim"; sleep 0.3; kill -CONT "$victim"; sleep 0.3; kill -TERM $pid ;;
    term) kill -STOP "$victim"; sleep 0.1; kill -TERM $pid ;;
    *) kill -"$1" "$victim" ;;
    esac
    i=0
    while kill -0 $pid 2> /dev/null && ! grep -q "^State:[[:space:]]*Z" /proc/$pid/status 2> /dev/null; do
        i=$((i + 1))
        if [ $i -gt $((150 * slower)) ]; then kill -KILL $pid; code=-; bad "did not end"; fi
        sleep 0.1
    done
    code=0; wait $pid || code=$?
    case $1 in
    # Asked to stop, it saves and ends with 3; the default action of the signal before it listens.
    pause | term) [ $code -eq 3 ] || [ $code -eq 143 ] || bad "not stopped as asked" ;;
    *) [ $code -eq 1 ] || bad "not failed"
       [ "$(grep -c '^error' run.log)" -eq 1 ] || bad "not one line"
       grep -qE '^error: .*rank(s [0-9, ]*)? ?[0-9]' run.log || bad "no rank is named"
       ! grep -q 'finishing this step' run.log || bad "nothing is finished after a fault" ;;
    esac
    [ "$1" != STOP ] || grep -qE 'stopped by a signal' run.log || bad "not late, though stopped"
    [ "$1" != KILL ] || grep -q 'was killed by signal 9' run.log || bad "not killed"
    for p in $ranks; do
        if [ -d "/proc/$p" ] && ! grep -q "^State:[[:space:]]*Z" "/proc/$p/status" 2> /dev/null; then bad "process $p is left"; fi
    done
}

if [ -n "${GW_TEST_LONG:-}" ]; then
    ms=0
    while [ $ms -lt 1000 ]; do
        for fault in STOP KILL pause term; do
            n=$((2 + ms / 20 % 3))
            layout=dp=$n
            [ $((ms / 20 % 2)) -eq 0 ] || layout=pp=$n
            strike $fault $n $layout $ms $((1 + ms / 40 % n))
        done
        ms=$((ms + 20))
    done
    exit 0
fi
strike STOP 2 dp=2 100 2
strike STOP 3 pp=3 180 1
strike STOP 2 pp=2 260 2
strike STOP 4 dp=4 60 3
strike KILL 2 pp=2 140 1
strike KILL 3 dp=3 220 3
strike pause 2 pp=2 200 2
strike term 2 dp=2 240 1
strike term 3 pp=3 120 2
