#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes fp8.txt: what torch's float8_e4m3fn and float8_e5m2 decode and round to.

    make_fp8.py [OUT]        needs torch, numpy

Lines, all numbers in hex:
  d FORMAT CODE BITS    code as float32, by its bits (NaN as 7fc00000 with the code's sign)
  e FORMAT BITS CODE    float32 rounded to the format. The inputs are, for each two neighbouring finite
                        magnitudes, the number halfway between them and the float32 numbers next to it;
                        both signs; 0; and beyond the largest what still rounds to it. torch does not
                        saturate: what it makes infinite or NaN is left out.
"""
import pathlib
import struct
import sys

import numpy as np
import torch


def bits(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def main(out):
    lines = [f"# torch {torch.__version__}"]
    for name, dtype in (("f8e4m3", torch.float8_e4m3fn), ("f8e5m2", torch.float8_e5m2)):
        codes = torch.arange(256, dtype=torch.int32).to(torch.uint8)
        values = codes.view(dtype).to(torch.float32).numpy()
        for c, v in enumerate(values):
            b = (0x7FC00000 | (c & 0x80) << 24) if np.isnan(v) else bits(float(v))
            lines.append(f"d {name} {c:02x} {b:08x}")
        finite = [float(v) for v in values[:128] if np.isfinite(v)]
        step = finite[-1] - finite[-2]
        inputs = [np.float32(0)]
        for a, b in zip(finite, finite[1:] + [finite[-1] + step]):
            half = np.float32((a + b) / 2)
            inputs += [np.nextafter(half, np.float32(0)), half, np.nextafter(half, np.float32(np.inf))]
        x = np.array([s * v for v in inputs for s in (1, -1)], dtype=np.float32)
        r = torch.from_numpy(x).to(dtype)
        back, code = r.to(torch.float32).numpy(), r.view(torch.uint8).numpy()
        for v, b, c in zip(x, back, code):
            if np.isfinite(b):
                lines.append(f"e {name} {bits(float(v)):08x} {c:02x}")
    pathlib.Path(out).write_text("\n".join(lines) + "\n")


main(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "fp8.txt")
