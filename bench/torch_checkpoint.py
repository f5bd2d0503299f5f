# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of bench/checkpoint: ranks that save and load the same state by
torch.distributed.checkpoint over Gloo when they are told to.

    python torch_checkpoint.py '{"ranks": 2, "threads": 1, "tensors": FILE, "requests": PATH}'

Tensors, requests and answers are those of checkpoint.c, whose first lines say what they mean. A cut
tensor is a DTensor with Shard(0) over all ranks, as FSDP leaves it; one that is whole on each rank is
a plain tensor, as DistributedDataParallel leaves it: DCP writes it once.

    {"do": "save", "folder": PATH, "async": false}   dcp.save
    {"do": "save", "folder": PATH, "async": true}    dcp.async_save: a thread, and a stager of its own
                                                     for each save (the defaults)
    ... "keep": true                                 the same with one stager kept, so that its copies
                                                     go into memory that is there already
    ... "process": true                              a process saves instead of a thread

Nothing else is set. DCP syncs its files as gradwright does; it has no hashes.
"""

import ctypes
import gc
import json
import os
import resource
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

import torch_ranks

VALUES = 1 << 23
PIECE = 1 << 20


def pieces(flat):
    for at in range(0, flat.numel(), PIECE):
        yield at, flat[at:at + PIECE]


def values(tensor, first, n):
    return ((torch.arange(first, first + n) + tensor * 7919) & (VALUES - 1)).to(torch.float32)


def status_bytes(key):
    with open("/proc/self/status") as f:
        for line in f:
            if line.startswith(key):
                return int(line.split()[1]) * 1024
    return 0


def forget_peak():
    """Gives free memory back and sets the peak to what is held then; returns that."""
    ctypes.CDLL(None).malloc_trim(0)
    try:
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")
    except OSError:
        pass
    return status_bytes("VmRSS:")


def cpu_s():
    u = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return u.ru_utime + u.ru_stime + children.ru_utime + children.ru_stime


class Rank:
    def __init__(self, rank, job):
        self.rank, self.ranks = rank, job["ranks"]
        self.mesh = init_device_mesh("cpu", (self.ranks,))
        self.beside = dist.new_group(backend="gloo")  # of saves that run beside the steps
        self.stager = None
        self.state, self.flats = {}, []
        with open(job["tensors"]) as f:
            rows = json.load(f)
        for i, row in enumerate(rows):
            self.add(i, row)
        self.held = sum(4 * flat.numel() for _, _, flat in self.flats)

    def add(self, i, row):
        dims = list(row["dims"])
        if row["cut"]:
            dims[0] //= self.ranks
        local = torch.empty(dims)
        flat = local.view(-1)
        first = flat.numel() * self.rank if row["cut"] else 0
        for at, piece in pieces(flat):
            piece.copy_(values(i, first + at, piece.numel()))
        self.flats.append((i, first, flat))
        self.state[row["name"]] = (DTensor.from_local(local, self.mesh, [Shard(0)], run_check=False)
                                   if row["cut"] else local)

    def spoil(self):
        for _, _, flat in self.flats:
            flat.fill_(float("nan"))

    def compare(self):
        for i, first, flat in self.flats:
            for at, piece in pieces(flat):
                if not torch.equal(piece, values(i, first + at, piece.numel())):
                    raise SystemExit(f"rank {self.rank}: tensor {i} is wrong")

    def save(self, request):
        begun = time.perf_counter()
        if not request["async"]:
            dcp.save(self.state, checkpoint_id=request["folder"])
            return time.perf_counter() - begun
        how = {}
        if request.get("process"):
            how["async_checkpointer_type"] = dcp.state_dict_saver.AsyncCheckpointerType.PROCESS
        if request.get("keep"):
            if self.stager is None:
                options = dcp.staging.StagingOptions(False, False, False, False)
                self.stager = dcp.staging.DefaultStager(options)
            how["async_stager"] = self.stager
        saving = dcp.async_save(self.state, checkpoint_id=request["folder"],
                                process_group=self.beside, **how)
        staged = time.perf_counter() - begun
        saving.result()
        return staged

    def load(self, request):
        dcp.load(self.state, checkpoint_id=request["folder"])

    def serve(self, request):
        saves = request["do"] == "save"
        if not saves:
            self.spoil()
        gc.collect()
        memory = forget_peak()
        if request.get("keep") and self.stager is not None:
            memory -= self.held  # of its memory, which is there already
        dist.barrier()
        cpu, begun = cpu_s(), time.perf_counter()
        held = self.save(request) if saves else self.load(request)
        total = time.perf_counter() - begun
        mine = dict(total_s=total, cpu_s=cpu_s() - cpu,
                    memory=status_bytes("VmHWM:") - memory)
        if saves:
            mine["held_s"] = held
        if request.get("check"):
            self.compare()
        told = [None] * self.ranks
        dist.all_gather_object(told, mine)
        if self.rank == 0:
            print(json.dumps({k: (sum if k == "cpu_s" else max)(t[k] for t in told) for k in mine}),
                  flush=True)


def rank_main(rank, job, meeting):
    warnings.filterwarnings("ignore")
    torch_ranks.join(rank, job, meeting)
    served = Rank(rank, job)
    dist.barrier()
    if rank == 0:
        print(json.dumps({"version": torch.__version__}), flush=True)
    with open(f"{job['requests']}.{rank}") as requests:
        for line in requests:
            request = json.loads(line)
            if request["do"] == "end":
                break
            served.serve(request)
    dist.barrier()
    dist.destroy_process_group()
    if served.stager is not None:
        served.stager.close()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch_ranks.run(rank_main)
