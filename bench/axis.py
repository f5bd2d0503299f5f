# SPDX-License-Identifier: Apache-2.0
"""What bench/context_parallel, bench/tensor_parallel and bench/pipeline_parallel share: runs of a
llama over several ranks, turns, and the table of what they took.

A program is a function that starts one anew, throws its first steps away and returns the seconds of
those that count, with notes (bytes sent, parameters, the share of a step that ranks wait). Programs
take turns; every second round goes backwards; only one runs at any moment.
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


def write_run(work, model, batch, seq, tied, accumulate=1, batches=64):
    """Returns the run file: the same step as torch_peer's, float32."""
    base.write_tokens(work / "tokens", Shape(model, batch, seq), batches)
    text = f"""\
model: {{family: llama, layers: {model["layers"]}, hidden: {model["hidden"]},
  heads: {model["heads"]}, kv_heads: {model["kv_heads"]}, ffn: {model["ffn"]}, vocab: {model["vocab"]},
  tie_embeddings: {"true" if tied else "false"}}}
data: {{train: {json.dumps(str(work / "tokens"))}, tokenizer: bytes}}
train: {{seq_len: {seq}, global_batch: {batch}, accumulate: {accumulate}}}
optimizer: {{name: adamw, lr: 3e-4, betas: [0.9, 0.95], weight_decay: 0.1, clip_norm: 1.0,
  schedule: constant, warmup_steps: 0}}
checkpoint: {{every: 0}}
"""
    (work / "run.yaml").write_text(text)
    return work / "run.yaml"


def tail(log, lines=6):
    text = pathlib.Path(log).read_text(errors="replace").strip()
    return "\n".join(text.splitlines()[-lines:])


def train(options, work, label, ranks, steps, sets):
    """Trains work/run.yaml for so many steps; returns the run's directory."""
    out, log = work / "run", work / "log"
    shutil.rmtree(out, ignore_errors=True)
    threads = max(1, len(options.cores) // ranks)
    command = [options.binary, "train", work / "run.yaml", "--out", out, "--ranks", ranks,
               "--set", f"train.steps={steps}", "--set", f"train.threads={threads}"]
    for s in sets:
        command += ["--set", s]
    with open(log, "w") as errors:
        status = subprocess.run([str(c) for c in command], stderr=errors, stdout=errors,
                                stdin=subprocess.DEVNULL, timeout=3600,
                                preexec_fn=lambda: base.bind(options.cores)).returncode
    if status != 0:
        raise base.Failed(f"{label} ended with status {status}\n{tail(log)}")
    return out


def steps_of(out):
    lines = [json.loads(t) for t in (out / "metrics.jsonl").read_text().splitlines()]
    return [x for x in lines if "step_s" in x]


def run_ours(options, work, label, ranks, steps, sets):
    """Returns (seconds of the steps that count, notes)."""
    out = train(options, work, label, ranks, THROWN + steps, sets)
    lines = steps_of(out)
    summary = json.loads((out / "summary.json").read_text())
    wire = summary["measured"].get("wire", {})
    notes = dict(parameters=summary["parameters"], loss=lines[0]["loss"],
                 arena=summary["measured"]["arena_bytes"],
                 payload=sum(w["payload_bytes"] for w in wire.values()),
                 share=statistics.median(x.get("bubble", x.get("comm_wait_s", 0.0) / x["step_s"])
                                         for x in lines[THROWN:]))
    pipeline = summary.get("pipeline")
    if pipeline:  # messages between stages, of all ranks
        notes["payload"] += pipeline["micro_batches"] * sum(
            s["sent_forward_bytes"] + s["sent_backward_bytes"] for s in pipeline["by_stage"])
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
    return notes.pop("times", [])[THROWN:], notes


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


def medians_of(taken):
    return {n: statistics.median(t for turn in lists for t in turn)
            for n, (lists, _) in taken.items()}


def ratio_text(taken, ours, peer):
    """How many times as fast `ours` is, and why that is no verdict where A to A of either exceeds a
    third of the margin."""
    medians = medians_of(taken)
    ratio = medians[peer] / medians[ours]
    noises = [noise_of(taken[n][0]) for n in (ours, peer)]
    why = ("A to A is not known from one turn" if None in noises
           else "A to A exceeds a third of the margin"
           if max(noises) > abs(ratio - 1) / 3 else "")
    return f"{ratio:.2f}x {peer}{f' (no verdict: {why})' if why else ''}"


def show(taken, tokens, peers, reference, share="waiting"):
    """The table, and each of ours beside its peer: of `peers`, a list, the fastest; of a dict the one
    it names for it. `share` heads the column of notes["share"]."""
    medians = medians_of(taken)
    print(f"  {'':30}{'median s':>9}{'minimum':>9}{'A to A':>8}{'tokens/s':>10}{'sent MB':>9}"
          f"{share:>9}{'arena MB':>10}")
    for name, (lists, notes) in taken.items():
        noise = noise_of(lists)
        cells = [f"{medians[name]:9.4f}", f"{min(t for turn in lists for t in turn):9.4f}",
                 f"{'-' if noise is None else f'{100 * noise:.1f}%':>8}",
                 f"{tokens / medians[name]:10.0f}",
                 f"{notes['payload'] / 1e6:9.2f}" if "payload" in notes else f"{'-':>9}",
                 f"{100 * notes['share']:8.0f}%" if "share" in notes else f"{'-':>9}",
                 f"{notes['arena'] / 1e6:10.1f}" if "arena" in notes else f"{'-':>10}"]
        print(f"  {name:30}" + "".join(cells))
    named = isinstance(peers, dict)
    beside = set(peers.values() if named else peers)
    best = min(beside & medians.keys(), key=medians.get, default=None)
    for name in medians:
        if name in beside or name == reference:
            continue
        peer = peers.get(name) if named else best
        said = []
        if reference in medians:
            said.append(f"{medians[reference] / medians[name]:.2f} of the speed of {reference}")
        if peer in medians:
            said.append(ratio_text(taken, name, peer))
        if said:
            print(f"  {name}: {'; '.join(said)}")


def begin(what, most=2):
    """Says which machine this is and whether it is busy; returns the cores to use."""
    options_cores = sorted(os.sched_getaffinity(0))[:most]
    if len(options_cores) < 2:
        raise SystemExit(f"bench/{what} needs two cores; this process may use one")
    load = os.getloadavg()[0]
    print(f"{base.cpu_name()}, cores {','.join(map(str, options_cores))}")
    if load > 0.5:
        print(f"the machine was busy before (load {load:.1f}): the figures are disturbed")
    return options_cores
