# SPDX-License-Identifier: Apache-2.0
"""Two ranks of one core beside one rank of two cores, and PyTorch's DDP beside both.

The same global batch every way (GPT-2 124M, 4,096 tokens a step in sequences of 256), AdamW, float32,
clipping. The programs take turns: each turn starts a program anew, throws its first steps away and
counts the rest; every second round goes backwards. Only one runs at any moment.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

import train_step as base

HERE = pathlib.Path(__file__).resolve().parent
TOKENS, SEQ, THROWN = 4096, 256, 2
EFFICIENCY_GOAL, DDP_GOAL = 0.95, 1.5


def run_ours(options, work, ranks, zero, label, log):
    out = work / f"{label}"
    shutil.rmtree(out, ignore_errors=True)
    command = [options.binary, "train", work / "run.yaml", "--out", out,
               "--set", f"train.steps={THROWN + options.steps}",
               "--set", f"train.micro_batch={TOKENS // SEQ // ranks}",
               "--set", f"train.threads={max(1, len(options.cores) // ranks)}"]
    if ranks > 1:
        command += ["--ranks", str(ranks), "--set", f"layout.zero={zero}"]
    with open(log, "a") as errors:
        status = subprocess.run([str(c) for c in command], stderr=errors, stdout=errors,
                                stdin=subprocess.DEVNULL, timeout=3600,
                                preexec_fn=lambda: base.bind(options.cores)).returncode
    if status != 0:
        tail = pathlib.Path(log).read_text(errors="replace").strip().splitlines()[-8:]
        raise base.Failed(f"{label} ended with status {status}\n" + "\n".join(tail))
    lines = [json.loads(t) for t in (out / "metrics.jsonl").read_text().splitlines()]
    lines = [x for x in lines if "step_s" in x]
    shutil.rmtree(out, ignore_errors=True)
    return [x["step_s"] for x in lines[THROWN:]]


def run_ddp(options, log):
    job = dict(model=base.MODELS[options.model], batch=TOKENS // SEQ // 2, seq=SEQ, ranks=2,
               steps=THROWN + options.steps, threads=max(1, len(options.cores) // 2))
    with open(log, "a") as errors:
        done = subprocess.run([options.python, HERE / "torch_ddp.py", json.dumps(job)],
                              stdout=subprocess.PIPE, stderr=errors, text=True, timeout=3600,
                              env=dict(os.environ, OMP_NUM_THREADS=str(job["threads"])),
                              preexec_fn=lambda: base.bind(options.cores))
    if done.returncode != 0:
        tail = pathlib.Path(log).read_text(errors="replace").strip().splitlines()[-3:]
        raise base.Failed("PyTorch DDP cannot run: " + " ".join(tail))
    return json.loads(done.stdout.strip().splitlines()[-1])["times"][THROWN:]


def measure(options, work):
    log = work / "log"
    programs = {
        "one rank, two cores": lambda: run_ours(options, work, 1, 0, "one", log),
        "two ranks, zero 0": lambda: run_ours(options, work, 2, 0, "zero0", log),
        "two ranks, zero 1": lambda: run_ours(options, work, 2, 1, "zero1", log),
        "PyTorch DDP, Gloo": lambda: run_ddp(options, log),
    }
    turns = {name: [] for name in programs}
    for i in range(options.turns):
        names = list(programs) if i % 2 == 0 else list(programs)[::-1]
        for name in names:
            if name not in turns:
                continue
            base.say(f"turn {i + 1} of {options.turns}: {name}")
            try:
                turns[name].append(programs[name]())
            except base.Failed as e:
                base.say(str(e))
                del turns[name]
    return turns


def show(turns):
    medians, spreads = {}, {}
    print(f"{'':24}{'median s':>10}{'minimum s':>11}{'tokens/s':>10}{'A to A':>8}")
    for name, lists in turns.items():
        flat = [t for turn in lists for t in turn]
        medians[name] = statistics.median(flat)
        spreads[name] = base.spread(lists) if len(lists) > 1 else None
        noise = "-" if spreads[name] is None else f"{100 * spreads[name]:.1f}%"
        print(f"  {name:22}{medians[name]:10.3f}{min(flat):11.3f}{TOKENS / medians[name]:10.0f}"
              f"{noise:>8}")
    one = medians.get("one rank, two cores")
    for name in ("two ranks, zero 0", "two ranks, zero 1"):
        if name not in medians or one is None:
            continue
        ratio = one / medians[name]
        print(f"  {name}: {ratio:.3f} of one rank's tokens/s; goal >= {EFFICIENCY_GOAL}: "
              f"{'met' if ratio >= EFFICIENCY_GOAL else 'missed'}")
        ddp = medians.get("PyTorch DDP, Gloo")
        if ddp:
            print(f"  {name}: {ddp / medians[name]:.2f}x PyTorch DDP; goal >= {DDP_GOAL}: "
                  f"{'met' if ddp / medians[name] >= DDP_GOAL else 'missed'}")
    known = [s for s in spreads.values() if s is not None]
    if known:
        print(f"  largest A-to-A difference {100 * max(known):.1f}%: a difference below three times "
              "that says nothing")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--steps", type=int, default=5, help="steps that count in a turn (default 5)")
    p.add_argument("--turns", type=int, default=4, help="turns of each program (default 4)")
    p.add_argument("--model", default="gpt2-124m", choices=list(base.MODELS))
    options = p.parse_args()
    options.binary = os.environ.get("GW_BIN", str(HERE.parent / "gradwright"))
    options.python = os.environ.get("GW_BENCH_PYTHON", "python3")
    options.cores = sorted(os.sched_getaffinity(0))[:2]
    if len(options.cores) < 2:
        raise SystemExit("bench/data_parallel needs two cores; this process may use one")
    work = pathlib.Path(tempfile.mkdtemp(prefix="gw-data-parallel-"))
    try:
        case = base.Case(options.model, (TOKENS // SEQ, SEQ), "f32")
        base.write_tokens(work / "tokens", case)
        (work / "run.yaml").write_text(base.run_file(case, argparse.Namespace(cores=options.cores),
                                                     work))
        print(f"{base.cpu_name()}, cores {','.join(map(str, options.cores))}; {options.model}, "
              f"{TOKENS} tokens a step, sequences of {SEQ}")
        show(measure(options, work))
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
