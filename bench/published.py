# SPDX-License-Identifier: Apache-2.0
"""Published training steps beside what `gradwright plan --hardware` says of them.

Each row of tests/plan/published.json becomes a run file and is planned on its chip. What is compared is
the time of a step: where a source states TFLOP/s, its own way of counting FLOPs turns them into time. A
row's error is planned / published - 1. Nothing of a row enters the planner but model, layout and batch.

The median of |error| of a group is held against its bound: dense 8 %, long context 12 %, experts 15 %.
The worst row of each group is printed. Rows that do not compile are failures and say why.
"""
import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BOUNDS = {"dense": 8.0, "long": 12.0, "experts": 15.0}


def run_file(row):
    """The row as a run file; JSON is YAML."""
    layout = {k: v for k, v in row["layout"].items() if v is not False or k == "sequence_parallel"}
    if layout.get("tp", 1) == 1:
        layout.pop("sequence_parallel", None)
    if layout.get("zero", 0) > 0 and layout.get("pp", 1) > 1:
        layout["reduce"] = "last"
    ranks = layout.get("tp", 1) * layout.get("cp", 1) * layout.get("pp", 1)
    if row["world"] == ranks:
        layout.pop("zero", None)
        layout.pop("reduce", None)
    train = {"seq_len": row["seq"], "global_batch": row["global_batch"],
             "micro_batch": row["micro_batch"]}
    precision = {"compute": "bf16"}
    if row["precision"] == "fp8":
        precision["products"] = "fp8"
    model = dict(row["model"])
    if "family" in model:
        model.setdefault("max_positions", row["seq"])
    return json.dumps({"model": model, "train": train, "precision": precision, "layout": layout,
                       "recompute": {"policy": row["recompute"]}})


class Steps:
    """bench/steps: compiles a run once and simulates it on any number of machines."""

    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        self.runs, self.answers, self.lock = {}, {}, threading.Lock()

    def ask(self, request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": "bench/steps ended"}

    def plan(self, row, machine):
        """Keys of `plan --hardware --json`, or {"error": WHY}. The same question is asked once."""
        run = (run_file(row), row["world"])
        with self.lock:
            if run not in self.runs:
                self.runs[run] = self.ask({"run": run[0], "world": run[1]})
            compiled = self.runs[run]
            if "error" in compiled:
                return compiled
            key = (compiled["number"], machine)
            if key not in self.answers:
                self.answers[key] = self.ask({"number": key[0], "machine": machine})
            return self.answers[key]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Command:
    """`gradwright plan`, once a row: what bench/steps does, slower."""

    def __init__(self, path, timeout):
        self.path, self.timeout = path, timeout

    def plan(self, row, machine):
        command = [self.path, "plan", "-", "--hardware", machine, "--world", str(row["world"]),
                   "--json", "--memory", "1000TB"]
        try:
            p = subprocess.run(command, input=run_file(row), capture_output=True, text=True,
                               timeout=self.timeout, check=False)
        except subprocess.TimeoutExpired:
            return {"error": "took more than %d s" % self.timeout}
        if p.returncode != 0:
            lines = [l for l in p.stderr.strip().splitlines() if "error" in l] or [p.stderr.strip()]
            return {"error": lines[0][:160]}
        return json.loads(p.stdout)

    def close(self):
        pass


def plan_all(rows, planners, machine_of=lambda row: row["chip"]):
    """What each row's planner says, by id; rows that compile the same run meet the same planner."""
    mine = {}
    for row in rows:
        key = (run_file(row), row["world"])
        mine.setdefault(key, len(mine) % len(planners))
    answers = {}

    def work(i):
        for row in rows:
            if mine[(run_file(row), row["world"])] == i:
                answers[row["id"]] = planners[i].plan(row, machine_of(row))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(planners))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return answers


def published_seconds(row, p):
    """The time of a step that the source states or implies."""
    x, m = row["published"], row["model"]
    tokens = row["seq"] * row["global_batch"]
    if x["unit"] == "seconds":
        return x["value"]
    if x["unit"] == "tokens_per_s_chip":
        return tokens / row["world"] / x["value"]
    rate = x["value"] * 1e12
    if x["convention"].startswith("megatron"):
        hardware = x["convention"] == "megatron_hardware"
        l, h, v, s = m["layers"], m["hidden"], m["vocab"], row["seq"]
        k, per = (96, 16) if hardware else (72, 12)
        return k * tokens * l * h * h * (1 + s / (6 * h) + v / (per * l * h)) / rate / row["world"]
    return p["tflops_per_chip"][x["convention"]] * p["step_time_s"] * 1e12 / rate


def judge(row, p):
    """A row of the result: planned against published."""
    if "error" in p:
        return {"id": row["id"], "group": row["group"], "why": p["error"]}
    there = published_seconds(row, p)
    here = p["step_time_s"]
    return {"id": row["id"], "group": row["group"], "published_s": there, "planned_s": here,
            "error": 100 * (here / there - 1), "causal": p["mfu"]["causal"],
            "bubble": p["bubble"], "parts": {x["part"]: x["percent"] for x in p["parts"]}}


def parameters_hash():
    """Of the files that hold the chips' figures and the cost model's parameters."""
    h = hashlib.sha256()
    folder = os.path.join(ROOT, "hardware")
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        with open(os.path.join(folder, name), "rb") as f:
            h.update(name.encode() + b"\0" + f.read())
    return h.hexdigest()[:16]


def report(results):
    failed = False
    for group in BOUNDS:
        rows = [r for r in results if r["group"] == group]
        good = [r for r in rows if "error" in r]
        if not rows:
            continue
        if not good:
            print("%-8s %3d rows, none planned" % (group, len(rows)))
            failed = True
            continue
        errors = [abs(r["error"]) for r in good]
        worst = max(good, key=lambda r: abs(r["error"]))
        median = statistics.median(errors)
        signed = statistics.median(r["error"] for r in good)
        failed |= median > BOUNDS[group] or len(good) < len(rows)
        print("%-8s %3d rows, %d planned: median |error| %.1f %% (bound %.0f %%), median %+.1f %%, "
              "worst %s %+.1f %%" % (group, len(rows), len(good), median, BOUNDS[group], signed,
                                     worst["id"], worst["error"]))
    return failed


def main():
    a = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--steps", default=os.path.join(ROOT, "build/release/bench/steps"),
                   help="the program that plans, if it is built: make build/release/bench/steps")
    a.add_argument("--gradwright", default="",
                   help="plan with this program instead, a process a row, which takes longer")
    a.add_argument("--rows", default=os.path.join(ROOT, "tests/plan/published.json"))
    a.add_argument("--only", default="", help="rows whose id contains this")
    a.add_argument("--jobs", type=int, default=2)
    a.add_argument("--timeout", type=int, default=120, help="seconds a row, with --gradwright")
    a.add_argument("--parts", action="store_true", help="where each planned step goes, in percent")
    a.add_argument("--json", action="store_true")
    args = a.parse_args()
    with open(args.rows, encoding="utf-8") as f:
        data = json.load(f)
    rows = [r for r in data["rows"] if args.only in r["id"]]
    if not args.gradwright and os.path.exists(args.steps):
        planners = [Steps(args.steps) for _ in range(args.jobs)]
    else:
        command = args.gradwright or os.path.join(ROOT, "build/release/gradwright")
        planners = [Command(command, args.timeout) for _ in range(args.jobs)]
    answers = plan_all(rows, planners)
    results = [judge(r, answers[r["id"]]) for r in rows]
    for p in planners:
        p.close()
    if args.json:
        print(json.dumps({"parameters": parameters_hash(), "rows": results}, indent=1))
        return 0
    print("%-46s %-8s %11s %11s %8s" % ("row", "group", "published s", "planned s", "error"))
    for r in results:
        if "why" in r:
            print("%-46s %-8s not planned: %s" % (r["id"], r["group"], r["why"]))
        else:
            print("%-46s %-8s %11.4g %11.4g %+7.1f%%" % (r["id"], r["group"], r["published_s"],
                                                         r["planned_s"], r["error"]))
            if args.parts:
                print("    " + ", ".join("%s %.0f" % x for x in r["parts"].items()))
    print("\nparameters %s" % parameters_hash())
    failed = report(results)
    for line in data["missing"]:
        print("missing: " + line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
