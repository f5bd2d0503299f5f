# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of bench/data_parallel: DistributedDataParallel over Gloo, one process a rank.

    python torch_ddp.py '{"model": {...}, "batch": 8, "seq": 256, "ranks": 2, "steps": 6, "threads": 1}'

Each rank steps on `batch` sequences of its own; models, optimizer and clipping are those of
torch_peer.py. Prints one JSON object: the seconds of each step, as rank 0 sees them.
"""

import json
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

import torch_peer


def rank_main(rank, job, meeting):
    torch.set_num_threads(job["threads"])
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, [cores[(rank * job["threads"] + i) % len(cores)]
                             for i in range(job["threads"])])
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank,
                            world_size=job["ranks"])
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
    if rank == 0:
        print(json.dumps({"times": times, "version": torch.__version__}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    job = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="gw-ddp-") as folder:
        mp.spawn(rank_main, args=(job, os.path.join(folder, "meet")), nprocs=job["ranks"])


if __name__ == "__main__":
    main()
