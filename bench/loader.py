#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens a second that loaders give, and the share of a link that they use.

    bench/loader [--mb 500] [--seq 4096] [--rounds 5] [--json FILE]

Makes one set of random documents as Megatron files and as MDS shards, and reads as many rows from
it with: the loader (documents and blocks of the Megatron files, MDS), torch's DataLoader over a
memory map of the .bin (the usual dataset: row i is seq + 1 tokens, one worker process and none),
and mosaicml-streaming's StreamingDataset over the same shards (documents, concatenated to rows). Peers
need GW_BENCH_PYTHON, a Python that has torch and streaming; without it they are left out, and it is said.

Then the shards are served by build/release/bench/store_server with a first byte after 50 ms and a
link of --link bytes a second, and read through http:// by the loader: bytes of the set over the time are its share
of the link.

Runs alternate; the least and the median of the rounds are printed. All rates are of tokens that
were delivered in batches of 64 rows.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get('GW_BUILD', os.path.join(HERE, '..', 'build', 'release'))
BATCH = 64

TORCH = r'''
import sys, time, json
import numpy as np, torch
from torch.utils.data import DataLoader, Dataset
path, seq, steps, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(1)
class Rows(Dataset):
    def __init__(self):
        self.t = np.memmap(path + ".bin", dtype=np.uint16, mode="r")
        self.n = (len(self.t) - 1) // seq
    def __len__(self): return self.n
    def __getitem__(self, i):
        x = torch.from_numpy(self.t[i * seq:i * seq + seq + 1].astype(np.int64))
        return x[:-1], x[1:]
d = Rows()
g = torch.Generator().manual_seed(1)
s = torch.utils.data.RandomSampler(d, replacement=True, num_samples=steps * 64, generator=g)
l = DataLoader(d, batch_size=64, sampler=s, num_workers=workers)
t = time.perf_counter(); c = time.process_time(); n = 0
for x, y in l: n += x.numel()
print(json.dumps({"tokens": n, "wall_s": time.perf_counter() - t}))
'''

STREAMING = r'''
import sys, time, json
import numpy as np
from streaming import StreamingDataset
path, seq, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
d = StreamingDataset(local=path, shuffle=True, shuffle_seed=1, batch_size=64, num_canonical_nodes=1)
t = time.perf_counter(); n = 0; have = 0; parts = []
for s in d:
    parts.append(s["tokens"]); have += len(s["tokens"])
    while have >= 64 * seq + 1:
        x = np.concatenate(parts); n += 64 * seq; b = x[:64 * seq].astype(np.int64).reshape(64, seq)
        parts = [x[64 * seq:]]; have = len(parts[0])
    if n >= steps * 64 * seq: break
print(json.dumps({"tokens": n, "wall_s": time.perf_counter() - t}))
'''


def run(cmd):
    p = subprocess.run(cmd, stdout=subprocess.PIPE, text=True)
    if p.returncode != 0:
        return None
    return json.loads(p.stdout.strip().splitlines()[-1])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('--mb', type=int, default=500)
    ap.add_argument('--seq', type=int, default=4096)
    ap.add_argument('--rounds', type=int, default=5)
    ap.add_argument('--link', type=float, default=200e6)
    ap.add_argument('--json')
    a = ap.parse_args()
    tool = os.path.join(BUILD, 'bench', 'loader')
    python = os.environ.get('GW_BENCH_PYTHON')
    with tempfile.TemporaryDirectory() as d:
        subprocess.run([tool, 'make', d, str(a.mb)], check=True)
        steps = max(1, a.mb * 500000 // (a.seq * BATCH))
        s, m = os.path.join(d, 'set'), os.path.join(d, 'mds')
        rows = {
            'loader, Megatron files, documents shuffled': [tool, 'read', s, str(a.seq), str(steps)],
            'loader, Megatron files, blocks': [tool, 'read', s, str(a.seq), str(steps), '16'],
            'loader, MDS shards': [tool, 'read', m, str(a.seq), str(steps)],
        }
        if python:
            rows['torch DataLoader, memory map, no worker'] = [
                python, '-c', TORCH, s, str(a.seq), str(steps), '0']
            rows['torch DataLoader, memory map, 1 worker'] = [
                python, '-c', TORCH, s, str(a.seq), str(steps), '1']
            rows['mosaicml-streaming, MDS shards'] = [
                python, '-c', STREAMING, m, str(a.seq), str(steps)]
        else:
            print('# GW_BENCH_PYTHON is not set: no peers', file=sys.stderr)
        rates = {k: [] for k in rows}
        cores = {k: [] for k in rows}
        for _ in range(a.rounds):
            for k, cmd in rows.items():
                r = run(cmd)
                if r is None:
                    print(f'# {k}: failed', file=sys.stderr)
                    continue
                rates[k].append(r['tokens'] / r['wall_s'])
                if r.get('cpu_s'):
                    cores[k].append(r['tokens'] / r['cpu_s'])
        result = {'rows': {}}
        print(f'{steps * BATCH} rows of {a.seq} tokens; million tokens a second: median (least)')
        for k, v in rates.items():
            if not v:
                continue
            text = f'{statistics.median(v) / 1e6:9.1f} ({min(v) / 1e6:.1f})'
            if cores[k]:
                text += f'   {statistics.median(cores[k]) / 1e6:.1f} a core'
            print(f'{k:45s}{text}')
            result['rows'][k] = {'tokens_per_s': statistics.median(v), 'least': min(v),
                                 'tokens_per_cpu_s': statistics.median(cores[k]) if cores[k] else None}
        link(a, tool, m, result)
        if a.json:
            with open(a.json, 'w') as f:
                json.dump(result, f, indent=2)


def link(a, tool, shards, result):
    """One epoch of the shards behind a slow first byte."""
    server = os.path.join(BUILD, 'bench', 'store_server')
    if not os.path.exists(server):
        print('# no store_server in the build: the link is not measured', file=sys.stderr)
        return
    files = sorted(os.listdir(shards))
    size = sum(os.path.getsize(os.path.join(shards, f)) for f in files)
    p = subprocess.Popen([server, '--first-byte', '50', '--rate', str(a.link / 1e6)],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        url = p.stdout.readline().strip() + '/bucket/mds'
        for f in files:
            with open(os.path.join(shards, f), 'rb') as data:
                put = urllib.request.Request(f'{url}/{f}', data=data.read(), method='PUT')
                urllib.request.urlopen(put).close()
        steps = max(1, a.mb * 500000 // (a.seq * BATCH))
        begun = time.perf_counter()
        r = run([tool, 'read', url, str(a.seq), str(steps), '4'])
        seconds = time.perf_counter() - begun
        if r:
            share = size / seconds / a.link
            print(f'first byte after 50 ms, a link of {a.link / 1e6:.0f} MB/s: {size / seconds / 1e6:.1f} '
                  f'MB/s, {100 * share:.1f} % of the link; {r["source_s"]:.2f} s of waiting for bytes')
            result['link_share'] = share
    finally:
        p.stdin.close()
        p.wait()


main()
