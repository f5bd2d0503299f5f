# SPDX-License-Identifier: Apache-2.0
"""One training step of gradwright beside one of PyTorch, on the same cores, in one run.

A case is a model, a batch and a precision. For each case three or more programs live at the same
time and take turns: gradwright, PyTorch as it stands, PyTorch compiled, and a program that does
nothing but the step's matrix products with oneDNN. Only one runs at any moment: gradwright is
stopped by a signal between its turns, the others wait for a line on their standard input. A turn is
one step that is thrown away and then some that count; every second round goes backwards. So a
neighbour's load, a clock that falls, a cache left cold by another fall on all alike.

README.md in this folder says what each figure means. Only Python's own library is used here;
PyTorch runs in the interpreter that GW_BENCH_PYTHON names.
"""

import argparse
import array
import ctypes
import fnmatch
import itertools
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent

GPT2 = dict(family="gpt2", preset="gpt2", layers=12, hidden=768, heads=12, kv_heads=12,
            head_dim=64, ffn=3072, vocab=50257, max_positions=1024, norm_eps=1e-5, rope_theta=1e4,
            cheap="layernorm, gelu")
SMOLLM2 = dict(family="llama", preset="smollm2-135m", layers=30, hidden=576, heads=9, kv_heads=3,
               head_dim=64, ffn=1536, vocab=49152, max_positions=8192, norm_eps=1e-5,
               rope_theta=1e5, cheap="rmsnorm, swiglu")
MODELS = {"gpt2-124m": GPT2, "smollm2-135m": SMOLLM2}
SHAPES = [(4, 1024), (16, 64)]
PEERS = {  # name: what is said of it, compiled, class of the transformers library
    "eager": ("PyTorch eager", False, False),
    "compiled": ("PyTorch compiled", True, False),
    "library": ("transformers eager", False, True),
    "library-compiled": ("transformers compiled", True, True),
}
SPEED_GOAL = {"f32": 1.3, "bf16": 1.5}
MEMORY_GOAL = 0.7
EFFICIENCY_GOAL = 0.65  # at 4 x 1024
OURS = "gradwright"
FEWEST_A_TURN = 2  # so that the last three steps, which the trace holds, lie within one turn


class Failed(Exception):
    """A program of the case cannot run; the text says why."""


def say(text):
    print(text, file=sys.stderr, flush=True)


# ------------------------------------------------------------------------------- the machine

def cpu_flags():
    for line in open("/proc/cpuinfo"):
        if line.startswith("flags"):
            return set(line.split(":")[1].split())
    return set()


def cpu_name():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return "unknown processor"


def available_bytes():
    for line in open("/proc/meminfo"):
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) * 1024
    return 0


def peak_bytes(pid):
    """The most memory the process has had resident (VmHWM)."""
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0


def forget_peak(pid):
    """Sets the process's VmHWM back to what it holds now."""
    with open(f"/proc/{pid}/clear_refs", "w") as f:
        f.write("5")


def bind(cores):
    """In a new process: it keeps to these cores, and dies with this one, even while stopped."""
    os.sched_setaffinity(0, cores)
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


# ------------------------------------------------------------------------------- programs

class Program:
    """What takes turns. `times` has one list of seconds a turn."""

    def __init__(self, label):
        self.label, self.times, self.process = label, [], None
        self.peak = self.life_peak = 0
        self.notes = {}

    def spawn(self, command, options, log, **kw):
        env = dict(os.environ, OMP_NUM_THREADS=str(len(options.cores)),
                   MKL_NUM_THREADS=str(len(options.cores)), **kw.pop("env", {}))
        self.log = log
        try:
            with open(log, "w") as errors:
                self.process = subprocess.Popen([str(c) for c in command], stderr=errors, env=env,
                                                preexec_fn=lambda: bind(options.cores), **kw)
        except OSError as e:
            raise Failed(f"{command[0]} cannot be started: {e.strerror}") from e

    def fail(self):
        tail = pathlib.Path(self.log).read_text(errors="replace").strip().splitlines()[-12:]
        raise Failed(f"{self.label} ended with status {self.process.poll()}\n"
                     + "\n".join("    " + t for t in tail))

    def warmed(self):
        """After the first steps: peaks from here on are those of steps alone."""
        self.life_peak = peak_bytes(self.process.pid)
        forget_peak(self.process.pid)

    def look_at_peak(self):
        self.peak = max(self.peak, peak_bytes(self.process.pid))
        self.life_peak = max(self.life_peak, self.peak)

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def all_times(self):
        return [t for turn in self.times for t in turn]

    def median(self):
        return statistics.median(self.all_times())


class Peer(Program):
    def __init__(self, name, case, options, work):
        label, compiled, library = PEERS[name]
        super().__init__(label)
        job = dict(model=case.model, batch=case.batch, seq=case.seq, dtype=case.dtype,
                   threads=len(options.cores), compile=compiled, library=library)
        env = dict(e.split("=", 1) for e in options.peer_env)
        self.spawn([options.python, HERE / "torch_peer.py", json.dumps(job)], options,
                   work / f"{name}.log", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                   bufsize=1, env=env)
        self.notes = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.fail()
        return json.loads(line)

    def steps(self, n):
        try:
            self.process.stdin.write(json.dumps({"steps": n}) + "\n")
        except BrokenPipeError:
            self.process.wait()
            self.fail()
        answer = self.answer()
        self.notes.setdefault("first_loss", answer["loss"])
        return answer["times"]

    def warm(self):
        first = self.steps(1)[0]
        times = self.steps(1)
        self.notes["first_step_s"] = first
        self.warmed()
        return times[0]

    def turn(self, n, last):
        self.times.append(self.steps(n + 1)[1:])
        self.look_at_peak()
        if last:
            self.process.stdin.close()
            self.process.wait()


class Ours(Program):
    def __init__(self, case, options, work):
        super().__init__(OURS)
        self.out = work / "run"
        write_tokens(work / "tokens", case)
        (work / "run.yaml").write_text(run_file(case, options, work))
        self.spawn([options.binary, "train", work / "run.yaml", "--out", self.out], options,
                   work / "gradwright.log", stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        self.metrics = self.out / "metrics.jsonl"

    def lines(self):
        try:
            text = self.metrics.read_text()
        except FileNotFoundError:
            return []
        return [json.loads(t) for t in text[: text.rfind("\n") + 1].splitlines()]

    def wait_for(self, count):
        while True:
            lines = self.lines()
            if len(lines) >= count:
                return lines
            if self.process.poll() is not None:
                self.fail()
            time.sleep(0.005)

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def warm(self):
        lines = self.wait_for(2)
        self.pause()
        self.notes.update(first_loss=lines[0]["loss"], first_step_s=lines[0]["step_s"])
        self.warmed()
        return lines[1]["step_s"]

    def turn(self, n, last):
        before = len(self.lines())  # the step cut in two by the pause is the one thrown away
        self.process.send_signal(signal.SIGCONT)
        lines = self.wait_for(before + 1 + n)
        self.look_at_peak()
        if last:
            self.finish()
        else:
            self.pause()
        self.times.append([x["step_s"] for x in lines[before + 1: before + 1 + n]])

    def finish(self):
        """Ends the run after the step it is in, so that it writes its reports."""
        self.process.send_signal(signal.SIGINT)
        if self.process.wait() not in (0, 3):
            self.fail()
        summary = json.loads((self.out / "summary.json").read_text())
        self.notes["parameters"] = summary["parameters"]
        self.notes["arena_bytes"] = summary["measured"]["arena_bytes"]
        self.notes["ops"] = op_shares(json.loads((self.out / "trace.json").read_text()))


class Products(Program):
    """oneDNN alone. A turn times each product of the step once, by each way there is."""

    def __init__(self, case, options, work):
        super().__init__("oneDNN alone")
        self.options, self.log = options, work / "products.log"
        self.command = [options.products, case.model["preset"], case.batch, case.seq, case.dtype,
                        len(options.cores), 1]
        self.ways = {}  # (product, way): seconds of each turn
        self.counts = {}

    def turn(self, n, last):
        self.spawn(self.command, self.options, self.log, stdout=subprocess.PIPE, text=True)
        text, _ = self.process.communicate()
        if self.process.returncode != 0:
            self.fail()
        head, *rows = [line.split("\t") for line in text.splitlines()]
        for row in (dict(zip(head, r)) for r in rows if r[0] != "total"):
            self.counts[row["product"]] = int(row["count"])
            for way in ("primitive_s", "sgemm_s"):
                if row[way] != "-":
                    self.ways.setdefault((row["product"], way), []).append(float(row[way]))

    def seconds(self):
        """Of the whole list: the faster way of each product, by the medians over the turns."""
        best = {}
        for (product, _), times in self.ways.items():
            best[product] = min(best.get(product, float("inf")), statistics.median(times))
        return sum(best[p] * n for p, n in self.counts.items())


# ------------------------------------------------------------------------------- our run

def write_tokens(prefix, case, batches=64):
    """A Megatron data set of one document of random ids: so many batches, taken round and round."""
    count = batches * case.batch * case.seq + 1
    rng = random.Random(1)
    ids = array.array("H", rng.choices(range(case.model["vocab"]), k=count))
    if sys.byteorder != "little":
        ids.byteswap()
    prefix.with_suffix(".bin").write_bytes(ids.tobytes())
    uint16 = 8
    index = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, uint16, 1, 2)
    index += struct.pack("<i", count) + struct.pack("<q", 0) + struct.pack("<2q", 0, 1)
    prefix.with_suffix(".idx").write_bytes(index)


def run_file(case, options, work):
    # What costs no product is made anew in backward, as PyTorch's compiler does too.
    recompute = "" if options.keep_all else f"""\
recompute:
  policy: ops
  ops: [{case.model["cheap"]}]
"""
    return f"""\
{recompute}model:
  preset: {case.model["preset"]}
data:
  train: {json.dumps(str(work / "tokens"))}
  tokenizer: bytes
train:
  steps: 1000000
  seq_len: {case.seq}
  micro_batch: {case.batch}
  threads: {len(options.cores)}
optimizer:
  name: adamw
  lr: 3e-4
  betas: [0.9, 0.95]
  weight_decay: 0.1
  clip_norm: 1.0
  schedule: constant
  warmup_steps: 0
precision:
  compute: {"fp32" if case.dtype == "f32" else case.dtype}
checkpoint:
  every: 0
"""


def op_shares(trace):
    """Share of each kind of op in the last steps, forward and backward together."""
    total = {}
    for e in trace["traceEvents"]:
        if e.get("ph") == "X":
            total[e["name"]] = total.get(e["name"], 0.0) + e["dur"]
    whole = sum(total.values()) or 1.0
    return {k: v / whole for k, v in sorted(total.items(), key=lambda kv: -kv[1])}


# ------------------------------------------------------------------------------- one case

class Case:
    def __init__(self, model, shape, dtype):
        self.model, self.dtype = MODELS[model], dtype
        self.batch, self.seq = shape
        self.name = f"{model}/{self.batch}x{self.seq}/{dtype}"


def plan_turns(steps, seconds_a_step, options):
    """How many steps count in each turn: as many as asked, fewer where the time does not allow."""
    affordable = int(options.minutes * 60 / (seconds_a_step * 1.25))
    steps = max(2 * FEWEST_A_TURN, min(steps, affordable))
    turns = max(2, min(5, steps // FEWEST_A_TURN))
    return [steps // turns + (i < steps % turns) for i in range(turns)]


def begin(case, options, work, programs, missing):
    """Starts every program that can run; returns the seconds of one step of all of them."""
    seconds = 0.0
    programs.append(Ours(case, options, work))
    seconds += programs[0].warm()
    for name in options.peers:
        say(f"{case.name}: warming up {PEERS[name][0]}")
        try:
            programs.append(Peer(name, case, options, work))
            seconds += programs[-1].warm()
        except Failed as e:
            if programs[-1].label == PEERS[name][0]:
                programs.pop().kill()
            missing[PEERS[name][0]] = str(e)
    if options.products:
        programs.append(Products(case, options, work))
    return seconds


def take_turns(case, programs, turns):
    for i, n in enumerate(turns):
        say(f"{case.name}: turn {i + 1} of {len(turns)}, {n} steps each")
        for p in programs if i % 2 == 0 else reversed(programs):
            p.turn(n, i == len(turns) - 1)


def run_case(case, options):
    work = pathlib.Path(tempfile.mkdtemp(prefix="gw-train-step-"))
    programs, missing = [], {}
    load = os.getloadavg()[0]
    try:
        say(f"{case.name}: warming up gradwright")
        seconds = begin(case, options, work, programs, missing)
        turns = plan_turns(options.steps, seconds, options)
        take_turns(case, programs, turns)
        return report(case, programs, missing, turns, load, options)
    finally:
        for p in programs:
            p.kill()
        if options.keep:
            say(f"{case.name}: kept {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)


# ------------------------------------------------------------------------------- figures

def spread(turns):
    """A against A: the turns of one program are divided into two halves in every way there is,
    and the halves' medians compared. Nine of ten ratios lie within what is returned."""
    n, off = len(turns), []
    for half in itertools.combinations(range(n), n // 2):
        a = statistics.median(t for i in half for t in turns[i])
        b = statistics.median(t for i in range(n) if i not in half for t in turns[i])
        off.append(max(a, b) / min(a, b) - 1)
    off.sort()
    return off[min(len(off) - 1, int(0.9 * len(off)))]


def verdict(met, noise, margin):
    """None where the programs differ from themselves by more than a third of what is claimed."""
    return None if noise is not None and noise > margin / 3 else met


def program_figures(p):
    times = p.all_times()
    return {"name": p.label, "median_s": p.median(), "minimum_s": min(times), "steps": len(times),
            "turns_s": p.times, "spread": spread(p.times), "peak_bytes": p.peak,
            "peak_bytes_whole_life": p.life_peak,
            **{k: v for k, v in p.notes.items() if k not in ("ready", "ops")}}


def compare(case, ours, peers):
    fastest = min(peers, key=lambda p: p["median_s"])
    leanest = min(peers, key=lambda p: p["peak_bytes"])
    ratio = fastest["median_s"] / ours["median_s"]
    noise = max(ours["spread"], fastest["spread"])
    goal = SPEED_GOAL[case.dtype]
    memory = ours["peak_bytes"] / leanest["peak_bytes"]
    return {"speed": {"against": fastest["name"], "ratio": ratio, "spread": noise, "goal": goal,
                      "met": verdict(ratio >= goal, noise, abs(ratio - 1)),
                      "goal_within_spread": abs(ratio / goal - 1) <= noise},
            "memory": {"against": leanest["name"], "ratio": memory, "goal": MEMORY_GOAL,
                       "met": memory <= MEMORY_GOAL}}


def efficiency(case, ours, products, ops):
    seconds = products.seconds()
    share = seconds / ours["median_s"]
    goal = EFFICIENCY_GOAL if (case.batch, case.seq) == (4, 1024) else None
    return {"onednn_alone_s": seconds, "ratio": share, "goal": goal,
            "met": None if goal is None else share >= goal,
            "attention_share": sum(v for k, v in ops.items() if k.startswith("attention"))}


def check_same_model(ours, peers):
    for p in peers:
        if p["parameters"] != ours["parameters"]:
            raise Failed(f"{p['name']} has {p['parameters']} parameters, "
                         f"gradwright {ours['parameters']}: not the same model")


def report(case, programs, missing, turns, load, options):
    ours = program_figures(programs[0])
    peers = [program_figures(p) for p in programs if isinstance(p, Peer)]
    check_same_model(ours, peers)
    ops = programs[0].notes["ops"]
    out = {"case": case.name, "cores": len(options.cores), "turns": turns, "load_before": load,
           "programs": [ours] + peers, "missing": missing, "our_ops": ops}
    if peers:
        out.update(compare(case, ours, peers))
    products = [p for p in programs if isinstance(p, Products)]
    if products:
        out["efficiency"] = efficiency(case, ours, products[0], ops)
    return out


# ------------------------------------------------------------------------------- for people

def gib(n):
    return f"{n / 2**30:.2f} GiB"


def goal_text(c, sign):
    if c["met"] is None:
        return f"goal {sign} {c['goal']}: no verdict, the spread is over a third of the margin"
    near = ", but the goal lies within the spread" if c.get("goal_within_spread") else ""
    return f"goal {sign} {c['goal']}: {'met' if c['met'] else 'missed'}{near}"


def print_programs(r):
    ours, tokens = r["programs"][0], r["tokens"]
    print(f"  {'':22}{'median s':>10}{'minimum s':>11}{'tokens/s':>10}{'A to A':>8}"
          f"{'peak memory':>13}{'time':>9}{'memory':>8}")
    for p in r["programs"]:
        ratios = ""
        if p is not ours:
            ratios = (f"{p['median_s'] / ours['median_s']:8.2f}x"
                      f"{p['peak_bytes'] / ours['peak_bytes']:7.2f}x")
        print(f"  {p['name']:22}{p['median_s']:10.3f}{p['minimum_s']:11.3f}"
              f"{tokens / p['median_s']:10.0f}{p['spread']:8.1%}{gib(p['peak_bytes']):>13}{ratios}")
    if "efficiency" in r:
        print(f"  {'oneDNN alone':22}{r['efficiency']['onednn_alone_s']:10.3f}")


def print_case(r):
    if "skipped" in r or "failed" in r:
        print(f"\n{r['case']}: {'skipped: ' + r['skipped'] if 'skipped' in r else r['failed']}")
        return
    n = r["programs"][0]["steps"]
    print(f"\n{r['case']}: {n} steps each in {len(r['turns'])} turns, {r['cores']} cores"
          f"{', fewer than 20 steps' if n < 20 else ''}")
    print_programs(r)
    for name, why in r["missing"].items():
        print(f"  {name}: not measured: {why}")
    if "speed" in r:
        s, m = r["speed"], r["memory"]
        print(f"  speed       {s['ratio']:.2f}x {s['against']} (A against A {s['spread']:.1%}); "
              f"{goal_text(s, '>=')}")
        print(f"  peak memory {m['ratio']:.2f}x {m['against']}; {goal_text(m, '<=')}")
    if "efficiency" in r:
        e = r["efficiency"]
        goal = "" if e["goal"] is None else "; " + goal_text(e, ">=")
        print(f"  efficiency  {e['ratio']:.2f}{goal}; attention is {e['attention_share']:.0%} of "
              "our step")
    shares = ", ".join(f"{k} {v:.1%}" for k, v in itertools.islice(r["our_ops"].items(), 10))
    print(f"  our step    {shares}")
    if r["load_before"] > 0.3 * r["cores"]:
        print(f"  note: other programs were running (load {r['load_before']:.1f} before the case)")
    sys.stdout.flush()


# ------------------------------------------------------------------------------- command line

def parse_arguments():
    ap = argparse.ArgumentParser(
        description="Times whole training steps of gradwright and PyTorch, in alternation on the "
                    "same cores.",
        epilog="GW_BIN: the gradwright to run (default ./gradwright). GW_BUILD: where `make bench` "
               "builds (default build/release). GW_BENCH_PYTHON: a Python with torch (default "
               "python3). Cases: " + ", ".join(c.name for c in all_cases()))
    ap.add_argument("--cases", help="which, by comma-separated patterns, such as 'gpt2*/f32'")
    ap.add_argument("--steps", type=int, help="steps that count, each program (default 20)")
    ap.add_argument("--minutes", type=float, default=45,
                    help="a case may take about so long; fewer steps fit then (default 45)")
    ap.add_argument("--quick", action="store_true", help="6 steps each, the 16x64 cases only")
    ap.add_argument("--threads", type=int, help="cores to use (default: all this process may use)")
    ap.add_argument("--peers", default="eager,compiled",
                    help="comma-separated: " + ", ".join(PEERS) + " (default eager,compiled)")
    ap.add_argument("--peer-env", action="append", default=[], metavar="NAME=VALUE",
                    help="set for PyTorch only, such as LD_PRELOAD of another allocator")
    ap.add_argument("--no-products", action="store_true", help="leave oneDNN alone out")
    ap.add_argument("--keep-all", action="store_true",
                    help="gradwright keeps the outputs of norms and activations for backward; "
                         "without it they are made anew, as PyTorch's compiler does")
    ap.add_argument("--keep", action="store_true", help="keep run directories and logs")
    ap.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return ap.parse_args()


def all_cases():
    return [Case(m, s, d) for d in ("f32", "bf16") for m in MODELS for s in SHAPES]


def chosen_cases(o):
    patterns = (o.cases or ("*/16x64/*" if o.quick else "*")).split(",")
    cases = [c for c in all_cases()
             if any(fnmatch.fnmatch(c.name, p if p.count("*") or p.count("/") == 2 else p + "*")
                    for p in patterns)]
    if not cases:
        raise SystemExit(f"train_step: no case matches {o.cases}")
    return cases


def resolve(o):
    root = HERE.parent
    o.binary = pathlib.Path(os.environ.get("GW_BIN", root / "gradwright")).resolve()
    build = pathlib.Path(os.environ.get("GW_BUILD", root / "build" / "release"))
    o.products = None if o.no_products else (build / "bench" / "products").resolve()
    o.python = os.environ.get("GW_BENCH_PYTHON", "python3")
    o.peers = [p for p in o.peers.split(",") if p]
    o.steps = o.steps or (6 if o.quick else 20)
    o.cores = sorted(os.sched_getaffinity(0))[: o.threads or None]
    for p in o.peers:
        if p not in PEERS:
            raise SystemExit(f"train_step: --peers takes {', '.join(PEERS)}, not '{p}'")
    if not o.binary.exists():
        raise SystemExit(f"train_step: no program at {o.binary}; `make` builds it")
    if o.products and not o.products.exists():
        raise SystemExit(f"train_step: no program at {o.products}; `make bench` builds it and "
                         "runs this, --no-products does without")


def why_skipped(case):
    if case.dtype == "bf16" and not cpu_flags() & {"avx512_bf16", "amx_bf16"}:
        return "this processor has neither AVX512-BF16 nor AMX"
    return None


def measure(case, options):
    reason = why_skipped(case)
    if reason:
        return {"case": case.name, "skipped": reason}
    try:
        return dict(run_case(case, options), tokens=case.batch * case.seq)
    except Failed as e:
        return {"case": case.name, "failed": str(e)}


def main():
    options = parse_arguments()
    resolve(options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that run_case cleans up
    if available_bytes() < 16 * 2**30:
        say(f"train_step: {gib(available_bytes())} of memory is free; all programs of a 4x1024 "
            "case live at once and need about 16")
    if not options.json:
        print(f"{cpu_name()}, cores {','.join(map(str, options.cores))}")
    results = []
    for case in chosen_cases(options):
        results.append(measure(case, options))
        if not options.json:
            print_case(results[-1])
    if options.json:
        print(json.dumps({"cpu": cpu_name(), "results": results}, indent=2))
    return 1 if any("failed" in r for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
