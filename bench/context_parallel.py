# SPDX-License-Identifier: Apache-2.0
"""One sequence cut over ranks: ring, Ulysses and all-gather by its length, beside PyTorch.

A small llama (2 layers, hidden 256, 4 heads, vocabulary 1,024; float32, AdamW, clipping), one
sequence a step. On the same cores: the three modes on several ranks, the model on one rank with
all cores, PyTorch's context_parallel where it runs on CPUs, and ring attention by hand over
torch.distributed (Gloo). Bytes are those rank 0 sends in a step, gradients' all-reduce included; of
the ring by hand only its ring.
"""

import argparse
import os
import pathlib
import shutil
import sys
import tempfile

import axis
import train_step as base

MODEL = axis.llama(layers=2, hidden=256, heads=4, ffn=704, vocab=1024)
MODES = {"ring": ["layout.cp_mode=ring"], "Ulysses": ["layout.cp_mode=ulysses"],
         "all-gather": ["layout.cp_mode=allgather"]}
LIBRARY, BY_HAND = "PyTorch context_parallel", "PyTorch, ring by hand"


def programs(options, work, seq):
    ranks, steps = options.ranks, max(1, min(options.steps, options.steps * 4096 // seq))
    threads = max(1, len(options.cores) // ranks)
    found = {"one rank, all cores":
             lambda: axis.run_ours(options, work, "one rank", 1, steps, [])}
    for name, sets in MODES.items():
        found[f"{name}, {ranks} ranks"] = (
            lambda name=name, sets=sets: axis.run_ours(
                options, work, name, ranks, steps, [f"layout.cp={ranks}"] + sets))
    for name, how in ((LIBRARY, "library"), (BY_HAND, "ring")):
        if not options.torch or (how == "library" and options.broken):
            continue
        job = dict(model=MODEL, seq=seq, ranks=ranks, steps=axis.THROWN + steps, threads=threads,
                   how=how)
        found[name] = lambda name=name, job=job: torch(options, work, name, job)
    return found


def torch(options, work, name, job):
    try:
        seconds, notes = axis.run_torch(options, work, name, "torch_context.py", job)
    except base.Failed:
        options.broken |= job["how"] == "library"
        raise
    if job["how"] == "ring":
        notes["payload"] = notes["ring_bytes"]
    return seconds, notes


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--lengths", help="tokens of the sequence (default 1024,4096,16384)")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--steps", type=int,
                   help="steps that count in a turn, fewer beyond 4096 tokens (default 5)")
    p.add_argument("--turns", type=int, help="turns of each program (default 4)")
    p.add_argument("--quick", action="store_true", help="1024 and 4096 tokens, 2 turns of 3 steps")
    p.add_argument("--no-torch", dest="torch", action="store_false")
    options = p.parse_args()
    if options.quick:
        options.lengths = options.lengths or "1024,4096"
        options.steps, options.turns = options.steps or 3, options.turns or 2
    options.steps, options.turns = options.steps or 5, options.turns or 4
    options.binary = os.environ.get("GW_BIN", str(axis.HERE.parent / "gradwright"))
    options.python = os.environ.get("GW_BENCH_PYTHON", "python3")
    options.cores, options.broken = axis.begin("context_parallel"), False
    for seq in (int(s) for s in (options.lengths or "1024,4096,16384").split(",")):
        work = pathlib.Path(tempfile.mkdtemp(prefix="gw-context-parallel-"))
        try:
            axis.write_run(work, MODEL, 1, seq, tied=True)
            print(f"\n{seq} tokens")
            taken = axis.take_turns(programs(options, work, seq), options.turns, f"{seq} tokens")
            axis.show(taken, seq, [LIBRARY, BY_HAND], "one rank, all cores")
        finally:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
