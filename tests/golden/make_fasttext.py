#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains tiny fastText models and records what the library predicts: tests/golden/fasttext/.

    make_fasttext.py PROGRAM OUT_DIR      PROGRAM: the command of Debian's package fasttext

The text is generated: four invented languages, each with syllables of its own, some of them outside
ASCII. softmax.bin has n-grams of characters and of words, hs.bin a Huffman tree, ova.bin one decision
per label, small.ftz is softmax.bin's text quantised, with a pruned dictionary. cases.tsv: model, text
(unicode_escape), then label and probability of the best labels.
"""

import os
import random
import subprocess
import sys
import tempfile

SYLLABLES = {
    "aa": "ka to mi ne ru so".split(),
    "bb": "šé łu gö ñi ßa çe".split(),
    "cc": "до ри ва ке лу на".split(),
    "dd": "str pon ber lak ing mor ka".split(),
}


def sentence(rng, lang):
    word = lambda: "".join(rng.choices(SYLLABLES[lang], k=rng.randint(1, 3)))
    return " ".join(word() for _ in range(rng.randint(2, 9)))


# softmax, hs and ova are trained; small.ftz is `big` quantised.
MODELS = {
    "softmax": "-loss softmax -dim 6 -bucket 150 -minn 2 -maxn 3 -wordNgrams 2",
    "hs": "-loss hs -dim 6 -bucket 60 -minn 1 -maxn 2",
    "ova": "-loss one-vs-all -dim 6 -bucket 0 -minn 0 -maxn 0",
    "small": "-loss softmax -dim 5 -bucket 400 -minn 2 -maxn 3",
}


def main(program, out):
    os.makedirs(out, exist_ok=True)
    rng = random.Random(3)
    with tempfile.TemporaryDirectory() as tmp:
        with open(tmp + "/text", "w", encoding="utf-8") as f:
            for _ in range(3000):
                lang = rng.choice(["aa", "aa", "aa", "bb", "bb", "cc", "dd"])
                f.write(f"__label__{lang} {sentence(rng, lang)}\n")
        for name, args in MODELS.items():
            subprocess.run([program, "supervised", "-input", tmp + "/text", "-output", f"{tmp}/{name}", "-epoch", "3",
                            "-lr", "0.2", "-minCount", "40", "-thread", "1", "-verbose", "0", *args.split()], check=True)
        subprocess.run([program, "quantize", "-input", tmp + "/text", "-output", tmp + "/small", "-qnorm", "-dsub", "2",
                        "-cutoff", "300", "-verbose", "0"], check=True)
        files = ["softmax.bin", "hs.bin", "ova.bin", "small.ftz"]
        for name in files:
            with open(f"{tmp}/{name}", "rb") as a, open(f"{out}/{name}", "wb") as b:
                b.write(a.read())
    texts = [sentence(rng, lang) for lang in SYLLABLES for _ in range(6)]
    texts += ["kato ŝé", "до\tka", "Ünknown wörds ÷ 漢字", "a", "__label__aa kato", "ka\u00a0to", "x\x0by", "to" * 40]
    with open(f"{out}/cases.tsv", "w", encoding="ascii", newline="\n") as f:
        for name in files:
            got = subprocess.run([program, "predict-prob", f"{out}/{name}", "-", "4"], check=True, capture_output=True,
                                 input="".join(t + "\n" for t in texts), text=True).stdout.split("\n")
            for t, line in zip(texts, got):
                pairs = line.replace("__label__", "").split()
                f.write("\t".join([name, t.encode("unicode_escape").decode(), *pairs]) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
