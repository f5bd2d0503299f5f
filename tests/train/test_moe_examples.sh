#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
# The examples with experts do what their comments say: verify, train on two ranks with the arena that was
# planned, resume bit for bit, generate, export, and the export is the same model.
set -eu
[ -x "$GW_BIN" ] || { echo "no program in GW_BIN"; exit 77; }
command -v python3 >/dev/null || { echo "python3 writes the test's tokens"; exit 77; }
examples=$(cd "$GW_TESTS_DIR/../examples" && pwd)
cd "$TMPDIR"

python3 - <<'PY'
import struct
docs = [list(b"the wright makes a step and another step. " * (8 + i % 5)) + [256] for i in range(60)]
sizes = [len(d) for d in docs]
starts, at = [], 0
for n in sizes:
    starts.append(at)
    at += 2 * n
with open("t.bin", "wb") as f:
    for d in docs: f.write(struct.pack("<%dH" % len(d), *d))
n = len(docs)
with open("t.idx", "wb") as f:
    f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, n, n + 1))
    f.write(struct.pack("<%di" % n, *sizes) + struct.pack("<%dq" % n, *starts))
    f.write(struct.pack("<%dq" % (n + 1), *range(n + 1)))
PY

common="--set data.train=t --set data.valid=t --set data.tokenizer=bytes --set train.seq_len=64"
common="$common --set optimizer.warmup_steps=2 --set train.valid_every=0 --set checkpoint.every=6"

for name in moe deepseek; do
    run="$examples/$name.yaml"
    # shellcheck disable=SC2086 # words of options
    "$GW_BIN" verify "$run" $common --ranks 4 --set layout.ep=2 > verify.out 2>&1 || { cat verify.out; exit 1; }
    grep -qx pass verify.out
    # shellcheck disable=SC2086
    train() { out=$1; shift; "$GW_BIN" train "$run" $common --ranks 2 --set layout.ep=2 --out "$out" "$@"; }
    train whole --set train.steps=12 > whole.out 2>&1 || { cat whole.out; exit 1; }
    grep -q '^arena .* equal$' whole.out || { cat whole.out; exit 1; }
    grep -q 'but for rows of experts, payload and moved: equal to the plan on every rank' whole.out || { cat whole.out; exit 1; }
    grep -q 'planned at even load, .* sent with the load there was' whole.out
    train parts --set train.steps=12 > parts.out 2>&1
    rm -rf parts/checkpoints/step-00000012
    train parts --set train.steps=12 --resume > parts.out 2>&1 || { cat parts.out; exit 1; }
    grep -q 'continuing after step 6' parts.out || { cat parts.out; exit 1; }
    python3 - whole parts <<'PY'
import json, sys
def steps(d):
    lines = [json.loads(x) for x in open(d + "/metrics.jsonl")]
    return {x["step"]: x for x in lines if "loss" in x}
a, b = steps(sys.argv[1]), steps(sys.argv[2])
assert a[12]["loss"] < 0.8 * a[1]["loss"], (a[1]["loss"], a[12]["loss"])
for k in range(1, 13):
    assert a[k]["loss"] == b[k]["loss"], (k, a[k]["loss"], b[k]["loss"])
moe = a[12]["moe"]
for layer in moe["layers"]:
    share, most = layer["share"], layer["max_over_mean"]
    assert abs(sum(share) - 1) < 1e-3 and abs(max(share) * len(share) - most) < 1e-2 * most, layer
# Forward and backward, each choice arrives somewhere: 8 sequences of 64 tokens.
wire = json.load(open(sys.argv[1] + "/summary.json"))
plan = json.load(open(sys.argv[1] + "/plan.json"))["wire"]["collectives"]
assert wire["wire_as_planned"] is True and wire["expert_rows"]["sent_bytes"] > 0, wire
even = [c["payload_bytes"] for c in plan if c["at_even_load"]]
assert even == [wire["planned"]["wire"]["expert-rows"]["payload_bytes"]], (even, wire["planned"]["wire"])
top = {8: 2, 16: 4}[len(moe["layers"][0]["share"])]
assert sum(moe["rank_rows"]) == 2 * len(moe["layers"]) * 512 * top, moe
assert "dropped" not in moe["layers"][0]
PY
    "$GW_BIN" generate whole --prompt "the wright" --temperature 0 --max-tokens 8 > whole.txt 2> err.txt
    "$GW_BIN" export whole --out exported > export.out 2>&1 || { cat export.out; exit 1; }
    "$GW_BIN" generate exported --tokenizer bytes --prompt "the wright" --temperature 0 --max-tokens 8 > again.txt 2> err.txt || { cat err.txt; exit 1; }
    cmp whole.txt again.txt
    rm -rf whole parts exported
done
