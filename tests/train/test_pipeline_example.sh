#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# timeout: 200
# The example of a pipeline does what its comments say: planned, trained in two stages with the arena that
# was planned, drawn as planned and as measured; in two stages and on one rank with the same losses; stopped
# and resumed with the bytes of a run that was not.
set -eu
[ -x "$GW_BIN" ] || { echo "no program in GW_BIN"; exit 77; }
command -v python3 >/dev/null || { echo "python3 compares losses"; exit 77; }
run=$(cd "$GW_TESTS_DIR/../examples" && pwd)/pipeline-parallel.yaml
cd "$TMPDIR"

i=0
while [ $i -lt 200 ]; do echo "the wright makes step $i and another step. "; i=$((i + 1)); done > text
"$GW_BIN" tokenizer encode bytes text --out t > /dev/null
common="--set data.train=t --set data.valid=t --set data.tokenizer=bytes --set train.seq_len=32"
common="$common --set train.steps=6 --set optimizer.warmup_steps=2 --set train.valid_every=0"
common="$common --set checkpoint.every=3"
# shellcheck disable=SC2086
train() { out=$1; shift; "$GW_BIN" train "$run" $common --out "$out" "$@" > "$out.out" 2>&1 || { cat "$out.out"; exit 1; }; }

# shellcheck disable=SC2086
"$GW_BIN" plan "$run" $common --ranks 2 --timeline > drawn || { cat drawn; exit 1; }
grep -q '^rank 1 ' drawn
train two --ranks 2
grep -q '^arena .* equal$' two.out || { cat two.out; exit 1; }
grep -q '^bytes sent, .* equal to the plan on every rank$' two.out
grep -q '^bubble/step .* planned, .* measured; bubble/compute ' two.out
"$GW_BIN" plan two --timeline > drawn || { cat drawn; exit 1; }
grep -q '^rank 1 ' drawn
sed '/^layout:/,$d' "$run" > alone.yaml
# shellcheck disable=SC2086
"$GW_BIN" train alone.yaml $common --out alone > alone.out 2>&1 || { cat alone.out; exit 1; }
train half --ranks 2 --until 3
train half --ranks 2 --resume
cmp two/checkpoints/step-00000006/rank-00000.safetensors half/checkpoints/step-00000006/rank-00000.safetensors

python3 - <<'PY'
import json
def losses(run):
    return [(o.get("loss", o.get("valid_loss")), o.get("grad_norm", 0)) for o in map(json.loads, open(run + "/metrics.jsonl"))]
a, b = losses("two"), losses("alone")
assert len(a) == len(b) == 7, (a, b)
for (x, n), (y, m) in zip(a, b): # float32: sums in another order
    assert abs(x - y) <= 1e-5 * y and abs(n - m) <= 1e-4 * m, (a, b)
p = json.load(open("two/summary.json"))["pipeline"]
assert [s["layers"] for s in p["by_stage"]] and sum(s["layers"] for s in p["by_stage"]) == 6, p
assert all(r["planned_arena_bytes"] == r["arena_bytes"] for r in p["by_rank"]), p
assert [r["activations_held"] for r in p["by_rank"]] == [2, 1], p
assert len(json.load(open("two/plan.json"))["pipeline"]["ranks"]) == 2
assert all(0 < o["bubble"] < 1 for o in map(json.loads, open("two/metrics.jsonl")) if "loss" in o)
PY
