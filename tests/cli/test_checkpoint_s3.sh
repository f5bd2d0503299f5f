#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# timeout: 400
#
# Checkpoints in an object store: a run saves into s3://, goes on from there in another layout, and
# every verb reads them; a save that is killed and a second writer leave what was committed.
set -euo pipefail
cd "$TMPDIR"
fail() { echo "$*" >&2; exit 1; }
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true' EXIT

venv=$(BUILD=${GW_MAKE_BUILD:-build} "$GW_TESTS_DIR/../scripts/test_venv.sh" 2>why) || {
    cat why
    exit 77
}
for port in $((21000 + $$ % 20000)) $((21001 + $$ % 20000)); do
    "$venv/bin/moto_server" -H 127.0.0.1 -p "$port" >server.log 2>&1 &
    server=$!
    for _ in $(seq 400); do
        kill -0 $server 2>/dev/null || break
        if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then break 2; fi
        sleep 0.05
    done
done
unset AWS_PROFILE AWS_SESSION_TOKEN AWS_CONFIG_FILE AWS_SHARED_CREDENTIALS_FILE
export AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b AWS_REGION=us-east-1 AWS_DEFAULT_REGION=us-east-1
export AWS_ENDPOINT_URL_S3=http://127.0.0.1:$port
s3() { "$venv/bin/python" -c "
import boto3
s3 = boto3.client('s3')
$1"; }
s3 "s3.create_bucket(Bucket='models')"

for i in $(seq 400); do echo "the cat and the dog number $i sat down"; done >text
"$GW_BIN" tokenizer train text --out tok.json --vocab-size 300 --quiet
"$GW_BIN" tokenizer encode tok.json text --out tok --quiet
cat >run.yaml <<'END'
model: {family: llama, layers: 2, hidden: 16, heads: 2, kv_heads: 2, ffn: 32}
data: {train: tok, tokenizer: tok.json}
train: {steps: 6, seq_len: 16, micro_batch: 2, accumulate: 2, seed: 1, threads: 1}
optimizer: {eps: 0.01}
checkpoint: {every: 2, keep_last: 0}
END
home=s3://models/runs/a
"$GW_BIN" train run.yaml --out local --quiet
"$GW_BIN" train run.yaml --out away --quiet --until 4 --ranks 2 --set layout.tp=2 \
    --set train.accumulate=2 --set checkpoint.dir=$home
[ ! -e away/checkpoints ] || fail "checkpoints in the run directory"

# All verbs, by the store's name and by the run's.
for name in away $home; do
    "$GW_BIN" checkpoint ls "$name" --json | python3 -c '
import json, sys
l = json.load(sys.stdin)
assert [c["step"] for c in l] == [4, 2] and all(c["state"] == "complete" for c in l), l'
    "$GW_BIN" checkpoint verify "$name" | grep -q whole || fail "verify $name"
    "$GW_BIN" checkpoint show "$name" --step 2 | grep -q . || fail "show $name"
done
"$GW_BIN" checkpoint diff local/checkpoints/step-00000004 $home/checkpoints/step-00000004 >diff.txt ||
    [ $? = 1 ] || fail "diff: $(cat diff.txt)"

# It goes on from there, alone; the state is that of a run that never left.
"$GW_BIN" train run.yaml --out away --quiet --resume --set checkpoint.dir=$home
"$GW_BIN" checkpoint diff local/checkpoints/step-00000006 $home/checkpoints/step-00000006 --json >d.json || true
python3 - <<'END'
import json
worst = max((t.get('largest') or 0 for t in json.load(open('d.json'))['list']), default=0)
assert worst < 1e-5, worst # sums of two ranks, and an epsilon that keeps noise small
END
"$GW_BIN" export away --out exported >/dev/null
[ -e exported/model.safetensors ] || fail "no export"

# Nobody holds the place any more.
s3 "
keys = [o['Key'] for o in s3.list_objects_v2(Bucket='models')['Contents']]
assert not any('owner.json' in k for k in keys), keys"

# A checkpoint is exported without its run directory, from any working directory: the weights are
# those of the run. What was not saved with it (the tokenizer) is done without, or named.
mkdir elsewhere
(cd elsewhere && "$GW_BIN" export $home/checkpoints/step-00000006 --out one 2>one.txt >/dev/null) ||
    fail "no export of a step: $(cat elsewhere/one.txt)"
grep -q 'tokenizer tok.json is not here' elsewhere/one.txt || fail "no word of the tokenizer"
(cd elsewhere && "$GW_BIN" export $home --tokenizer ../tok.json --to gguf --out two.gguf >/dev/null) ||
    fail "no export as gguf"
cmp exported/model.safetensors elsewhere/one/model.safetensors || fail "other weights"
[ -s elsewhere/two.gguf ] || fail "no GGUF file"
mkdir -p bare && cp -r local/checkpoints bare/
"$GW_BIN" export bare/checkpoints/step-00000004 --out bare/four >/dev/null || fail "no export of a folder"
"$GW_BIN" export bare --out bare/newest >/dev/null || fail "no export of a folder of checkpoints"
"$GW_BIN" export local --out bare/whole >/dev/null
cmp bare/whole/model.safetensors bare/newest/model.safetensors || fail "other weights from bare"
"$GW_BIN" export $home/checkpoints/step-00000099 --out none 2>why.txt && fail "an export of nothing"
grep -q step-00000099 why.txt || fail "no name: $(cat why.txt)"

# A flipped byte of an object is named.
s3 "
k = 'runs/a/checkpoints/step-00000006/rank-00000.safetensors'
b = bytearray(s3.get_object(Bucket='models', Key=k)['Body'].read())
b[len(b) // 2] ^= 4
s3.put_object(Bucket='models', Key=k, Body=bytes(b))"
"$GW_BIN" checkpoint verify $home >out.txt 2>&1 && fail "a flipped byte is not found"
grep -q 'step-00000006/rank-00000.safetensors' out.txt || fail "the file is not named: $(cat out.txt)"

# prune counts commits and removes only what a save writes.
s3 "s3.put_object(Bucket='models', Key='runs/a/checkpoints/step-00000002/notes.txt', Body=b'mine')"
"$GW_BIN" checkpoint prune $home --keep-last 1 >/dev/null
s3 "
keys = [o['Key'] for o in s3.list_objects_v2(Bucket='models')['Contents']]
assert 'runs/a/checkpoints/step-00000002/notes.txt' in keys, keys
assert not any('step-00000004' in k for k in keys), keys
assert 'runs/a/checkpoints/step-00000006/manifest.json' in keys, keys"

# A newest checkpoint that is torn, lacks a file or is damaged is passed over, once, with the reason;
# what stands there is not touched by that. The run directory may be lost with the host.
torn=s3://models/runs/t
"$GW_BIN" train run.yaml --out t --quiet --set checkpoint.dir=$torn
goes_on() { # WORDS: on from step 4
    rm -rf t
    timeout 60 "$GW_BIN" train run.yaml --out t --resume --fresh --set checkpoint.dir=$torn --until 4 \
        --set checkpoint.keep_last=1 --set train.steps=7 >out.txt 2>&1 || fail "no resume: $(cat out.txt)"
    grep -q 'the run is at step 4 already' out.txt || fail "$1: $(cat out.txt)"
    grep -q -- "$1" out.txt || fail "nowhere '$1': $(cat out.txt)"
    [ "$(grep -c 'train.steps: 6 -> 7' out.txt)" = 1 ] || fail "$1: $(cat out.txt)"
    "$GW_BIN" checkpoint verify $torn --step 4 | grep -q whole || fail "step 4 is gone"
}
key=runs/t/checkpoints/step-00000006
s3 "
k = '$key/rank-00000.safetensors'
b = bytearray(s3.get_object(Bucket='models', Key=k)['Body'].read())
b[len(b) // 2] ^= 4
s3.put_object(Bucket='models', Key=k, Body=bytes(b))"
goes_on 'looking for an earlier checkpoint'
s3 "s3.delete_object(Bucket='models', Key='$key/rank-00000.safetensors')"
goes_on 'looking for an earlier checkpoint'
s3 "
s3.put_object(Bucket='models', Key='$key/rank-00000.safetensors', Body=b'begun')
s3.delete_object(Bucket='models', Key='$key/manifest.json')"
goes_on 'has no manifest'

# What stands in a place that a run does not go on from is not touched: the run is refused.
s3 "s3.put_object(Bucket='models', Key='runs/b/checkpoints/step-00000002/manifest.json', Body=b'{}')"
"$GW_BIN" train run.yaml --out b --quiet --until 2 --set checkpoint.dir=s3://models/runs/b >out.txt 2>&1 &&
    fail "a run began where another's checkpoints are"
grep -q 'run-exists' out.txt || fail "no word of it: $(cat out.txt)"
s3 "
l = s3.list_objects_v2(Bucket='models', Prefix='runs/b/')['Contents']
assert [o['Key'] for o in l] == ['runs/b/checkpoints/step-00000002/manifest.json'], l
b = s3.get_object(Bucket='models', Key=l[0]['Key'])['Body'].read()
assert b == b'{}', b"

# A live run holds its place: a second one, prune and --fresh are refused, and told by whom.
"$GW_BIN" train run.yaml --out d1 --quiet --until 2 --set checkpoint.dir=s3://models/runs/d
"$GW_BIN" train run.yaml --out d1 --quiet --resume --set checkpoint.dir=s3://models/runs/d \
    --set train.steps=100000 --set checkpoint.every=50 >d1.log 2>&1 &
one=$!
held() { s3 "s3.head_object(Bucket='models', Key='runs/d/owner.json')" 2>/dev/null; }
for _ in $(seq 200); do if held; then break; fi; sleep 0.05; done
held || fail "no owner: $(cat d1.log)"
refused() {
    timeout 100 "$@" >out.txt 2>&1 && fail "$*: not refused"
    grep -q "in use by process $one on $(uname -n) since 20" out.txt || fail "$*: $(cat out.txt)"
    grep -q run-in-use out.txt || fail "$*: $(cat out.txt)"
}
refused "$GW_BIN" train run.yaml --out d2 --resume --set checkpoint.dir=s3://models/runs/d
refused "$GW_BIN" train run.yaml --out d3 --resume --fresh --set checkpoint.dir=s3://models/runs/d
refused "$GW_BIN" checkpoint prune s3://models/runs/d --keep-last 1
refused "$GW_BIN" checkpoint prune d1 --keep-last 1
"$GW_BIN" checkpoint ls s3://models/runs/d >/dev/null || fail "ls beside a run"
kill -9 $one
wait $one || true
# It was killed on this machine: the next one need not wait for its lease.
"$GW_BIN" train run.yaml --out d1 --resume --until 3 --set checkpoint.dir=s3://models/runs/d \
    --set train.steps=100000 --set checkpoint.every=50 >out.txt 2>&1 || fail "$(cat out.txt)"
grep -qE "hold of process $one on .* is stale .* and taken over|nothing to train" out.txt || fail "$(cat out.txt)"
# One on another machine is waited for, until its lease has run out.
own() {
    s3 "s3.put_object(Bucket='models', Key='runs/d/owner.json', Body=b'{\"pid\": 7, \"host\": \"far\",'
    b' \"since\": \"2031-01-01T00:00:00Z\", \"mark\": \"x\", \"lease_s\": $1}')"
}
own 3600
"$GW_BIN" checkpoint prune s3://models/runs/d --keep-last 100 >out.txt 2>&1 && fail "prune beside far"
grep -q 'process 7 on far since 2031-01-01T00:00:00Z, seen' out.txt || fail "$(cat out.txt)"
own 1
sleep 3
"$GW_BIN" checkpoint prune s3://models/runs/d --keep-last 100 >out.txt 2>&1 || fail "$(cat out.txt)"
grep -q 'the hold of process 7 on far is stale (its lease ran out) and taken over' out.txt || fail "$(cat out.txt)"
if held; then fail "prune left its hold"; fi

# Where the hold is lost all the same, what one commits the other neither moves nor replaces.
"$GW_BIN" train run.yaml --out d1 --quiet --resume --set checkpoint.dir=s3://models/runs/d \
    --set train.steps=100000 --set checkpoint.every=50 >d1.log 2>&1 &
one=$!
for _ in $(seq 200); do if held; then break; fi; sleep 0.05; done
s3 "s3.delete_object(Bucket='models', Key='runs/d/owner.json')"
"$GW_BIN" train run.yaml --out d2 --quiet --resume --set checkpoint.dir=s3://models/runs/d \
    --set train.steps=100000 --set checkpoint.every=50 >d2.log 2>&1 &
two=$!
wait -n $one $two && fail "two runs save into one place"
kill $one $two 2>/dev/null || true
wait $one $two 2>/dev/null || true
cat d1.log d2.log | grep -q 'checkpoint-taken' || fail "no word of it: $(cat d1.log d2.log)"
"$GW_BIN" checkpoint ls s3://models/runs/d >d.txt
[ "$(s3 "
l = s3.list_objects_v2(Bucket='models', Prefix='runs/d/')['Contents']
print(sum('replaced' in o['Key'] for o in l))")" = 0 ] || fail "a commit was moved aside: $(cat d.txt)"

# Killed at any time: what was committed is whole, and the run goes on.
for wait in 0.3 0.6 0.9 1.2; do
    "$GW_BIN" train run.yaml --out c --quiet --resume --fresh --set checkpoint.dir=s3://models/runs/c \
        --set checkpoint.every=1 --set train.steps=400 >c.log 2>&1 &
    pid=$!
    sleep $wait
    kill -9 $pid 2>/dev/null || true
    wait $pid 2>/dev/null || true
done
"$GW_BIN" train run.yaml --out c --quiet --resume --fresh --until 3 --set train.steps=400 \
    --set checkpoint.dir=s3://models/runs/c --set checkpoint.every=1 || fail "c does not go on"
"$GW_BIN" checkpoint verify s3://models/runs/c | grep -q whole || fail "c is not whole"

# A store that nobody answers for, and one that has no such bucket.
says() {
    local words=$1
    shift
    timeout 120 "$@" >out.txt 2>&1 && fail "$* succeeded"
    grep -qF -- "$words" out.txt || fail "$*: nowhere '$words' in: $(cat out.txt)"
}
says 'nothing' "$GW_BIN" checkpoint ls s3://nothing/x
