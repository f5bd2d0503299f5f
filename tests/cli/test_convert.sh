#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
#
# `gradwright convert` as it is called: what goes to which stream, what is written and what is not,
# and that the program itself takes what comes out.
set -euo pipefail
here=$GW_TESTS_DIR/train/convert
cd "$TMPDIR"
fail() { echo "$1"; exit 1; }

# run STATUS ARGS...: the command, its streams in out and err.
run() {
    local want=$1 got=0
    shift
    "$GW_BIN" convert "$@" >out 2>err </dev/null || got=$?
    [ "$got" = "$want" ] || { cat out err; fail "convert $*: exit status $got, not $want"; }
}
says() { grep -qF -- "$2" "$1" || { cat "$1"; fail "$1 does not say: $2"; }; }
silent() { [ ! -s "$1" ] || { cat "$1"; fail "$1 is not empty"; }; }

# The list and the run file go to standard output, and nothing to the other.
run 0 torchtitan "$here/llama3_8b.toml" --world 64
silent err
says out "layout.tp: 2"
says out "47 keys: 18 mapped, 26 implied, 3 refused"
says out "# Converted from a configuration of torchtitan."
says out "batch: 64 sequences a step = micro-batch 2 x accumulate 1 x dp 32"
# What follows the list is the run file, and the program takes it from there.
sed -n '/^# Converted/,$p' out >made.yaml
"$GW_BIN" config made.yaml --set data.train=x >resolved
says resolved "dp_replicate: 2"

# With --out the run file goes there, and its name to standard output.
run 0 torchtitan "$here/llama3_8b.toml" --world 64 --out run.yaml
silent err
cmp made.yaml run.yaml
[ "$(tail -n 1 out)" = run.yaml ] || fail "the last line is not the file's name"
! grep -q "^# Converted" out || fail "the run file is printed as well"
"$GW_BIN" plan run.yaml --json >plan.json
says plan.json '"ranks"'

# What a conversion wrote is written over; a file that somebody else wrote is not.
run 0 torchtitan "$here/llama3_8b.toml" --world 32 --out run.yaml
says run.yaml "dp: 16"
echo "# mine" >mine.yaml
run 2 torchtitan "$here/llama3_8b.toml" --world 32 --out mine.yaml
says err "[convert-exists]"
[ "$(cat mine.yaml)" = "# mine" ] || fail "mine.yaml has changed"
run 1 torchtitan "$here/llama3_8b.toml" --out no/such/folder/x.yaml
says err "file-create"

# --strict: a refused key is a failure; the list stands all the same, and nothing is written.
run 2 torchtitan "$here/llama3_8b.toml" --world 64 --strict --out strict.yaml
says err "[convert-strict]"
says out "training.dataset = c4"
[ ! -e strict.yaml ] || fail "--strict wrote a file"
run 0 deepspeed "$here/zero1_experts.json" --model mixtral-8x7b --world 8 --strict --out strict.yaml
[ -s strict.yaml ] || fail "--strict without refusals wrote none"

# Errors write nothing and go to the other stream alone, with the place.
run 2 deepspeed "$here/zero3_offload.json" --model gpt2 --world 7 --out bad.yaml
silent out
says err "zero3_offload.json:2:5: error: train_batch_size"
[ ! -e bad.yaml ] || fail "an error wrote a file"
run 2 nemo "$here/zero3_offload.json"
says err "is no format"
run 2 deepspeed no-such.json
says err "no such file"
run 1 deepspeed "$here" --model gpt2
says err "file-read"
head -c 1100000 /dev/zero | tr '\0' ' ' >large.json
run 1 deepspeed large.json --model gpt2
says err "file-too-large"
run 2 deepspeed "$here/autotp.json" --model gpt2 --set layout.zerro=1
says err "did you mean layout.zero=VALUE?"
run 2 deepspeed "$here/autotp.json" --model gpt2 --world 0
says err "--world takes a number"

# --json is one object; --quiet says nothing, and writes.
run 0 accelerate "$here/fsdp2_nd.yaml" --model llama3-8b --json --set train.micro_batch=1
python3 - out <<'PY'
import json, sys
v = json.load(open(sys.argv[1]))
assert v["format"] == "accelerate" and v["refused"] == 0, v
assert len(v["keys"]) == v["mapped"] + v["implied"] + v["refused"]
tp = [k for k in v["keys"] if k["key"].endswith("tp_size")][0]
assert tp["fate"] == "mapped" and tp["ours"] == "layout.tp" and tp["written"] == "2", tp
assert v["run_file"].startswith("# Converted from"), v["run_file"]
PY
run 0 megatron "$here/mixtral_8x7b.script" --quiet --out quiet.yaml
silent out
says quiet.yaml "family: mixtral"

# "-" is standard input.
"$GW_BIN" convert megatron - --world 512 <"$here/gpt3_175b.script" >out
says out "layers: 96"
