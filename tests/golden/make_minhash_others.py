#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/minhash_others.txt: signatures by RedPajama-V2's and text-dedup's own code.

    make_minhash_others.py REDPAJAMA [OUT_FILE]

REDPAJAMA is app/src of a checkout of togethercomputer/RedPajama-Data; text-dedup is the package, 0.4, with the
parameters of its examples (five words, 240 permutations at 0.7).
One case a line, fields divided by tabs, texts in hexadecimal:
    sign  RECIPE TEXT HEX           signature, 4 bytes a value, little-endian; empty where there is no shingle
    law   RECIPE BANDS ROWS         what the project's own search for bands and rows gives
"""
import os
import random
import sys

import numpy as np

import make_minhash

SIMILARITIES = (0.7, 0.8, 0.9, 1.0)


def redpajama(folder, texts):
    sys.path.insert(0, folder)
    from core.document import Document
    from dedupe.minhash import MinHash

    own = MinHash(similarity_thresholds=list(SIMILARITIES), ngram_size=13, num_permutations=128, seed=42)
    for s in SIMILARITIES:
        yield f"law\tredpajama-v2-{s}\t{own._bands_rows[str(s)][0]}\t{own._bands_rows[str(s)][1]}"
    for t in texts:
        bands = own.compute_banded_signatures(Document(t, domain=None).normalized_words)
        for s in SIMILARITIES:
            found = bands[f"signature_sim{s}"]
            flat = b"" if found is None else np.frombuffer(b"".join(found), ">u4").astype("<u4").tobytes()
            yield f"sign\tredpajama-v2-{s}\t{t.encode().hex()}\t{flat.hex()}"


def text_dedup(texts):
    from text_dedup.config.algorithms.minhash import MinHashAlgorithmConfig

    own = MinHashAlgorithmConfig(text_column="text", num_perm=240, threshold=0.7, ngram_size=5)
    yield f"law\ttext-dedup\t{own.bands}\t{own.rows}"
    embed = own.get_embed_func()
    for t in texts:
        flat = np.frombuffer(b"".join(embed([t], [0])["__band_val__"]), ">u8").astype("<u4").tobytes()
        if set(flat) == {255}:
            flat = b""  # no shingle
        yield f"sign\ttext-dedup\t{t.encode().hex()}\t{flat.hex()}"


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    rng = random.Random(8)
    texts = make_minhash.TEXTS + [make_minhash.prose(rng, n) for n in (4, 5, 12, 13, 14, 60, 150)]
    out = list(redpajama(sys.argv[1], texts)) + list(text_dedup(texts))
    here = os.path.dirname(os.path.abspath(__file__))
    with open(sys.argv[2] if len(sys.argv) > 2 else here + "/minhash_others.txt", "w") as f:
        f.write("\n".join(out) + "\n")
    print(f"{len(out)} cases")


if __name__ == "__main__":
    main()
