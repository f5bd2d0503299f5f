#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""MDS checked against mosaicml-streaming, both ways.

    GW_BENCH_PYTHON=PYTHON_WITH_STREAMING tests/golden/check_mds.py MDS_TOOL DIR

MDS_TOOL is build/release/bench/mds_tool. The library writes sets in every encoding that both know,
which the tool prints sample by sample; the tool writes the same samples, and files must be equal byte
for byte, compressed ones after decompression; and the library reads the tool's sets back. Every hash that
the library knows is tried, and zstd at several levels; other compressions must be refused by name.
"""
import json
import os
import subprocess
import sys

import numpy as np
from streaming import MDSWriter
from streaming.base.compression import decompress
from streaming.base.format import reader_from_json
from streaming.base.hashing import get_hashes

COLUMNS = {
    'tokens': 'ndarray:uint16',
    'open': 'ndarray',
    'fixed': 'ndarray:int32:3,2',
    'id': 'int',
    'small': 'uint8',
    'real': 'float32',
    'text': 'str',
    'raw': 'bytes',
    'meta': 'json',
    'digits': 'str_int',
}
SETS = [(None, None, 1 << 26), ('zstd:7', ['sha1', 'xxh64'], 4000), (None, ['xxh3_64'], 1500),
        ('zstd', None, 3000), ('zstd:1', ['md5'], 3000), ('zstd:19', ['sha256', 'xxh128'], 1 << 20)]
SETS += [(None, [h], 5000) for h in sorted(get_hashes())]
OTHERS = ['gz', 'br', 'bz2', 'snappy']


def sample(i):
    rng = np.random.default_rng(i)
    shape = (int(rng.integers(1, 400)),) if i % 3 else (2, int(rng.integers(1, 30)))
    return {
        'tokens': rng.integers(0, 65536, int(rng.integers(1, 300))).astype(np.uint16),
        'open': rng.integers(0, 1000, shape).astype([np.int64, np.uint32, np.int8][i % 3]),
        'fixed': rng.integers(-5, 5, (3, 2)).astype(np.int32),
        'id': i * 12345678901,
        'small': i % 256,
        'real': i / 7,
        'text': 'é😀 text' * (i % 4),
        'raw': bytes(range(i % 50)),
        'meta': {'n': i, 'a': [1, None, 'x']},
        'digits': 10**(i % 40),
    }


def write(out, compression, hashes, limit, n):
    with MDSWriter(out=out, columns=COLUMNS, compression=compression, hashes=hashes,
                   size_limit=limit) as w:
        for i in range(n):
            w.write(sample(i))


def same_files(a, b, compression):
    index = [json.load(open(os.path.join(d, 'index.json'))) for d in (a, b)]
    if not compression and index[0]['shards'] != index[1]['shards']:
        sys.exit(f'indexes of {a} and {b} differ')
    for x, y in zip(index[0]['shards'], index[1]['shards'], strict=True):
        if x['raw_data'] != y['raw_data'] or x['samples'] != y['samples']:
            sys.exit(f'shards of {a} and {b} differ: {x} {y}')
        for d, s in ((a, x), (b, y)):
            info = s['zip_data'] or s['raw_data']
            bytes_ = open(os.path.join(d, info['basename']), 'rb').read()
            s['content'] = decompress(compression, bytes_) if compression else bytes_
        if x['content'] != y['content']:
            sys.exit(f'bytes of {a} and {b} differ')


def read_back(d, n):
    at = 0
    for obj in json.load(open(os.path.join(d, 'index.json')))['shards']:
        r = reader_from_json(d, '', obj)
        r.validate(False)
        for i in range(r.samples):
            got, want = r[i], sample(at)
            for k in COLUMNS:
                if not np.array_equal(np.asarray(got[k], dtype=object if k == 'meta' else None),
                                      np.asarray(want[k], dtype=object if k == 'meta' else None)):
                    if k != 'real' or abs(got[k] - want[k]) > 1e-6:
                        sys.exit(f'{d}: sample {at}, column {k}: {got[k]} is not {want[k]}')
            at += 1
    if at != n:
        sys.exit(f'{d} has {at} samples')


def main():
    tool, base = sys.argv[1:3]
    n = 200
    for k, (compression, hashes, limit) in enumerate(SETS):
        theirs, ours = os.path.join(base, f'theirs-{k}'), os.path.join(base, f'ours-{k}')
        write(theirs, compression, hashes, limit, n)
        subprocess.run([tool, 'copy', theirs, ours, str(limit), compression or '-',
                        ','.join(hashes or [])], check=True)
        same_files(theirs, ours, compression)
        if not compression:
            read_back(ours, n)
        print(f'{compression}, {hashes}, {limit} bytes a shard: {n} samples, the same both ways')
    for compression in OTHERS:
        theirs = os.path.join(base, f'theirs-{compression}')
        write(theirs, compression, None, 4000, n)
        run = subprocess.run([tool, 'copy', theirs, theirs + '-copy', '4000', '-', ''],
                             capture_output=True, text=True)
        if run.returncode == 0 or compression not in run.stderr:
            sys.exit(f'{compression} is not refused by name: {run.stderr}')
        print(f'{compression}: refused by name')


main()
