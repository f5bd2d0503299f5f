# SPDX-License-Identifier: Apache-2.0
"""MinHash deduplication of gradwright beside datatrove's, on the same documents, one core each.

Documents are text files and pages of this machine's documentation packages, those of at least 98 %
ASCII (the recipe is for English), with near copies planted
among them (some words changed) and exact ones. Both sides sign them, sort bands and join clusters; the
sets of clusters are compared, and what differs is counted. Times are processor seconds of one process
each, taken in turns; the least of the turns counts, since another program on the machine can only add.
"""

import argparse
import glob
import gzip
import html
import json
import os
import pathlib
import random
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
BUILD = os.environ.get("GW_BUILD", str(HERE.parent / "build" / "release"))
PYTHON = os.environ.get("GW_BENCH_PYTHON", "python3")


def texts_of(limit):
    """Texts of the machine's documentation, up to `limit` bytes, in the order of their names."""
    total, seen = 0, set()
    for pattern in ("/usr/share/doc/**/*.html", "/usr/share/doc/**/*.txt*", "/usr/share/doc/*/README*",
                    "/usr/share/doc/*/NEWS*", "/usr/share/perl/**/*.pod", "/usr/share/doc/*/copyright"):
        for path in sorted(glob.glob(pattern, recursive=True)):
            real = os.path.realpath(path)
            if real in seen or not os.path.isfile(real):
                continue
            seen.add(real)
            try:
                with (gzip.open if path.endswith(".gz") else open)(path, "rb") as f:
                    text = f.read(400_000).decode("utf-8")
            except (OSError, UnicodeDecodeError, EOFError):
                continue
            if path.endswith(".html"):
                text = html.unescape(re.sub(r"<(script|style).*?</\1>|<[^>]*>", " ", text, flags=re.S))
            for at in range(0, len(text), 6000):  # pages of the web are a few kilobytes
                piece = text[at:at + 6000]
                plain = len(piece.encode("ascii", "ignore"))
                if len(piece) > 500 and plain > 0.98 * len(piece):
                    yield piece
                    total += len(piece.encode())
                    if total >= limit:
                        return


def corpus(limit, seed=1):
    rng = random.Random(seed)
    out = []
    for text in texts_of(limit):
        out.append(text)
        kind = rng.random()
        if kind < 0.05:
            out.append(text)
        elif kind < 0.2:  # a near copy: one word in 12 to 200 is another
            words, every = text.split(" "), rng.choice([12, 25, 50, 200])
            out.append(" ".join(rng.choice(words) if rng.randrange(every) == 0 else w for w in words))
    rng.shuffle(out)
    return out


def write(path, texts):
    with open(path, "wb") as f:
        for t in texts:
            raw = t.encode()
            f.write(struct.pack("<I", len(raw)) + raw)


def peer(path, folder):
    """datatrove's three steps in this process: prints a line of JSON as bench/dedup.c does."""
    from datatrove.data import Document
    from datatrove.pipeline.dedup.minhash import (MinhashConfig, MinhashDedupBuckets, MinhashDedupCluster,
                                                  MinhashDedupSignature)
    from datatrove.utils.hashing import HashConfig
    from datatrove.utils.logging import logger

    logger.remove()
    raw, texts, at = open(path, "rb").read(), [], 0
    while at < len(raw):
        n = struct.unpack_from("<I", raw, at)[0]
        texts.append(raw[at + 4:at + 4 + n].decode())
        at += 4 + n
    config = MinhashConfig(hash_config=HashConfig(hash_fc="sha1", precision=64))
    sign = MinhashDedupSignature(output_folder=f"{folder}/sigs", config=config)
    sign.get_shingles("warm the tokenizer up, so that its loading does not count")
    t0 = time.process_time()
    sign.run((Document(text=t, id=str(i)) for i, t in enumerate(texts)), 0, 1)
    t1 = time.process_time()
    buckets = MinhashDedupBuckets(input_folder=f"{folder}/sigs", output_folder=f"{folder}/dups", config=config)
    for b in range(config.num_buckets):
        buckets.run(None, b, config.num_buckets)
    MinhashDedupCluster(input_folder=f"{folder}/dups", output_folder=f"{folder}/out", config=config,
                        save_cluster_id=True).run(None, 0, 1)
    t2 = time.process_time()
    pairs = struct.iter_unpack("<2I", open(f"{folder}/out/000000.clusters", "rb").read())
    removed = [x[0] for x in struct.iter_unpack("<I", open(f"{folder}/out/000000.remove", "rb").read())]
    print(json.dumps(dict(sign_s=t1 - t0, cluster_s=t2 - t1, clusters=list(pairs), removed=removed)))


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def ours(path, recipe, folder, cpu):
    shutil.rmtree(folder, ignore_errors=True)
    return run(["taskset", "-c", cpu, f"{BUILD}/bench/dedup", path, recipe, folder])


def theirs(path, folder, cpu):
    shutil.rmtree(folder, ignore_errors=True)
    return run(["taskset", "-c", cpu, PYTHON, str(HERE / "dedup.py"), "--peer", path, folder])


def partition(members):
    """{frozenset of documents} from (document, cluster)."""
    sets = {}
    for doc, cluster in members:
        sets.setdefault(cluster, set()).add(doc)
    return {frozenset(s) for s in sets.values() if len(s) > 1}


def compare(a, b):
    own = partition([tuple(x) for x in a["removed"]] + [(s, s) for s in {x[1] for x in a["removed"]}])
    other = partition([tuple(x) for x in b["clusters"]])
    return dict(clusters=len(own), peer_clusters=len(other), different=len(own ^ other),
                removed=len(a["removed"]), peer_removed=len(b["removed"]))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--mb", type=float, default=20, help="megabytes of text before copies are planted")
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--cpu", default="0")
    p.add_argument("--json", help="write all figures there")
    p.add_argument("--peer", nargs=2, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.peer:
        peer(*a.peer)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/documents"
        texts = corpus(a.mb * 1e6)
        write(path, texts)
        rows, other = {}, []
        for turn in range(a.turns):
            for recipe in ("fineweb", "fineweb-xxh", "redpajama-v2", "nemo", "text-dedup", "refinedweb"):
                if turn == 0 or recipe.startswith("fineweb"):
                    rows.setdefault(recipe, []).append(ours(path, recipe, f"{folder}/own", a.cpu))
            try:
                other.append(theirs(path, f"{folder}/peer", a.cpu))
            except (subprocess.CalledProcessError, FileNotFoundError):
                print("without the peer: datatrove, spacy and xxhash<4 are not in GW_BENCH_PYTHON", file=sys.stderr)
        mb = rows["fineweb"][0]["bytes"] / 1e6
        print(f"{len(texts)} documents, {mb:.1f} MB, loop {rows['fineweb'][0]['kernel']}; processor seconds, the least of {a.turns}")
        print(f"{'':14}{'MB/s':>9}{'docs/s':>10}{'simplify':>10}{'words':>8}{'hashes':>8}{'minima':>8}{'cluster':>9}")
        best = {}
        for recipe, turns in rows.items():
            r = min(turns, key=lambda x: x["sign_s"])
            best[recipe] = r["sign_s"]
            hashes = max(0.0, r["shingles_s"] - r["simplify_s"] - r["words_s"])
            print(f"{recipe:14}{mb / r['sign_s']:9.1f}{len(texts) / r['sign_s']:10.0f}{r['simplify_s']:10.3f}{r['words_s']:8.3f}"
                  f"{hashes:8.3f}{r['minima_s']:8.3f}{r['cluster_s']:9.3f}")
        result = dict(mb=mb, ours=rows, peer=other)
        if other:
            t = min(x["sign_s"] for x in other)
            c = min(x["cluster_s"] for x in other)
            print(f"{'datatrove':14}{mb / t:9.1f}{len(texts) / t:10.0f}{'':34}{c:9.3f}")
            result["compared"] = compare(rows["fineweb"][0], other[0])
            print(f"signatures {t / best['fineweb']:.0f} times as fast, bands and clusters "
                  f"{c / min(x['cluster_s'] for x in rows['fineweb']):.0f} times")
            print("clusters {clusters} and {peer_clusters}, {different} of them different; removed {removed} and {peer_removed}"
                  .format(**result["compared"]))
            spread = [statistics.median(x["sign_s"] for x in other) / t, max(x["sign_s"] for x in rows["fineweb"]) / best["fineweb"]]
            print(f"spread of turns: peer {spread[0]:.2f} (median over least), ours {spread[1]:.2f} (most over least)")
            if result["compared"]["different"]:
                sys.exit("the clusters differ")
        if a.json:
            pathlib.Path(a.json).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
