# SPDX-License-Identifier: Apache-2.0
"""Transformer blocks over two ranks: tensor and sequence parallelism, beside PyTorch's.

Llama blocks (hidden 768, 12 heads, feed-forward 2,048; two of them, vocabulary 1,024; float32,
AdamW, clipping), sequences of 512 tokens. On the same cores: tensor parallelism with and without
sequence parallelism, the model on one rank with all cores, and
torch.distributed.tensor.parallel over Gloo in both forms. Bytes are those rank 0 sends in a step.
"""

import argparse
import os
import pathlib
import shutil
import sys
import tempfile

import axis
import train_step as base

MODEL = axis.llama(layers=2, hidden=768, heads=12, ffn=2048, vocab=1024)
SEQ = 512
FORMS = {"tensor": False, "tensor + sequence": True}


def programs(options, work):
    ranks, threads = options.ranks, max(1, len(options.cores) // options.ranks)
    found = {"one rank, all cores":
             lambda: axis.run_ours(options, work, "one rank", 1, options.steps, [])}
    for name, cut_s in FORMS.items():
        sets = [f"layout.tp={ranks}", f"layout.sequence_parallel={'true' if cut_s else 'false'}"]
        found[f"{name}, {ranks} ranks"] = (
            lambda name=name, sets=sets: axis.run_ours(options, work, name, ranks, options.steps,
                                                       sets))
    for name, cut_s in FORMS.items():
        if not options.torch:
            break
        job = dict(model=MODEL, batch=options.batch, seq=SEQ, ranks=ranks, threads=threads,
                   steps=axis.THROWN + options.steps, sequence_parallel=cut_s)
        found[f"PyTorch {name}"] = (
            lambda name=name, job=job: axis.run_torch(options, work, f"PyTorch {name}",
                                                      "torch_tensor.py", job))
    return found


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--batch", type=int, default=2, help="sequences of 512 tokens (default 2)")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--steps", type=int, help="steps that count in a turn (default 5)")
    p.add_argument("--turns", type=int, help="turns of each program (default 4)")
    p.add_argument("--quick", action="store_true", help="2 turns of 3 steps")
    p.add_argument("--no-torch", dest="torch", action="store_false")
    options = p.parse_args()
    if options.quick:
        options.steps, options.turns = options.steps or 3, options.turns or 2
    options.steps, options.turns = options.steps or 5, options.turns or 4
    options.binary = os.environ.get("GW_BIN", str(axis.HERE.parent / "gradwright"))
    options.python = os.environ.get("GW_BENCH_PYTHON", "python3")
    options.cores = axis.begin("tensor_parallel")
    work = pathlib.Path(tempfile.mkdtemp(prefix="gw-tensor-parallel-"))
    try:
        axis.write_run(work, MODEL, options.batch, SEQ, tied=False)
        print(f"{MODEL['layers']} blocks of hidden {MODEL['hidden']}, "
              f"{options.batch} x {SEQ} tokens")
        taken = axis.take_turns(programs(options, work), options.turns, "tensor")
        axis.show(taken, options.batch * SEQ, [f"PyTorch {n}" for n in FORMS],
                  "one rank, all cores")
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
