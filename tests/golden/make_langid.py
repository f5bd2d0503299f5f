#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Learns the language profiles of src/data/text/langid_profiles.inc from packaged translations.

    make_langid.py train ROOT OUT.inc     profiles from message catalogues (ROOT/usr/share/locale) and
                                          GNOME's help (ROOT/*/usr/share/help), of pages not held out
    make_langid.py test ROOT OUT_DIR      pieces of about 100 bytes by language: OUT_DIR/guide.tsv of
                                          Debian's installation guide, OUT_DIR/help.tsv of held-out
                                          help pages

ROOT/*/ holds unpacked Debian packages (gnome-user-docs, installation-guide-amd64); message catalogues
are those of the machine. A profile is the n-grams of letters (1 to 5, "_" at the edges of words) that
a language uses most, in classes a quarter of a nat apart. Only counts are kept, no text.
"""

import collections
import gettext
import glob
import hashlib
import html
import math
import os
import random
import re
import sys

# Languages that are told apart by n-grams, by script. Scripts with one language need no profile.
GROUPS = {
    "latin": "en de fr es it pt nl sv da nb nn fi et lv lt pl cs sk sl hr hu ro ca gl eu tr id ms vi sq is ga cy eo af br "
    "oc ast az tl sw mt fo fy lb gd uz".split(),
    "cyrillic": "ru uk be bg sr mk kk mn ky tg tt".split(),
    "arabic": "ar fa ur ug ps ckb".split(),
    "devanagari": "hi mr ne".split(),
    "bengali": "bn as".split(),
}
RANGES = {
    "latin": "A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff",
    "cyrillic": "\u0400-\u052f",
    "arabic": "\u0620-\u065f\u066e-\u06d3\u06d5-\u06dc\u06e5-\u06e8\u06ea-\u06ef\u06fa-\u06ff\u0750-\u077f\u200c",
    "devanagari": "\u0900-\u0963\u0971-\u097f",
    "bengali": "\u0980-\u09e3\u09f0-\u09f1",
}
PER_LANGUAGE, TRAIN_CHARS, STEP, LEAST_CHARS, MAX_N = 600, 500_000, 0.25, 30_000, 5


def clean(text):
    text = re.sub(r"<(title|desc|p|item)?[^<>]*>", " ", text)
    text = html.unescape(text)
    text = re.sub(r"%[-#0 +]*[\d.*$]*(?:hh|h|ll|l|z|j)?[a-zA-Z]|\$?\{[^}]*\}|--?[a-z-]+|\\[nt]|https?:\S+|[\w./-]*[/@][\w./@-]*", " ", text)
    return re.sub(r"[_&~](?=\w)", "", text)


def catalogue_text(lang):
    """Messages of the machine's catalogues in a language, each once."""
    names = {"nb": ["nb", "no", "nb_NO"], "pt": ["pt", "pt_BR"], "en": ["de"], "bn": ["bn", "bn_IN"], "ug": ["ug"]}
    seen = set()
    for name in names.get(lang, [lang]):
        for path in sorted(glob.glob(f"/usr/share/locale/{name}/LC_MESSAGES/*.mo")):
            if os.path.basename(path).startswith(("iso_3166-2", "iso_639", "iso_15924")):
                continue
            try:
                with open(path, "rb") as f:
                    messages = gettext.GNUTranslations(f)._catalog
            except (OSError, UnicodeDecodeError, ValueError, IndexError, KeyError):
                continue
            for key, value in sorted(messages.items(), key=str):
                source = key[0] if isinstance(key, tuple) else key
                if not source or not isinstance(value, str) or len(source) < 20:
                    continue
                text = source if lang == "en" else value
                if lang != "en" and value == source:
                    continue
                seen.add(text)
    return sorted(seen, key=lambda s: hashlib.md5(s.encode()).digest())


def held_out(page):
    return hashlib.md5(page.encode()).digest()[0] < 64


def help_pages(root, lang, held):
    names = {"en": ["C"], "pt": ["pt", "pt_BR"], "zh": ["zh_CN"]}
    for name in names.get(lang, [lang]):
        for path in sorted(glob.glob(f"{root}/*/usr/share/help/{name}/**/*.page", recursive=True)):
            if held_out(os.path.basename(path)) != held:
                continue
            with open(path, encoding="utf-8") as f:
                text = f.read()
            english = path.replace(f"/help/{name}/", "/help/C/")
            lines = set()
            if name != "C" and os.path.exists(english):
                with open(english, encoding="utf-8") as f:
                    lines = {" ".join(clean(p).split()) for p in re.findall(r"<p>(.*?)</p>", f.read(), re.S)}
            for p in re.findall(r"<p>(.*?)</p>", text, re.S):
                p = " ".join(clean(p).split())
                if p and p not in lines:  # not translated
                    yield p


def grams(text, group):
    for word in re.findall(f"[{RANGES[group]}\u2019']+", text.lower()):
        word = word.strip("\u2019'").replace("\u2019", "'")
        if not word:
            continue
        w = "_" + word + "_"
        for n in range(1, MAX_N + 1):
            for i in range(len(w) - n + 1):
                g = w[i : i + n]
                if g != "_":
                    yield g


def profile(texts, group):
    counts, total = collections.Counter(), 0
    for t in texts:
        counts.update(grams(t, group))
        total += len(t)
        if total > TRAIN_CHARS:
            break
    if total < LEAST_CHARS:
        return None, total
    n = sum(counts.values())
    top = sorted(counts.items(), key=lambda kv: (-kv[1], kv[0]))[:PER_LANGUAGE]
    classes = collections.defaultdict(list)
    for g, c in top:
        classes[int(-math.log(c / n) / STEP)].append(g)
    return classes, total


def write_profile(f, group, lang, classes):
    """Classes as text, "|" one class down, in strings that C99 compilers take (4095 bytes)."""
    parts, last = [""], 0
    for k in sorted(classes):
        for word in ["|" * (k - last) + classes[k][0]] + classes[k][1:]:
            if len((parts[-1] + word).encode()) > 4000:
                parts.append("")
            parts[-1] += word + " "
        last = k
    f.write(f"PROFILE({group}, {lang}")
    for part in parts:
        f.write(",\n")
        lines = [part[at : at + 90] for at in range(0, len(part), 90)]
        f.write("\n".join(f'    "{line}"' for line in lines))
    f.write(")\n")


def train(root, path):
    with open(path, "w") as f:
        f.write("// SPDX-License-Identifier: Apache-2.0\n// Written by tests/golden/make_langid.py: "
                "PROFILE(script, language, n-grams by class).\n// clang-format off\n")
        for group, langs in GROUPS.items():
            for lang in sorted(langs):
                texts = [clean(t) for t in catalogue_text(lang)] + list(help_pages(root, lang, False))
                texts.sort(key=lambda s: hashlib.md5(s.encode()).digest())
                classes, total = profile(texts, group)
                print(lang, total, "characters" if classes else "characters: too few, left out")
                if not classes:
                    continue
                write_profile(f, group, lang, classes)


def pieces(text, rng, count, size=100):
    """Pieces of about `size` bytes, cut between words (between characters where there are none)."""
    data = " ".join(text)
    out = []
    for _ in range(count):
        at = rng.randrange(max(1, len(data) - size))
        while at and not data[at - 1].isspace() and data[at] < "\u2e80":
            at -= 1
        piece = ""
        for c in data[at:]:
            if len((piece + c).encode()) > size:
                break
            piece += c
        out.append(" ".join(piece.split()))
    return out


def guide_text(root, lang):
    names = {"en": "en", "zh": "zh_CN"}
    out = []
    for path in sorted(glob.glob(f"{root}/*/usr/share/doc/installation-guide-amd64/{names.get(lang, lang)}/*.html")):
        with open(path, encoding="utf-8") as f:
            for p in re.findall(r"<p>(.*?)</p>", f.read(), re.S):
                p = " ".join(clean(re.sub(r"<(code|tt|pre|kbd|strong|samp).*?</\1>", " ", p, flags=re.S)).split())
                if len(p) > 60:
                    out.append(p)
    return out


def test(root, out_dir):
    os.makedirs(out_dir, exist_ok=True)
    for name, source, langs in (
        ("guide", guide_text, "ca cs da de el en es fr id it ja ko nl pt ro ru sv vi zh".split()),
        ("help", lambda r, l: list(help_pages(r, l, True)), sorted(
            "as ca cs da de el es fa fi fr gl gu he hi hr hu id it ja kn ko lt lv mr nl pa pl pt ro ru sl sr sv ta te tr uk vi zh en".split())),
    ):
        rng = random.Random(7)
        with open(f"{out_dir}/{name}.tsv", "w", encoding="utf-8") as f:
            for lang in langs:
                text = source(root, lang)
                if sum(map(len, text)) < 3000:
                    print(name, lang, "has too little text")
                    continue
                if lang != "en":  # parts that nobody has translated yet
                    common = set("the of and you that this with are from your which by".split())
                    text = [t for t in text if 12 * sum(w in common for w in t.lower().split()) <= len(t.split())]
                for p in pieces(text, rng, 400):
                    f.write(f"{lang}\t{p}\n")


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in ("train", "test"):
        sys.exit(__doc__)
    (train if sys.argv[1] == "train" else test)(sys.argv[2], sys.argv[3])
