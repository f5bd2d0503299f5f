# SPDX-License-Identifier: Apache-2.0
"""Idle time of every schedule: derived, and measured with stages of a decreed length.

A schedule is made by `gradwright schedule`, with the times of F, I and W that GW_PACE then gives to
each stage, and written as text. The same text is read by the clock, which derives its figures, and by
`gradwright train`, which obeys it with a tiny model whose ranks sleep most of the time. Measured are
the actions' own clocks: the bubble by both conventions is the median over the steps behind the first,
the longest span that of the latest step. Exit status 1 where one of them differs by more than the
bound, relative to the derived one; a span stands for idle time where that is zero.

Then the same with `optimizer.norm` exact and deferred: how long a step among many takes. Nothing is
clipped there, as a step that clips is one that waits; the first steps, which wait too, do not count.
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

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCHEDULES = {"gpipe": 1, "1f1b": 1, "interleaved": 2, "zb-h1": 1, "zb-2p": 1, "zbv": 2,
             "dualpipev": 2}  # stages a rank
RUN = """\
model: {{family: llama, layers: 8, hidden: 16, heads: 2, ffn: 32, tie_embeddings: false}}
data: {{train: {tokens}, tokenizer: bytes}}
train: {{seq_len: 16, micro_batch: 1, threads: 1}}
checkpoint: {{every: 0}}
"""


class Failed(Exception):
    pass


def program():
    for path in (os.environ.get("GW_BIN"), ROOT / "gradwright"):
        if path and os.access(path, os.X_OK):
            return os.path.abspath(path)
    sys.exit("bench/pipeline_bubble: no gradwright: run make, or name it with GW_BIN")


def gradwright(*words, pace=None):
    env = {k: v for k, v in os.environ.items() if k != "GW_PACE"}
    if pace:
        env["GW_PACE"] = pace
    done = subprocess.run([program(), *map(str, words)], capture_output=True, text=True, env=env,
                          timeout=1800, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise Failed(f"gradwright {words[0]} ended with status {done.returncode}\n"
                     f"{(done.stderr or done.stdout).strip()[-800:]}")
    return done.stdout


def prepare(work):
    text = work / "text"
    text.write_text("".join(f"the wright makes step {i} and another. \n" for i in range(400)))
    gradwright("tokenizer", "encode", "bytes", text, "--out", work / "tokens")
    (work / "run.yaml").write_text(RUN.format(tokens=json.dumps(str(work / "tokens"))))


def derive(work, name, ranks, micro, times):
    costs = ["--costs", ",".join(map(str, times))]
    text = gradwright("schedule", name, "--ranks", ranks, "--micro-batches", micro, *costs, "--text")
    (work / "schedule.txt").write_text(text)
    return json.loads(gradwright("schedule", work / "schedule.txt", *costs, "--json"))


def train(work, ranks, virtual, micro, times, steps, *sets):
    out = work / "run"
    shutil.rmtree(out, ignore_errors=True)
    words = []
    for s in (f"layout.pp={ranks}", f"layout.virtual_stages={virtual}",
              f"layout.schedule=file:{work}/schedule.txt", f"train.accumulate={micro}",
              f"train.steps={steps + 1}", *sets):
        words += ["--set", s]
    gradwright("train", work / "run.yaml", "--ranks", ranks, "--out", out, *words,
               pace=",".join(map(str, times)))
    lines = [json.loads(t) for t in (out / "metrics.jsonl").read_text().splitlines()]
    return [x for x in lines if "bubble" in x][1:], json.loads((out / "timeline.json").read_text())


def longest_span(timeline):
    spans = {}
    for rank, action, begin, end in timeline["actions"]:
        if action[0] in "FBIW":
            first, last, busy = spans.get(rank, (begin, end, 0.0))
            spans[rank] = (min(first, begin), max(last, end), busy + end - begin)
    return max((last - first, 1 - busy / (last - first)) for first, last, busy in spans.values())


def row(label, ranks, micro, figures):
    out = f"{label:<12}{ranks:>3}{micro:>4}"
    worst = 0.0
    for derived, measured in figures:
        ratio = measured / derived
        worst = max(worst, abs(ratio - 1))
        out += f"  {derived:9.4f} {measured:9.4f} {ratio:6.3f}"
    print(out, flush=True)
    return worst


def bubbles(options, work):
    print(f"stages last F, I, W = {options.pace} s; {options.steps} steps\n\n"
          f"{'':19}  {'bubble/compute':^26}  {'bubble/step':^26}  {'longest span, s':^26}\n"
          f"{'schedule':<12}{'p':>3}{'m':>4}" + f"  {'derived':>9} {'measured':>9} {'ratio':>6}" * 3)
    worst = 0.0
    for ranks in options.ranks:
        for micro in options.micro:
            for name in options.schedules:
                want = derive(work, name, ranks, micro, options.times)
                steps, timeline = train(work, ranks, SCHEDULES[name], micro, options.times,
                                        options.steps)
                step = statistics.median(x["bubble"] for x in steps)
                worst = max(worst, row(name, ranks, micro, [
                    (want["bubble_compute"]["derived"], step / (1 - step)),
                    (want["bubble_step"]["derived"], step),
                    (want["longest_span"], longest_span(timeline)[0])]))
    print(f"\nlargest difference {100 * worst:.1f} %; bound {100 * options.bound:.1f} %")
    return worst


def norms(options, work):
    print(f"\noptimizer.norm: a step among many, s\n"
          f"{'schedule':<12}{'p':>3}{'m':>4}  {'exact':^19}  {'deferred':^19}\n"
          f"{'':19}" + f"  {'derived':>9} {'measured':>9}" * 2)
    ranks, micro = max(options.ranks), max(options.micro)
    worst = 0.0
    for name in options.schedules:
        want = derive(work, name, ranks, micro, options.times)
        figures = []
        for norm, derived in (("exact", want["step"]), ("deferred", want["longest_span"])):
            steps, _ = train(work, ranks, SCHEDULES[name], micro, options.times, options.steps + 4,
                             f"optimizer.norm={norm}", "optimizer.clip_norm=0")
            figures += [derived, statistics.median(x["step_s"] for x in steps[3:])]
            worst = max(worst, abs(figures[-1] / derived - 1))
        print(f"{name:<12}{ranks:>3}{micro:>4}" + "".join(f"  {a:9.4f} {b:9.4f}" for a, b in
                                                           zip(figures[::2], figures[1::2])),
              flush=True)
    print(f"\nlargest difference {100 * worst:.1f} %; bound {100 * options.bound:.1f} %")
    return worst


def numbers(text):
    return [int(x) for x in text.split(",")]


def main():
    a = argparse.ArgumentParser(prog="bench/pipeline_bubble",
                                description=__doc__.split("\n", maxsplit=1)[0])
    a.add_argument("--pace", default="0.04,0.04,0.04", help="seconds of F, I, W (%(default)s)")
    a.add_argument("--ranks", type=numbers, default=[2, 4], help="of the pipeline (2,4)")
    a.add_argument("--micro", type=numbers, default=[4, 8], help="micro-batches of a step (4,8)")
    a.add_argument("--schedules", default=",".join(SCHEDULES), help="(%(default)s)")
    a.add_argument("--steps", type=int, default=5, help="behind the first (%(default)s)")
    a.add_argument("--bound", type=float, default=0.05, help="(%(default)s)")
    a.add_argument("--no-norms", action="store_true", help="without the second table")
    options = a.parse_args()
    options.times = [float(x) for x in options.pace.split(",")]
    options.schedules = options.schedules.split(",")
    work = pathlib.Path(tempfile.mkdtemp(prefix="gw-bubble-"))
    try:
        prepare(work)
        worst = bubbles(options, work)
        if not options.no_norms:
            worst = max(worst, norms(options, work))
    except Failed as e:
        sys.exit(f"bench/pipeline_bubble: {e}")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    sys.exit(0 if worst <= options.bound else 1)


if __name__ == "__main__":
    main()
