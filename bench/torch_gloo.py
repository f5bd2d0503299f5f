# SPDX-License-Identifier: Apache-2.0
"""Gloo's all-reduce by size, through torch.distributed: a peer of bench/collectives.

One process for each rank, started with RANK, WORLD_SIZE and GW_STORE (a file they meet at).
Arguments: samples, seconds for each size, sizes in bytes. Rank 0 prints "BYTES SECONDS" lines: the
median over samples of the slowest rank's mean, float32 sums in place.
"""

import os
import statistics
import sys
import time

import torch
import torch.distributed as dist


def runs(data, n):
    dist.barrier()
    start = time.perf_counter()
    for _ in range(n):
        dist.all_reduce(data)
    mine = torch.tensor([(time.perf_counter() - start) / n], dtype=torch.float64)
    dist.all_reduce(mine, op=dist.ReduceOp.MAX)
    return mine.item()


def main():
    samples, seconds = int(sys.argv[1]), float(sys.argv[2])
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + os.environ["GW_STORE"], rank=rank,
                            world_size=int(os.environ["WORLD_SIZE"]))
    for size in map(int, sys.argv[3:]):
        data = torch.zeros(size // 4)
        runs(data, 2)
        n = min(5000, max(1, int(seconds / samples / runs(data, 2))))
        median = statistics.median(runs(data, n) for _ in range(samples))
        if rank == 0:
            print(size, median, flush=True)
    dist.destroy_process_group()


main()
