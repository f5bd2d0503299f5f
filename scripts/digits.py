#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Handwritten digits as IDX files: 1,797 grey images of 8 x 8 pixels, ten classes.

    scripts/digits.py [FOLDER]      writes FOLDER/digits-{train,valid}-*; FOLDER is build/data

The set is UCI's "Optical recognition of handwritten digits", which Debian's python3-sklearn carries
as a table (GW_DIGITS names the file where it lies elsewhere). Every fifth image is held out.
"""
import gzip
import os
import struct
import sys

USUAL = "/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz"


def write(path, dims, body):
    with open(path, "wb") as f:
        f.write(bytes([0, 0, 8, len(dims)]) + struct.pack(f">{len(dims)}I", *dims) + body)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "build/data"
    table = os.environ.get("GW_DIGITS", USUAL)
    if not os.path.exists(table):
        sys.exit(f"digits: {table} is not there; Debian's python3-sklearn has it")
    with gzip.open(table, "rt") as f:
        rows = [[int(float(v)) for v in line.split(",")] for line in f]
    os.makedirs(folder, exist_ok=True)
    for part, held in (("train", False), ("valid", True)):
        mine = [r for i, r in enumerate(rows) if (i % 5 == 4) == held]
        pixels = bytes(v * 255 // 16 for r in mine for v in r[:64])
        labels = bytes(r[64] for r in mine)
        prefix = os.path.join(folder, f"digits-{part}")
        write(f"{prefix}-images-idx3-ubyte", (len(mine), 8, 8), pixels)
        write(f"{prefix}-labels-idx1-ubyte", (len(mine),), labels)
        print(f"{prefix}: {len(mine)} images")


if __name__ == "__main__":
    main()
