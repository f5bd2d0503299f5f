# SPDX-License-Identifier: Apache-2.0
"""The all-reduce of gradwright beside those of Open MPI and Gloo: float32 sums in place, by size.

Each round starts gradwright, then each peer, one after another, so that only one runs at any
moment; every second round goes backwards. A program times all sizes and gives a median for each; the
figure of a program is the median of its rounds, and its spread how far the rounds lie apart. The
rate of copies is what all ranks copy at once of their own memory, measured by gradwright between its
own collectives. README.md in this folder says what the figures mean. Only Python's own library is used
here.
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

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
SPEED_GOAL = 3.0     # bus bandwidth against the better peer, from LARGE on
COPY_GOAL = 0.9      # bus bandwidth against concurrent copies, from LARGE on
LARGE = 1 << 20
SMALL = 16 << 10     # below: latency no worse than the better peer's
DEFAULT = [1 << k for k in range(10, 29, 2)]


def say(text):
    print(text, file=sys.stderr, flush=True)


def size_of(text):
    for suffix, factor in (("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)):
        if text.endswith(suffix):
            return int(text[:-3]) * factor
    return int(text)


def name_of(size):
    for suffix, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size % factor == 0:
            return f"{size // factor} {suffix}"
    return f"{size} B"


# ------------------------------------------------------------------------------- programs

class Program:
    """Something that times all-reduces; `why` says what it lacks, if it cannot."""

    why = None

    def pairs(self, command, env=None):
        out = subprocess.run(command, env=env, check=True, capture_output=True, text=True,
                             timeout=1200)
        return {int(a): float(b) for a, b in (line.split() for line in out.stdout.splitlines())}


class Ours(Program):
    name = "gradwright"

    def __init__(self):
        self.binary = os.environ.get("GW_BIN", str(ROOT / "gradwright"))
        if not os.access(self.binary, os.X_OK):
            self.why = f"{self.binary} is not built; make builds it"
        self.copies = {}

    def run(self, ranks, sizes, samples):
        out = subprocess.run(
            [self.binary, "bench", "collectives", "--json", "--ranks", str(ranks), "--samples",
             str(samples), "--sizes", ",".join(map(str, sizes))],
            check=True, stdout=subprocess.PIPE, text=True, timeout=1200)
        rows = json.loads(out.stdout)["sizes"]
        for r in rows:
            self.copies.setdefault(r["bytes"], []).append(r["copies"]["seconds"])
        return {r["bytes"]: r["in_place"]["seconds"] for r in rows}


class Mpi(Program):
    name = "Open MPI"

    def __init__(self, folder, seconds):
        self.seconds = seconds
        self.binary = str(folder / "mpi_all_reduce")
        if not shutil.which("mpicc") or not shutil.which("mpirun"):
            self.why = "mpicc or mpirun is missing (libopenmpi-dev, openmpi-bin)"
            return
        built = subprocess.run(["mpicc", "-O2", str(HERE / "mpi" / "all_reduce.c"), "-o",
                                self.binary], capture_output=True, text=True)
        if built.returncode:
            self.why = "its program cannot be compiled: " + built.stderr.strip()[:200]

    def run(self, ranks, sizes, samples):
        env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        return self.pairs(["mpirun", "-n", str(ranks), "--oversubscribe", self.binary,
                           str(samples), str(self.seconds), *map(str, sizes)], env)


class Gloo(Program):
    name = "Gloo"

    def __init__(self, folder, seconds):
        self.folder, self.seconds, self.count = folder, seconds, 0
        self.python = os.environ.get("GW_BENCH_PYTHON", "python3")
        seen = subprocess.run([self.python, "-c", "import torch.distributed"], capture_output=True)
        if seen.returncode:
            self.why = f"{self.python} has no PyTorch; GW_BENCH_PYTHON names one that has"

    def run(self, ranks, sizes, samples):
        self.count += 1
        command = [self.python, str(HERE / "torch_gloo.py"), str(samples), str(self.seconds),
                   *map(str, sizes)]
        env = dict(os.environ, WORLD_SIZE=str(ranks), OMP_NUM_THREADS="1",
                   GW_STORE=str(self.folder / f"store{self.count}"))
        others = [subprocess.Popen(command, env=dict(env, RANK=str(r)),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                  for r in range(1, ranks)]
        try:
            return self.pairs(command, dict(env, RANK="0"))
        finally:
            for p in others:
                try:
                    p.wait(timeout=30)
                except subprocess.TimeoutExpired:
                    p.kill()


# ------------------------------------------------------------------------------- figures

def spread(times):
    """How far the rounds of one program lie apart: distance of quartiles over the median."""
    if len(times) < 2:
        return float("inf")
    if len(times) < 4:
        return (max(times) - min(times)) / statistics.median(times)
    low, _, high = statistics.quantiles(times, n=4)
    return (high - low) / statistics.median(times)


def verdict(met, margin, noise):
    if noise > margin / 3:
        return "no verdict"
    return "met" if met else "MISSED"


def report(ranks, sizes, ours, peers, times, as_json):
    cores = len(os.sched_getaffinity(0))
    bus = 2 * (ranks - 1) / ranks
    rows = []
    for size in sizes:
        median = {p.name: statistics.median(times[p.name][size]) for p in [ours, *peers]}
        noise = {p.name: spread(times[p.name][size]) for p in [ours, *peers]}
        copies = statistics.median(ours.copies[size])
        mine = median[ours.name]
        row = dict(bytes=size, ranks=ranks, seconds=median, spread=noise,
                   bus_bytes_per_s={k: bus * size / v for k, v in median.items()},
                   copy_bytes_per_s=size / copies, to_copies=bus * copies / mine)
        if peers:
            best = min(peers, key=lambda p: median[p.name])
            row["better_peer"], row["ratio"] = best.name, median[best.name] / mine
            both = max(noise[ours.name], noise[best.name])
            if size >= LARGE:
                row["speed"] = verdict(row["ratio"] >= SPEED_GOAL, abs(row["ratio"] - 1), both)
            elif size < SMALL and ranks <= cores:
                row["latency"] = verdict(row["ratio"] >= 1.0, abs(row["ratio"] - 1), both)
        if size >= LARGE:
            row["copies"] = "met" if row["to_copies"] >= COPY_GOAL else "MISSED"
        rows.append(row)
    if as_json:
        return rows
    print(f"\nall-reduce, float32, in place, {ranks} ranks on {cores} cores; times in us, bus bandwidth "
          f"in GB/s\n")
    names = [p.name for p in [ours, *peers]]
    print(f"{'size':>8}  " + "  ".join(f"{n + ' us':>16} {'bus':>6} {'spread':>6}" for n in names) +
          f"  {'ratio':>6}  {'copies':>6}  {'to them':>7}  goals")
    for row in rows:
        cells = "  ".join(f"{row['seconds'][n] * 1e6:16.1f} {row['bus_bytes_per_s'][n] / 1e9:6.2f} "
                          f"{row['spread'][n] * 100:5.0f}%" for n in names)
        goals = ", ".join(f"{k} {row[k]}" for k in ("speed", "latency", "copies") if k in row)
        ratio = f"{row['ratio']:6.2f}" if "ratio" in row else "     -"
        print(f"{name_of(row['bytes']):>8}  {cells}  {ratio}  {row['copy_bytes_per_s'] / 1e9:6.2f}  "
              f"{row['to_copies']:7.2f}  {goals}")
    return rows


def measure(ranks, sizes, programs, options):
    times = {p.name: {s: [] for s in sizes} for p in programs}
    for turn in range(options.rounds):
        for p in programs if turn % 2 == 0 else reversed(programs):
            for size, seconds in p.run(ranks, sizes, options.samples).items():
                times[p.name][size].append(seconds)
        say(f"{ranks} ranks: round {turn + 1} of {options.rounds}")
    return times


def main():
    a = argparse.ArgumentParser(prog="bench/collectives", description=__doc__.split("\n")[0])
    a.add_argument("--ranks", default="2,4", help="numbers of ranks (default 2,4)")
    a.add_argument("--sizes", help="1KiB,1MiB ... (default 1KiB to 256MiB, times 4)")
    a.add_argument("--rounds", type=int, default=5, help="turns of each program (default 5)")
    a.add_argument("--samples", type=int, default=9, help="samples in a turn (default 9)")
    a.add_argument("--seconds", type=float, default=0.1, help="time for a size, about")
    a.add_argument("--quick", action="store_true", help="three rounds, up to 16 MiB")
    a.add_argument("--json", action="store_true", help="print every figure as JSON")
    options = a.parse_args()
    sizes = [size_of(s) for s in options.sizes.split(",")] if options.sizes else DEFAULT
    if options.quick:
        options.rounds, options.samples = 3, 5
        sizes = [s for s in sizes if s <= 16 << 20]
    ours, rows = Ours(), []
    if ours.why:
        say(ours.why)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        peers = [Mpi(pathlib.Path(folder), options.seconds), Gloo(pathlib.Path(folder), options.seconds)]
        for p in peers:
            if p.why:
                say(f"{p.name} is left out: {p.why}")
        peers = [p for p in peers if not p.why]
        for ranks in map(int, options.ranks.split(",")):
            ours.copies = {}
            times = measure(ranks, sizes, [ours, *peers], options)
            rows += report(ranks, sizes, ours, peers, times, options.json)
    if options.json:
        json.dump(rows, sys.stdout, indent=1)
        print()
    return 0


sys.exit(main())
