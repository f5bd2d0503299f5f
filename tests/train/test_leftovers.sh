#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# timeout: 240
# A run that is alive is not pruned from outside; one whose manifests are gone does not begin anew by itself.
set -eu
[ -x "$GW_BIN" ] || { echo "no program in GW_BIN"; exit 77; }
command -v python3 >/dev/null || { echo "python3 writes the test's tokens"; exit 77; }
cd "$TMPDIR"

python3 "$GW_TESTS_DIR/train/tokens.py"
cat > run.yaml <<'END'
model: {family: llama, layers: 1, hidden: 16, heads: 2, ffn: 32}
data: {train: t, tokenizer: bytes}
train: {steps: 1000000, seq_len: 16, micro_batch: 1, threads: 1}
checkpoint: {every: 1, keep_last: 3}
END

fails() { # STATUS TEXT COMMAND...
    want=$1 text=$2; shift 2
    code=0; "$@" > out 2> err || code=$?
    if [ $code -ne "$want" ] || ! grep -q -- "$text" err; then
        echo "exit $code, not $want, or without '$text': $*"; cat err; exit 1
    fi
}

# ---- a run that is alive
"$GW_BIN" train run.yaml --out one > one.out 2> one.log & pid=$!
i=0
while ! ls one/checkpoints/step-*/manifest.json > /dev/null 2>&1; do
    kill -0 $pid 2>/dev/null || { echo "the run ended early"; cat one.log; exit 1; }
    i=$((i + 1)); [ $i -lt 600 ] || { echo "no checkpoint in 60 s"; exit 1; }
    sleep 0.1
done
fails 2 "in use by process $pid on " "$GW_BIN" checkpoint prune one --keep-last 1
kill -TERM $pid
wait $pid || true
"$GW_BIN" checkpoint prune one --keep-last 2 > out
grep -q "2 of 3 checkpoints stay" out || { cat out; exit 1; }

# ---- no manifest is left
rm one/checkpoints/step-*/manifest.json
fails 1 "the manifest is missing" "$GW_BIN" train run.yaml --out one --resume --set train.steps=2
fails 2 "fresh says what" "$GW_BIN" train run.yaml --out one --fresh
"$GW_BIN" train run.yaml --out one --resume --fresh --set train.steps=2 > out 2> err
grep -q "beginning at step 1" err || { cat err; exit 1; }
ls one/checkpoints/step-00000002/manifest.json > /dev/null

# ---- all of them are damaged
for d in one/checkpoints/*; do [ "$d" = one/checkpoints/step-00000002 ] || rm -rf "$d"; done
for m in one/checkpoints/step-*/manifest.json; do echo "{}" > "$m"; done
fails 1 "no checkpoint that is whole" "$GW_BIN" train run.yaml --out one --resume --set train.steps=2
grep -q -- --fresh err
"$GW_BIN" train run.yaml --out one --resume --fresh --set train.steps=2 > out 2> err
grep -q "begins anew, as asked" err || { cat err; exit 1; }
"$GW_BIN" checkpoint verify one > out

# ---- a run whose checkpoints are elsewhere, or nowhere, does not begin anew by itself
cp -r one away
mv away/checkpoints elsewhere
ln -s nowhere away/checkpoints
cp away/metrics.jsonl before
fails 1 "the run took 2 steps" "$GW_BIN" train run.yaml --out away --resume --set train.steps=2
rm away/checkpoints
fails 1 "the run took 2 steps" "$GW_BIN" train run.yaml --out away --resume --set train.steps=2
cmp before away/metrics.jsonl
"$GW_BIN" train run.yaml --out kept --set train.steps=2 --set checkpoint.dir=there > out 2> err
cp kept/config.yaml before.yaml
fails 2 "checkpoints are in '.*/there'" "$GW_BIN" train run.yaml --out kept --resume --set train.steps=3
cmp before.yaml kept/config.yaml
"$GW_BIN" train run.yaml --out kept --resume --set train.steps=3 --set checkpoint.dir=./there > out 2> err
grep -q "continuing after step 2 of 3" err || { cat err; exit 1; }

# ---- the run directory is lost, the checkpoints are not: it goes on at the first try
rm -rf kept
fails 2 "'there' already holds a run" "$GW_BIN" train run.yaml --out kept --set checkpoint.dir=there
rm -rf kept
"$GW_BIN" train run.yaml --out kept --resume --set train.steps=4 --set checkpoint.dir=there > out 2> err
grep -q "continuing after step 3 of 4" err || { cat err; exit 1; }

# ---- --fresh begins anew beside what cannot be read, and removes nothing of it
python3 - <<'END'
import glob
for p in glob.glob("there/checkpoints/step-*/rank-00000.safetensors"):
    with open(p, "r+b") as f:
        f.seek(-1, 2)
        last = f.read(1)[0]
        f.seek(-1, 2)
        f.write(bytes([last ^ 1]))
END
folders() { find there/checkpoints -mindepth 1 -maxdepth 1 | wc -l; }
old=$(folders)
"$GW_BIN" train run.yaml --out kept --resume --fresh --set train.steps=2 --set checkpoint.dir=there \
    --set checkpoint.keep_last=1 > out 2> err
grep -q "begins anew, as asked, and removes none" err || { cat err; exit 1; }
[ "$(folders)" -gt "$old" ] || { ls there/checkpoints; exit 1; }

# ... nor does anything that comes later, until its list of what stays is removed
files() { find there/checkpoints -name 'rank-*' | wc -l; }
data=$(files)
"$GW_BIN" train run.yaml --out kept --resume --set train.steps=9 --set checkpoint.dir=there \
    --set checkpoint.keep_last=1 > out 2> err
"$GW_BIN" checkpoint prune kept --keep-last 1 > out
[ "$(files)" -ge "$old" ] || { ls -R there/checkpoints; exit 1; }
[ "$(files)" -le "$data" ] || { ls -R there/checkpoints; exit 1; } # its own went
"$GW_BIN" checkpoint ls kept --json > out
grep -q '"stays": true' out || [ "$(find there/checkpoints -name '*.replaced-*' | wc -l)" -gt 0 ]
rm there/checkpoints/kept.json
"$GW_BIN" checkpoint prune kept --keep-last 1 > out
[ "$(files)" -eq 1 ] || { ls -R there/checkpoints; cat out; exit 1; }

# ---- an accumulation that contradicts the global batch is refused as in a new run
cat > batch.yaml <<'END'
model: {family: llama, layers: 1, hidden: 16, heads: 2, ffn: 32}
data: {train: t, tokenizer: bytes}
train: {steps: 2, seq_len: 16, micro_batch: 2, global_batch: 8, threads: 1}
END
"$GW_BIN" train batch.yaml --out batch > out 2> err
fails 2 "global_batch" "$GW_BIN" train batch.yaml --out batch --resume --set train.accumulate=2
"$GW_BIN" train batch.yaml --out batch --resume --set train.steps=3 --ranks 2 > out 2> err

# ---- a save that was killed at first is no run that was lost
rm -rf one/checkpoints one/summary.json
mkdir -p one/checkpoints/step-00000001
touch one/checkpoints/step-00000001/rank-00000.safetensors.tmp.4711
"$GW_BIN" train run.yaml --out one --resume --set train.steps=2 > out 2> err
grep -q "beginning at step 1" err || { cat err; exit 1; }

# ---- a name that is no UTF-8
bad=$(printf 'r\377n')
cp -r one "$bad"
"$GW_BIN" checkpoint ls "$bad" --json > out
python3 - <<'END'
import json
rows = json.load(open("out"))
assert rows and rows[0]["path"].startswith("r\ufffdn/checkpoints/"), rows
END
"$GW_BIN" checkpoint show "$bad" --json > out && python3 -c 'import json; json.load(open("out"))'
"$GW_BIN" checkpoint verify "$bad" --json > out && python3 -c 'import json; json.load(open("out"))'
