# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of bench/pipeline_parallel: torch.distributed.pipelining over Gloo.

    python torch_pipeline.py '{"model": {...}, "seq": 128, "ranks": 2, "threads": 1, "steps": 6,
                              "schedule": "1F1B", "virtual": 1, "micro": 4}'

The llama of torch_tensor.py in stages of equally many layers (or as `stages` deals them), the first
with the embedding, the last with norm and head; in loops or, for the schedules made for that, as a V.
A micro-batch is one sequence. The norm of gradients is summed over ranks by an all-reduce; AdamW steps
each rank's stages. Before steps are timed, loss and gradients are compared with those of the same model
on one rank. Bytes are those of messages between stages, of all ranks; a rank is busy while it is in a
stage's forward or backward, clips or steps, and idle for the rest of the step.

With `weights` (model.safetensors with the public names of llama) and `tokens` (16-bit ids, one batch of
them) it takes those instead, and prints the losses of the steps. With `probes`, a list of jobs, it
says of each whether it runs: one step, compared with one rank's. Prints one JSON object.
"""

import copy
import inspect
import json
import struct
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed import pipelining
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class

import torch_peer
import torch_ranks
import torch_tensor

IN_A_V = ("ZBVZeroBubble", "DualPipeV")


class Stage(nn.Module):
    """Some layers of a model, and what stands before the first and behind the last."""

    def __init__(self, whole, layers):
        super().__init__()
        self.embed = whole.embed if layers.start == 0 else None
        self.blocks = nn.ModuleList(whole.blocks[i] for i in layers)
        last = layers.stop == len(whole.blocks)
        self.norm, self.head = (whole.norm, whole.head) if last else (None, None)
        self.cos, self.sin = whole.cos, whole.sin

    def forward(self, x):
        if self.embed is not None:
            x = self.embed(x)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return x if self.head is None else self.head(self.norm(x))


class Watched(pipelining.PipelineStage):
    """Counts the bytes it sends and the seconds it computes."""
    sent, busy = 0, 0.0

    def sends(self, ops):
        self.sent += sum(op.tensor.numel() * op.tensor.element_size() for op in ops)
        return ops

    def get_fwd_send_ops(self, *args, **named):
        return self.sends(super().get_fwd_send_ops(*args, **named))

    def get_bwd_send_ops(self, *args, **named):
        return self.sends(super().get_bwd_send_ops(*args, **named))

    def timed(self, body, args, named):
        begun = time.perf_counter()
        result = body(*args, **named)
        self.busy += time.perf_counter() - begun
        return result

    def forward_one_chunk(self, *args, **named):
        return self.timed(super().forward_one_chunk, args, named)

    def backward_one_chunk(self, *args, **named):
        return self.timed(super().backward_one_chunk, args, named)

    def backward_weight_one_chunk(self, *args, **named):
        return self.timed(super().backward_weight_one_chunk, args, named)


def loss_of(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


class Rank:
    """What a rank has of a pipeline: its stages and the schedule."""

    def __init__(self, whole, job, rank, group=None):
        ranks, v = dist.get_world_size(group), job["virtual"]
        rank = rank if ranks > 1 else 0
        count, layers = ranks * v, len(whole.blocks)
        deal = job.get("stages") or [layers // count] * count
        ends = [sum(deal[:i]) for i in range(count + 1)]
        mine = ((rank, count - 1 - rank) if job["schedule"] in IN_A_V
                else range(rank, count, ranks))
        self.first, self.last = 0 in mine, count - 1 in mine
        self.group = group
        self.stages = [Watched(Stage(whole, range(ends[s], ends[s + 1])), s, count,
                               torch.device("cpu"), group=group) for s in mine]
        self.modules = nn.ModuleList(s.submod for s in self.stages)
        self.parameters = list(self.modules.parameters())
        made = get_schedule_class(job["schedule"])
        alone = issubclass(made, PipelineScheduleSingle)
        if alone and v > 1:
            raise ValueError(f"{made.__name__} has one stage a rank")
        self.schedule = made(self.stages[0] if alone else self.stages, job["micro"],
                             loss_fn=loss_of)
        # The logits of all micro-batches need not be joined, where that can be said.
        named = inspect.signature(self.schedule.step).parameters
        self.named = {"return_outputs": False} if "return_outputs" in named else {}

    def backward(self, batch):
        """Returns the loss on the rank that has the last stage."""
        losses = []
        self.schedule.step(*((batch[:, :-1],) if self.first else ()),
                           target=batch[:, 1:] if self.last else None,
                           losses=losses if self.last else None, **self.named)
        return torch.stack([x.detach() for x in losses]).mean() if self.last else None

    def update(self, optimizer):
        """Clips by the norm of all ranks' gradients and steps. Returns the seconds it computed."""
        begun = time.perf_counter()
        grads = [p.grad for p in self.parameters]
        square = torch.nn.utils.get_total_norm(grads, foreach=True) ** 2
        before = time.perf_counter()
        dist.all_reduce(square, group=self.group)
        after = time.perf_counter()
        torch._foreach_mul_(grads, min(1.0, 1.0 / (float(square.sqrt()) + 1e-6)))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return time.perf_counter() - begun - (after - before)


def check(pipe, whole, alone, batch):
    """One forward and backward of the pipeline beside one rank's; raises if they are apart."""
    names = {id(p): n for n, p in whole.named_parameters()}
    loss, theirs = pipe.backward(batch), dict(alone.named_parameters())
    want = loss_of(alone(batch[:, :-1]), batch[:, 1:])
    want.backward()
    figures = torch.zeros(2)
    for p in pipe.parameters:
        q = theirs[names[id(p)]]
        figures += torch.stack((((p.grad - q.grad) ** 2).sum(), (q.grad ** 2).sum()))
        p.grad = None
    dist.all_reduce(figures, group=pipe.group)
    off = float((figures[0] / figures[1]) ** 0.5)
    if off > 1e-4 or (loss is not None and abs(loss - want) > 1e-5 * want):
        raise ValueError(f"not the function of one rank: gradients {off:.1e} apart")
    return off


def first_line(error):
    return f"{type(error).__name__}: {' '.join(str(error).splitlines()[:1])}"


def gathered(mine):
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, mine)
    return found


def load(model, path):
    """Weights with public names into torch_tensor's llama."""
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    public = {"attention.q": "self_attn.q_proj", "attention.k": "self_attn.k_proj",
              "attention.v": "self_attn.v_proj", "attention.out": "self_attn.o_proj",
              "mlp.gate": "mlp.gate_proj", "mlp.up": "mlp.up_proj", "mlp.down": "mlp.down_proj",
              "norm1": "input_layernorm", "norm2": "post_attention_layernorm"}
    names = {"embed.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight",
             "head.weight": "lm_head.weight"}
    for i in range(len(model.blocks)):
        names |= {f"blocks.{i}.{k}.weight": f"model.layers.{i}.{v}.weight"
                  for k, v in public.items()}
    kept = json.loads(data[8:8 + size])
    for name, p in model.named_parameters():
        begin, end = kept[names[name]]["data_offsets"]
        values = torch.frombuffer(bytearray(data[8 + size + begin:8 + size + end]),
                                  dtype=torch.float32)
        p.data.copy_(values.view(p.shape))


# ------------------------------------------------------------------------------- what it can run

class Tied(torch_tensor.Llama):
    """Embedding and head are one matrix."""

    def __init__(self, c, seq):
        super().__init__(c, seq)
        self.head.weight = self.embed.weight


def probe_tied(whole, job, rank, batch):
    """The library's own way to cut a model that shares a parameter: traced, then split."""
    alone = copy.deepcopy(whole)
    ranks = dist.get_world_size()
    cut = {f"blocks.{len(whole.blocks) * i // ranks}": pipelining.SplitPoint.BEGINNING
           for i in range(1, ranks)}
    pipe = pipelining.pipeline(whole, mb_args=(batch[:1, :-1],), split_spec=cut)
    stage = pipe.build_stage(rank, torch.device("cpu"))
    schedule = get_schedule_class(job["schedule"])(stage, job["micro"], loss_fn=loss_of)
    schedule.step(*((batch[:, :-1],) if rank == 0 else ()),
                  target=batch[:, 1:] if stage.is_last else None)
    loss_of(alone(batch[:, :-1]), batch[:, 1:]).backward()
    whole_grad = alone.embed.weight.grad
    mine = [p.grad for p in stage.submod.parameters()
            if p.shape == whole_grad.shape and p.grad is not None]
    worst = max(gathered(max((float((g - whole_grad).norm() / whole_grad.norm()) for g in mine),
                             default=0.0)))
    total = sum(mine, torch.zeros_like(whole_grad))
    dist.all_reduce(total)
    total = float((total - whole_grad).norm() / whole_grad.norm())
    if worst > 1e-4:
        raise ValueError("each rank that uses it steps a copy of the matrix by its own part of the gradient, "
                         f"{worst:.2f} of the whole's norm away from it (their sum {total:.0e})")


def probe(job, rank):
    """None if the pipeline runs and computes what one rank does, else the error's first line."""
    torch.manual_seed(1)
    c = job["model"]
    group = None
    if job.get("one_rank"):  # every rank makes every group
        group = [dist.new_group([r]) for r in range(dist.get_world_size())][rank]
    try:
        whole = (Tied if job.get("tied") else torch_tensor.Llama)(c, job["seq"])
        torch_peer.initialise(whole)
        batch = torch.randint(0, c["vocab"], (job["micro"], job["seq"] + 1))
        if job.get("tied"):
            probe_tied(whole, job, rank, batch)
        else:
            check(Rank(whole, job, rank, group), whole, copy.deepcopy(whole), batch)
    except Exception as error:  # what a library refuses with may be anything
        return first_line(error)
    return None


# ------------------------------------------------------------------------------- steps

def measure(job, rank):
    torch.manual_seed(1)
    c = job["model"]
    whole = torch_tensor.Llama(c, job["seq"])
    torch_peer.initialise(whole)
    shape = (-1, job["micro"], job["seq"] + 1)
    torch.manual_seed(100)
    ids = torch.randint(0, c["vocab"], (8, *shape[1:]))
    if "weights" in job:
        load(whole, job["weights"])
        flat = torch.frombuffer(bytearray(open(job["tokens"], "rb").read()), dtype=torch.uint16)
        ids = flat.long().unfold(0, job["seq"] + 1, job["seq"]).reshape(shape)
    count = sum(p.numel() for p in whole.parameters())
    alone = copy.deepcopy(whole)
    try:
        pipe = Rank(whole, job, rank)
    except Exception as error:
        return {"refused": first_line(error)}
    off = check(pipe, whole, alone, ids[0]) if job.get("check", True) else None
    del whole, alone
    how, optimizer = torch_peer.make_optimizer(pipe.modules)
    steps = []
    for i in range(job["steps"]):
        for s in pipe.stages:
            s.sent, s.busy = 0, 0.0
        begun = time.perf_counter()
        loss = pipe.backward(ids[i % len(ids)])
        busy = pipe.update(optimizer)
        loss = None if loss is None else loss.item()
        steps.append((time.perf_counter() - begun, busy + sum(s.busy for s in pipe.stages),
                      sum(s.sent for s in pipe.stages), loss))
    times = [s[0] for s in steps]
    ranks = gathered(steps)
    idle = [1 - sum(r[i][1] for r in ranks) / len(ranks) / times[i] for i in range(len(times))]
    return {"times": times, "parameters": count, "adamw": how, "off": off,
            "payload": sum(r[-1][2] for r in ranks), "share": sorted(idle)[len(idle) // 2],
            "losses": next([s[3] for s in r] for r in ranks if r[0][3] is not None)}


def rank_main(rank, job, meeting):
    torch_ranks.join(rank, job, meeting)
    if "probes" in job:
        answers = [gathered(probe(j, rank)) for j in job["probes"]]
        torch_ranks.leave(rank, {"probes": [next((a for a in x if a), None) for x in answers]})
    else:
        torch_ranks.leave(rank, measure(job, rank))


if __name__ == "__main__":
    torch_ranks.run(rank_main)
