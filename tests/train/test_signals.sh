#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# timeout: 240
# One signal finishes the step, saves and exits 3; the run continues from there. Two signals end it at once.
set -eu
[ -x "$GW_BIN" ] || { echo "no program in GW_BIN"; exit 77; }
command -v python3 >/dev/null || { echo "python3 writes the test's tokens"; exit 77; }
cd "$TMPDIR"

python3 "$GW_TESTS_DIR/train/tokens.py"
cat > run.yaml <<'EOF'
model: {family: llama, layers: 1, hidden: 16, heads: 2, ffn: 32}
data: {train: t, tokenizer: bytes}
train: {steps: 1000000, seq_len: 16, micro_batch: 1, threads: 1}
checkpoint: {every: 0}
EOF

wait_for_steps() { # DIR PID
    i=0
    while [ ! -s "$1/metrics.jsonl" ]; do
        kill -0 "$2" 2>/dev/null || { echo "the run ended early"; cat "$1.log"; exit 1; }
        i=$((i + 1)); [ $i -lt 600 ] || { echo "no step in 60 s"; exit 1; }
        sleep 0.1
    done
}

for signal in INT TERM HUP; do
    rm -rf one
    # A shell's background jobs ignore SIGINT; the program takes it all the same. SIGHUP that is
    # ignored, as under nohup, stays so: here it is not.
    env --default-signal=HUP "$GW_BIN" train run.yaml --out one > one.out 2> one.log & pid=$!
    wait_for_steps one $pid
    # A second process is kept out, whatever it was asked to do.
    code=0; "$GW_BIN" train run.yaml --out one --resume > two.out 2> two.log || code=$?
    if [ $code -ne 2 ] || ! grep -q "in use by process $pid" two.log; then cat two.log; exit 1; fi
    kill -$signal $pid
    [ $signal != HUP ] || kill -HUP $pid # a closing terminal sends it twice
    code=0; wait $pid || code=$?
    [ $code -eq 3 ] || { echo "exit $code after SIG$signal, not 3"; cat one.log; exit 1; }
    ls one/checkpoints/step-*/manifest.json > /dev/null
    grep -q -- --resume one.log
    [ -s one/report.html ] && [ -s one/summary.json ]
done

# It continues behind the saved step.
step=$(sed -n 's/.*"step": \([0-9]*\).*/\1/p' one/metrics.jsonl | tail -1)
"$GW_BIN" train run.yaml --out one --resume --json --set train.steps=$((step + 2)) > one.json 2> one.log
grep -q "\"steps\": $((step + 2))" one.json
[ "$(sed -n 's/.*"step": \([0-9]*\).*/\1/p' one/metrics.jsonl | sort -n | uniq -d | wc -l)" -eq 0 ]

# A killed run leaves the lock's file, which holds nobody up, and perhaps half a checkpoint.
"$GW_BIN" train run.yaml --out one --resume > one.out 2> one.log & pid=$!
i=0; while ! grep -q "continuing after" one.log; do i=$((i + 1)); [ $i -lt 300 ] || exit 1; sleep 0.1; done
kill -9 $pid; wait $pid || :
mkdir one/checkpoints/step-00000001; : > one/checkpoints/step-00000001/rank-00000.safetensors.tmp.9
step=$(find one/checkpoints -mindepth 1 -maxdepth 1 -printf '%f\n' | sed -n 's/step-0*\([1-9][0-9]*\)$/\1/p' | sort -n | tail -1)
"$GW_BIN" train one/config.yaml --out one --resume --set train.steps=$((step + 1)) > one.out 2> one.log
if [ -e one/checkpoints/step-00000001 ] || [ -e one/.lock ]; then ls -a one one/checkpoints; exit 1; fi
"$GW_BIN" train one/config.yaml --out one --resume > one.out 2> one.log
grep -q "nothing to train" one.log

# Two signals: stopped at once, with the status of a signal. A step of this size takes half a minute.
cat > slow.yaml <<'EOF'
model: {family: llama, layers: 2, hidden: 64, heads: 2, ffn: 128}
data: {train: t, tokenizer: bytes}
train: {steps: 100, seq_len: 256, micro_batch: 4, accumulate: 4000, threads: 1}
EOF
"$GW_BIN" train slow.yaml --out two > two.out 2> two.log & pid=$!
i=0; while ! grep -q "writing to" two.log; do i=$((i + 1)); [ $i -lt 300 ] || exit 1; sleep 0.1; done
sleep 1 # a signal before the first step ends the run at once
kill -INT $pid; sleep 0.3; kill -INT $pid
code=0; wait $pid || code=$?
[ $code -eq 130 ] || { echo "exit $code after two signals, not 130"; cat two.log; exit 1; }
[ ! -d two/checkpoints ]

# Several ranks: what one process or the whole group gets is one request, the second ends all at once, and nobody
# reports a fault. `setsid` makes the program lead a group of its own, as a shell's job does.
if [ "$(nproc)" -lt 2 ]; then exit 0; fi
sed -i 's/accumulate: 400/global_batch: 4800/' slow.yaml
last_rank() { # by its name; the parent's list of children may lack one while they run
    for d in /proc/[0-9]*; do
        if grep -qx gradwright:2 "$d/comm" 2> /dev/null && grep -q "^PPid:[[:space:]]*$1\$" "$d/status" 2> /dev/null; then
            echo "${d#/proc/}"
        fi
    done
}
several() { # WANT, then pairs of SIGNAL TARGET (p: the parent, g: its group, r: a rank) or a pause in seconds
    want=$1; what=$*; shift
    rm -rf many
    setsid "$GW_BIN" train slow.yaml --ranks 3 --out many > many.out 2> many.log & pid=$!
    i=0; while ! grep -q "writing to" many.log; do i=$((i + 1)); [ $i -lt 600 ] || exit 1; sleep 0.1; done
    sleep 0.3
    while [ $# -gt 0 ]; do
        case $1 in
        [0-9]*) sleep "$1"; shift; continue ;;
        esac
        case $2 in
        p) kill -"$1" "$pid" ;;
        g) python3 -c "import os, signal; os.killpg($pid, signal.SIG$1)" ;;
        r) kill -"$1" "$(last_rank "$pid")" ;;
        esac
        shift 2
    done
    code=0; wait $pid || code=$?
    if [ $code -ne "$want" ] || grep -qE "error|corrupt|killed" many.log ||
        [ "$(grep -c "finishing this step" many.log)" -ne 1 ]; then
        echo "$what: exit $code"; cat many.log; exit 1
    fi
    [ ! -d many/checkpoints ] || { echo "$what: saved"; exit 1; }
}
several 143 TERM p 0.4 TERM p
several 130 INT g 0.1 INT g
several 130 INT p 0.8 INT r
several 143 HUP p 0.4 HUP p 0.4 TERM p

# One signal saves, and the program is known by its name.
sed -i 's/global_batch: 4800/global_batch: 48/' slow.yaml
for i in 1 2 3; do
    rm -rf many
    "$GW_BIN" train slow.yaml --ranks 3 --out many > many.out 2> many.log & pid=$!
    wait_for_steps many $pid
    grep -qx gradwright /proc/$pid/comm || { echo "the program is called $(cat /proc/$pid/comm)"; exit 1; }
    [ -n "$(last_rank $pid)" ] || { echo "no process is called gradwright:2"; exit 1; }
    kill -TERM $pid
    code=0; wait $pid || code=$?
    if [ $code -ne 3 ] || grep -q corrupt many.log; then echo "exit $code"; cat many.log; exit 1; fi
done

# A rank that is killed ends the run, and what every rank called last is kept.
rm -rf many
"$GW_BIN" train slow.yaml --ranks 3 --out many > many.out 2> many.log & pid=$!
wait_for_steps many $pid
kill -KILL "$(last_rank $pid)"
code=0; wait $pid || code=$?
if [ $code -ne 1 ] || ! grep -q "rank 2 was killed by signal 9" many.log; then echo "exit $code"; cat many.log; exit 1; fi
grep -q "^rank 2: " many/flight.txt && grep -q "all-reduce f32" many/flight.txt
