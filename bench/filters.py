#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Filters, words and PII beside datatrove on the same documents: how often they agree, how fast.

    filters.py RUN [DOCUMENTS] [CHECK...]

RUN is the program of filters_run.c. Documents are made from the texts under /usr/share/doc and the
manual pages of this machine: as they are, cut, and damaged in the ways that the rules look for.
Checks: words filters pii (against datatrove), quality (precision and recall of all kinds of PII on
generated text with hard negatives), langid (accuracy on about 100 bytes by language, of the pieces that
tests/golden/make_langid.py test wrote to $GW_LANGID_PIECES), speed (CPU time). All by default. Exit 1 if a
decision agrees on less than 99.9 %.
"""

import glob
import gzip
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import time

SEED = 20240601


def records(path):
    with open(path, "rb") as f:
        data = f.read()
    at = 0
    while at < len(data):
        (n,) = struct.unpack_from("<I", data, at)
        yield data[at + 4 : at + 4 + n].decode()
        at += 4 + n


def write(path, docs):
    with open(path, "wb") as f:
        for d in docs:
            b = d.encode()
            f.write(struct.pack("<I", len(b)) + b)


def roff_text(raw):
    """The words of a manual page, without macros and escapes."""
    out = []
    for line in raw.splitlines():
        if line.startswith((".", "'")):
            if line.startswith((".SH", ".PP", ".TP", ".IP", ".P")):
                out.append("")
            continue
        line = re.sub(r"\\f\w|\\f\(..|\\&|\\/|\\,", "", line)
        out.append(line.replace("\\-", "-").replace("\\(aq", "'").replace("\\e", "\\"))
    return "\n".join(out)


def sources(rng, limit_mb=40):
    names = glob.glob("/usr/share/doc/**/*", recursive=True) + glob.glob("/usr/share/man/**/*.gz", recursive=True)
    names = sorted(n for n in names if os.path.isfile(n) and not os.path.islink(n))
    rng.shuffle(names)
    total = 0
    for n in names:
        if os.path.getsize(n) > 1 << 20 or n.endswith((".png", ".gif", ".jpg", ".svgz", ".pdf", ".ps.gz", ".svg")):
            continue
        try:
            with (gzip.open if n.endswith(".gz") else open)(n, "rb") as f:
                text = f.read().decode("utf-8")
        except (OSError, UnicodeDecodeError, EOFError):
            continue
        if "\0" in text:
            continue
        if "/man/" in n:
            text = roff_text(text)
        elif n.endswith((".html", ".htm")):
            text = re.sub(r"<(script|style).*?</\1>", "", text, flags=re.S)
            text = re.sub(r"<[^>]*>", "", text)
        yield text
        total += len(text)
        if total > limit_mb << 20:
            return


LOREM = "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor."
ODD = (
    "Use of cookies: this page uses cookies.", "Our privacy policy [3] applies.", "Javascript is disabled.",
    "if (x) { return; }", "See also [1][22] and [citation needed].", "What…", "to be continued...", "3 likes",
    "# # # #", "• item", "- item", "* item", "こんにちは。元気ですか？", "Привет, мир! Как дела?", "مرحبا بالعالم؟", "नमस्ते दुनिया।",
    "x" * 1200 + ".", "Mail me at john.doe@example.co.uk or at <a_b+c@d-e.org>.", "Server 93.184.216.34, not 10.0.0.1 or 1.2.3.4.5.",
    "Dr. Smith's dog isn't here, e.g. at 10a.m. :-)", "A. B. C.", "\u2028", "\x0c", "\x85", "\xa0", "", " ", "\t",
)


def mutate(rng, text):
    lines = text.split("\n")
    kind = rng.randrange(14)
    at = rng.randrange(len(lines) + 1)
    if kind == 0:
        lines[at:at] = [rng.choice(lines)] * rng.randint(1, 2 * len(lines) // 3 + 2)
    elif kind == 1:
        mark = rng.choice(["- ", "• ", "* ", "\t- "])
        lines = [mark + l if rng.random() < 0.93 else l for l in lines]
    elif kind == 2:
        lines = [l + rng.choice(["...", "…", " …"]) if rng.random() < 0.35 else l for l in lines]
    elif kind == 3:
        words = text.split(" ")
        lines = [w for w in words]
    elif kind == 4:
        lines[at:at] = [LOREM]
    elif kind == 5:
        lines[at:at] = rng.choices(ODD, k=rng.randint(1, 8))
    elif kind == 6:
        words = text.split()
        n = rng.randint(2, 12)
        i = rng.randrange(max(1, len(words)))
        lines = [" ".join(words[:i]), " ".join(words[i : i + n] * rng.randint(2, 40)), " ".join(words[i:])]
    elif kind == 7:
        lines = [re.sub(r"[a-z]", lambda m: rng.choice("#0=-") if rng.random() < 0.3 else m[0], l) for l in lines]
    elif kind == 8:
        lines = text.replace("\n", " ").replace(". ", ".\n").split("\n")
    elif kind == 9:
        paras = text.split("\n\n")
        lines = "\n\n".join(paras + rng.choices(paras, k=rng.randint(1, len(paras)))).split("\n")
    elif kind == 10:
        lines = [l.upper() if rng.random() < 0.5 else l for l in lines]
    elif kind == 11:
        sep = rng.choice(["\r\n", "\n\n", "\x0b", "\u2029", "\n \n"])
        return sep.join(lines)
    elif kind == 12:
        lines = [l + rng.choice([".", "!", "?", '"', " .", ". ", "。"]) if rng.random() < 0.7 else l for l in lines]
    return "\n".join(lines)


def make_documents(count):
    rng = random.Random(SEED)
    out = []
    for text in sources(rng):
        for _ in range(3):
            if not text:
                break
            size = int(rng.choice([200, 800, 2000, 4000]) * rng.uniform(0.5, 1.5))
            at = rng.randrange(max(1, len(text) - size))
            piece = text[at : at + size]
            if rng.random() < 0.6:  # a page with sentences on its lines
                piece = re.sub(r"(?<!\n)\n(?!\n)", " ", piece)
            out.append(piece if rng.random() < 0.35 else mutate(rng, piece))
            if len(out) == count:
                return [d.replace("IS_ALPHA", "") for d in out]
    sys.exit(f"only {len(out)} documents on this machine")


def run(program, *args):
    subprocess.run([program, *args], check=True)


def compare(name, docs, theirs, ours, bar=0.999):
    wrong = [i for i, (a, b) in enumerate(zip(theirs, ours)) if a != b]
    share = 1 - len(wrong) / len(docs)
    print(f"{name:40} {100 * share:8.3f} % of {len(docs)} agree")
    for i in wrong[:3]:
        print(f"    document {i}: theirs {theirs[i]!r:.300}\n    {'ours':>12} {ours[i]!r:.300}")
    return share >= bar and len(ours) == len(docs)


def check_words(program, docs, tmp):
    from datatrove.utils.text import split_into_words

    write(tmp + "/docs", docs)
    run(program, "words", "spacy_en", tmp + "/docs", tmp + "/out")
    start = time.process_time()
    theirs = ["\x1f".join(split_into_words(d)) for d in docs]
    seconds = time.process_time() - start
    megabytes = sum(len(d.encode()) for d in docs) / 1e6
    print(f"spaCy cuts {megabytes / seconds:.2f} MB/s")
    return compare("words spacy_en", docs, theirs, list(records(tmp + "/out")), 1)


def check_filters(program, docs, tmp):
    from datatrove.data import Document
    from datatrove.pipeline.filters import (
        C4ParagraphFilter, C4QualityFilter, FineWebQualityFilter, GopherQualityFilter, GopherRepetitionFilter,
    )

    filters = {
        "gopher_quality/datatrove": (GopherQualityFilter(), ""),
        "gopher_repetition/datatrove": (GopherRepetitionFilter(), ""),
        "c4/datatrove": (C4QualityFilter(), ""),
        "c4_paragraphs/datatrove": (C4ParagraphFilter(), ""),
        "fineweb_quality/datatrove": (FineWebQualityFilter(), ""),
        "c4/datatrove#2": (
            C4QualityFilter(filter_no_terminal_punct=False, min_num_sentences=2, min_words_per_line=-1),
            ": {filter_no_terminal_punct: false, min_num_sentences: 2, min_words_per_line: -1}",
        ),
        "fineweb_quality/datatrove#2": (
            FineWebQualityFilter(short_line_thr=0.3, line_punct_thr=0.4, char_duplicates_ratio=0.1),
            ": {short_line_thr: 0.3, line_punct_thr: 0.4, char_duplicates_ratio: 0.1}",
        ),
    }
    # All filters of a document in turn: the library keeps the words of the last texts.
    theirs = {name: [] for name in filters}
    start = time.process_time()
    for d in docs:
        for name, (filter_, _) in filters.items():
            doc = Document(text=d, id="")
            try:
                res = filter_.filter(doc)
            except ZeroDivisionError:
                theirs[name].append(None)  # what fails there has no answer
                continue
            keep, reason = res if isinstance(res, tuple) else (res, "")
            reason = "too_few_paragraphs" if reason == "< 3 paragraphs" else reason
            theirs[name].append(("kept", doc.text) if keep else (f"{name.split('#')[0]}: {reason}", ""))
    seconds = time.process_time() - start
    print(f"datatrove measures by {len(filters)} filters at {sum(len(d.encode()) for d in docs) / seconds / 1e6:.2f} MB/s")
    good = True
    for name, (_, args) in filters.items():
        with open(tmp + "/filters.yaml", "w") as f:
            f.write(f"- {name.split('#')[0]}{args}\n")
        write(tmp + "/docs", docs)
        run(program, "verdicts", tmp + "/docs", tmp + "/out", tmp + "/filters.yaml")
        out = list(records(tmp + "/out"))
        ours = [(v, t if v == "kept" else "") for v, t in zip(out[::2], out[1::2])]
        there = [o if t is None else t for t, o in zip(theirs[name], ours)]
        kept = sum(t[0] == "kept" for t in there)
        good &= compare(f"{name} ({kept} kept)", docs, there, ours)
    return good


def check_pii(program, docs, tmp):
    from datatrove.pipeline.formatters.pii import PIIFormatter

    rng = random.Random(SEED + 1)
    parts = (
        "a@b.c john.doe@example.com <x_y@z-w.org> a..b@c.de .a@b.co a.@b.co a@b a@b. a@b.c.d. a@-b.com a@b-.com é@b.com aé@b.com "
        "!a@b.com a!b@c.com x@[1.2.3.4] x@[1.2.3.ab-c:] x@[1.2.3.400] @b.com a@@b.com a@b@c.de a@b_c.de a@b.c_d user+tag@sub.domain.co.uk "
        "1.2.3.4 8.8.8.8 10.1.2.3 192.168.0.1 172.16.5.5 127.0.0.1 255.255.255.255 256.1.1.1 1.2.3.256 1.2.3.4567 1234.5.6.7 999.1.2.3 "
        "01.2.3.4 1.2.3.04 0.0.0.0 100.64.1.1 198.18.0.1 203.0.113.5 224.0.0.1 1.2.3.4.5.6.7.8 v1.2.3.4 1.2.3 1..2.3.4 8.8.8.8:53 a8.8.8.8b "
        "1.2.3.4@x.com 8.8.8.8@ x@8.8.8.8 http://u:p@h.com/ mailto:q@w.er"
    ).split()
    seps = (" ", "", ".", ",", "\n", "@", "-", "é", "(", "1", "a", "_")
    texts = list(docs)
    for _ in range(20000):
        texts.append("".join(rng.choice(parts) + rng.choice(seps) for _ in range(rng.randint(1, 8))))
    for _ in range(20000):
        texts.append("".join(rng.choice("ab1298.@.-_!é 0[]:") for _ in range(rng.randint(3, 40))))
    theirs = []
    for t in texts:
        theirs.append(PIIFormatter().format(t))
    write(tmp + "/docs", texts)
    run(program, "pii", tmp + "/docs", tmp + "/out")
    changed = sum(a != b for a, b in zip(texts, theirs))
    return compare(f"pii e-mail and IP ({changed} changed)", texts, theirs, list(records(tmp + "/out")), 1)


def luhn_complete(digits):
    total = 0
    for i, d in enumerate(reversed(digits)):
        d = int(d)
        total += d if i % 2 else (2 * d - 9 if d > 4 else 2 * d)
    return digits + str(-total % 10)


def pii_text(rng):
    """One text and its true finds [(kind, text)]; the rest of it only looks like some."""
    digits = lambda n: "".join(rng.choice("0123456789") for _ in range(n))
    token = lambda n, s="ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789": "".join(rng.choices(s, k=n))
    upper = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
    name = rng.choice("anna ben carl dora emil".split())
    card = luhn_complete((rng.choice(["4", "52", "54", "2300"]) + digits(15))[:15])
    groups = lambda c, sep: sep.join(c[i : i + 4] for i in range(0, len(c), 4))
    area, exchange = rng.choice("23456789") + digits(2), rng.choice("23456789") + digits(2)
    ip = f"{rng.choice([8, 34, 52, 93, 151, 185])}.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(1, 255)}"
    positives = [
        ("email", f"{name}.{token(4).lower()}@mail{rng.randrange(9)}.example.{rng.choice(['com', 'org', 'co.uk'])}"),
        ("ip", ip),
        ("phone", rng.choice([f"({area}) {exchange}-{digits(4)}", f"{area}-{exchange}-{digits(4)}", f"{area}.{exchange}.{digits(4)}",
                              f"+1 {area} {exchange} {digits(4)}", f"+44 20 {digits(4)} {digits(4)}", f"+49 30 {digits(6)}", f"+33{digits(9)}",
                              f"{area} {exchange} {digits(4)}", f"0{digits(3)} {digits(7)}"])),
        ("card", rng.choice([card, groups(card, " "), groups(card, "-")])),
        ("secret", rng.choice(["AKIA" + token(16, upper), "ghp_" + token(36), "xoxb-" + digits(11) + "-" + token(24), "AIza" + token(35)])),
    ]
    isbn = f"978-{rng.randrange(10)}-{digits(3)}-{digits(5)}-{digits(1)}"
    bad = card[:-1] + str((int(card[-1]) + 1) % 10)
    negatives = [
        f"version {rng.randrange(20)}.{rng.randrange(20)}.{rng.randrange(99)}", f"v{digits(1)}.{digits(2)}.{digits(3)}-rc{digits(1)}", isbn,
        f"20{digits(2)}-0{rng.randrange(1, 10)}-1{rng.randrange(10)} 1{digits(1)}:2{digits(1)}:3{digits(1)}", f"10.{rng.randrange(256)}.1.2",
        f"192.168.{rng.randrange(256)}.{rng.randrange(256)}", "sha1 " + token(40, "0123456789abcdef"), token(64, "0123456789abcdef"), bad,
        f"{digits(3)}-{digits(2)}-{digits(4)}", f"UTC+0{digits(1)}00", f"@{name} said", f"{name}@localhost", f"order {digits(12)}", f"{digits(8)}",
        f"{digits(1)},{digits(3)},{digits(3)},{digits(3)}", f"3.{digits(15)}", f"section {digits(1)}.{digits(1)}.{digits(1)}.{digits(1)}.{digits(1)}",
        "token: see_the_manual_for_details", "uuid " + "-".join(token(n, "0123456789abcdef") for n in (8, 4, 4, 4, 12)), "1+1=2",
        f"pages {digits(3)}-{digits(3)}", f"0x{token(12, '0123456789abcdef')}", f"{digits(4)}/{digits(4)}", f"EUR {digits(2)}.{digits(2)}",
    ]
    chosen = rng.sample(positives, rng.randint(0, 3))
    parts = [("", n) for n in rng.sample(negatives, rng.randint(2, 6))] + chosen
    rng.shuffle(parts)
    words = "the reader finds this value in a table of results and then goes on".split()
    text, truth = "", []
    for kind, part in parts:
        text += " ".join(rng.sample(words, rng.randint(1, 5))) + rng.choice([" ", ": ", " (", ' "'])
        if kind:
            truth.append((kind, len(text), len(part)))
        text += part + rng.choice([", ", ". ", ") ", " ", "; ", "\n"])
    return text, truth


def check_quality(program, tmp):
    rng = random.Random(SEED + 2)
    made = [pii_text(rng) for _ in range(20000)]
    write(tmp + "/docs", [t for t, _ in made])
    run(program, "spans", tmp + "/docs", tmp + "/out")
    kinds = "email ip phone card secret".split()
    right, found, wanted = ({k: 0 for k in kinds} for _ in range(3))
    wrong = {k: [] for k in kinds}
    for (text, truth), out in zip(made, records(tmp + "/out")):
        got = [(k, int(a), int(b)) for k, a, b in (line.split() for line in out.splitlines())]
        for k, _, _ in truth:
            wanted[k] += 1
        for g in got:
            found[g[0]] += 1
            if g in truth:
                right[g[0]] += 1
            elif len(wrong[g[0]]) < 2:
                wrong[g[0]].append(text[g[1] : g[1] + g[2]])
    for k in kinds:
        print(f"pii {k:8} precision {right[k] / max(1, found[k]):.4f} recall {right[k] / wanted[k]:.4f}  wrong: {wrong[k]}")


def check_langid(program, folder, tmp):
    both = {}  # of each language its best known text: the guide, else held-out help
    for name in ("guide", "help"):
        path = f"{folder}/{name}.tsv"
        if not os.path.exists(path):
            print(f"no {path}: make it with tests/golden/make_langid.py test")
            continue
        with open(path, encoding="utf-8") as f:
            rows = [line.rstrip("\n").split("\t", 1) for line in f]
        write(tmp + "/docs", [t for _, t in rows])
        run(program, "langid", "builtin", tmp + "/docs", tmp + "/out")
        seen, right = {}, {}
        for (lang, _), got in zip(rows, records(tmp + "/out")):
            seen[lang] = seen.get(lang, 0) + 1
            right[lang] = right.get(lang, 0) + (got.split(" ")[0] == lang)
        for lang in sorted(seen):
            print(f"language {name:6} {lang:3} {100 * right[lang] / seen[lang]:6.1f} % of {seen[lang]}")
        mean = sum(right[k] / seen[k] for k in seen) / len(seen)
        print(f"language {name:6} mean of {len(seen)} languages {100 * mean:.2f} %")
        for lang in seen:
            both.setdefault(lang, right[lang] / seen[lang])
    if both:
        print(f"language both   mean of {len(both)} languages {100 * sum(both.values()) / len(both):.2f} %")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if sys.argv[1] in ("-h", "--help"):
        sys.exit(print(__doc__.strip()))
    program = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 5000
    checks = sys.argv[3:] or ["words", "filters", "pii", "quality", "langid", "speed"]
    docs = make_documents(count)
    print(f"{len(docs)} documents, {sum(len(d.encode()) for d in docs) / 1e6:.1f} MB")
    good = True
    with tempfile.TemporaryDirectory() as tmp:
        if "words" in checks:
            good &= check_words(program, docs, tmp)
        if "filters" in checks:
            good &= check_filters(program, docs, tmp)
        if "pii" in checks:
            good &= check_pii(program, docs, tmp)
        if "quality" in checks:
            check_quality(program, tmp)
        if "langid" in checks and os.environ.get("GW_LANGID_PIECES"):
            check_langid(program, os.environ["GW_LANGID_PIECES"], tmp)
        if "speed" in checks:
            write(tmp + "/docs", docs)
            sys.stdout.flush()
            run(program, "speed", tmp + "/docs")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
