#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/minhash.txt: what datatrove makes of texts.

    python3 -m venv v && v/bin/pip install 'datatrove==0.10.1' spacy 'xxhash<4' regex
    v/bin/python tests/golden/make_minhash.py

One case a line, fields divided by tabs, texts and numbers in hexadecimal:
    parameters SEED N HEX           a then b, N each, 8 bytes little-endian
    simplify   IN OUT               simplify_text with its defaults
    sign       CONFIG TEXT HEX      signature, 8 bytes a value; empty where there is no shingle
    bucket     ROWS HEX             the sorted file of bucket 0 of all fineweb texts, one rank
"""
import os
import random
import sys
import tempfile

import numpy as np
from datatrove.data import Document
from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupSignature
from datatrove.utils.hashing import HashConfig
from datatrove.utils.text import simplify_text

TEXTS = [
    "The quick brown fox jumps over the lazy dog, and then 3.14 of the 1,000,000 others (see [12]) do too.",
    "It's can't won't they'll cannot gonna; e.g. U.S.A. costs $5.50-$6.00 at 10:30a.m. on 2024-11-30!",
    "Ελληνικά: ΟΔΥΣΣΕΥΣ ΣΑΣ Σ. ΤΟΥΣ ΑΝΘΡΩΠΟΥΣ ΚΑΙ ΘΕΟΥΣ ΤΗΣ ΓΗΣ 'ΣΟΦΟΣ' ΣΣ.",
    "İstanbul'da IĞDIR ÇOK GÜZEL — ŞİMDİ ÖĞLE yemeği için 12,5 TL ödedik «çok ucuz».",
    "Déjà vu: naïve façade, Ångström, Škoda, Łódź, Ærøskøbing, ﬁne ǅ ǈ ẞ ŉ; e\u0301 \u0301x \u0301 y.",
    "日本語の文章。これは１２３個の「例」です（たぶん）！ 漢字とかな、全角～。１．５％",
    "한국어 문장입니다. 두 번째 문장은 조금 더 깁니다! 세 번째 1.5 문장과 2,000원.",
    "ไทยภาษา กำลังทดสอบ ๑๒๓.๔๕ ข้อความ ที่ยาวพอ น้ำ ใจ",
    "हिन्दी पाठ: १२३.४५ रुपये, क़लम और फ़िल्म। बाँग्ला পাঠ্য ৫৬,৭ টি ড় ঢ়",
    "العربية ١٢٣٫٤٥ نصٌّ مُشَكَّلٌ، ثم ٦،٧ كلمات. עברית שָׁלוֹם 12:30",
    "tabs\tand\nnewlines\r\n\x0b\x0c\x1c\x85\u00a0\u2003\u3000spaces   \u200bzero width\ufeff end  ",
    "Tiếng Việt có dấu: Đường Nguyễn Huệ số 1.234,56 ở đây ạ ậ ế ộ ữ",
    "math ∀x∈ℝ: x²≥0 ½ ⅓ ① ⑩ Ⅷ ⅷ 𝟏𝟐.𝟑 𝐀𝐁𝐂 ∶ ━ ► a\u0338 \u1d165\u1d16e \u302e\u302f x",
    "Ꭰ Ა ⴀ Ⴀ Ȿ Ⱥ ſ K Å ΐ ΰ ᾳ ᾼ Ὦ ῷ ΐ́",
    "1.2.3.4 1,2,3 .5 5. 5.x x5 ５.５ 12e-5 0x1F 1/2 v2.0.1 3⎖4 3⎗4 3⎘4 5٫6",
    "one two three four",
    "one two three four five",
    "",
    "!!! ... ---",
    " \u0301 leading and trailing mark \u0301",
    "words " * 40,
    "a b c d e f g h i j k l m n o p q r s t u v w x y z " * 8,
]


def prose(rng, n):
    words = ("time year people way day man thing woman life child world school state family student group country "
             "problem hand part place case week company system program question work government number night point home "
             "water room mother area money story fact month lot right study book eye job word business issue side kind "
             "head house service friend father power hour game line end member law car city community name president team "
             "minute idea kid body information back parent face others level office door health person art war history").split()
    out = []
    for i in range(n):
        w = rng.choice(words)
        if rng.random() < 0.1:
            w = w.capitalize() + rng.choice([",", ".", ";", "'s", "n't", "!", ""])
        if rng.random() < 0.03:
            w = str(rng.randrange(10 ** 6) / 100)
        out.append(w)
    return " ".join(out)


def main():
    rng = random.Random(7)
    texts = TEXTS + [prose(rng, n) for n in (6, 50, 120)]
    out = []
    for seed, n in ((1, 112), (1, 9000), (12345, 7)):
        gen = np.random.RandomState(seed)
        m = np.uint64((1 << 61) - 1)
        a = gen.randint(1, m, dtype=np.uint64, size=(1, n))
        b = gen.randint(0, m, dtype=np.uint64, size=(1, n))
        both = np.concatenate([a[0], b[0]]).astype("<u8").tobytes()
        if n > 1000:  # the last of each
            both = a[0, -1:].astype("<u8").tobytes() + b[0, -1:].astype("<u8").tobytes()
        out.append(f"parameters\t{seed}\t{n}\t{both.hex()}")
    for t in texts:
        out.append(f"simplify\t{t.encode().hex()}\t{simplify_text(t).encode().hex()}")
    configs = {
        "fineweb": MinhashConfig(hash_config=HashConfig(hash_fc="sha1", precision=64)),
        "fineweb-xxh": MinhashConfig(),
        "sha1-32": MinhashConfig(num_buckets=3, hashes_per_bucket=5, n_grams=2, hash_config=HashConfig(hash_fc="sha1", precision=32)),
        "xxh-32": MinhashConfig(num_buckets=2, hashes_per_bucket=9, n_grams=3, seed=42, hash_config=HashConfig(precision=32)),
    }
    for name, config in configs.items():
        step = MinhashDedupSignature(output_folder="/nowhere", config=config)
        for t in texts:
            shingles = step.get_shingles(t)
            sig = step.get_signature(shingles) if shingles.size else []
            flat = np.array([x for band in sig for x in band], dtype="<u8").tobytes()
            out.append(f"sign\t{name}\t{t.encode().hex()}\t{flat.hex()}")
    with tempfile.TemporaryDirectory() as folder:
        step = MinhashDedupSignature(output_folder=folder, config=configs["fineweb"])
        step.run((Document(text=t, id=str(i)) for i, t in enumerate(texts)), 0, 1)
        data = open(os.path.join(folder, "bucket_000/00000.minhash.sig"), "rb").read()
    out.append(f"bucket\t8\t{data.hex()}")
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "minhash.txt")
    with open(path, "w") as f:
        f.write("\n".join(out) + "\n")
    print(f"{path}: {len(out)} cases", file=sys.stderr)


if __name__ == "__main__":
    main()
