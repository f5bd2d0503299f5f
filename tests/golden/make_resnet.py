#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes resnet/: what torchvision's resnet18 and resnet50 answer.

    make_resnet.py [OUT]        needs torch, torchvision, safetensors, numpy, xxhash

Weights and images are not stored. They are the uniform stream of src/base/rng.c (Philox4x32-10 keyed
by XXH3-64 of a name), which tests/model/test_resnet.c draws again, so that what stands in the files
is answers alone: losses, logits, running statistics, and of each parameter's gradient its norm and
its product with a fixed random vector. Everything is computed in float64 from float32 weights.

A value within a rounding of the corner of a relu makes gradients of any two float32 runs differ in the
third digit. resnet18's seed is the one of 40 that keeps all values farthest from it. resnet50 has too
many values for that, so its gradients are for float64 graphs alone. How far torchvision's own float32
run is away stands in resnet.json as `stock_float32`.

resnet18  12 images of 32 x 32, 10 classes.  NAME.sync, NAME.local, NAME.accumulated below.
  sync         one batch: two steps of SGD (lr 1e-4, momentum 0.9), the same batch twice
  local        DistributedDataParallel over two workers of six images, nothing synchronised: mean of
               the two workers' gradients; buffers of rank 0 (broadcast_buffers) and of both
  accumulated  one worker, two micro-batches of six images
resnet50  4 images of 32 x 32, 10 classes: sync, one step.
"""
import argparse
import json
import pathlib
import platform

import numpy as np
import torch
import torchvision
import xxhash
from safetensors.numpy import save_file

LR, MOMENTUM = 1e-4, 0.9
SIDE = {"resnet18": 32, "resnet50": 32}
SEED = 0  # of the net at hand; chosen by `choose`, recorded in resnet.json


def philox(key, counters):
    """Words of Philox4x32-10, four a counter."""
    x = [counters & 0xFFFFFFFF, counters >> 32, np.zeros_like(counters), np.zeros_like(counters)]
    x = [v.astype(np.uint64) for v in x]
    k = [np.uint64(key & 0xFFFFFFFF), np.uint64(key >> 32)]
    mask, s = np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * x[0], np.uint64(0xCD9E8D57) * x[2]
        x = [(p1 >> s) ^ x[1] ^ k[0], p1 & mask, (p0 >> s) ^ x[3] ^ k[1], p0 & mask]
        k = [(k[0] + np.uint64(0x9E3779B9)) & mask, (k[1] + np.uint64(0xBB67AE85)) & mask]
    return np.stack(x, axis=1).reshape(-1)


def words(name, n):
    key = xxhash.xxh3_64_intdigest(name.encode(), SEED)
    return philox(key, np.arange((n + 3) // 4, dtype=np.uint64))[:n]


def uniform(name, n):
    """[0, 1) with 24 bits."""
    return (words(name, n) >> np.uint64(8)).astype(np.float64) * 2.0**-24


def between(name, shape, low, high):
    n = int(np.prod(shape))
    return (low + (high - low) * uniform(name, n)).astype(np.float32).reshape(shape)


def weight(name, p):
    shape = tuple(p.shape)
    if p.ndim == 4:
        bound = (6.0 / (shape[0] * shape[2] * shape[3])) ** 0.5
        return between(name, shape, -bound, bound)
    if name.startswith("fc."):
        return between(name, shape, -0.05, 0.05)
    if name.endswith(".weight"):
        return between(name, shape, 0.5, 1.5)
    return between(name, shape, -0.2, 0.2)


def make(net, classes=10):
    model = getattr(torchvision.models, net)(weights=None, num_classes=classes).double()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.from_numpy(weight(name, p)).double())
    return model.train()


def batch(n, side):
    """Images are drawn channels last."""
    x = between("images", (n, side, side, 3), -2.0, 2.0).transpose(0, 3, 1, 2)
    labels = (words("labels", n) % np.uint64(10)).astype(np.int64)
    return torch.from_numpy(np.ascontiguousarray(x)).double(), torch.from_numpy(labels)


def loss_of(model, x, labels):
    return torch.nn.functional.cross_entropy(model(x), labels)


def gradients(out, prefix, grads):
    for name, g in grads.items():
        g = g.numpy()
        r = between("probe." + name, g.shape, -1.0, 1.0).astype(np.float64)
        out[f"{prefix}.grad.{name}"] = np.array(
            [np.linalg.norm(g), float((g * r).sum())], dtype=np.float32)


def running(out, prefix, model):
    for name, b in model.named_buffers():
        if "num_batches" not in name:
            out[f"{prefix}.{name}"] = b.numpy().astype(np.float32)


def distance(a, b):
    """Worst of a parameter's gradient, in norm and in its product with the probe."""
    worst = 0
    for name, g in b.items():
        g, d, size = g.numpy(), a[name].double().numpy() - g.numpy(), np.linalg.norm(g.numpy())
        r = between("probe." + name, g.shape, -1.0, 1.0).astype(np.float64)
        worst = max(worst, np.linalg.norm(d) / size, abs((d * r).sum()) / size)
    return float(worst)


def stock_float32(net, n):
    """The unmodified float32 run against float64: loss and worst gradient."""
    answers = []
    for dtype in (torch.float64, torch.float32):
        model = make(net).to(dtype)
        x, labels = batch(n, SIDE[net])
        loss = loss_of(model, x.to(dtype), labels)
        loss.backward()
        answers.append((loss.item(), {k: p.grad for k, p in model.named_parameters()}))
    (l64, g64), (l32, g32) = answers
    return {"loss": abs(l32 / l64 - 1), "gradient": distance(g32, g64)}


def corner(net, n):
    """Distance of the nearest value from the corner of a relu, whole batch and halves."""
    model, nearest = make(net), [1.0]

    def look(_, args):
        nearest[0] = min(nearest[0], args[0].detach().abs().min().item())

    for m in model.modules():
        if isinstance(m, torch.nn.ReLU):
            m.register_forward_pre_hook(look)
    x, _ = batch(n, SIDE[net])
    with torch.no_grad():
        for part in (x, x[:n // 2], x[n // 2:]):
            model(part)
    return nearest[0]


def choose(net, n):
    global SEED
    found = []
    for SEED in range(1, 41):
        found.append((corner(net, n), SEED))
    SEED = max(found)[1]
    return {"seed": SEED, "corner": max(found)[0]}


def sync_case(out, net, n, steps):
    model = make(net)
    x, labels = batch(n, SIDE[net])
    opt = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    losses = []
    for step in range(steps):
        opt.zero_grad()
        loss = loss_of(model, x, labels)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            gradients(out, "sync", {k: p.grad for k, p in model.named_parameters()})
            out["sync.full.conv1.weight"] = model.conv1.weight.grad.numpy().astype(np.float32)
            out["sync.full.fc.bias"] = model.fc.bias.grad.numpy().astype(np.float32)
        opt.step()
    out["sync.losses"] = np.array(losses, dtype=np.float32)
    running(out, "sync.running", model)
    if net == "resnet18":  # after one step of 50 layers running statistics are still far off: infinite
        with torch.no_grad():
            out["sync.logits_eval"] = model.eval()(x).numpy().astype(np.float32)
    return {"num_batches_tracked": int(model.bn1.num_batches_tracked)}


def local_case(out, net, n):
    """Two workers; what DDP makes of their gradients is the mean."""
    workers = [make(net), make(net)]
    x, labels = batch(n, SIDE[net])
    half = n // 2
    losses = []
    for i, w in enumerate(workers):
        loss = loss_of(w, x[i * half:(i + 1) * half], labels[i * half:(i + 1) * half])
        loss.backward()
        losses.append(loss.item())
        running(out, f"local.running{i}", w)
    grads = {k: (p.grad + q.grad) / 2
             for (k, p), (_, q) in zip(workers[0].named_parameters(), workers[1].named_parameters())}
    gradients(out, "local", grads)
    out["local.losses"] = np.array(losses, dtype=np.float32)


def accumulated_case(out, net, n):
    model = make(net)
    x, labels = batch(n, SIDE[net])
    half = n // 2
    for i in range(2):
        (loss_of(model, x[i * half:(i + 1) * half], labels[i * half:(i + 1) * half]) / 2).backward()
    gradients(out, "accumulated", {k: p.grad for k, p in model.named_parameters()})
    running(out, "accumulated.running", model)


def names_of(net):
    """Parameters and buffers of the published shape, in order."""
    model = getattr(torchvision.models, net)(weights=None)
    return {"parameters": [[k, list(p.shape)] for k, p in model.named_parameters()],
            "buffers": [[k, list(b.shape)] for k, b in model.named_buffers()],
            "count": sum(p.numel() for p in model.parameters())}


def main():
    global SEED
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", nargs="?", default=pathlib.Path(__file__).parent / "resnet",
                        type=pathlib.Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.mkdir(exist_ok=True)
    facts = {"versions": {"python": platform.python_version(), "torch": torch.__version__,
                          "torchvision": torchvision.__version__}}
    for net, n, steps in (("resnet18", 12, 2), ("resnet50", 4, 1)):
        out = {}
        if net == "resnet18":
            chosen = choose(net, n)
        else:
            SEED = 1
            chosen = {"seed": SEED}
        facts[net] = names_of(net) | sync_case(out, net, n, steps) | chosen
        facts[net] |= {"images": n, "side": SIDE[net], "stock_float32": stock_float32(net, n)}
        if net == "resnet18":
            local_case(out, net, n)
            accumulated_case(out, net, n)
        save_file(out, args.out / f"{net}.safetensors")
    (args.out / "resnet.json").write_text(json.dumps(facts, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
