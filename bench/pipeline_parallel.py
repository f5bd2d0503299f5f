# SPDX-License-Identifier: Apache-2.0
"""A llama cut into stages: every schedule beside torch.distributed.pipelining.

Llama blocks (hidden 512, 8 heads, feed-forward 1,408; eight of them, vocabulary 1,024; float32,
AdamW, clipping over all stages), one sequence a micro-batch. Before anything is timed: the same
weights and tokens give both sides the same losses, and each side says what it can run. Then ours and
PyTorch's over Gloo take turns on the same cores, with the same stages, micro-batches and threads. Bytes
are those of messages between stages in a step, of all ranks.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import axis
import train_step as base

MODEL = axis.llama(layers=8, hidden=512, heads=8, ffn=1408, vocab=1024)
SMALL = axis.llama(layers=8, hidden=64, heads=4, ffn=128, vocab=320)
SCHEDULES = [  # ours, PyTorch's, stages a rank
    ("gpipe", "GPipe", 1), ("1f1b", "1F1B", 1), ("interleaved", "Interleaved1F1B", 2),
    ("zb-h1", "InterleavedZeroBubble", 1), ("zbv", "ZBVZeroBubble", 2),
    ("dualpipev", "DualPipeV", 2), ("zb-2p", None, 1), (None, "LoopedBFS", 2),
    (None, "InterleavedZeroBubble", 2)]
REFERENCE = "one rank, all cores"
PATIENCE = 120  # seconds that a rank of the peer waits for another


def even(layers, stages):
    return [layers * (i + 1) // stages - layers * i // stages for i in range(stages)]


def sets_of(schedule, ranks, virtual, micro, deal):
    return [f"layout.pp={ranks}", f"layout.schedule={schedule}",
            f"layout.virtual_stages={virtual}", f"layout.stages={deal}",
            f"train.accumulate={micro}", f"train.global_batch={micro}"]


def job_of(options, model, seq, schedule, virtual, micro):
    return dict(model=model, seq=seq, ranks=options.ranks, virtual=virtual, micro=micro,
                threads=max(1, len(options.cores) // options.ranks), schedule=schedule,
                stages=even(model["layers"], options.ranks * virtual), patience=PATIENCE)


def torch(options, work, name, job):
    """Compared with one rank's before it is timed, the first time that it runs."""
    job = job | {"check": str(sorted(job.items())) not in options.checked}
    seconds, notes = axis.run_torch(options, work, name, "torch_pipeline.py", job)
    if "refused" in notes:
        raise base.Failed(f"PyTorch refuses: {notes['refused']}")
    options.checked.add(str(sorted((k, v) for k, v in job.items() if k != "check")))
    return seconds, notes


# ------------------------------------------------------------------------------- the same function

def agree(options, work):
    """Both sides from the same weights, on the same batch over and over: losses of three steps."""
    micro, seq, ranks = 4, 64, options.ranks
    axis.write_run(work, MODEL, micro, seq, tied=False, accumulate=micro, batches=1)
    sets = sets_of("1f1b", ranks, 1, micro, even(MODEL["layers"], ranks))
    weights = work / "weights"
    start = axis.train(options, work, "ours", ranks, 1, sets + ["optimizer.lr=0"])
    done = subprocess.run([options.binary, "export", start, "--out", weights],
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise base.Failed(f"export: {done.stderr.strip()}")
    ours = [x["loss"] for x in axis.steps_of(axis.train(options, work, "ours", ranks, 3, sets))]
    job = job_of(options, MODEL, seq, "1F1B", 1, micro) | dict(
        steps=3, weights=str(weights / "model.safetensors"), tokens=str(work / "tokens.bin"))
    theirs = torch(options, work, "PyTorch 1F1B", job)[1]["losses"]
    apart = max(abs(a - b) / b for a, b in zip(ours, theirs, strict=True))
    said = [", ".join(f"{x:.6f}" for x in side) for side in (ours, theirs)]
    print(f"\nlosses of 3 steps from the same weights, 1F1B: ours {said[0]}; PyTorch {said[1]}: "
          f"{apart:.1e} apart")
    if apart > 1e-4:
        raise SystemExit("the two sides do not train the same function")


# ------------------------------------------------------------------------------- what each can run

def cases(p):
    """(what, ours, PyTorch's, stages a rank, micro-batches, layers of stages, more of the job)"""
    groups = 2 * p + 1  # two groups of p and one more
    uneven = [1] + even(SMALL["layers"] - 1, p - 1)
    return [
        ("gpipe, 1 micro-batch", "gpipe", "GPipe", 1, 1, None, {}),
        ("1f1b, 1 micro-batch", "1f1b", "1F1B", 1, 1, None, {}),
        ("1f1b, stages of unequal layers", "1f1b", "1F1B", 1, p, uneven, {}),
        ("1f1b, embedding and head tied", "1f1b", "1F1B", 1, p, None, {"tied": True}),
        ("1f1b over one rank", None, "1F1B", 1, 2, None, {"one_rank": True}),
        ("interleaved, 1 micro-batch", "interleaved", "Interleaved1F1B", 2, 1, None, {}),
        (f"interleaved, {groups} micro-batches", "interleaved", "Interleaved1F1B", 2, groups, None,
         {}),
        ("zb-h1, 1 micro-batch", "zb-h1", "InterleavedZeroBubble", 1, 1, None, {}),
        (f"zb-h1, {groups} micro-batches", "zb-h1", "InterleavedZeroBubble", 1, groups, None, {}),
        ("zbv, 1 micro-batch", "zbv", "ZBVZeroBubble", 2, 1, None, {}),
        (f"zbv, {groups} micro-batches", "zbv", "ZBVZeroBubble", 2, groups, None, {}),
        (f"dualpipev, {2 * p - 1} micro-batches", "dualpipev", "DualPipeV", 2, 2 * p - 1, None, {}),
    ]


def first_error(log):
    lines = pathlib.Path(log).read_text(errors="replace").splitlines()
    line = next((x for x in lines if "error:" in x), lines[-1] if lines else "no message")
    return line[max(0, line.find("error:")):]


def try_ours(options, work, case):
    """One step; its own refusal where there is one. On one rank there is nothing to cut."""
    what, ours, _, virtual, micro, deal, more = case
    alone = "one_rank" in more
    ranks = 1 if alone else options.ranks
    axis.write_run(work, SMALL, micro, 32, tied="tied" in more, accumulate=micro, batches=1)
    deal = deal or even(SMALL["layers"], ranks * virtual)
    try:
        axis.train(options, work, what, ranks, 1,
                   [] if alone else sets_of(ours, ranks, virtual, micro, deal))
        return "runs, as it does without stages" if alone else "runs"
    except base.Failed:
        return first_error(work / "log")


def compare_reach(options, work):
    found = cases(options.ranks)
    jobs = []
    for _, _, theirs, virtual, micro, deal, more in found:
        job = job_of(options, SMALL, 32, theirs, virtual, micro)
        ranks = 1 if "one_rank" in more else options.ranks
        jobs.append(job | more | dict(stages=deal or even(SMALL["layers"], ranks * virtual)))
    answers = ["not tried"] * len(found)
    if options.torch:
        base.say("what each side can run")
        try:
            job = dict(ranks=options.ranks, threads=1, patience=PATIENCE, probes=jobs)
            _, notes = axis.run_torch(options, work, "PyTorch", "torch_pipeline.py", job)
            answers = [a or "runs" for a in notes["probes"]]
        except base.Failed as e:
            answers = [str(e).splitlines()[0]] * len(found)
    print(f"\nwhat runs on {options.ranks} ranks (one step; PyTorch's compared with one rank's):")
    for case, answer in zip(found, answers, strict=True):
        print(f"  {case[0]}\n    ours: {try_ours(options, work, case)}\n    PyTorch: {answer}")


# ------------------------------------------------------------------------------- steps

def programs(options, work, micro, rows):
    """The programs of a table, and which of PyTorch's stands beside which of ours."""
    ranks, steps, beside = options.ranks, options.steps, {}
    whole = [f"train.accumulate={micro}", f"train.global_batch={micro}"]
    found = {REFERENCE: lambda: axis.run_ours(options, work, REFERENCE, 1, steps, whole)}
    for ours, theirs, virtual in rows:
        suffix = f", v {virtual}" if virtual > 1 else ""
        sets = sets_of(ours, ranks, virtual, micro, even(MODEL["layers"], ranks * virtual))
        if ours:
            found[ours + suffix] = (
                lambda name=ours, sets=sets: axis.run_ours(options, work, name, ranks, steps, sets))
        if not theirs or not options.torch:
            continue
        name = f"PyTorch {theirs}{suffix}"
        job = job_of(options, MODEL, options.seq, theirs, virtual, micro)
        job["steps"] = axis.THROWN + steps
        found[name] = lambda name=name, job=job: torch(options, work, name, job)
        beside[ours + suffix if ours else f"none of ours beside {name}"] = name
    return found, beside


def compare_steps(options, work, micro, rows):
    axis.write_run(work, MODEL, micro, options.seq, tied=False, accumulate=micro)
    print(f"\n{MODEL['layers']} blocks of hidden {MODEL['hidden']} on {options.ranks} ranks, {micro} "
          f"micro-batches of {options.seq} tokens")
    found, beside = programs(options, work, micro, rows)
    taken = axis.take_turns(found, options.turns, f"{micro} micro-batches")
    axis.show(taken, micro * options.seq, beside, REFERENCE, share="idle")
    medians = axis.medians_of(taken)
    peers = [n for n in medians if n in beside.values()]
    mine = [n for n in medians if n not in peers and n != REFERENCE]
    if mine and peers:
        a, b = min(mine, key=medians.get), min(peers, key=medians.get)
        print(f"  fastest of each side: {a} is {axis.ratio_text(taken, a, b)}")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--ranks", type=int, default=2, help="ranks of the pipeline: 2 or 4 (default 2)")
    p.add_argument("--micro-batches", help="numbers of them (default 4,8)")
    p.add_argument("--schedules", help="of ours, by name, with the peer's beside it (default all)")
    p.add_argument("--steps", type=int, help="steps that count in a turn (default 5)")
    p.add_argument("--turns", type=int, help="turns of each program (default 4)")
    p.add_argument("--quick", action="store_true",
                   help="4 micro-batches of 64 tokens, what both sides have, 2 turns of 2 steps")
    p.add_argument("--no-torch", dest="torch", action="store_false")
    options = p.parse_args()
    if options.ranks not in (2, 4):
        p.error("--ranks is 2 or 4: the layers go into 2 or 4 equal stages, or twice as many")
    if options.quick:
        options.micro_batches = options.micro_batches or "4"
        options.steps, options.turns = options.steps or 2, options.turns or 2
    options.steps, options.turns = options.steps or 5, options.turns or 4
    options.seq = 64 if options.quick else 256
    options.binary = os.environ.get("GW_BIN", str(axis.HERE.parent / "gradwright"))
    options.python = os.environ.get("GW_BENCH_PYTHON", "python3")
    options.cores, options.checked = axis.begin("pipeline_parallel", options.ranks), set()
    if len(options.cores) < options.ranks:
        print(f"{options.ranks} ranks share {len(options.cores)} cores: no rank's idle time shortens "
              "a step here")
    wanted = options.schedules.split(",") if options.schedules else [n for n, _, _ in SCHEDULES]
    rows = [r for r in SCHEDULES if r[0] in wanted and not (options.quick and None in r)]
    work = pathlib.Path(tempfile.mkdtemp(prefix="gw-pipeline-parallel-"))
    try:
        if options.torch:
            try:
                agree(options, work)
            except base.Failed as e:
                print(f"\nlosses are not compared: {e}")
        compare_reach(options, work)
        for micro in (int(m) for m in (options.micro_batches or "4,8").split(",")):
            compare_steps(options, work, micro, rows)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
