# SPDX-License-Identifier: Apache-2.0
"""Ranks of a PyTorch run, one process each, Gloo between them: what torch_ddp.py, torch_context.py,
torch_tensor.py and torch_pipeline.py share.

A job is a dict with `ranks` and `threads` at least, and `patience`, seconds to wait for another rank,
if 30 minutes are too many; a script has it as JSON from its first argument.
"""

import datetime
import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def join(rank, job, meeting):
    """In a rank's process, first of all: its threads and cores, and the group of all ranks."""
    threads = job["threads"]
    torch.set_num_threads(threads)
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, [cores[(rank * threads + i) % len(cores)] for i in range(threads)])
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank,
                            world_size=job["ranks"],
                            timeout=datetime.timedelta(seconds=job.get("patience", 1800)))


def leave(rank, result):
    """Last of all: rank 0 prints the result as one JSON object."""
    if rank == 0:
        print(json.dumps({"version": torch.__version__, **result}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def run(body):
    """Starts body(rank, job, meeting) on every rank and waits for all of them."""
    job = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="gw-torch-") as folder:
        mp.spawn(body, args=(job, os.path.join(folder, "meet")), nprocs=job["ranks"])
