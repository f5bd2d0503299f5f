# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of bench/tensor_parallel: torch.distributed.tensor.parallel over Gloo.

    python torch_tensor.py '{"model": {...}, "batch": 1, "seq": 1024, "ranks": 2, "steps": 6,
                             "threads": 1, "sequence_parallel": true}'

A llama of separate modules, parallelised as the library's own guide for large models does: q, k,
v, gate and up ColwiseParallel, o and down RowwiseParallel, embedding cut by rows, head by columns
under loss_parallel; with sequence parallelism norms are SequenceParallel and each block gathers
once before attention and once before the feed-forward. AdamW works on DTensors. Before steps are
timed, the loss and the gradients are compared with those of the same model on one rank. Prints
one JSON object: seconds of each step as rank 0 sees them.
"""

import copy
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput,
                                               RowwiseParallel, SequenceParallel, loss_parallel,
                                               parallelize_module)

import torch_peer
import torch_ranks


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, self.size = c["hidden"], c["head_dim"]
        self.q, self.k, self.v = (nn.Linear(d, c["heads"] * self.size, bias=False)
                                  for _ in range(3))
        self.out = nn.Linear(c["heads"] * self.size, d, bias=False)

    def forward(self, x, cos, sin):
        b, s, _ = x.shape
        q, k, v = (f(x).view(b, s, -1, self.size).transpose(1, 2)
                   for f in (self.q, self.k, self.v))
        q, k = (torch_peer.rotate(t, (cos, sin)) for t in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, s, -1))


class FeedForward(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate, self.up = (nn.Linear(c["hidden"], c["ffn"], bias=False) for _ in range(2))
        self.down = nn.Linear(c["ffn"], c["hidden"], bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm1, self.norm2 = (nn.RMSNorm(c["hidden"], eps=c["norm_eps"]) for _ in range(2))
        self.attention, self.mlp = Attention(c), FeedForward(c)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm1(x), cos, sin)
        return x + self.mlp(self.norm2(x))


class Llama(nn.Module):
    def __init__(self, c, seq):
        super().__init__()
        self.embed = nn.Embedding(c["vocab"], c["hidden"])
        self.blocks = nn.ModuleList(Block(c) for _ in range(c["layers"]))
        self.norm = nn.RMSNorm(c["hidden"], eps=c["norm_eps"])
        self.head = nn.Linear(c["hidden"], c["vocab"], bias=False)
        half = torch.arange(0, c["head_dim"], 2, dtype=torch.float32) / c["head_dim"]
        angle = torch.outer(torch.arange(seq, dtype=torch.float32), c["rope_theta"] ** -half)
        self.cos, self.sin = angle.cos(), angle.sin()

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x))


def parallelise(model, mesh, cut_s):
    """cut_s: norms on parts of the sequence."""
    x = Shard(1) if cut_s else Replicate()
    plan = {"embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=x),
            "head": ColwiseParallel(input_layouts=x, output_layouts=Shard(-1),
                                    use_local_output=False)}
    if cut_s:
        plan["norm"] = SequenceParallel()
    parallelize_module(model, mesh, plan)
    column = {f"attention.{n}": ColwiseParallel() for n in "qkv"}
    column |= {f"mlp.{n}": ColwiseParallel() for n in ("gate", "up")}
    for block in model.blocks:
        plan = dict(column)
        plan["attention.out"] = RowwiseParallel(output_layouts=x)
        plan["mlp.down"] = RowwiseParallel(output_layouts=x)
        if cut_s:
            plan |= {"norm1": SequenceParallel(), "norm2": SequenceParallel()}
        # Gathered once for q, k and v; the gradients of the three are added before they are summed.
        plan["attention"] = PrepareModuleInput(
            input_layouts=(x, None, None), desired_input_layouts=(Replicate(), None, None))
        plan["mlp"] = PrepareModuleInput(input_layouts=(x,), desired_input_layouts=(Replicate(),))
        parallelize_module(block, mesh, plan)


def cut_loss(model, row):
    with loss_parallel():
        logits = model(row[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), row[:, 1:].flatten())
        loss.backward()
    return loss.full_tensor() if isinstance(loss, DTensor) else loss


def whole(t):
    return t.full_tensor() if isinstance(t, DTensor) else t


def clip(parameters):
    """The global norm to 1.0. Without sequence parallelism norm gains are plain tensors, which the
    library's own function refuses beside DTensors: the norms of the two kinds are joined here."""
    kinds = [[p.grad for p in parameters if isinstance(p, DTensor) == d] for d in (True, False)]
    norms = [whole(torch.nn.utils.get_total_norm(k, foreach=True)) for k in kinds if k]
    scale = min(1.0, 1.0 / (float(torch.stack(norms).norm()) + 1e-6))
    for k in kinds:
        if k:
            torch._foreach_mul_(k, scale)


def check(model, alone, row):
    loss = cut_loss(model, row)
    want = F.cross_entropy(alone(row[:, :-1]).flatten(0, 1), row[:, 1:].flatten())
    want.backward()
    off = norm = 0.0
    for p, q in zip(model.parameters(), alone.parameters()):
        off += ((whole(p.grad) - q.grad) ** 2).sum()
        norm += (q.grad ** 2).sum()
    model.zero_grad(set_to_none=True)
    off = float((off / norm) ** 0.5)
    if abs(loss - want) > 1e-5 * want or off > 1e-4:
        raise SystemExit(f"not the function of one rank: loss {loss:.7g} and {want:.7g}, gradients "
                         f"{off:.1e} apart")
    return off


def rank_main(rank, job, meeting):
    torch_ranks.join(rank, job, meeting)
    mesh = dist.device_mesh.init_device_mesh("cpu", (job["ranks"],))
    torch.manual_seed(1)
    c = job["model"]
    model = Llama(c, job["seq"])
    torch_peer.initialise(model)
    count = sum(p.numel() for p in model.parameters())
    alone = copy.deepcopy(model)
    parallelise(model, mesh, job["sequence_parallel"])
    torch.manual_seed(100)
    ids = torch.randint(0, c["vocab"], (8, job["batch"], job["seq"] + 1))
    off = check(model, alone, ids[0])
    del alone
    how, optimizer = torch_peer.make_optimizer(model)
    parameters = list(model.parameters())
    times = []
    for i in range(job["steps"]):
        begun = time.perf_counter()
        loss = cut_loss(model, ids[i % len(ids)])
        clip(parameters)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        times.append(time.perf_counter() - begun)
    torch_ranks.leave(rank, {"times": times, "parameters": count, "adamw": how, "off": off})


if __name__ == "__main__":
    torch_ranks.run(rank_main)
