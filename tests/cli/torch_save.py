#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes DIR/model.safetensors as DIR/pytorch_model.bin, as torch.save does, without torch.

Modules of the names that a pickle refers to stand in for the real ones; the pickle that comes out is
the same.
"""
import collections
import io
import json
import os
import pickle
import struct
import sys
import types
import zipfile


def stand_in(module, *names):
    m = types.ModuleType(module)
    sys.modules[module] = m
    for name in names:
        f = type(name, (), {"__module__": module, "__qualname__": name})
        setattr(m, name, f)
    return m


torch = stand_in("torch", "FloatStorage", "HalfStorage", "BFloat16Storage")
utils = stand_in("torch._utils")


def _rebuild_tensor_v2(*args):
    raise NotImplementedError


_rebuild_tensor_v2.__module__ = "torch._utils"
utils._rebuild_tensor_v2 = _rebuild_tensor_v2
STORAGES = {"F32": torch.FloatStorage, "F16": torch.HalfStorage, "BF16": torch.BFloat16Storage}


class Storage:
    def __init__(self, kind, key, elems):
        self.id = ("storage", kind, key, "cpu", elems)


class Tensor:
    def __init__(self, storage, shape):
        strides, n = [], 1
        for d in reversed(shape):
            strides.insert(0, n)
            n *= d
        self.args = (storage, 0, tuple(shape), tuple(strides), False, collections.OrderedDict())

    def __reduce__(self):
        return _rebuild_tensor_v2, self.args


class Pickler(pickle.Pickler):
    def persistent_id(self, obj):
        return obj.id if isinstance(obj, Storage) else None


def main(path):
    with open(os.path.join(path, "model.safetensors"), "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    state, blobs = collections.OrderedDict(), []
    for name, t in head.items():
        if name == "__metadata__":
            continue
        begin, end = t["data_offsets"]
        kind = STORAGES[t["dtype"]]
        elems = (end - begin) // (4 if t["dtype"] == "F32" else 2)
        state[name] = Tensor(Storage(kind, str(len(blobs)), elems), t["shape"])
        blobs.append(data[begin:end])
    text = io.BytesIO()
    Pickler(text, 2).dump(state)
    with zipfile.ZipFile(os.path.join(path, "pytorch_model.bin"), "w", zipfile.ZIP_STORED) as z:
        z.writestr("archive/data.pkl", text.getvalue())
        z.writestr("archive/byteorder", "little")
        for i, blob in enumerate(blobs):
            z.writestr(f"archive/data/{i}", blob)
        z.writestr("archive/version", "3\n")


if __name__ == "__main__":
    main(sys.argv[1])
