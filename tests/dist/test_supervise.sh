#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# timeout: 240
# shellcheck disable=SC2016
#
# `train --supervise`: a rank, or the process that watches the ranks, killed at a step that a checkpoint
# has passed; the run ends as the run that nobody touched, to the bit. What is not worth another try; what
# is given up; fewer ranks; a request to stop. `train --requeue`, with a scontrol that writes down what
# it is asked.
set -euo pipefail
[ -x "${GW_BIN:-}" ] || { echo "no program in GW_BIN"; exit 77; }
command -v pgrep >/dev/null || { echo "no pgrep (procps)"; exit 77; }
cd "$TMPDIR"
export OMP_NUM_THREADS=1
slower=1
case ${GW_MODE:-release} in asan | tsan) slower=4 ;; esac

fail() { echo "$1"; cat ./*.log; exit 1; }
# expect STATUS LOG PATTERN... : the last status ($code), and lines of the log
expect() {
    local want=$1 log=$2 pattern
    shift 2
    [ "$code" -eq "$want" ] || fail "exit status $code, not $want"
    for pattern in "$@"; do
        grep -qE -- "$pattern" "$log" || fail "no line of $log has '$pattern'"
    done
}
# once LOG COMMAND... : the command's status in $code
once() {
    local log=$1
    shift
    code=0
    timeout -k 5 $((60 * slower)) "$@" >"$log.out" 2>"$log" || code=$?
}
# until_true SECONDS COMMAND...
until_true() {
    local tries=$(($1 * 20 * slower))
    shift
    while ! "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.05
    done
}
steps_of() { sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl"; }
committed() { compgen -G "$1/checkpoints/*/manifest.json"; }
# The ranks of the run below a process: its main process is the only child of the one that watches.
main_of() { pgrep -P "$1" | head -1; }

"$GW_BIN" tokenizer encode bytes "$GW_TESTS_DIR/README.md" --out tokens >/dev/null
cat >run.yaml <<YAML
model: {family: llama, layers: 2, hidden: 64, heads: 4, ffn: 256}
data: {train: $PWD/tokens, tokenizer: bytes}
train: {steps: 120, seq_len: 64, micro_batch: 2, threads: 1}
checkpoint: {every: 10, keep_last: 2}
YAML

# ---- the run that nobody touched
once whole.log "$GW_BIN" train run.yaml --ranks 2 --out whole
expect 0 whole.log

# ---- struck, and the same run
strike() { # DIR rank|main
    "$GW_BIN" train run.yaml --ranks 2 --out "$1" --supervise --json >"$1.json" 2>"$1.log" &
    local pid=$! main
    until_true 60 committed "$1" || fail "no checkpoint of $1"
    main=$(main_of $pid)
    case $2 in
    rank) kill -KILL "$(pgrep -P "$main" | tail -1)" ;;
    main) kill -KILL "$main" ;;
    esac
    code=0
    wait $pid || code=$?
}
strike rank rank
expect 0 rank.log 'restart 1, from the checkpoint of step [0-9]+, 2 ranks: .*rank [01] was killed by signal 9' \
    'goodput [0-9.]+ %: .* in steps that are kept, 1 restart$'
strike main main
expect 0 main.log 'restart 1, .*: it was killed by signal 9 \(SIGKILL\)'
for dir in rank main; do
    [ "$(steps_of $dir)" = "$(steps_of whole)" ] || fail "$dir: other losses than the whole run's"
    grep -q '"goodput": 0\.[0-9]' $dir/summary.json || fail "$dir/summary.json has no goodput"
    # The time of the steps that are kept is that of the lines of metrics, a line a step.
    kept=$(sed -n 's/.*"kept_step_s": \([0-9.]*\).*/\1/p' $dir/summary.json)
    sum=$(sed -n 's/.*"step_s": \([0-9.e-]*\),.*/\1/p' $dir/metrics.jsonl | awk '{ s += $1 } END { print s }')
    awk -v a="$kept" -v b="$sum" 'BEGIN { exit !(a > 0.98 * b && a < 1.02 * b + 0.05) }' ||
        fail "$dir: $kept s in steps that are kept, and $sum s in the metrics"
    grep -q '"from_step": [0-9]*0,' $dir/summary.json || fail "$dir/summary.json has no restart"
    grep -q '"supervise"' $dir.json || fail "--json lacks it"
    once diff.log "$GW_BIN" checkpoint diff whole $dir
    expect 0 diff.log
done

# ---- not worth another try
once config.log "$GW_BIN" train run.yaml --out c --supervise --set train.nonsense=1
expect 2 config.log 'nonsense'
once exists.log "$GW_BIN" train run.yaml --ranks 2 --out whole --supervise
expect 2 exists.log 'run-exists'
once numeric.log "$GW_BIN" train run.yaml --ranks 2 --out n --supervise --set optimizer.name=sgd \
    --set optimizer.lr=1000 --set optimizer.clip_norm=0
expect 1 numeric.log 'not finite'
once usage.log "$GW_BIN" train run.yaml --retries 2
expect 2 usage.log '--supervise'
for log in config exists numeric; do
    if grep -q 'restart' $log.log; then fail "$log: started again"; fi
done

# ---- given up: there is no place for checkpoints
mkdir f g
ln -s /proc/nowhere f/checkpoints
ln -s /proc/nowhere g/checkpoints
once full.log "$GW_BIN" train run.yaml --out f --supervise
expect 1 full.log 'restart 1, from the beginning: cannot make directory' \
    'two failures in a row without a new checkpoint' 'the last failure: cannot make directory'
[ "$(grep -c 'restart [0-9]' full.log)" -eq 1 ] || fail "more than one restart"
once none.log "$GW_BIN" train run.yaml --out g --supervise --retries 0
expect 1 none.log '0 restarts, as --retries allows'

# ---- fewer ranks: open files for two, not for four
once few.log bash -c 'ulimit -n 14; exec "$0" "$@"' "$GW_BIN" train run.yaml --ranks 4 --out none
need=$(sed -n 's/.*of 4 ranks needs about \([0-9]*\).*/\1/p' few.log)
[ -n "$need" ] || fail "four ranks with 14 open files"
once fewer.log bash -c "ulimit -n $((need - 1))"'; exec "$0" "$@"' "$GW_BIN" train run.yaml --ranks 4 \
    --out fewer --supervise --set layout.dp=4 --set train.micro_batch=1
expect 0 fewer.log 'restart 1, from the beginning, 2 ranks: .*open files' \
    'the run keeps its global batch of 4' '4 sequences of 64 tokens a step .* accumulate 2 x dp 2'
# After the stated time all are tried again: in vain, which it survives whatever --retries says, and
# then with room for them. The run is stopped behind a checkpoint for that, and goes on from it.
command -v prlimit >/dev/null || { echo "no prlimit (util-linux)"; exit 77; }
room=$(ulimit -Hn)
bash -c "ulimit -Sn $((need - 1))"'; ulimit -Hn $(ulimit -Sn); exec "$0" "$@"' "$GW_BIN" train run.yaml \
    --ranks 4 --out grows --supervise --retries 1 --regrow 1 --set layout.dp=4 --set train.micro_batch=1 \
    --set train.steps=100000 >grows.out 2>grows.log &
pid=$!
in_log() { grep -qE -- "$1" grows.log; }
until_true 60 in_log 'restart 3, from the checkpoint of step [0-9]+, 2 ranks: .*open files' || fail "it is not tried again"
in_log 'restart 2, from the checkpoint of step [0-9]+, 4 ranks: all ranks are tried again, after .* with 2' ||
    fail "no word of the try"
if prlimit --pid $pid "--nofile=$room:$room" 2>/dev/null; then
    until_true 60 in_log 'restart 4, from the checkpoint of step [0-9]+, 4 ranks: all ranks' || fail "no second try"
    until_true 60 in_log '4 sequences of 64 tokens a step .* accumulate 1 x dp 4' || fail "not with all ranks"
fi
sleep 1
kill -TERM $pid
code=0
wait $pid || code=$?
expect 3 grows.log 'goodput [0-9.]+ %: .* restarts$'
grep -q '"ranks": 4' grows/summary.json || fail "grows/summary.json has no start with all ranks"
python3 - <<'PY'
import json
lines = [json.loads(x) for x in open("grows/metrics.jsonl")]
steps = [l["step"] for l in lines if "loss" in l]
assert steps == list(range(1, len(steps) + 1)), "a step is missing, or stands twice"
PY
once regrow.log "$GW_BIN" train run.yaml --regrow 2
expect 2 regrow.log '--supervise'
# Where the layout needs them all, there is nothing to start.
once nofewer.log bash -c "ulimit -n $((need - 1))"'; exec "$0" "$@"' "$GW_BIN" train run.yaml --ranks 4 \
    --out nofewer --supervise --set layout.tp=4
expect 1 nofewer.log 'the layout allows no fewer'

# ---- a request to stop
"$GW_BIN" train run.yaml --ranks 2 --out s --supervise --set train.steps=100000 >s.out 2>s.log &
pid=$!
until_true 60 committed s || fail "no checkpoint of s"
kill -TERM $pid
code=0
wait $pid || code=$?
expect 3 s.log 'stopped after step' 'goodput'
once resumed.log "$GW_BIN" train run.yaml --ranks 2 --out s --supervise --resume --set train.steps=1
expect 0 resumed.log 'nothing to train'

# ---- under Slurm
mkdir bin
cat >bin/scontrol <<'SH'
#!/bin/sh
echo "$@" >>"$ASKED"
SH
chmod +x bin/scontrol
export ASKED=$PWD/asked
once outside.log "$GW_BIN" train run.yaml --requeue
expect 2 outside.log 'SLURM_JOB_ID is not set'
requeue() { # DIR SIGNAL OPTION...
    local dir=$1 signal=$2
    shift 2
    rm -f "$ASKED"
    SLURM_JOB_ID=4711 PATH=$PWD/bin:$PATH "$GW_BIN" train run.yaml --out "$dir" --requeue \
        --set train.steps=100000 "$@" >"$dir.out" 2>"$dir.log" &
    pid=$!
    until_true 60 committed "$dir" || fail "no checkpoint of $dir"
    kill -"$signal" $pid
    code=0
    wait $pid || code=$?
}
requeue q1 TERM
expect 3 q1.log 'asking Slurm to queue job 4711 again'
[ "$(cat asked)" = 'requeue 4711' ] || fail "scontrol was asked: $(cat asked)"
requeue q2 USR1 --ranks 2
expect 3 q2.log 'asking Slurm to queue job 4711 again'
[ "$(cat asked)" = 'requeue 4711' ] || fail "scontrol was asked: $(cat asked)"
requeue q3 USR1 --ranks 2 --supervise
expect 3 q3.log 'asking Slurm to queue job 4711 again'
[ "$(cat asked)" = 'requeue 4711' ] || fail "scontrol was asked: $(cat asked)"
requeue q4 INT
expect 3 q4.log
[ ! -e asked ] || fail "queued again after a Ctrl-C"
# The job's second time: the same command goes on.
once again.log env SLURM_JOB_ID=4711 SLURM_RESTART_COUNT=1 "$GW_BIN" train run.yaml --out q1 --requeue \
    --set train.steps=1
expect 0 again.log 'nothing to train'
