#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
# Ledgers of consumed data: the same rows whatever the layout, the batch or where a run was resumed;
# another seed, another mixture or a gap are named by `gradwright data prove`.
set -eu
[ -x "$GW_BIN" ] || { echo "no program in GW_BIN"; exit 77; }
command -v python3 >/dev/null || { echo "python3 writes the test's tokens"; exit 77; }
cd "$TMPDIR"

python3 - <<'EOP'
import json, os, struct
def docs(word, n): return [list((b"%d: " % i) * 9 + word * (3 + i % 5)) + [256] for i in range(n)]
def megatron(name, docs):
    sizes = [len(d) for d in docs]
    at = [0]
    for n in sizes: at.append(at[-1] + 2 * n)
    with open(name + ".bin", "wb") as f:
        for d in docs: f.write(struct.pack("<%dH" % len(d), *d))
    n = len(docs)
    with open(name + ".idx", "wb") as f:
        f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, n, n + 1))
        f.write(struct.pack("<%di" % n, *sizes) + struct.pack("<%dq" % n, *at[:-1]))
        f.write(struct.pack("<%dq" % (n + 1), *range(n + 1)))
def mds(name, docs, each):
    os.mkdir(name)
    shards = []
    cols = {"column_names": ["tokens"], "column_encodings": ["ndarray:uint16"], "column_sizes": [None]}
    conf = dict(version=2, format="mds", compression=None, hashes=[], size_limit=1 << 26, **cols)
    for k in range(0, len(docs), each):
        rows = []
        for d in docs[k:k + each]:
            v = struct.pack("<BH", 1 << 2 | 1, len(d)) + struct.pack("<%dH" % len(d), *d)
            rows.append(struct.pack("<I", len(v)) + v)
        text = json.dumps(conf, sort_keys=True).encode()
        begin = 4 + 4 * (len(rows) + 1) + len(text)
        ends = [begin]
        for r in rows: ends.append(ends[-1] + len(r))
        raw = struct.pack("<%dI" % (len(ends) + 1), len(rows), *ends) + text + b"".join(rows)
        base = "shard.%05d.mds" % (k // each)
        open(os.path.join(name, base), "wb").write(raw)
        shards.append(dict(conf, samples=len(rows), zip_data=None,
                           raw_data={"basename": base, "bytes": len(raw), "hashes": {}}))
    json.dump({"version": 2, "shards": shards}, open(os.path.join(name, "index.json"), "w"))
megatron("web", docs(b"the wright makes a step and another step. ", 60))
mds("code", docs(b"for (int i = 0; i < n; i++) sum += row[i]; ", 50), 7)
EOP
cat > run.yaml <<'EOP'
model: {family: llama, layers: 2, hidden: 16, heads: 2, ffn: 32}
data:
  train: [{path: web, weight: 3}, {path: code, weight: 1}]
  stages: [{tokens: 700, weights: [1, 0]}, {weights: [0.5, 0.5]}]
  tokenizer: bytes
  window: 2
train: {steps: 12, seq_len: 16, global_batch: 8, threads: 1}
checkpoint: {every: 0}
EOP

run() { # DIR ARGS...
    dir=$1; shift
    "$GW_BIN" train run.yaml --out "$dir" "$@" > "$dir.out" 2> "$dir.log" ||
        { echo "train $dir $*"; tail -5 "$dir.log"; exit 1; }
}
same() { # RUN1 RUN2 TEXT
    "$GW_BIN" data prove "$1" "$2" > prove.out 2> prove.log || { echo "$1 $2:"; cat prove.log; exit 1; }
    grep -q "$3" prove.out || { echo "$1 $2: no '$3'"; cat prove.out; exit 1; }
}
proves() { # RUN
    "$GW_BIN" data prove "$1" > prove.out 2> prove.log || { echo "$1:"; cat prove.log; exit 1; }
    grep -q "each as the data and the run file give it" prove.out || { cat prove.out; exit 1; }
}
parts() { # RUN1 RUN2 TEXT
    ! "$GW_BIN" data prove "$1" "$2" > prove.out 2> prove.log || { echo "$1 and $2 do not part"; exit 1; }
    grep -q "$3" prove.log || { echo "$1 $2: no '$3'"; cat prove.log; exit 1; }
}

run one --set train.micro_batch=8
[ "$(wc -l < one/data.ledger)" -eq 12 ] || { cat one/data.ledger; exit 1; }
grep -q '"data_source_s"' one/metrics.jsonl || { head -1 one/metrics.jsonl; exit 1; }
same one one "the same data: samples 0 to 95, in 12 and 12 batches"

# Every layout is fed the same: data parallel, sharded, tensors and tokens cut, stages.
run dp --ranks 2 --set train.micro_batch=2 --set layout.zero=1
same one dp "samples 0 to 95"
run tp --ranks 2 --set layout.tp=2 --set train.micro_batch=2
same one tp "samples 0 to 95"
run pp --ranks 2 --set layout.pp=2 --set train.micro_batch=2
same one pp "samples 0 to 95"
run ahead --ranks 2 --set layout.pp=2 --set train.micro_batch=2 --set optimizer.norm=deferred
same one ahead "samples 0 to 95"

# Every schedule: a rank with several stages is fed a micro-batch's inputs at several times.
for schedule in gpipe 1f1b interleaved zb-h1 zb-2p zbv dualpipev; do
    run "$schedule" --ranks 2 --set layout.pp=2 --set layout.schedule=$schedule \
        --set train.micro_batch=2 --set model.layers=4 --until 4
    proves "$schedule"
    same one "$schedule" "samples 0 to 31, in 4 and 4 batches"
done

# Stopped, resumed on two ranks with another batch, stopped, resumed again: each sample once.
run again --set train.micro_batch=8 --until 3
run again --ranks 2 --resume --set train.global_batch=12 --set train.micro_batch=3 --until 7
run again --resume --set train.global_batch=12 --set train.micro_batch=4 --set train.steps=9
same one again "samples 0 to 95, in 12 and 9 batches"
"$GW_BIN" data prove again > prove.out 2> prove.log || { cat prove.log; exit 1; }
grep -q "once each, in 9 batches, each as the data and the run file give it" prove.out || { cat prove.out; exit 1; }

# Another seed parts at once, another mixture where the second stage begins.
run seed --set train.seed=2 --set train.micro_batch=8
parts one seed "part in samples 0 to 7: step 1 of one, step 1 of seed"
run weights --set train.micro_batch=8 --set 'data.stages=[{tokens: 700, weights: [1, 0]}, {weights: [0.1, 0.9]}]'
parts one weights "step 6 of one"

# A changed document is noticed by the run's own proof; so is a line that is missing.
python3 - <<'EOP'
b = bytearray(open("web.bin", "rb").read())
for i in range(0, len(b), 64): b[i] ^= 1
open("web.bin", "wb").write(b)
EOP
! "$GW_BIN" data prove one > prove.out 2> prove.log || { echo "changed data prove"; exit 1; }
grep -q "is not what the data and the run file give" prove.log || { cat prove.log; exit 1; }
sed -i 5d one/data.ledger
! "$GW_BIN" data prove one > prove.out 2> prove.log || { echo "a gap proves"; exit 1; }
grep -q "samples 32 to 39 were consumed by no batch" prove.log || { cat prove.log; exit 1; }
