# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of bench/context_parallel: one sequence cut over ranks, Gloo between them.

    python torch_context.py '{"model": {...}, "seq": 4096, "ranks": 2, "steps": 6, "threads": 1,
                              "how": "ring"}'

`how` is one of
  library   torch.distributed.tensor.experimental.context_parallel around the model, as its users
            write it. Its attention has handlers for the kernels of GPUs only; whether this PyTorch
            runs it on CPUs is found out here: loss and gradients must be those of one rank.
  ring      ring attention written by hand with torch.distributed's point-to-point calls and the
            fused attention kernel of CPUs: k and v of the next block travel while the current
            block is computed, blocks merge by their log-sum-exp, and backward passes the sums of
            dk and dv on.

Both cut in zigzag: rank r has chunks r and 2 C - 1 - r of 2 C. The model is torch_peer's, under
DistributedDataParallel for the sum of its gradients. Before steps are timed, the loss and the
gradients over a short sequence are compared with those of the same model on one rank. Prints one
JSON object: seconds of each step as rank 0 sees them, and bytes that rank 0's ring sends in a step.
"""

import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torch_peer
import torch_ranks

SHORT = 256
forward_kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
backward_kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class Sent:
    bytes = 0


def zigzag(x, rank, ranks, dim):
    """This rank's two chunks of x along dim."""
    parts = x.chunk(2 * ranks, dim=dim)
    return torch.cat((parts[rank], parts[2 * ranks - 1 - rank]), dim=dim).contiguous()


def pass_on(tensors, rank, ranks):
    """Sends to the next rank and receives from the one before; returns (what comes, requests)."""
    come = [torch.empty_like(t, memory_format=torch.contiguous_format) for t in tensors]
    calls = []
    for t, c in zip(tensors, come):
        calls.append(dist.P2POp(dist.isend, t, (rank + 1) % ranks))
        calls.append(dist.P2POp(dist.irecv, c, (rank - 1) % ranks))
        Sent.bytes += t.numel() * t.element_size()
    return come, dist.batch_isend_irecv(calls)


def wait(requests):
    for r in requests:
        r.wait()


def pairs(rank, source, s):
    """Which queries meet which keys of a block from `source`: slices of s local tokens, causal?"""
    whole, early, late = slice(0, s), slice(0, s // 2), slice(s // 2, s)
    if source == rank:
        return whole, whole, True
    return (whole, early, False) if source < rank else (late, whole, False)


class Ring(torch.autograd.Function):
    """q, k, v: [b, h, s / C, d], chunks in zigzag."""

    @staticmethod
    def forward(ctx, q, k, v, rank, ranks):
        s = q.shape[2]
        out = torch.zeros_like(q)
        lse = torch.full(q.shape[:3], float("-inf"))
        block = [k.contiguous(), v.contiguous()]
        for i in range(ranks):
            requests = []
            if i < ranks - 1:
                come, requests = pass_on(block, rank, ranks)
            rows, cols, causal = pairs(rank, (rank - i) % ranks, s)
            o, l = forward_kernel(q[:, :, rows], block[0][:, :, cols], block[1][:, :, cols], 0.0,
                                  causal)
            if i == 0:
                out, lse = o, l
            else:
                old = lse[:, :, rows]
                new = torch.logaddexp(old, l)
                out[:, :, rows] = (out[:, :, rows] * (old - new).exp().unsqueeze(-1)
                                   + o * (l - new).exp().unsqueeze(-1))
                lse[:, :, rows] = new
            wait(requests)
            if requests:
                block = come
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.place = rank, ranks
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, out, lse = ctx.saved_tensors
        rank, ranks = ctx.place
        s = q.shape[2]
        grad = grad.contiguous()
        dq = torch.zeros_like(q)
        block, sums, arriving = [k.contiguous(), v.contiguous()], None, []
        for i in range(ranks):
            requests = []
            if i < ranks - 1:
                come, requests = pass_on(block, rank, ranks)
            rows, cols, causal = pairs(rank, (rank - i) % ranks, s)
            a, b, c = backward_kernel(grad[:, :, rows].contiguous(), q[:, :, rows].contiguous(),
                                      block[0][:, :, cols].contiguous(),
                                      block[1][:, :, cols].contiguous(),
                                      out[:, :, rows].contiguous(), lse[:, :, rows].contiguous(),
                                      0.0, causal)
            dq[:, :, rows] += a
            wait(arriving)
            mine = [torch.zeros(k.shape), torch.zeros(v.shape)] if sums is None else sums
            mine[0][:, :, cols] += b
            mine[1][:, :, cols] += c
            sums, arriving = pass_on(mine, rank, ranks)  # home again after a full round
            wait(requests)
            if requests:
                block = come
        wait(arriving)
        return dq, sums[0], sums[1], None, None


class Model(nn.Module):
    """torch_peer's Llama, with positions given and the attention chosen."""

    def __init__(self, c, seq, attention):
        super().__init__()
        self.llama = torch_peer.Llama(c, seq)
        self.attention = attention

    def forward(self, tokens, labels, cos, sin):
        m = self.llama
        x = m.embed(tokens)
        for block in m.blocks:
            b, s, _ = x.shape
            n = block.norm1(x)
            q, k, v = (f(n).view(b, s, -1, block.size).transpose(1, 2)
                       for f in (block.q, block.k, block.v))
            q, k = torch_peer.rotate(q, (cos, sin)), torch_peer.rotate(k, (cos, sin))
            x = x + block.out(self.attention(q, k, v).transpose(1, 2).reshape(b, s, -1))
            n = block.norm2(x)
            x = x + block.down(F.silu(block.gate(n)) * block.up(n))
        logits = F.linear(m.norm(x), m.embed.weight)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def one_rank(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def local_loss(run, how, mesh, rank, ranks, row, cos, sin, backward):
    """Forward (and backward) on this rank's part of the sequence `row` [1, s + 1]."""
    tokens, labels = row[:, :-1].contiguous(), row[:, 1:].contiguous()
    cos, sin = cos[: tokens.shape[1]].clone(), sin[: tokens.shape[1]].clone()
    if how == "library":
        from torch.distributed.tensor.experimental import context_parallel
        with context_parallel(mesh, buffers=[tokens, labels, cos, sin],
                              buffer_seq_dims=[1, 1, 0, 0],
                              no_restore_buffers={tokens, labels, cos, sin}):
            loss = run(tokens, labels, cos, sin)
            if backward:
                loss.backward()
        return loss
    tokens, labels = (zigzag(t, rank, ranks, 1) for t in (tokens, labels))
    loss = run(tokens, labels, zigzag(cos, rank, ranks, 0), zigzag(sin, rank, ranks, 0))
    if backward:
        loss.backward()
    return loss


def check(model, run, step, row, cos, sin):
    """The cut model's loss and gradients against those of one rank."""
    loss = step(run, row)
    dist.all_reduce(loss := loss.detach() / dist.get_world_size())
    got = [p.grad.clone() for p in model.parameters()]
    model.zero_grad(set_to_none=True)
    cut, model.attention = model.attention, one_rank
    want = model(row[:, :-1], row[:, 1:], cos[: row.shape[1] - 1], sin[: row.shape[1] - 1])
    want.backward()
    model.attention = cut
    norm = sum((p.grad ** 2).sum() for p in model.parameters()).sqrt()
    off = sum(((g - p.grad) ** 2).sum() for g, p in zip(got, model.parameters())).sqrt() / norm
    model.zero_grad(set_to_none=True)
    if abs(loss - want) > 1e-5 * want or off > 1e-4:
        raise SystemExit(f"not the function of one rank: loss {loss:.7g} and {want:.7g}, gradients "
                         f"{off:.1e} apart")
    return float(off)


def rank_main(rank, job, meeting):
    torch_ranks.join(rank, job, meeting)
    ranks = job["ranks"]
    mesh = dist.device_mesh.init_device_mesh("cpu", (ranks,)) if job["how"] == "library" else None
    torch.manual_seed(1)
    c, seq = job["model"], job["seq"]
    ring = lambda q, k, v: Ring.apply(q, k, v, rank, ranks)
    model = Model(c, seq, one_rank if job["how"] == "library" else ring)
    torch_peer.initialise(model)
    cos, sin = model.llama.cos, model.llama.sin
    run = DistributedDataParallel(model)
    _, optimizer = torch_peer.make_optimizer(model)
    parameters = list(model.parameters())
    torch.manual_seed(100)
    ids = torch.randint(0, c["vocab"], (8, 1, seq + 1))

    def step(run, row):
        return local_loss(run, job["how"], mesh, rank, ranks, row, cos, sin, True)

    off = check(model, run, step, ids[0][:, : SHORT + 1], cos, sin)
    times = []
    for i in range(job["steps"]):
        Sent.bytes = 0
        begun = time.perf_counter()
        loss = step(run, ids[i % len(ids)])
        torch_peer.clip(parameters)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        times.append(time.perf_counter() - begun)
    torch_ranks.leave(rank, {"times": times, "ring_bytes": Sent.bytes,
                             "parameters": sum(p.numel() for p in parameters), "off": off})


if __name__ == "__main__":
    torch_ranks.run(rank_main)
