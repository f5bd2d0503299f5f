#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fits parameters of a chip's cost model to published steps.

Rows come from tests/plan/published.json: all of the chip and of those that inherit from it, or those
whose id matches --rows. They are planned (bench/steps) on copies of the hardware files in which
`model:` has other values, and the mean of |log(planned / published)|, of which what lies beyond a half
counts as a half, is made smaller by going along one parameter at a time: a step up, a step down, smaller
steps. Groups weigh alike. Only parameters named by --free move, within the bounds given with them, and
each belongs to the chip: there is no parameter of a row, a model or a group.

--half leaves every other row of each group out of the fit, and prints how well the others are met: what
only the fitted rows have in common does not help these.

    scripts/fit_machine.py h100-sxm --free product_efficiency=0.6:0.85,attention_forward=0.3:0.75 --half
"""
import argparse
import json
import math
import os
import re
import statistics
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "bench"))
import published  # noqa: E402  bench/published.py: rows to run files, published seconds

MOST = 0.5


def own_parameters(chip):
    """What stands under `model:` of a chip's file, `inherits` included."""
    with open(os.path.join(ROOT, "hardware", chip + ".yaml"), encoding="utf-8") as f:
        return dict(re.findall(r"^  (\w+): (\S+)", f.read().split("\nmodel:", 1)[1], re.M))


def parameters(chip, moved=None):
    """All parameters of a chip; `moved` {chip: {name: value}} instead of what files say."""
    own = own_parameters(chip)
    base = own.pop("inherits", None)
    values = parameters(base, moved) if base else {}
    values.update({k: float(v) for k, v in own.items()})
    values.update((moved or {}).get(chip, {}))
    return values


def write_file(chip, values, path):
    with open(os.path.join(ROOT, "hardware", chip + ".yaml"), encoding="utf-8") as f:
        facts = f.read().split("\nmodel:", 1)[0]
    with open(path, "w", encoding="utf-8") as f:
        f.write(facts + "\nmodel:\n" + "".join("  %s: %.6g\n" % x for x in values.items()))


def heirs(chip):
    """The chip, and those whose parameters come from it."""
    names = sorted(f[:-5] for f in os.listdir(os.path.join(ROOT, "hardware")) if f.endswith(".yaml"))
    found = {chip}
    for _ in names:
        found |= {n for n in names if own_parameters(n).get("inherits") in found}
    return found


def errors(rows, planners, moved, folder, number):
    """log(planned / published) by row id."""
    paths = {}
    for chip in {r["chip"].partition(",")[0] for r in rows}:
        paths[chip] = os.path.join(folder, "%s-%d.yaml" % (chip, number))
        write_file(chip, parameters(chip, moved), paths[chip])

    def machine_of(row):
        chip, comma, keys = row["chip"].partition(",")
        return paths[chip] + comma + keys

    answers = published.plan_all(rows, planners, machine_of)
    found = {}
    for row in rows:
        p = answers[row["id"]]
        if "error" in p:
            sys.exit("%s: %s" % (row["id"], p["error"]))
        found[row["id"]] = math.log(p["step_time_s"] / published.published_seconds(row, p))
    return found


def cost(rows, e):
    groups = {r["group"] for r in rows}
    means = [statistics.mean(min(MOST, abs(e[r["id"]])) for r in rows if r["group"] == g)
             for g in groups]
    return statistics.mean(means)


def show(what, rows, e):
    for group in published.BOUNDS:
        mine = [100 * (math.exp(e[r["id"]]) - 1) for r in rows if r["group"] == group]
        if mine:
            print("%-8s %-8s %3d rows: median |error| %.1f %%, median %+.1f %%"
                  % (what, group, len(mine), statistics.median(map(abs, mine)),
                     statistics.median(mine)))


def main():
    a = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("chip", help="a name of hardware/")
    a.add_argument("--rows", default="", help="a regular expression of ids")
    a.add_argument("--free", default="", help="NAME=LEAST:MOST, apart by commas; none: only show")
    a.add_argument("--half", action="store_true", help="fit on every other row of a group")
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--jobs", type=int, default=2)
    a.add_argument("--steps", default=os.path.join(ROOT, "build/release/bench/steps"))
    args = a.parse_args()
    with open(os.path.join(ROOT, "tests/plan/published.json"), encoding="utf-8") as f:
        every = json.load(f)["rows"]
    chips = heirs(args.chip)
    rows = [r for r in every if r["chip"].partition(",")[0] in chips and re.search(args.rows, r["id"])]
    fitted = rows
    if args.half:
        fitted = [r for g in published.BOUNDS
                  for r in [x for x in rows if x["group"] == g][::2]]
    others = [r for r in rows if r not in fitted]
    free = [re.fullmatch(r"(\w+)=([\d.e-]+):([\d.e-]+)", x).groups() for x in args.free.split(",") if x]
    planners = [published.Steps(args.steps) for _ in range(args.jobs)]
    values = {name: parameters(args.chip)[name] for name, _, _ in free}
    with tempfile.TemporaryDirectory() as folder:
        number = 0
        best = errors(fitted, planners, {args.chip: values}, folder, number)
        show("before", fitted, best)
        for size in (0.08 / 2 ** i for i in range(args.rounds)):
            for name, least, most in free:
                for way in (1 + size, 1 - size):
                    moved = dict(values)
                    moved[name] = min(float(most), max(float(least), values[name] * way))
                    number += 1
                    e = errors(fitted, planners, {args.chip: moved}, folder, number)
                    if cost(fitted, e) < cost(fitted, best):
                        values, best = moved, e
                        break
        show("fitted", fitted, best)
        if others:
            show("left out", others, errors(others, planners, {args.chip: values}, folder, number + 1))
    for p in planners:
        p.close()
    for name, _, _ in free:
        print("  %s: %.4g" % (name, values[name]))


if __name__ == "__main__":
    main()
