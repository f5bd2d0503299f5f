#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes t.bin and t.idx here: sixty documents of bytes for a run that a script starts."""
import struct
docs = [list(b"the wright makes a step and another step. " * (3 + i % 5)) + [256] for i in range(60)]
sizes = [len(d) for d in docs]
ends = [0]
for n in sizes: ends.append(ends[-1] + 2 * n)
with open("t.bin", "wb") as f:
    for d in docs: f.write(struct.pack("<%dH" % len(d), *d))
n = len(docs)
with open("t.idx", "wb") as f:
    f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, n, n + 1))
    f.write(struct.pack("<%di" % n, *sizes) + struct.pack("<%dq" % n, *ends[:-1]))
    f.write(struct.pack("<%dq" % (n + 1), *range(n + 1)))
