#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Makes golden/extract: one page of each made template of bench/extract_set.py with its main text,
# and list.txt, the better F1 of trafilatura and resiliparse on each.
#
#   VENV/bin/python tests/golden/make_extract.py      VENV has lxml, trafilatura, resiliparse
#
# The prose is written here, so that no third party's text is stored.
import collections
import os
import random
import re
import sys

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(TOP, "bench"))
import extract_set  # noqa: E402
import trafilatura  # noqa: E402
from resiliparse.extract.html2text import extract_plain_text  # noqa: E402

OUT = os.path.join(TOP, "tests", "golden", "extract")
SUBJECT = ["The old harbour", "A careful reader", "The northern railway", "Every gardener", "The small workshop",
           "Our neighbour", "The town council", "A young engineer", "The evening train", "The museum"]
VERB = ["opened", "described", "repaired", "questioned", "remembered", "measured", "visited", "painted", "delayed", "kept"]
OBJECT = ["the long stone bridge", "a letter from the coast", "the machine in the cellar", "three volumes of notes",
          "the plan for the market", "an unusual kind of clock", "the path behind the mill", "the winter timetable"]
TAIL = ["before the first snow fell", "while nobody was watching", "because the weather had turned",
        "although it cost more than expected", "and said nothing about it for years", "as the rules required",
        "with the help of two friends", "until the river rose again"]


def sentence(r):
    return f"{r.choice(SUBJECT)} {r.choice(VERB)} {r.choice(OBJECT)}, {r.choice(TAIL)}."


def score(truth, text):
    words = [collections.Counter(re.findall(r"[0-9A-Za-z\u0080-\U0010ffff]+", t)) for t in (truth, text)]
    both = sum((words[0] & words[1]).values())
    return 2 * both / max(1, sum(words[0].values()) + sum(words[1].values()))


def main():
    r = random.Random("prose")
    paragraphs = [" ".join(sentence(r) for _ in range(r.randint(2, 6))) for _ in range(300)]
    titles = sorted({f"{r.choice(SUBJECT)} and {r.choice(OBJECT)}" for _ in range(80)})
    os.makedirs(OUT, exist_ok=True)
    lines = ["# page, best F1 of trafilatura %s and resiliparse; made by golden/make_extract.py" % trafilatura.__version__]
    for template in extract_set.TUNE + extract_set.HELD:
        m = extract_set.Maker(template.__name__, "golden", paragraphs, titles)
        html = template(m)
        truth = "\n".join(m.truth) + "\n"
        best = max(score(truth, trafilatura.extract(html, include_comments=False) or ""),
                   score(truth, extract_plain_text(html, main_content=True)))
        for suffix, text in (("html", html), ("txt", truth)):
            with open(os.path.join(OUT, f"{template.__name__}.{suffix}"), "w", encoding="utf-8") as f:
                f.write(text)
        lines.append(f"{template.__name__} {best:.4f}")
    with open(os.path.join(OUT, "list.txt"), "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")


main()
