# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of bench/data_parallel: DistributedDataParallel over Gloo, one process a rank.

    python torch_ddp.py '{"model": {...}, "batch": 8, "seq": 256, "ranks": 2, "steps": 6, "threads": 1}'

Each rank steps on `batch` sequences of its own; models, optimizer and clipping are those of
torch_peer.py. Prints one JSON object: the seconds of each step, as rank 0 sees them.
"""

import time

import torch
from torch.nn.parallel import DistributedDataParallel

import torch_peer
import torch_ranks


def rank_main(rank, job, meeting):
    torch_ranks.join(rank, job, meeting)
    torch.manual_seed(1)
    c, batch, seq = job["model"], job["batch"], job["seq"]
    model = torch_peer.GPT2(c) if c["family"] == "gpt2" else torch_peer.Llama(c, seq)
    torch_peer.initialise(model)
    run = DistributedDataParallel(model)
    _, optimizer = torch_peer.make_optimizer(model)
    parameters = list(model.parameters())
    torch.manual_seed(100 + rank)
    ids = torch.randint(0, c["vocab"], (8, batch, seq + 1))
    times = []
    for i in range(job["steps"]):
        begun = time.perf_counter()
        row = ids[i % len(ids)]
        loss = run(row[:, :-1], row[:, 1:])
        loss.backward()
        torch_peer.clip(parameters)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        times.append(time.perf_counter() - begun)
    torch_ranks.leave(rank, {"times": times})


if __name__ == "__main__":
    torch_ranks.run(rank_main)
