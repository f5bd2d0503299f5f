#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small files that torch.save wrote, for tests/file/test_pytorch.c: GOLDEN_PYTHON make_pytorch.py.

state.bin   a state_dict of every dtype that models have; element j of tensor i is i + j / 4
wrapped.pt  {"epoch": 3, "model": {...}}, parameters, two names of one storage, a view into it
turned.pt   a tensor whose rows are not contiguous
called.pt   a pickle that would call os.system
"""
import collections
import os
import sys

import torch

here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pytorch")


def tensor(i, shape, dtype):
    n = int(torch.tensor(shape).prod()) if shape else 1
    return (i + torch.arange(n, dtype=torch.float64) / 4).reshape(shape).to(dtype)


class Called:
    def __reduce__(self):
        return os.system, ("true",)


def main():
    os.makedirs(here, exist_ok=True)
    state = collections.OrderedDict()
    kinds = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8]
    shapes = [(3, 5), (4,), (2, 2, 3), (), (7,), (2, 0)]
    for i, (dtype, shape) in enumerate(zip(kinds, shapes)):
        state[f"t.{i}"] = tensor(i, shape, dtype)
    torch.save(state, os.path.join(here, "state.bin"))
    base = tensor(0, (4, 6), torch.float32)
    model = {
        "a": torch.nn.Parameter(base),
        "b": base,
        "rows": base[1:3],
    }
    torch.save({"epoch": 3, "lr": 0.5, "model": model}, os.path.join(here, "wrapped.pt"))
    torch.save({"t": base.t()}, os.path.join(here, "turned.pt"))
    torch.save({"x": Called(), "t": base}, os.path.join(here, "called.pt"))
    print(torch.__version__, file=sys.stderr)


if __name__ == "__main__":
    main()
