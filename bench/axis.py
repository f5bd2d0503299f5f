# SPDX-License-Identifier: Apache-2.0
"""What bench/context_parallel and bench/tensor_parallel share: runs of a llama over several ranks,
turns, and the table of what they took.

A program is a function that starts one anew, throws its first steps away and returns the seconds of
those that count, with notes (bytes sent, parameters). Programs take turns; every second round goes
backwards; only one runs at any moment.
"""

import json
import os
import pathlib
import shutil
import statistics
import subprocess

import train_step as base

HERE = pathlib.Path(__file__).resolve().parent
THROWN = 2


def llama(layers, hidden, heads, ffn, vocab):
    """Every head has k and v of its own, so that both sides send the same."""
    return dict(family="llama", layers=layers, hidden=hidden, heads=heads, kv_heads=heads,
                head_dim=hidden // heads, ffn=ffn, vocab=vocab, norm_eps=1e-5, rope_theta=1e4)


class Shape:
    """What base.write_tokens wants to know of a case."""

    def __init__(self, model, batch, seq):
        self.model, self.batch, self.seq = model, batch, seq


def write_run(work, model, batch, seq, tied):
    """Returns the run file: the same step as torch_peer's, float32."""
    base.write_tokens(work / "tokens", Shape(model, batch, seq))
    text = f"""\
model: {{family: llama, layers: {model["layers"]}, hidden: {model["hidden"]},
  heads: {model["heads"]}, kv_heads: {model["kv_heads"]}, ffn: {model["ffn"]}, vocab: {model["vocab"]},
  tie_embeddings: {"true" if tied else "false"}}}
data: {{train: {json.dumps(str(work / "tokens"))}, tokenizer: bytes}}
train: {{seq_len: {seq}, global_batch: {batch}, accumulate: 1}}
optimizer: {{name: adamw, lr: 3e-4, betas: [0.9, 0.95], weight_decay: 0.1, clip_norm: 1.0,
  schedule: constant, warmup_steps: 0}}
checkpoint: {{every: 0}}
"""
    (work / "run.yaml").write_text(text)
    return work / "run.yaml"


def tail(log, lines=6):
    text = pathlib.Path(log).read_text(errors="replace").strip()
    return "\n".join(text.splitlines()[-lines:])


def run_ours(options, work, label, ranks, steps, sets):
    """Returns (seconds of the steps that count, notes)."""
    out, log = work / "run", work / "log"
    shutil.rmtree(out, ignore_errors=True)
    threads = max(1, len(options.cores) // ranks)
    command = [options.binary, "train", work / "run.yaml", "--out", out, "--ranks", ranks,
               "--set", f"train.steps={THROWN + steps}", "--set", f"train.threads={threads}"]
    for s in sets:
        command += ["--set", s]
    with open(log, "w") as errors:
        status = subprocess.run([str(c) for c in command], stderr=errors, stdout=errors,
                                stdin=subprocess.DEVNULL, timeout=3600,
                                preexec_fn=lambda: base.bind(options.cores)).returncode
    if status != 0:
        raise base.Failed(f"{label} ended with status {status}\n{tail(log)}")
    lines = [json.loads(t) for t in (out / "metrics.jsonl").read_text().splitlines()]
    lines = [x for x in lines if "step_s" in x]
    summary = json.loads((out / "summary.json").read_text())
    wire = summary["measured"].get("wire", {})
    notes = dict(parameters=summary["parameters"], loss=lines[0]["loss"],
                 arena=summary["measured"]["arena_bytes"],
                 payload=sum(w["payload_bytes"] for w in wire.values()),
                 wait=statistics.median(x.get("comm_wait_s", 0.0) for x in lines[THROWN:]))
    shutil.rmtree(out, ignore_errors=True)
    return [x["step_s"] for x in lines[THROWN:]], notes


def run_torch(options, work, label, script, job):
    log = work / "log"
    with open(log, "w") as errors:
        done = subprocess.run([options.python, HERE / script, json.dumps(job)],
                              stdout=subprocess.PIPE, stderr=errors, text=True, timeout=3600,
                              env=dict(os.environ, OMP_NUM_THREADS=str(job["threads"])),
                              preexec_fn=lambda: base.bind(options.cores))
    if done.returncode != 0:
        raise base.Failed(f"{label} cannot run: {tail(log, 1)}")
    notes = json.loads(done.stdout.strip().splitlines()[-1])
    return notes.pop("times")[THROWN:], notes


def take_turns(programs, turns, what):
    """programs: {name: function}. Returns {name: (lists of seconds, notes)} of those that run."""
    taken, missing = {name: ([], {}) for name in programs}, {}
    for i in range(turns):
        names = list(programs) if i % 2 == 0 else list(programs)[::-1]
        for name in names:
            if name in missing:
                continue
            base.say(f"{what}: turn {i + 1} of {turns}, {name}")
            try:
                seconds, notes = programs[name]()
                taken[name][0].append(seconds)
                taken[name][1].update(notes)
            except base.Failed as e:
                missing[name] = str(e)
                del taken[name]
    for name, why in missing.items():
        print(f"  left out: {name}: {why}")
    counts = {notes["parameters"] for _, notes in taken.values() if "parameters" in notes}
    if len(counts) > 1:
        raise SystemExit(f"the programs train different models: {sorted(counts)} parameters")
    return taken


def noise_of(lists):
    return base.spread(lists) if len(lists) > 1 else None


def show(taken, tokens, peers, reference):
    """The table, and each of ours over the fastest of `peers`; no verdict where A to A exceeds a
    third of the margin. Returns the ratios."""
    medians = {n: statistics.median(t for turn in lists for t in turn)
               for n, (lists, _) in taken.items()}
    print(f"  {'':30}{'median s':>9}{'minimum':>9}{'A to A':>8}{'tokens/s':>10}{'sent MB':>9}"
          f"{'waiting':>9}{'arena MB':>10}")
    for name, (lists, notes) in taken.items():
        noise = noise_of(lists)
        cells = [f"{medians[name]:9.4f}", f"{min(t for turn in lists for t in turn):9.4f}",
                 f"{'-' if noise is None else f'{100 * noise:.1f}%':>8}",
                 f"{tokens / medians[name]:10.0f}",
                 f"{notes['payload'] / 1e6:9.2f}" if "payload" in notes else f"{'-':>9}",
                 f"{100 * notes['wait'] / medians[name]:8.0f}%" if "wait" in notes else f"{'-':>9}",
                 f"{notes['arena'] / 1e6:10.1f}" if "arena" in notes else f"{'-':>10}"]
        print(f"  {name:30}" + "".join(cells))
    ratios = {}
    present = [p for p in peers if p in medians]
    best = min(present, key=medians.get) if present else None
    for name in medians:
        if name in peers or name == reference:
            continue
        text = f"  {name}:"
        if reference in medians:
            text += f" {medians[reference] / medians[name]:.2f} of the speed of {reference};"
        if best:
            ratio = medians[best] / medians[name]
            noises = [noise_of(taken[n][0]) for n in (name, best)]
            known = [x for x in noises if x is not None]
            why = ("A to A is not known from one turn" if len(known) < 2
                   else "A to A exceeds a third of the margin"
                   if max(known) > abs(ratio - 1) / 3 else "")
            text += f" {ratio:.2f}x {best}{f' (no verdict: {why})' if why else ''}"
            ratios[name] = ratio
        print(text)
    return ratios


def begin(what):
    options_cores = sorted(os.sched_getaffinity(0))[:2]
    if len(options_cores) < 2:
        raise SystemExit(f"bench/{what} needs two cores; this process may use one")
    load = os.getloadavg()[0]
    print(f"{base.cpu_name()}, cores {','.join(map(str, options_cores))}")
    if load > 0.5:
        print(f"the machine was busy before (load {load:.1f}): the figures are disturbed")
    return options_cores
