#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `gradwright checkpoint` on real runs: verbs, exit codes, what is said of wrong inputs.
set -euo pipefail
gw=$GW_BIN
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"

fail() { echo "$*" >&2; exit 1; }
says() { # TEXT COMMAND...: it fails, and says TEXT
    local text=$1
    shift
    if "$@" >out 2>&1; then fail "succeeded: $*"; fi
    grep -qF -- "$text" out || { cat out >&2; fail "does not say '$text': $*"; }
}

for i in $(seq 400); do echo "the cat and the dog number $i sat down"; done >text
"$gw" tokenizer train text --out tok.json --vocab-size 300 --quiet
"$gw" tokenizer encode tok.json text --out tok --quiet
cat >run.yaml <<'Y'
model: {family: llama, layers: 2, hidden: 16, heads: 2, kv_heads: 2, ffn: 32}
data: {train: tok, tokenizer: tok.json}
train: {steps: 4, seq_len: 16, micro_batch: 2, accumulate: 2, seed: 1, threads: 1}
checkpoint: {every: 2}
Y
"$gw" train run.yaml --out a --quiet
"$gw" train run.yaml --out b --quiet --ranks 2 --set layout.tp=2

"$gw" checkpoint ls a --json | python3 -c '
import json, sys
l = json.load(sys.stdin)
assert [c["step"] for c in l] == [4, 2] and all(c["state"] == "complete" for c in l), l'
"$gw" checkpoint show b --json | python3 -c '
import json, sys
o = json.load(sys.stdin)
assert o["step"] == 4 and len(o["files"]) == 2 and any(t["chunks"] == 2 for t in o["tensors"]), o'
"$gw" checkpoint verify b | grep -q whole

# What plan says of a checkpoint is what was written: tensors to the byte, chunks, files.
"$gw" plan run.yaml --ranks 2 --set layout.tp=2 --json >p.json
"$gw" checkpoint show b --json >s.json
python3 - <<'P'
import json, os
p, s = json.load(open("p.json"))["checkpoint"], json.load(open("s.json"))
assert p["bytes"] == sum(t["bytes"] for t in s["tensors"]), (p, s["bytes"])
assert p["chunks"] == sum(t["chunks"] for t in s["tensors"]) and p["files"] == len(s["files"]), p
assert p["smallest_bytes"] <= p["bytes"] / 2 <= p["largest_bytes"], p
m = json.load(open("b/checkpoints/step-00000004/manifest.json"))
size = sum(len(json.dumps(m[k], separators=(",", ":"))) for k in ("files", "chunks", "tensors"))
assert 0.8 < p["manifest_bytes"] / size < 1.25, (p["manifest_bytes"], size)
P
"$gw" checkpoint diff a a | grep -q 'every bit'
if "$gw" checkpoint diff a b --json >d.json; then fail "two layouts round alike"; fi
python3 - <<'P'
import json
d = json.load(open("d.json"))
for t in d["list"]:
    assert t["how"] in ("same", "values") and (t["how"] == "same" or t["largest"] < 1e-5), t
P

# A flipped byte of data, a missing file: named; the rest is still looked at.
f=b/checkpoints/step-00000004/rank-00001.safetensors
cp "$f" keep
python3 - "$f" <<'P'
import sys
p = sys.argv[1]
d = bytearray(open(p, "rb").read())
d[int.from_bytes(d[:8], "little") + 8 + 100] ^= 1
open(p, "wb").write(d)
P
says "rank-00001.safetensors is damaged: tensor '" "$gw" checkpoint verify b
rm "$f"
says "rank-00001.safetensors" "$gw" checkpoint verify b
cp keep "$f"
"$gw" checkpoint verify b --quiet

says "is none of ls, show, verify, diff, prune" "$gw" checkpoint look a
says "no checkpoint of step 3" "$gw" checkpoint show a --step 3
says "neither a run directory nor a checkpoint" "$gw" checkpoint show .
says "is no folder" "$gw" checkpoint show run.yaml
says "takes two checkpoints" "$gw" checkpoint diff a
# One checkpoint of several goes out by its own name.
"$gw" export a/checkpoints/step-00000002 --out exported-2 >/dev/null
"$gw" export a --out exported-4 >/dev/null
if cmp -s exported-2/model.safetensors exported-4/model.safetensors; then
    fail 'step 2 is exported as step 4 is'
fi

says "--keep-last" "$gw" checkpoint prune a
"$gw" checkpoint prune a --keep-last 1 | grep -q '1 of 2'
test ! -e a/checkpoints/step-00000002
"$gw" checkpoint ls . | grep -q 'no checkpoints'
for verb in ls show verify; do
    says "is no place for checkpoints" "$gw" checkpoint $verb http://127.0.0.1:9/a
done
# The folder of a run's checkpoints stands for the run.
"$gw" export a/checkpoints --out exported --quiet
[ -f exported/config.json ]

# What was moved aside is listed, as what it is, and is none to go on from.
cp -r a aside
dd if=/dev/zero of=aside/checkpoints/step-00000004/rank-00000.safetensors bs=1 seek=3000 count=64 \
    conv=notrunc status=none
"$gw" train run.yaml --out aside --resume --fresh --quiet >out 2>&1 || true
"$gw" checkpoint ls aside --json >ls.json
python3 - <<'P'
import json, os
rows, there = json.load(open("ls.json")), sorted(os.listdir("aside/checkpoints"))
moved = [r for r in rows if r["state"] == "replaced"]
names = sorted(os.path.basename(r["path"]) for r in moved)
assert names and names == [n for n in there if ".replaced-" in n], (rows, there)
assert all(r["stays"] and r["bytes"] > 0 for r in moved), moved
P
"$gw" checkpoint ls aside | grep replaced |
    grep -q 'moved aside as step-00000004.replaced-1; stays, as kept.json says'
says "is a folder of checkpoints: ls takes the run" "$gw" checkpoint ls a/checkpoints
says "is one checkpoint: prune takes the run" "$gw" checkpoint prune a/checkpoints/step-00000004/ --keep-last 1
says "prune has no use for --json" "$gw" checkpoint prune a --keep-last 1 --json
says "verify has no use for --keep-last" "$gw" checkpoint verify a --keep-last 1
says "ls has no use for --step" "$gw" checkpoint ls a --step 4

# One that has lost a file, or the end of one, is damaged: ls says why, prune does not count it.
"$gw" train run.yaml --out c --quiet
rm c/checkpoints/step-00000004/rank-00000.safetensors
"$gw" checkpoint ls c | grep 'step-00000004/rank-00000.safetensors is missing' | grep -q damaged
"$gw" checkpoint prune c --keep-last 1 >out
grep -q '1 of 1 checkpoints' out || fail "$(cat out)"
grep -q '1 damaged one is left alone' out || fail "$(cat out)"
"$gw" checkpoint verify c --step 2 | grep -q whole
says "step-00000004 is damaged and passed over" "$gw" checkpoint verify c --quiet
# A resume that finds none whole says why of each, also where warnings are not printed.
truncate -s 1000 c/checkpoints/step-00000002/rank-00000.safetensors
says "step-00000002/rank-00000.safetensors is damaged: it has 1000 bytes" \
    "$gw" train run.yaml --out c --resume --quiet
grep -q "step-00000004/rank-00000.safetensors" out || fail "$(cat out)"
mkdir lone
cp -r c/checkpoints lone/
says "no complete checkpoint" "$gw" export lone --out none
# A run that is further than it is asked to go says so, and does not claim to go on.
"$gw" train run.yaml --out b --resume --until 2 --ranks 2 --set layout.tp=2 >out 2>&1
grep -q 'nothing to train: the run is at step 4 already, and --until is 2' out || fail "$(cat out)"
if grep -q continuing out; then fail "$(cat out)"; fi
# Names are bytes: a run whose name is not UTF-8 is exported, and JSON says U+FFFD.
bad=$(printf 'r\377n')
mv a "$bad"
"$gw" export "$bad" --out "$bad.out" --json | python3 -c '
import json, sys
assert json.load(sys.stdin)["directory"] == "r\ufffdn.out"'
cmp "$bad.out/model.safetensors" exported-4/model.safetensors || fail "other weights"
"$gw" export "$bad" --to gguf --out "$bad.gguf" >/dev/null
mv "$bad" a

# A second run into the place of a run's checkpoints, and prune there, are refused while it lives.
mkdir k
"$gw" train run.yaml --out k1 --set checkpoint.dir=k --set train.steps=1000000 --quiet 2>/dev/null &
pid=$!
for _ in $(seq 300); do [ ! -e k/checkpoints/step-00000002/manifest.json ] || break; sleep 0.05; done
says "in use by process $pid" "$gw" train run.yaml --out k2 --set checkpoint.dir=k --resume
says "in use by process $pid" "$gw" checkpoint prune k --keep-last 1
says "in use by process $pid" "$gw" checkpoint prune k1 --keep-last 1
kill -9 $pid
wait $pid 2>/dev/null || true
rm -rf k1
"$gw" checkpoint prune k --keep-last 1 | grep -q '1 of'
