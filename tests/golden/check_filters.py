#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Filters beside the code of the projects that define them, on the documents of bench/filters.

    check_filters.py RUN [DOCUMENTS] [--dclm DIR] [--redpajama DIR] [--only NAME] [--write FILE]

RUN is build/release/bench/filters_run. Dolma and NeMo Curator are compared where the Python that runs this can
import them (packages `dolma` and `nemo-curator`; of both only the filters are loaded, not what they need for
clusters). DCLM and RedPajama-V2 publish no package: DIR is a checkout of mlfoundations/dclm, and app/src of
one of togethercomputer/RedPajama-Data. DCLM's words need `fasttext` and `uniseg`, RedPajama's `nltk`.

Each variant is run with its defaults and with limits near the middle of what the documents have, so that every
rule decides some. Verdict, reason and the text that is left must be equal on 99.9 % of documents, or the exit
is 1. --only takes the variants whose names hold NAME. --write FILE makes a golden file of the first 60 documents:
a text, then for each variant its name, the parameters, the verdict and the text that is left.
"""

import argparse
import collections
import importlib.util
import json
import os
import random
import sys
import tempfile
import types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../../bench")]
import filters as bench  # noqa: E402
import make_filters  # noqa: E402


def first_over(checks):
    """The reason of the first (reason, removed) that is removed; None: kept."""
    return next((reason for reason, removed in checks if removed), None)


# ------------------------------------------------------------------------------ Dolma


def dolma_variants():
    attributes = make_filters.dolma_gopher()
    if not attributes:
        return
    quality = [
        ("few_words", "min_word_count", "word_count", 50, -1), ("many_words", "max_word_count", "word_count", 100000, 1),
        ("short_words", "min_median_word_length", "median_word_length", 3, -1), ("long_words", "max_median_word_length", "median_word_length", 10, 1),
        ("symbols", "max_symbol_to_word_ratio", "symbol_to_word_ratio", 0.1, 1),
        ("no_letters", "min_fraction_of_words_with_alpha_character", "fraction_of_words_with_alpha_character", 0.8, -1),
        ("few_required_words", "min_required_word_count", "required_word_count", 2, -1),
        ("bullets", "max_fraction_of_lines_starting_with_bullet_point", "fraction_of_lines_starting_with_bullet_point", 0.9, 1),
        ("ellipses", "max_fraction_of_lines_ending_with_ellipsis", "fraction_of_lines_ending_with_ellipsis", 0.3, 1),
    ]
    repetition = [
        ("duplicate_lines", "fraction_of_duplicate_lines", "fraction_of_duplicate_lines", 0.3, 1),
        ("duplicate_line_characters", "fraction_of_characters_in_duplicate_lines", "fraction_of_characters_in_duplicate_lines", 0.3, 1),
    ]
    for n, limit in ((2, 0.2), (3, 0.18), (4, 0.16)):
        repetition.append((f"most_common_{n}grams", f"most_common_{n}grams", f"fraction_of_characters_in_most_common_{n}grams", limit, 1))
    for n, limit in zip(range(5, 11), (0.15, 0.14, 0.13, 0.12, 0.11, 0.10)):
        repetition.append((f"duplicate_{n}grams", f"duplicate_{n}grams", f"fraction_of_characters_in_duplicate_{n}grams", limit, 1))

    def decide(rules, limits):
        def run(text):
            a = attributes(text)
            reason = first_over((r[0], (a.get(r[2], 0.0) - limits[r[1]]) * r[4] > 0) for r in rules)
            return reason, text

        return run

    for name, rules in (("gopher_quality/dolma", quality), ("gopher_repetition/dolma", repetition)):
        usual = {r[1]: r[3] for r in rules}
        yield name, {}, decide(rules, usual)
        tight = {k: v * (1.5 if k.startswith("min") and v < 1000 else 0.4) for k, v in usual.items()}
        tight.update({k: v for k, v in (("max_word_count", 400), ("min_fraction_of_words_with_alpha_character", 0.9)) if k in tight})
        if "max_median_word_length" in tight:
            tight["max_median_word_length"] = 5.5
        yield name, tight, decide(rules, tight)


# ------------------------------------------------------------------------------ DCLM


def dclm_variants(folder):
    sys.path.insert(0, folder)
    from baselines.mappers import modifiers as m
    from baselines.mappers.core_utils import split_words
    from baselines.mappers.filters import content_filters as f

    def quality(p):
        steps = [
            ("page_length", lambda d: f.page_length_filter(d, "word", p["min_length"], p["max_length"], ignore_punctuation=True)),
            ("word_length", lambda d: f.word_length_filter(d, p["min_word_length"], p["max_word_length"])),
            ("symbol_ratio", lambda d: f.symbol_ratio_filter(d, p["max_symbol_to_word_ratio"])),
            ("bullet_count", lambda d: f.bullet_count_filter(d, p["max_bullet_start_ratio"])),
            ("ellipsis_count", lambda d: f.ellipsis_count_filter(d, p["max_ellipsis_end_ratio"])),
            ("alphabetic_word_ratio", lambda d: f.alphabetic_word_ratio_filter(d, p["max_non_alphabetic_ratio"])),
            ("stop_word", lambda d: f.stop_word_filter(d, min_stop_word=p["min_stop_word"])),
        ]
        return lambda text: (first_over((name, not step({"text": text})) for name, step in steps), text)

    def repetition(p, skip=False):
        def run(text):
            page, cache = {"text": text}, {}
            steps = [("line", "line", False), ("paragraph", "paragraph", False), ("line_characters", "line", True), ("paragraph_characters", "paragraph", True)]
            steps = [s for s in steps if not (skip and s[1] == "paragraph")]
            checks = [(name, lambda n=name, g=g, c=c: f.repetition_filter(page, g, p[n], count_characters=c, cache=cache)) for name, g, c in steps]
            for n in range(2, 11):
                name = f"{'top' if n < 5 else 'dup'}_{n}_gram"
                checks.append((name, lambda n=n, name=name: f.repetition_filter(page, n, p[name], cache=cache)))
            return first_over((name, not check()) for name, check in checks), text

        return run

    def lines(p):
        steps = [
            lambda d: m.uppercase_ratio_line_modifier(d, p["uppercase_ratio"]), lambda d: m.numeric_ratio_line_modifier(d, p["numeric_ratio"]),
            counter, lambda d: m.line_length_modifier(d, min_length=p["min_line_words"]), *phrases,
        ]

        def run(text):
            d = {"text": text, "before": len(split_words(text, ignore_punctuation=True))}
            for step in steps:
                if not step(d):
                    return "empty", text
            if d["before"] == 0:
                return "empty", d["text"]
            return (None if f.word_removal_ratio_filter(d, "before", max_removed_ratio=p["max_removed_ratio"]) else "word_removal_ratio"), d["text"]

        return run

    counter = m.counter_line_modifier()
    phrases = [
        m.substring_line_modifier("items in cart", max_length=10, remove_substring_only=True),
        m.substring_line_modifier("Read more...", max_length=10, location="suffix", remove_substring_only=True),
        m.substring_line_modifier("Sign-in", max_length=10, location="prefix", remove_substring_only=True),
    ]
    usual = dict(min_length=50, max_length=100000, min_word_length=3, max_word_length=10, max_symbol_to_word_ratio=0.1,
                 max_bullet_start_ratio=0.9, max_ellipsis_end_ratio=0.3, max_non_alphabetic_ratio=0.2, min_stop_word=2)
    yield "gopher_quality/dclm", {}, quality(usual)
    tight = dict(min_length=100, max_length=400, min_word_length=4.5, max_word_length=6.5, max_symbol_to_word_ratio=0.004,
                 max_bullet_start_ratio=0.1, max_ellipsis_end_ratio=0.02, max_non_alphabetic_ratio=0.05, min_stop_word=8)
    yield "gopher_quality/dclm", tight, quality(tight)
    limits = dict(line=0.3, paragraph=0.3, line_characters=0.2, paragraph_characters=0.2, top_2_gram=0.2, top_3_gram=0.18, top_4_gram=0.16)
    limits.update({f"dup_{n}_gram": v for n, v in zip(range(5, 11), (0.15, 0.14, 0.13, 0.12, 0.11, 0.10))})
    yield "gopher_repetition/dclm", {}, repetition(limits)
    yield "gopher_repetition/dclm", {"skip_paragraph": True}, repetition(limits, True)
    tight = {k: v * 0.25 for k, v in limits.items()}
    yield "gopher_repetition/dclm", tight, repetition(tight)
    for p in ({}, dict(max_removed_ratio=0.6), dict(max_removed_ratio=0.9, uppercase_ratio=0.1, numeric_ratio=0.05, min_line_words=4)):
        yield "refinedweb_lines/dclm", p, lines({**dict(max_removed_ratio=0.05, uppercase_ratio=0.5, numeric_ratio=0.999999, min_line_words=2), **p})
    words = ["lorem", "cookies", "casino games", "straße", "license", "ing"]
    for p in ({}, dict(exact_word=True), dict(case_sensitive=True), dict(exact_word=True, case_sensitive=True)):
        bad = f.substring_filter(banlist=words, **p)
        yield "words/dclm", {"words": words, **p}, lambda text, bad=bad: (None if bad({"text": text}) else "substring", text)


# ------------------------------------------------------------------------------ RedPajama-V2


def redpajama_variants(folder):
    for name in [n for n in sys.modules if n.split(".")[0] == "core"]:  # DCLM's, of the same name
        del sys.modules[name]
    sys.path.insert(0, folder)
    from core.document import Document
    from core.quality_signals import natural_language as nl
    from core.quality_signals import repetitions

    value = lambda signal, doc: signal()(doc)[0][2]
    limits = {f"rps_doc_frac_chars_top_{n}gram": v for n, v in ((2, 0.2), (3, 0.18), (4, 0.16))}
    limits.update({f"rps_doc_frac_chars_dupe_{n}grams": v for n, v in zip(range(5, 11), (0.15, 0.14, 0.13, 0.12, 0.11, 0.10))})
    signals = {k: getattr(repetitions, k.replace("rps_doc_frac_chars_top", "RPS_Doc_Frac_Chars_Top").replace("rps_doc_frac_chars_dupe", "RPS_Doc_Frac_Chars_Dupe").replace("grams", "Grams"))
               for k in limits}

    def repetition(p):
        def run(text):
            doc = Document(text, domain=None)
            return first_over((k, value(signals[k], doc) > p[k]) for k in limits), text

        return run

    def quality(p):
        def run(text):
            doc = Document(text, domain=None)
            bullets = "\u2022\u2023\u25b6\u25c0\u25e6\u25a0\u25a1\u25aa\u25ab\u2013"
            lines = len(doc.raw_lines)
            share = sum(s.text.lstrip().startswith(tuple(bullets)) for s in doc.raw_lines) / lines if lines else None
            over = lambda x, limit: x is not None and x > limit
            under = lambda x, limit: x is not None and x < limit
            words, mean = value(nl.RPS_Doc_Word_Count, doc), value(nl.RPS_Doc_Mean_Word_Length, doc)
            return first_over((
                ("few_words", under(words, p["min_word_count"])), ("many_words", over(words, p["max_word_count"])),
                ("short_words", under(mean, p["min_mean_word_length"])), ("long_words", over(mean, p["max_mean_word_length"])),
                ("symbols", over(value(nl.RPS_Doc_Symbol_To_Word_Ratio, doc), p["max_symbol_to_word_ratio"])),
                ("bullets", over(share, p["max_lines_start_with_bulletpoint"])),
                ("ellipses", over(value(nl.RPS_Doc_Frac_Lines_End_With_Ellipsis, doc), p["max_frac_lines_end_with_ellipsis"])),
                ("no_letters", over(value(nl.RPS_Doc_Frac_No_Alph_Words, doc), p["max_frac_no_alph_words"])),
                ("unique_words", under(value(nl.RPS_Doc_Frac_Unique_Words, doc), p["min_frac_unique_words"])),
                ("entropy", under(value(nl.RPS_Doc_Unigram_Entropy, doc), p["min_unigram_entropy"])),
                ("capitals", over(value(nl.RPS_Doc_Frac_All_Caps_Words, doc), p["max_frac_all_caps_words"])),
                ("few_sentences", under(value(nl.RPS_Doc_Num_Sentences, doc), p["min_num_sentences"])),
            )), text

        return run

    yield "gopher_repetition/redpajama-v2", {}, repetition(limits)
    tight = {k: v * 0.25 for k, v in limits.items()}
    yield "gopher_repetition/redpajama-v2", tight, repetition(tight)
    usual = dict(min_word_count=50, max_word_count=100000, min_mean_word_length=3, max_mean_word_length=10, max_symbol_to_word_ratio=0.1,
                 max_lines_start_with_bulletpoint=0.9, max_frac_lines_end_with_ellipsis=0.3, max_frac_no_alph_words=0.2)
    off = dict(min_frac_unique_words=float("nan"), min_unigram_entropy=float("nan"), max_frac_all_caps_words=float("nan"), min_num_sentences=float("nan"))
    yield "gopher_quality/redpajama-v2", {}, quality({**usual, **off})
    tight = dict(min_word_count=80, max_word_count=500, min_mean_word_length=4, max_mean_word_length=6.5, max_symbol_to_word_ratio=0.02,
                 max_lines_start_with_bulletpoint=0.1, max_frac_lines_end_with_ellipsis=0.05, max_frac_no_alph_words=0.45,
                 min_frac_unique_words=0.3, min_unigram_entropy=3.9, max_frac_all_caps_words=0.04, min_num_sentences=6)
    yield "gopher_quality/redpajama-v2", tight, quality(tight)


# ------------------------------------------------------------------------------ NeMo Curator


def nemo_variants():
    spec = importlib.util.find_spec("nemo_curator")
    if not spec:
        return
    # The packages without what they import, which is for clusters.
    for package in ("", ".stages", ".stages.text", ".stages.text.filters", ".stages.text.filters.heuristic", ".stages.text.utils"):
        name = "nemo_curator" + package
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [spec.submodule_search_locations[0] + package.replace(".", "/")]
    from nemo_curator.stages.text.filters.heuristic import repetition as r
    from nemo_curator.stages.text.filters.heuristic import string as s
    ngrams = [(f"repeating_top_{n}grams", "Top", n, v) for n, v in ((2, 0.2), (3, 0.18), (4, 0.16))]
    ngrams += [(f"repeating_dup_{n}gram", "Duplicate", n, v) for n, v in zip(range(5, 11), (0.15, 0.14, 0.13, 0.12, 0.11, 0.10))]

    def filters(p):
        top, dup = p.get("top_ngrams", 1), p.get("duplicate_ngrams", 1)
        out = [
            ("alpha_numeric", s.NonAlphaNumericFilter(max_non_alpha_numeric_to_text_ratio=p.get("max_non_alpha_numeric_to_text_ratio", 0.25))),
            ("symbol_to_word", s.SymbolsToWordsFilter(max_symbol_to_word_ratio=p.get("max_symbol_to_word_ratio", 0.1))),
            ("numbers_ratio", s.NumbersFilter(max_number_to_text_ratio=p.get("max_number_to_text_ratio", 0.15))),
            ("urls_ratio", s.UrlsFilter(max_url_to_text_ratio=p.get("max_url_to_text_ratio", 0.2))),
            ("white_space", s.WhiteSpaceFilter(max_white_space_ratio=p.get("max_white_space_ratio", 0.25))),
            ("parentheses_ratio", s.ParenthesesFilter(max_parentheses_ratio=p.get("max_parentheses_ratio", 0.1))),
            ("boilerplate_string_ratio", s.BoilerPlateStringFilter(remove_if_at_top_or_bottom=True, max_boilerplate_string_ratio=p.get("max_boilerplate_string_ratio", 0.4))),
            ("repeated_lines", r.RepeatedLinesFilter(max_repeated_line_fraction=p.get("max_repeated_line_fraction", 0.7))),
            ("repeated_paragraphs", r.RepeatedParagraphsFilter(max_repeated_paragraphs_ratio=p.get("max_repeated_paragraphs_ratio", 0.7))),
            ("repeated_lines_char", r.RepeatedLinesByCharFilter(max_repeated_lines_char_ratio=p.get("max_repeated_lines_char_ratio", 0.8))),
            ("repeated_paragraphs_char", r.RepeatedParagraphsByCharFilter(max_repeated_paragraphs_char_ratio=p.get("max_repeated_paragraphs_char_ratio", 0.8))),
            ("word_count", s.WordCountFilter(min_words=p.get("min_words", 50), max_words=p.get("max_words", 100000))),
            ("punctuation", s.PunctuationFilter(max_num_sentences_without_endmark_ratio=p.get("max_num_sentences_without_endmark_ratio", 0.85))),
            ("words_without_alphabets", s.WordsWithoutAlphabetsFilter(min_words_with_alphabets=p.get("min_words_with_alphabets", 0.8))),
            ("common_english_words", s.CommonEnglishWordsFilter(min_num_common_words=p.get("min_num_common_words", 2), stop_at_false=True)),
            ("mean_word_length", s.MeanWordLengthFilter(min_mean_word_length=p.get("min_mean_word_length", 3), max_mean_word_length=p.get("max_mean_word_length", 10))),
            ("max_word_length", s.LongWordFilter(max_word_length=p.get("max_word_length", 1000))),
            ("ellipsis", s.EllipsisFilter(max_num_lines_ending_with_ellipsis_ratio=p.get("max_num_lines_ending_with_ellipsis_ratio", 0.3))),
        ]
        for name, kind, n, v in ngrams:
            cls = r.RepeatingTopNGramsFilter if kind == "Top" else r.RepeatingDuplicateNGramsFilter
            key = "max_repeating_ngram_ratio" if kind == "Top" else "max_repeating_duplicate_ngram_ratio"
            out.append((name, cls(n=n, **{key: v * (top if kind == "Top" else dup)})))
        out.append(("bullet_ratio", s.BulletsFilter(max_bullet_lines_ratio=p.get("max_bullet_lines_ratio", 0.9))))
        return out

    def unsure(text, f):
        """Of several n-grams that occur most the project takes any, by Python's seed of hashes: whether that matters."""
        words = text.strip().split()
        counts = collections.Counter(zip(*(words[i:] for i in range(f._n))))
        most = max(counts.values(), default=0)
        grams = [" ".join(g) for g, n in counts.items() if n == most]
        return len({(len(text) - len(text.replace(g, ""))) / len(text) > f._cutoff for g in grams}) > 1

    def decide(p):
        steps = filters(p)

        def run(text):
            for name, f in steps:
                if name.startswith("repeating_top") and unsure(text, f):
                    return NotImplemented, text
                try:
                    if not f.keep_document(f.score_document(text)):
                        return name, text
                except ZeroDivisionError:
                    return NotImplemented, text
            return None, text

        return run

    yield "heuristics/nemo", {}, decide({})
    tight = dict(max_non_alpha_numeric_to_text_ratio=0.24, max_symbol_to_word_ratio=0.01, max_number_to_text_ratio=0.05, max_url_to_text_ratio=0.02, max_white_space_ratio=0.2,
                 max_parentheses_ratio=0.02, max_boilerplate_string_ratio=0.1, max_repeated_line_fraction=0.9, max_repeated_paragraphs_ratio=0.95,
                 max_repeated_lines_char_ratio=0.95, max_repeated_paragraphs_char_ratio=0.97, min_words=70, max_words=500,
                 max_num_sentences_without_endmark_ratio=0.8, min_words_with_alphabets=0.9, min_num_common_words=2, min_mean_word_length=4.5, max_mean_word_length=6.5,
                 max_word_length=30, max_num_lines_ending_with_ellipsis_ratio=0.05, top_ngrams=0.3, duplicate_ngrams=0.3, max_bullet_lines_ratio=0.1)
    loose = dict(max_non_alpha_numeric_to_text_ratio=1, max_white_space_ratio=1, min_words=10, max_num_sentences_without_endmark_ratio=1, top_ngrams=0.5, duplicate_ngrams=0.3,
                 min_words_with_alphabets=0.5, max_mean_word_length=20)
    yield "heuristics/nemo", tight, decide(tight)
    yield "heuristics/nemo", loose, decide(loose)


# ------------------------------------------------------------------------------ the comparison


def yaml_of(name, params):
    return f"- {name}" + (f": {json.dumps(params)}" if params else "") + "\n"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("run")
    p.add_argument("documents", nargs="?", type=int, default=5000)
    p.add_argument("--dclm")
    p.add_argument("--redpajama")
    p.add_argument("--only", default="")
    p.add_argument("--write")
    args = p.parse_args()
    variants = list(dolma_variants()) + list(nemo_variants())
    variants += list(dclm_variants(args.dclm)) if args.dclm else []
    variants += list(redpajama_variants(args.redpajama)) if args.redpajama else []
    variants = [v for v in variants if args.only in v[0]]
    if not variants:
        sys.exit("no project's code is here: see --help")
    if args.write:
        write(args.write, variants)
        return
    docs = bench.make_documents(args.documents)
    good = True
    with tempfile.TemporaryDirectory() as tmp:
        for name, params, run in variants:
            theirs = [run(d) for d in docs]
            with open(tmp + "/filters.yaml", "w") as f:
                f.write(yaml_of(name, params))
            bench.write(tmp + "/docs", docs)
            bench.run(args.run, "verdicts", tmp + "/docs", tmp + "/out", tmp + "/filters.yaml")
            out = list(bench.records(tmp + "/out"))
            ours = [(v, t if v == "kept" else "") for v, t in zip(out[::2], out[1::2])]
            there = [o if r is NotImplemented else ("kept", t) if r is None else (f"{name}: {r}", "") for (r, t), o in zip(theirs, ours)]
            reasons = {r for r, _ in theirs}
            good &= bench.compare(f"{name} ({sum(r is None for r, _ in theirs)} kept, {len(reasons - {None})} reasons)", docs, there, ours)
    sys.exit(0 if good else 1)


def write(path, variants):
    show = lambda s: s.encode("unicode_escape").decode("ascii")
    rng = random.Random(20240602)
    texts = [make_filters.document(rng) for _ in range(60)]
    with open(path, "w", encoding="ascii", newline="\n") as f:
        f.write("# written by check_filters.py: a variant in YAML, then a verdict and the text that is left (\"=\": the same) of each text\n")
        for t in texts:
            f.write(f"text\t{show(t)}\n")
        for name, params, run in variants:
            f.write(f"variant\t{yaml_of(name, params)}")
            for t in texts:
                reason, left = run(t)
                if reason is NotImplemented:
                    f.write("?\n")
                else:
                    f.write(f"{'kept' if reason is None else name + ': ' + reason}\t{'=' if left == t or reason else show(left)}\n")


if __name__ == "__main__":
    main()
