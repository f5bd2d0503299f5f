#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/filters.txt: what datatrove's filters (and Dolma's tagger, if it is installed) decide.

    make_filters.py OUT_FILE

Documents are generated: sentences of invented and English words, damaged in the ways that the rules
look for. A case is five or more lines, all in Python's unicode_escape: the text, then for each filter
its name, a tab, the verdict, a tab, and the text that is left ("=" if it is the same); then an empty
line. Attributes of Dolma's gopher_v1 follow as "gopher_v1", a tab, NAME=VALUE by tabs.
"""

import random
import sys

WORDS = (
    "the be to of and that have with a in it is was for on as by at from this which or an are not their has "
    "model data page filter language sentence number water river stone garden window morning travel reader letter "
    "paper music silver yellow quiet simple common little answer question follow remember understand consider "
    "don't it's they're U.S. Dr. e.g. 3.14 1,000 10km 50% well-known state-of-the-art http://example.com/a x@y.org "
    "naïve café Straße Москва 東京 日本語 עברית :-) … — “quoted” #tag C++ 2024-05-17"
).split()
PLAIN = WORDS.index("don't")
ODD = (
    "Lorem ipsum dolor sit amet, consectetur.", "We use cookies. Read our privacy policy here.", "Please enable Javascript now.",
    "if (a) { b(); } is code.", "See [1] and [22] or [citation needed] for more.", "To be continued...", "What is it…", "3 likes",
    "- first item of the list", "• second item of the list", "* third item of the list", "# # #", "x" * 1001 + ".", "", "  ", "\t",
    "Short.", "Two words.", "He said \"no\"", "Это предложение на русском языке.", "これは日本語の文です。", "a\x0cb", "a\u2028b", "end.\xa0",
    "One. Two. Three. Four. Five.", "Really?! Yes!", "1 2 3 4 5 6", "= = = = =",
)


def sentence(rng):
    words = rng.choices(WORDS[:PLAIN] if rng.random() < 0.7 else WORDS, k=rng.randint(3, 18))
    text = " ".join(words)
    return text[0].upper() + text[1:] + rng.choice([".", ".", ".", "!", "?", ",", "", ";", "..."])


def document(rng):
    lines = []
    for _ in range(rng.choice([1, 3, 6, 9])):
        if rng.random() < 0.15:
            lines.append(rng.choice(ODD))
        lines.append(" ".join(sentence(rng) for _ in range(rng.randint(1, 4))))
        if rng.random() < 0.3:
            lines.append("")
    kind = rng.randrange(10)
    if kind == 0:
        lines += [rng.choice(lines)] * rng.randint(1, 6)
    elif kind == 1:
        lines = [rng.choice(["- ", "• "]) + l for l in lines]
    elif kind == 2:
        lines = [l + rng.choice(["...", "…", "", ""]) for l in lines]
    elif kind == 3:
        lines = "\n".join(lines).split(" ")
    elif kind == 4:
        words = "\n".join(lines).split(" ")
        lines = [" ".join(words + words[3 : 3 + rng.randint(2, 12)] * rng.randint(2, 12))]
    elif kind == 5:
        lines = [rng.choice(["\r\n", "\n\n", "\x0b"]).join(lines)]
    return "\n".join(lines)


def dolma_gopher():
    """get_attributes of Dolma's tagger, without the rest of its package (which wants many others)."""
    import collections
    import importlib.util
    import types

    spec = importlib.util.find_spec("dolma")
    if not spec:
        return None
    names = {"data_types": ("DocResult", "Document", "Span"), "registry": ("TaggerRegistry",), "taggers": ("BaseTagger",)}
    for package in ("dolma", "dolma.core", "dolma.taggers"):
        sys.modules[package] = types.ModuleType(package)
        sys.modules[package].__path__ = []
    for module, classes in names.items():
        m = sys.modules["dolma.core." + module] = types.ModuleType("dolma.core." + module)
        for c in classes:
            setattr(m, c, type(c, (), {"add": staticmethod(lambda name: lambda cls: cls)}))
    m.Span = sys.modules["dolma.core.data_types"].Span = collections.namedtuple("Span", "start end type score")
    path = spec.submodule_search_locations[0] + "/taggers/gopher.py"
    gopher_spec = importlib.util.spec_from_file_location("dolma.taggers.gopher", path)
    gopher = importlib.util.module_from_spec(gopher_spec)
    gopher_spec.loader.exec_module(gopher)
    return lambda text: {s.type: float(s.score) for s in gopher.get_attributes(text).as_spans()}


def main(path):
    from datatrove.data import Document
    from datatrove.pipeline.filters import (
        C4ParagraphFilter, C4QualityFilter, FineWebQualityFilter, GopherQualityFilter, GopherRepetitionFilter,
    )

    filters = {
        "gopher_quality/datatrove": GopherQualityFilter(),
        "gopher_repetition/datatrove": GopherRepetitionFilter(),
        "c4/datatrove": C4QualityFilter(),
        "fineweb_quality/datatrove": FineWebQualityFilter(),
    }
    assert C4ParagraphFilter
    dolma_attributes = dolma_gopher() or (lambda text: None)
    rng = random.Random(20240601)
    show = lambda s: s.encode("unicode_escape").decode("ascii")
    with open(path, "w", encoding="ascii", newline="\n") as f:
        f.write("# written by make_filters.py\n")
        for _ in range(90):
            text = document(rng)
            f.write(show(text) + "\n")
            for name, filter_ in filters.items():
                doc = Document(text=text, id="")
                try:
                    res = filter_.filter(doc)
                except ZeroDivisionError:
                    continue  # no answer there
                keep, reason = res if isinstance(res, tuple) else (res, "")
                left = "=" if doc.text == text else show(doc.text)
                f.write(f"{name}\t{'kept' if keep else name + ': ' + reason}\t{left if keep else '='}\n")
            attributes = dolma_attributes(text)
            if attributes:
                f.write("gopher_v1\t" + "\t".join(f"{k}={v!r}" for k, v in attributes.items()) + "\n")
            f.write("\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
