# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of gradwright beside those of PyTorch (DCP over Gloo) and a plain sequential writer.

All save and load one state: float32 weights of a llama and the two moments of AdamW, every second
parameter cut by its first dimension over the ranks, the others whole on each. The ranks of both sides
are started once for each number of ranks and sleep, each before its own pipe, so that only one program
runs at any moment; every second turn goes backwards. Turn 0 is thrown away; what it loads is compared,
element by element. Every save goes into a new folder, which is removed, and the disk synced, outside of
the time. README.md in this folder says what the figures mean.
"""

import argparse
import json
import os
import pathlib
import resource
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import axis
import train_step as base

HERE = pathlib.Path(__file__).resolve().parent
LAYERS, HIDDEN, FFN, VOCAB = 12, 768, 2048, 32000  # 134 million parameters
RANKS = 2          # that save
RESHARD = (1, 4)   # that load besides
RATE_GOAL = 0.9    # of a plain sequential writer
STEPS, STEP_S = 50, 0.06  # of which one save is taken in the course
STALL_GOAL = 0.01  # of their time, besides the copy and the writers' processor time over the cores
BLOCK = 4 << 20    # of the plain writer
PATIENCE = 900     # seconds for one answer


# ------------------------------------------------------------------------------- the state

def parameters(hidden):
    """[(name, dims)] of a llama with heads and layers as they are and a width of `hidden`."""
    ffn, vocab = hidden * FFN // HIDDEN // 8 * 8, hidden * VOCAB // HIDDEN // 8 * 8
    rows = [("embed", [vocab, hidden]), ("head", [vocab, hidden])]
    for i in range(LAYERS):
        layer = dict(attn_norm=[hidden], q=[hidden, hidden], k=[hidden, hidden], v=[hidden, hidden],
                     o=[hidden, hidden], ffn_norm=[hidden], gate=[ffn, hidden], up=[ffn, hidden],
                     down=[hidden, ffn])
        rows += [(f"layers.{i}.{name}", dims) for name, dims in layer.items()]
    return rows + [("norm", [hidden])]


def elements(dims):
    n = 1
    for d in dims:
        n *= d
    return n


def state_of(mb):
    """Rows of the tensors of about `mb` MB: the llama with another width, a multiple of 16."""
    def size(hidden):
        return 12 * sum(elements(d) for _, d in parameters(hidden))
    hidden = min(range(16, 8192, 16), key=lambda h: abs(size(h) - mb * 1e6)) if mb else HIDDEN
    rows = [dict(name=name + what, dims=dims, cut=i % 2 == 0)
            for what in ("", ".exp_avg", ".exp_avg_sq")
            for i, (name, dims) in enumerate(parameters(hidden))]
    return rows, hidden


def bytes_of(rows, cut=None):
    return 4 * sum(elements(r["dims"]) for r in rows if cut is None or r["cut"] == cut)


# ------------------------------------------------------------------------------- the programs

class Ranks:
    """One side's ranks, which do what they are asked to and otherwise sleep."""

    def __init__(self, name, command, work, ranks, options):
        self.name, self.log = name, work / f"{name}.log"
        paths = [f"{work / name}.{r}" for r in range(ranks)]
        for path in paths:
            if os.path.exists(path):
                os.unlink(path)
            os.mkfifo(path)
        self.pipes = [os.open(path, os.O_RDWR) for path in paths]  # does not wait for a reader
        env = dict(os.environ, OMP_NUM_THREADS=str(max(1, len(options.cores) // ranks)))
        with open(self.log, "w") as errors:
            self.process = subprocess.Popen(
                [str(c) for c in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=errors, env=env, start_new_session=True,
                preexec_fn=lambda: base.bind(options.cores))
        self.text = b""

    def answer(self):
        limit = time.monotonic() + PATIENCE
        while b"\n" not in self.text:
            ready, _, _ = select.select([self.process.stdout], [], [],
                                        max(0.0, limit - time.monotonic()))
            more = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            if not more:
                why = "has ended" if ready else f"did not answer for {PATIENCE} s"
                raise base.Failed(f"{self.name} {why}\n{axis.tail(self.log)}")
            self.text += more
        line, _, self.text = self.text.partition(b"\n")
        return json.loads(line)

    def ask(self, **request):
        line = (json.dumps(request) + "\n").encode()
        for pipe in self.pipes:
            os.write(pipe, line)
        return self.answer()

    def end(self):
        try:
            for pipe in self.pipes:
                os.write(pipe, b'{"do": "end"}\n')
            self.process.wait(timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        for pipe in self.pipes:
            os.close(pipe)
        self.process.stdout.close()


def start(options, work, ranks):
    """{side: its ranks}; PyTorch is left out, and it is said, where it cannot run."""
    sides = {}
    tensors = work / "tensors.json"
    sides["gradwright"] = Ranks("gradwright", [options.binary, ranks, tensors, work / "gradwright"],
                                work, ranks, options)
    job = dict(ranks=ranks, threads=max(1, len(options.cores) // ranks), tensors=str(tensors),
               requests=str(work / "PyTorch"))
    if not options.no_torch:
        sides["PyTorch"] = Ranks("PyTorch", [options.python, HERE / "torch_checkpoint.py",
                                             json.dumps(job)], work, ranks, options)
    for name, side in list(sides.items()):
        try:
            options.version[name] = side.answer().get("version", "")
        except base.Failed as e:
            side.end()
            if name == "gradwright":
                raise
            print(f"left out: {e}")
            options.no_torch = True
            del sides[name]
    return sides


def plain(path, size, files):
    """What the disk gives: `files` sequential writers at once, `size` bytes together, synced."""
    block = os.urandom(BLOCK)

    def write(name, n):
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        while n > 0:
            n -= os.write(fd, block[:min(n, BLOCK)])
        os.fsync(fd)
        os.close(fd)

    path.mkdir()
    before, begun = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    writers = [threading.Thread(target=write, args=(path / str(i), size // files))
               for i in range(files)]
    for w in writers:
        w.start()
    for w in writers:
        w.join()
    took, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF)
    return dict(total_s=took, cpu_s=after.ru_utime + after.ru_stime - before.ru_utime -
                before.ru_stime)


# ------------------------------------------------------------------------------- turns

FORMS = {  # what saves: side, what it is asked
    "gradwright, sync": ("gradwright", {"async": False}),
    "gradwright, async": ("gradwright", {"async": True}),
    "PyTorch, sync": ("PyTorch", {"async": False}),
    "PyTorch, async": ("PyTorch", {"async": True}),
    "PyTorch, async, stager kept": ("PyTorch", {"async": True, "keep": True}),
    "PyTorch, async, process": ("PyTorch", {"async": True, "process": True}),
}
PLAIN = {"plain writer": 1, f"{RANKS} plain writers": RANKS}


def folder_bytes(path):
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file())


class Saves:
    """Every turn saves once in each form; the last folder of each side's synchronous form is kept."""

    def __init__(self, options, work, sides, size):
        self.options, self.work, self.sides, self.size = options, work, sides, size
        self.names = [n for n, (side, _) in FORMS.items() if side in sides] + list(PLAIN)
        if not options.process and "PyTorch, async, process" in self.names:
            self.names.remove("PyTorch, async, process")
        self.turns = {n: [] for n in self.names}
        self.kept, self.count = {}, 0

    def once(self, name):
        self.count += 1
        folder = self.work / f"save{self.count}"
        os.sync()
        if name in PLAIN:
            figures = plain(folder, self.size, PLAIN[name])
        else:
            side, how = FORMS[name]
            figures = self.sides[side].ask(do="save", folder=str(folder), **how)
        figures["disk"] = folder_bytes(folder)
        keeps = name not in PLAIN and not FORMS[name][1]["async"]
        gone = self.kept.get(side) if keeps else folder
        if keeps:
            self.kept[side] = folder
        if gone:
            shutil.rmtree(gone)
        return figures

    def run(self):
        for turn in range(self.options.turns + 1):
            base.say(f"saving: turn {turn} of {self.options.turns}")
            for name in self.names if turn % 2 == 0 else self.names[::-1]:
                self.turns[name].append(self.once(name))


def forget(folder):
    """Out of the page cache; written it is."""
    for p in folder.rglob("*"):
        if p.is_file():
            fd = os.open(p, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def loads(options, sides, kept, ranks):
    """{(side, from the disk?): turns}"""
    turns = {(side, cold): [] for cold in (False, True) for side in sides}
    for turn in range(options.turns + 1):
        base.say(f"loading at {ranks} rank{'s' * (ranks > 1)}: turn {turn} of {options.turns}")
        for side, cold in turns if turn % 2 == 0 else list(turns)[::-1]:
            if cold:
                forget(kept[side])
            figures = sides[side].ask(do="load", folder=str(kept[side]), check=turn == 0)
            turns[side, cold].append(figures)
    return turns


# ------------------------------------------------------------------------------- figures

def figures_of(turns, key):
    return [t[key] for t in turns[1:] if key in t]


def median(turns, key):
    found = figures_of(turns, key)
    return statistics.median(found) if found else None


def noise(turns, key):
    found = figures_of(turns, key)
    return base.spread([[x] for x in found]) if len(found) > 1 else float("inf")


def cell(value, form, scale=1.0):
    width = int(form.split(".")[0])
    return f"{'-':>{width}}" if value is None else f"{value * scale:{form}}"


def percent(x):
    return f"{'-':>7}" if x == float("inf") else f"{100 * x:6.1f}%"


def show_saves(turns, size):
    print(f"\nsaving on {RANKS} ranks: medians over turns\n")
    print(f"  {'':28}{'held s':>8}{'A to A':>7}{'commit s':>10}{'A to A':>7}{'CPU s':>8}"
          f"{'memory MB':>11}{'disk MB':>9}{'MB/s':>8}{'of plain':>9}")
    floor = median(turns["plain writer"], "total_s")
    for name, rows in turns.items():
        held, total = median(rows, "held_s"), median(rows, "total_s")
        peak = max(figures_of(rows, "memory"), default=None)
        print(f"  {name:28}{cell(held, '8.3f')}"
              f"{percent(noise(rows, 'held_s')) if held is not None else '      -'}"
              f"{cell(total, '10.3f')}{percent(noise(rows, 'total_s'))}"
              f"{cell(median(rows, 'cpu_s'), '8.2f')}{cell(peak, '11.1f', 1e-6)}"
              f"{cell(median(rows, 'disk'), '9.1f', 1e-6)}{size / total / 1e6:8.1f}"
              f"{floor / total:9.2f}")
    rows = turns["gradwright, async"]
    print(f"  gradwright, async: held up {median(rows, 'begin_s'):.3f} s by the copy and "
          f"{median(rows, 'end_s'):.3f} s by the commit")


def ratio_line(what, key, ours, peers, turns):
    """How many times as long the better of PyTorch's forms takes."""
    peers = [p for p in peers if p in turns]
    if not peers:
        return None
    best = min(peers, key=lambda p: median(turns[p], key))
    a, b = median(turns[ours], key), median(turns[best], key)
    both = max(noise(turns[ours], key), noise(turns[best], key))
    fine = base.verdict(True, both, abs(b / a - 1))
    print(f"  {what}: {a:.3f} s, {best} {b:.3f} s: {b / a:.2f}x"
          f"{'' if fine else ' (no verdict: A to A exceeds a third of the margin)'}")
    return dict(what=what, ours_s=a, peer=best, peer_s=b, ratio=b / a, verdict=bool(fine))


def show_ratios(turns):
    asynchronous = [n for n in turns if n.startswith("PyTorch, async")]
    print()
    lines = [
        ratio_line("a step held up, sync", "held_s", "gradwright, sync", ["PyTorch, sync"], turns),
        ratio_line("a step held up, async", "held_s", "gradwright, async", asynchronous, turns),
        ratio_line("until the commit, sync", "total_s", "gradwright, sync", ["PyTorch, sync"], turns),
        ratio_line("until the commit, async", "total_s", "gradwright, async", asynchronous, turns),
    ]
    a, b = (median(turns[n], "total_s") for n in ("gradwright, sync", "plain writer"))
    both = max(noise(turns[n], "total_s") for n in ("gradwright, sync", "plain writer"))
    met = base.verdict(b / a >= RATE_GOAL, both, abs(b / a / RATE_GOAL - 1))
    text = {True: "met", False: "MISSED", None: "no verdict: A to A exceeds a third of the margin"}
    print(f"  write rate of a whole synchronous save, hashing included: {b / a:.2f} of a plain writer "
          f"(goal {RATE_GOAL}: {text[met]})")
    return [x for x in lines if x] + [dict(what="write rate", ratio=b / a, goal=RATE_GOAL, met=met)]


def show_loads(found):
    print(f"\nloading what {RANKS} ranks saved; gradwright compares every hash, PyTorch has none\n")
    print(f"  {'':41}{'s':>8}{'A to A':>7}{'CPU s':>8}{'memory MB':>11}{'read MB':>9}{'ratio':>8}")
    for ranks, turns in found.items():
        how = "same layout" if ranks == RANKS else "resharded"
        for (side, cold), rows in turns.items():
            took, both, text = median(rows, "total_s"), noise(rows, "total_s"), ""
            peer = turns.get(("PyTorch", cold))
            if side == "gradwright" and peer:
                ratio = median(peer, "total_s") / took
                both_sides = max(both, noise(peer, "total_s"))
                fine = base.verdict(True, both_sides, abs(ratio - 1))
                text = f"{ratio:7.2f}x{'' if fine else ' no verdict'}"
            where = f"{ranks} rank{'s' * (ranks > 1)}, {how}, {'disk' if cold else 'cache'}"
            print(f"  {side + ',':12}{where:29}{took:8.3f}{percent(both)}"
                  f"{cell(median(rows, 'cpu_s'), '8.2f')}"
                  f"{cell(max(figures_of(rows, 'memory'), default=None), '11.1f', 1e-6)}"
                  f"{cell(median(rows, 'bytes'), '9.1f', 1e-6)}{text}")


# ------------------------------------------------------------------------------- steps

def stalls(options, work, side, ranks):
    """{with a save: turns} of the same steps, gradwright alone."""
    turns = {False: [], True: []}
    for turn in range(options.turns + 1):
        base.say(f"steps on {ranks} rank{'s' * (ranks > 1)}: turn {turn} of {options.turns}")
        for saves in (False, True) if turn % 2 == 0 else (True, False):
            folder = work / f"stall{ranks}-{turn}"
            os.sync()
            figures = side.ask(do="steps", n=STEPS, step_s=STEP_S, folder=str(folder) * saves)
            shutil.rmtree(folder, ignore_errors=True)
            turns[saves].append(figures)
    return turns


def show_stall(turns, ranks, cores, size):
    """What the save costs the steps beside it, and what it may."""
    plain, saved = median(turns[False], "total_s"), median(turns[True], "total_s")
    copy, commit = median(turns[True], "copy_s"), median(turns[True], "end_s")
    held = median(turns[True], "begin_s")
    cpu, extra = median(turns[True], "cpu_s"), saved - plain
    allowed = STALL_GOAL * plain + copy + cpu / cores
    both = max(noise(turns[False], "total_s"), noise(turns[True], "total_s")) * plain / allowed
    met = base.verdict(extra <= allowed, both, abs(extra / allowed - 1))
    text = {True: "met", False: "MISSED", None: "no verdict: A to A exceeds a third of the margin"}
    memory = max(figures_of(turns[True], "memory"))
    spare = ", a core to spare" if ranks < cores else ""
    print(f"\n{STEPS} steps on {ranks} rank{'s' * (ranks > 1)}, {cores} cores{spare}, one save of "
          f"{size / 1e6:.0f} MB among them: medians over turns\n")
    print(f"  without {plain:.3f} s, with {saved:.3f} s: {extra:.3f} s more, {100 * extra / plain:.2f} % "
          f"(A to A {100 * noise(turns[False], 'total_s'):.1f} %)")
    print(f"  allowed {allowed:.3f} s = 1 % of the steps {STALL_GOAL * plain:.3f} + staging copy "
          f"{copy:.3f} + hash and write {cpu:.3f} CPU s / {cores} cores {cpu / cores:.3f}: {text[met]}")
    print(f"  of it the copy held a step for {held:.4f} s and the commit one for {commit:.4f} s; "
          f"memory of a rank {memory / 1e6:.1f} MB, "
          f"its share of the state {size / ranks / 1e6:.1f} MB")
    return dict(ranks=ranks, cores=cores, without_s=plain, with_s=saved, extra_s=extra, copy_s=copy,
                held_s=held, commit_s=commit, writer_cpu_s=cpu, allowed_s=allowed, met=met,
                memory=memory,
                turns=[turns[False], turns[True]])


# ------------------------------------------------------------------------------- all of it

def file_system(path):
    """The kind of the file system below a folder, as /proc/mounts has it."""
    best, kind = "", "?"
    for line in pathlib.Path("/proc/mounts").read_text().splitlines():
        _, at, one = line.split()[:3]
        inside = str(path) == at or str(path).startswith(at.rstrip("/") + "/")
        if inside and len(at) >= len(best):
            best, kind = at, one
    return kind


def check_room(folder, size):
    free = shutil.disk_usage(folder).free
    if free < 5 * size:
        raise SystemExit(f"bench/checkpoint: {folder} has {free / 1e9:.1f} GB free and this takes "
                         f"{5 * size / 1e9:.1f}: name another with --dir, or take a smaller --mb")
    memory = float("inf")
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            memory = int(line.split()[1]) * 1024
    if memory < 7 * size + 2e9:
        raise SystemExit(f"bench/checkpoint: {memory / 1e9:.1f} GB of memory are free and this takes "
                         f"{7 * size / 1e9 + 2:.1f}: take a smaller --mb")


def measure(options, work):
    rows, hidden = state_of(options.mb)
    size = bytes_of(rows)
    check_room(work, size)
    (work / "tensors.json").write_text(json.dumps(rows))
    kind = file_system(work)
    print(f"{len(rows)} tensors, {size / 1e6:.1f} MB float32 (a llama of width {hidden} and AdamW), "
          f"{bytes_of(rows, True) / size:.0%} of them cut over the ranks; "
          f"{options.turns} turn{'s' * (options.turns > 1)}; {work.parent} on {kind}")
    if kind in ("tmpfs", "ramfs"):
        print("that is memory: nothing here speaks of a disk")
    sides = start(options, work, RANKS)
    if "PyTorch" in sides:
        print(f"PyTorch {options.version['PyTorch']}, torch.distributed.checkpoint, Gloo")
    result = dict(bytes=size, tensors=len(rows))
    try:
        saves = Saves(options, work, sides, size)
        saves.run()
        show_saves(saves.turns, size)
        result["saves"], result["ratios"] = saves.turns, show_ratios(saves.turns)
        cores = len(options.cores)
        result["stalls"] = [show_stall(stalls(options, work, sides["gradwright"], RANKS), RANKS, cores,
                                       size)]
        found = {RANKS: loads(options, sides, saves.kept, RANKS)}
    finally:
        for side in sides.values():
            side.end()
    for ranks in RESHARD:
        sides = start(options, work, ranks)
        try:
            found[ranks] = loads(options, sides, saves.kept, ranks)
            if ranks == 1 and cores > 1:
                result["stalls"].append(show_stall(stalls(options, work, sides["gradwright"], 1), 1,
                                                   cores, size))
        finally:
            for side in sides.values():
                side.end()
    show_loads(found)
    result["loads"] = [dict(ranks=r, side=s, cold=c, turns=t) for r, turns in found.items()
                       for (s, c), t in turns.items()]
    return result


def main():
    a = argparse.ArgumentParser(
        prog="bench/checkpoint", description=__doc__.split("\n")[0],
        epilog="GW_BENCH_PYTHON: a Python with PyTorch. GW_BUILD: where `make bench` builds (default "
        "build/release).")
    a.add_argument("--mb", type=float, help="of state, about (default: 134 million parameters, 1.6 GB)")
    a.add_argument("--dir", default=tempfile.gettempdir(), help="on the disk to write to")
    a.add_argument("--turns", type=int, default=7, help="that count (default 7)")
    a.add_argument("--quick", action="store_true", help="300 MB, 3 turns: under six minutes")
    a.add_argument("--process", action="store_true",
                   help="PyTorch's saves by a process of its own too (its memory and CPU are not seen)")
    a.add_argument("--no-torch", action="store_true", help="gradwright and the plain writer alone")
    a.add_argument("--json", metavar="FILE", help="every figure of every turn, turn 0 included")
    options = a.parse_args()
    if options.quick:
        options.turns, options.mb = 3, options.mb or 300
    build = pathlib.Path(os.environ.get("GW_BUILD", HERE.parent / "build" / "release"))
    options.binary = build / "bench" / "checkpoint"
    options.python = os.environ.get("GW_BENCH_PYTHON", "python3")
    options.version = {}
    if not os.access(options.binary, os.X_OK):
        raise SystemExit(f"bench/checkpoint: {options.binary} is not built; make bench builds it")
    options.cores = axis.begin("checkpoint", most=max(RANKS, *RESHARD))
    with tempfile.TemporaryDirectory(prefix="gw-checkpoint-", dir=options.dir) as folder:
        try:
            result = measure(options, pathlib.Path(folder).resolve())
        except base.Failed as e:
            raise SystemExit(f"bench/checkpoint: {e}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(result, indent=1) + "\n")
    return 0


sys.exit(main())
