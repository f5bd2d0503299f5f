# SPDX-License-Identifier: Apache-2.0
"""What balancing does to a skewed router, and what a capacity drops.

Training. A small Mixtral is initialised and written as a directory. Its files are then edited: every
row of the embedding gains a multiple of one direction, and so do the router's rows of a few experts
drawn by the seed. All tokens thus begin by going to those experts. Three runs start from that
directory and differ in `model.moe.balance` alone; what they print is from their metrics.jsonl.

Drops. A model of one layer whose router sends token t to expert t: embedding and router are multiples
of the identity, and the attention's output matrix is zero. Its data have HOT of the tokens evenly over
a few experts and the others evenly over the rest, so the load of each expert of each sequence is
known, and with it what a capacity must drop. The program counts them; the two must be equal.

No time is measured. Figures depend on the seed, not on the machine's speed.
"""
import argparse
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)


def program():
    for path in (os.environ.get("GW_BIN"), os.path.join(ROOT, "gradwright")):
        if path and os.access(path, os.X_OK):
            return os.path.abspath(path)
    sys.exit("bench/router: no gradwright: run make, or name it with GW_BIN")


def gradwright(args, fail=True):
    r = subprocess.run([program()] + args, capture_output=True, text=True, check=False)
    if r.returncode != 0 and fail:
        sys.exit(f"bench/router: gradwright {' '.join(args)}: status {r.returncode}\n"
                 f"{r.stdout[-2000:]}{r.stderr[-2000:]}")
    return r


# ------------------------------------------------------------------ files


class Weights:
    """A safetensors file of float32 whose tensors can be rewritten in place."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as f:
            self.data = bytearray(f.read())
        n = struct.unpack_from("<Q", self.data)[0]
        self.header = json.loads(bytes(self.data[8:8 + n]))
        self.base = 8 + n

    def place(self, name):
        t = self.header[name]
        assert t["dtype"] == "F32", t
        rows, cols = t["shape"]
        return self.base + t["data_offsets"][0], rows, cols

    def get(self, name):
        at, rows, cols = self.place(name)
        flat = struct.unpack_from(f"<{rows * cols}f", self.data, at)
        return [list(flat[i * cols:(i + 1) * cols]) for i in range(rows)]

    def set(self, name, rows):
        at, nrows, cols = self.place(name)
        assert len(rows) == nrows and len(rows[0]) == cols
        struct.pack_into(f"<{nrows * cols}f", self.data, at, *(x for r in rows for x in r))

    def save(self):
        with open(self.path, "wb") as f:
            f.write(self.data)


def write_tokens(prefix, tokens):
    """One document in Megatron's .bin and .idx."""
    with open(prefix + ".bin", "wb") as f:
        f.write(struct.pack(f"<{len(tokens)}H", *tokens))
    with open(prefix + ".idx", "wb") as f:
        f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 1, 2))
        f.write(struct.pack("<iqqq", len(tokens), 0, 0, 1))


def initial(folder, run_file):
    """Weights as they are initialised, as a directory."""
    path = os.path.join(folder, "initial.yaml")
    with open(path, "w") as f:
        f.write(run_file)
    run = os.path.join(folder, "initial")
    gradwright(["train", path, "--out", run, "--quiet"])
    out = os.path.join(folder, "model")
    gradwright(["export", run, "--out", out])
    return out, Weights(os.path.join(out, "model.safetensors"))


def train(folder, name, run_file):
    path = os.path.join(folder, name + ".yaml")
    with open(path, "w") as f:
        f.write(run_file)
    out = os.path.join(folder, name)
    gradwright(["train", path, "--out", out, "--quiet"])
    with open(os.path.join(out, "metrics.jsonl")) as f:
        return [json.loads(line) for line in f]


# ------------------------------------------------------------------ training

LAYERS, HIDDEN, EXPERTS, TOP, HOT_EXPERTS = 2, 64, 8, 2, 2
MODES = (
    ("none", "balance: none"),
    ("auxiliary", "balance: batch, balance_weight: 0.02"),
    ("bias", "balance: bias, bias_rate: 0.01, balance_weight: 0"),
)


def skew(weights, seed, strength):
    """Adds one direction to the embedding, and to the router's rows of some experts."""
    rng = random.Random(seed)
    hot = sorted(rng.sample(range(EXPERTS), HOT_EXPERTS))
    u = [rng.choice((-1, 1)) / HIDDEN ** 0.5 for _ in range(HIDDEN)]
    name = "model.embed_tokens.weight"
    rows = weights.get(name)
    weights.set(name, [[x + 0.02 * HIDDEN ** 0.5 * c for x, c in zip(r, u)] for r in rows])
    for layer in range(LAYERS):
        name = f"model.layers.{layer}.block_sparse_moe.gate.weight"
        rows = weights.get(name)
        for e in hot:
            rows[e] = [x + strength * c for x, c in zip(rows[e], u)]
        weights.set(name, rows)
    weights.save()
    return hot


def loads(line):
    return [layer["max_over_mean"] for layer in line["moe"]["layers"]]


def mean(xs):
    xs = list(xs)
    return sum(xs) / len(xs)


def training(folder, a):
    data = os.path.join(ROOT, "build", "data")
    if not os.path.exists(os.path.join(data, "train.bin")):
        sys.exit("bench/router: the text is not there: run make data")
    corpus = (f"data: {{train: {data}/train, valid: {data}/valid, "
              f"tokenizer: {data}/tokenizer.json}}\n")
    model, weights = initial(
        folder,
        f"model: {{family: mixtral, layers: {LAYERS}, hidden: {HIDDEN}, heads: 2, ffn: 64,\n"
        f"        moe: {{experts: {EXPERTS}, top: {TOP}}}}}\n{corpus}"
        f"train: {{steps: 1, seq_len: 64, seed: {a.seed}}}\n"
        "optimizer: {name: sgd, lr: 0, weight_decay: 0}\n")
    hot = skew(weights, a.seed, a.skew)
    print(f"Training: Mixtral of {LAYERS} layers, {EXPERTS} experts, top {TOP}, {a.steps} steps of "
          f"1,024 tokens, seed {a.seed}.")
    print(f"The routers begin skewed to experts {', '.join(map(str, hot))} by {a.skew:g}; the load "
          f"is then max/mean {EXPERTS / TOP:g} if all tokens go there.\n")
    runs = []
    for name, keys in MODES:
        runs.append(train(
            folder, name,
            f"model: {{path: {model}, moe: {{{keys}}}}}\n{corpus}"
            f"train: {{steps: {a.steps}, seq_len: 64, global_batch: 16, micro_batch: 16,\n"
            f"        seed: {a.seed}, valid_every: {a.steps}, valid_batches: 16}}\n"
            "optimizer: {name: adamw, lr: 3e-3, weight_decay: 0.1, clip_norm: 1.0,\n"
            f"            schedule: cosine, warmup_steps: 10}}\n"))
    table(runs, a)


def table(runs, a):
    """Each row: the mean over the steps since the row before, and over layers for the load."""
    width = 22
    print(f"{'':>9}  {'load, max/mean':<{width * 3 // 2 + 6}}  loss")
    names = "".join(f"{n:>12}" for n, _ in MODES)
    print(f"{'steps':>9}{names}   {names}")
    steps = [[line for line in r if "loss" in line] for r in runs]
    rows = [(0, 1)] + [(i, min(i + a.every, a.steps)) for i in range(0, a.steps, a.every)]
    for first, last in rows:
        label = "1" if last == 1 else f"{first + 1}-{last}"
        load = "".join(f"{mean(mean(loads(s)) for s in r[first:last]):12.2f}" for r in steps)
        loss = "".join(f"{mean(s['loss'] for s in r[first:last]):12.4f}" for r in steps)
        print(f"{label:>9}{load}   {loss}")
    print("\nthe last row again; choices above a capacity of 1.25 in a step; experts with less than "
          "1 % of a layer's choices")
    for (name, keys), r, s in zip(MODES, runs, steps):
        held = [line["valid_loss"] for line in r if "valid_loss" in line][-1]
        tail = s[-a.every:]
        idle, over = 0, []
        for k in range(LAYERS):
            share = [mean(line["moe"]["layers"][k]["share"][e] for line in tail)
                     for e in range(EXPERTS)]
            idle += sum(x < 0.01 for x in share)
            over += [sum(max(0.0, x - 1.25 / EXPERTS) for x in line["moe"]["layers"][k]["share"])
                     for line in tail]
        print(f"  {name:<10} load {mean(mean(loads(x)) for x in tail):.2f}  above 1.25 mean loads "
              f"{mean(over):.1%}  idle {idle} of {LAYERS * EXPERTS}  held-out loss {held:.4f}   "
              f"{keys}")
    print()


# ------------------------------------------------------------------ drops

N, FEW, HOT, SEQ = 256, 26, 0.9, 5120


def synthetic(rng):
    """One period: HOT of SEQ tokens evenly over FEW experts, the others evenly over the rest."""
    order = list(range(N))
    rng.shuffle(order)
    few, rest = order[:FEW], order[FEW:]
    n = round(HOT * SEQ)
    tokens = [few[i % FEW] for i in range(n)] + [rest[i % len(rest)] for i in range(SEQ - n)]
    rng.shuffle(tokens)
    return tokens


def drops(folder, a):
    tokens = synthetic(random.Random(a.seed))
    data = os.path.join(folder, "synthetic")
    write_tokens(data, tokens * 4)  # any SEQ of them have the same counts
    corpus = f"data: {{train: {data}, tokenizer: bytes}}\n"
    model, weights = initial(
        folder,
        f"model: {{family: qwen3_moe, layers: 1, hidden: {N}, heads: 1, head_dim: 8,\n"
        f"        max_positions: {SEQ}, moe: {{experts: {N}, top: 1, ffn: 4}}}}\n{corpus}"
        f"train: {{steps: 1, seq_len: 64, seed: {a.seed}}}\n"
        "optimizer: {name: sgd, lr: 0, weight_decay: 0}\n")
    name = "model.embed_tokens.weight"
    _, rows, _ = weights.place(name)  # of bytes, and one that no byte has
    weights.set(name, [[float(i == j) for j in range(N)] for i in range(rows)])
    weights.set("model.layers.0.mlp.gate.weight",
                [[float(i == j) for j in range(N)] for i in range(N)])
    name = "model.layers.0.self_attn.o_proj.weight"
    _, rows, cols = weights.place(name)
    weights.set(name, [[0.0] * cols for _ in range(rows)])
    weights.save()
    counts = [tokens.count(e) for e in range(N)]
    print(f"Drops: {HOT:.0%} of the choices to {FEW} of {N} experts; 2 sequences of {SEQ:,} tokens, "
          f"top 1.\nThe largest load is {max(counts)} of a mean {SEQ / N:g}: "
          f"{max(counts) * N / SEQ:.2f} times; a cold expert has "
          f"{(1 - HOT) / (N - FEW) * N:.3f} of the mean.\n")
    print(f"{'capacity':>8} {'room':>6} {'0.9 - C 26/256':>15} {'by load':>10} {'counted':>10}  drop")
    good = True
    for capacity in (1, 1.25, 2, 8, 10):
        room = -(-int(capacity * SEQ * 4) // (N * 4))
        by_load = 2 * sum(max(0, c - room) for c in counts)
        for policy in ("position", "score"):
            lines = train(
                folder, f"drop-{capacity}-{policy}",
                f"model: {{path: {model},\n"
                f"        moe: {{balance: none, capacity: {capacity}, drop: {policy}}}}}\n{corpus}"
                f"train: {{steps: 1, seq_len: {SEQ}, global_batch: 2, micro_batch: 1,\n"
                f"        seed: {a.seed}}}\n"
                "optimizer: {name: sgd, lr: 0, weight_decay: 0}\n")
            layer = [x for x in lines if "moe" in x][0]["moe"]["layers"][0]
            counted = round(layer["dropped"])
            ideal = max(0.0, HOT - capacity * FEW / N)
            good = good and counted == by_load
            print(f"{capacity:>8} {room:>6} {ideal:>14.2%} {by_load / (2 * SEQ):>10.2%} "
                  f"{counted / (2 * SEQ):>10.2%}  {policy}, {counted:,} choices"
                  f"{'' if counted == by_load else f': NOT the {by_load:,} of the loads'}")
    print("\ncounted drops equal those of the loads" if good else
          "\ncounted drops DIFFER from those of the loads")
    return good


def main():
    p = argparse.ArgumentParser(prog="bench/router", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--steps", type=int, default=200, help="of a training run (200)")
    p.add_argument("--every", type=int, default=40, help="steps that a printed row averages (40)")
    p.add_argument("--skew", type=float, default=0.5, help="length added to routers' rows (0.5)")
    p.add_argument("--seed", type=int, default=1, help="of weights, data order and skew (1)")
    p.add_argument("--only", choices=("training", "drops"), help="one of the two parts")
    p.add_argument("--keep", action="store_true", help="leave the runs' folder and print its name")
    a = p.parse_args()
    folder = tempfile.mkdtemp(prefix="gw-router-")
    good = True
    try:
        for part in ("training", "drops"):
            sub = os.path.join(folder, part)
            os.mkdir(sub)
            if a.only in (None, part):
                good = (training if part == "training" else drops)(sub, a) is not False and good
    finally:
        if a.keep:
            print(f"runs in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
