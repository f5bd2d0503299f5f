# SPDX-License-Identifier: Apache-2.0
"""Planned steps beside steps that run, on this machine.

`gradwright calibrate` measures the machine; then each case is planned (`plan --hardware this`) and
run (`train`). The cases are none of those that calibrate trains: other widths, lengths, batches,
families and layouts. For each the table has the planned step, the median of the steps that ran, and
how far apart they are; arenas and bytes on the wire have to be equal.

The claim: the median of |error| is within 10 %, the worst within 20 %. What others do on the machine
only makes steps longer, for seconds at a time. So a case is run twice, and where the medians of its
runs are further apart than a third of the margin again, four times at most; the quickest run is what
planned steps are held against, as calibrate keeps the quicker of two rounds, and the next one says how
sure it is. There is a verdict only where these two are within a third of the margin for most cases.
"""

import argparse
import array
import json
import os
import pathlib
import random
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
MEDIAN, WORST = 0.10, 0.20

GPT2 = "family: gpt2, layers: {l}, hidden: {d}, heads: {h}, vocab: {v}"
LLAMA = ("family: llama, layers: {l}, hidden: {d}, heads: {h}, kv_heads: {g}, ffn: {f}, vocab: {v}"
         ", tie_embeddings: {t}")
MOE = ("family: mixtral, layers: {l}, hidden: {d}, heads: {h}, kv_heads: {g}, ffn: {f}, vocab: {v}"
       ", moe: {{experts: {e}, top: 2}}")


def gpt2(l, d, h, v):
    return GPT2.format(l=l, d=d, h=h, v=v)


def llama(l, d, h, g, f, v, t="false"):
    return LLAMA.format(l=l, d=d, h=h, g=g, f=f, v=v, t=t)


# name: (model, sequence, micro-batch, compute, more of the run file, ranks)
CASES = {
    "gpt2-d320-f32": (gpt2(4, 320, 5, 6000), 256, 4, "fp32", "", 1),
    "gpt2-124m-bf16": (gpt2(12, 768, 12, 50257), 128, 2, "bf16", "", 1),
    "smollm2-135m-f32": (llama(30, 576, 9, 3, 1536, 49152, "true"), 64, 2, "fp32", "", 1),
    "llama-d448-bf16-1024": (llama(3, 448, 7, 7, 1216, 4096), 1024, 1, "bf16", "", 1),
    "llama-d288-full-recompute": (llama(5, 288, 9, 3, 768, 3000), 384, 3, "fp32",
                                  "recompute: {policy: full}\n", 1),
    "llama-d160-accumulate": (llama(6, 160, 5, 5, 448, 2000), 96, 4, "bf16", "ACCUMULATE 4", 1),
    "llama-d224-muon": (llama(4, 224, 7, 7, 640, 2000), 192, 4, "fp32",
                        "optimizer: {name: muon}\n", 1),
    "moe-d160-f32": (MOE.format(l=3, d=160, h=5, g=5, f=448, v=2000, e=6), 160, 4, "fp32", "", 1),
    "resnet18-w24": ("family: resnet18, width: 24, image: 48, channels: 1, classes: 10", 0, 16,
                     "fp32", "optimizer: {name: sgd}\n", 1),
    "llama-d320-dp2-zero1": (llama(4, 320, 5, 5, 864, 4096), 192, 2, "fp32",
                             "layout: {dp: 2, zero: 1}\n", 2),
    "llama-d384-tp2": (llama(4, 384, 6, 6, 1024, 4096), 256, 2, "bf16", "layout: {tp: 2}\n", 2),
    "gpt2-d256-pp2": (gpt2(6, 256, 4, 4096), 128, 2, "fp32", "ACCUMULATE 6layout: {pp: 2}\n", 2),
}


def say(text):
    print(text, file=sys.stderr, flush=True)


def write_tokens(prefix, vocab, count, rng):
    """A Megatron data set of one document of random ids."""
    ids = array.array("H", rng.choices(range(vocab), k=count))
    if sys.byteorder != "little":
        ids.byteswap()
    prefix.with_suffix(".bin").write_bytes(ids.tobytes())
    index = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, 1, 2)
    index += struct.pack("<i", count) + struct.pack("<q", 0) + struct.pack("<2q", 0, 1)
    prefix.with_suffix(".idx").write_bytes(index)


def write_images(prefix, n, side, rng):
    pixels = bytes(rng.getrandbits(8) for _ in range(n * side * side))
    pathlib.Path(f"{prefix}-images-idx3-ubyte").write_bytes(
        struct.pack(">4i", 0x803, n, side, side) + pixels)
    pathlib.Path(f"{prefix}-labels-idx1-ubyte").write_bytes(
        struct.pack(">2i", 0x801, n) + bytes(i % 10 for i in range(n)))


def run_file(case, work, steps):
    model, seq, batch, compute, more, _ = case
    images = "resnet" in model
    data = work / ("images" if images else "tokens")
    accumulate = 1
    if more.startswith("ACCUMULATE "):
        accumulate, more = int(more[11]), more[12:]
    length = "" if images else f", seq_len: {seq}"
    tokenizer = "" if images else ", tokenizer: bytes"
    return f"""\
model: {{{model}}}
data: {{train: {json.dumps(str(data))}{tokenizer}}}
train: {{steps: {steps}, micro_batch: {batch}, accumulate: {accumulate}{length}}}
precision: {{compute: {compute}}}
checkpoint: {{every: 0}}
{more}
"""


def call(options, *args, cwd, seconds=900):
    command = [str(options.binary), *map(str, args)]
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, stdin=subprocess.DEVNULL, timeout=seconds)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def lines_of(out):
    return [json.loads(t) for t in (out / "metrics.jsonl").read_text().splitlines() if "step_s" in t]


def apart(medians):
    """How far the second quickest run is from the quickest."""
    first, second = sorted(medians)[:2]
    return second / first - 1


def run_case(options, work, case, seconds):
    """Trains two to four times; returns (medians of all, least of all, arenas and bytes as planned?,
    the quickest run beside its plan)."""
    out, file = work / "run", work / "run.yaml"
    ranks = case[5]
    medians, least, exact, beside = [], [], True, None
    steps = 6
    while len(medians) < 2 or (len(medians) < 4 and apart(medians) > MEDIAN / 3):
        shutil.rmtree(out, ignore_errors=True)
        file.write_text(run_file(case, work, steps))
        call(options, "train", file, "--out", out, "--ranks", ranks, cwd=work)
        times = [x["step_s"] for x in lines_of(out)][2:]
        medians.append(statistics.median(times))
        least.append(min(times))
        s = json.loads((out / "summary.json").read_text())
        exact = exact and s["planned"]["arena_bytes"] == s["measured"]["arena_bytes"]
        exact = exact and s.get("wire_as_planned", True)
        if medians[-1] == min(medians):
            beside = json.loads(call(options, "plan", out, "--hardware", "this", "--json",
                                     cwd=work))
        steps = max(6, min(40, 2 + int(seconds / 2 / medians[0])))
    return medians, min(least), exact, beside


def plan_case(options, work, case):
    file = work / "run.yaml"
    file.write_text(run_file(case, work, 10))
    plan = json.loads(call(options, "plan", file, "--hardware", "this", "--json", "--ranks",
                           case[5], cwd=work))
    return plan["step_time_s"]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--binary", default=os.environ.get("GW_BIN", HERE.parent / "gradwright"),
                   type=lambda x: pathlib.Path(x).resolve())
    p.add_argument("--quick", action="store_true", help="under six minutes: shorter runs")
    p.add_argument("--cases", default="", help="only those whose name contains one of these words")
    p.add_argument("--calibration", type=pathlib.Path, help="use this file, do not calibrate")
    p.add_argument("--least", action="store_true",
                   help="compare with the fastest step, for a machine that others use")
    p.add_argument("--json", type=pathlib.Path, help="write every figure there")
    options = p.parse_args()
    words = [w for w in options.cases.split(",") if w]
    cases = {n: c for n, c in CASES.items() if not words or any(w in n for w in words)}
    work = pathlib.Path(tempfile.mkdtemp(prefix="gw-accuracy-"))
    try:
        return measure(options, work, cases)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def measure(options, work, cases):
    rng = random.Random(7)
    write_tokens(work / "tokens", 2000, 1 << 17, rng)
    write_images(work / "images", 256, 32, rng)
    began = time.time()
    if options.calibration:
        shutil.copy(options.calibration, work / "calibration.json")
    else:
        print(call(options, "calibrate", cwd=work), end="", flush=True)
        say(f"calibrated in {time.time() - began:.0f} s")
    rows, load = [], os.getloadavg()[0]
    print(f"{'case':28} {'planned':>9} {'measured':>9} {'error':>8} {'turns':>7} {'bytes':>6}")
    for name, case in cases.items():
        planned = plan_case(options, work, case)
        medians, least, exact, beside = run_case(options, work, case, 8 if options.quick else 30)
        measured = least if options.least else min(medians)
        rows.append(dict(case=name, planned=planned, measured=measured, least=least,
                         medians=medians, error=planned / measured - 1, apart=apart(medians),
                         exact=exact,
                         ops=beside["ops"], explains=beside["explains"]))
        r = rows[-1]
        print(f"{name:28} {planned * 1e3:7.1f}ms {measured * 1e3:7.1f}ms {100 * r['error']:+7.1f}%"
              f" {100 * r['apart']:6.1f}% {'equal' if exact else 'DIFFER':>6}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    errors = sorted(abs(r["error"]) for r in rows)
    median, worst = statistics.median(errors), errors[-1]
    noise = statistics.median(r["apart"] for r in rows)
    print(f"\n{len(rows)} cases: median |error| {100 * median:.1f} %, worst {100 * worst:.1f} %; "
          f"the two quickest runs of a case are {100 * noise:.1f} % apart (median); "
          f"{time.time() - began:.0f} s")
    if not all(r["exact"] for r in rows):
        print("arenas or bytes on the wire differ from their plan")
        return 1
    if noise > MEDIAN / 3:
        print(f"no verdict: the machine is not quiet (load average {load:.1f} at the beginning)")
        return 0
    good = median <= MEDIAN and worst <= WORST
    print(f"within {100 * MEDIAN:.0f} % (median) and {100 * WORST:.0f} % (worst): "
          f"{'yes' if good else 'no'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
