#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of src/data/text/words_tables.c from the public libraries that define them.

    make_words.py tables OUT_DIR    words_tables.inc (classes of characters) and words_en.inc (the
                                    special cases of spaCy's English tokenizer)
    make_words.py golden OUT_FILE   tests/golden/words.txt: texts and how they are cut

Needs spacy, datatrove, regex and Python 3.11 (its Unicode version is the tables').
"""

import random
import re
import sys
import unicodedata

HEAD = "// SPDX-License-Identifier: Apache-2.0\n// Written by tests/golden/make_words.py; {}\n// clang-format off\n"

# Bits of gw_ch_class, as in words.h, then the Word_Break class from bit 24.
NAMES = (
    "space word digit prefix suffix alpha lower upper quote infix dotbehind letter punct trovepunct "
    "terminal stop linebreak mark uppercase"
).split()
WORD_BREAK = (
    "Other CR LF Newline Extend ZWJ Format Katakana Hebrew_Letter ALetter Single_Quote Double_Quote "
    "MidNumLet MidLetter MidNum Numeric ExtendNumLet WSegSpace Regional_Indicator"
).split()


def spacy_tools():
    import spacy

    return spacy.blank("en").tokenizer, spacy.blank("xx").tokenizer


def classes():
    """The 32-bit class of each code point."""
    import regex
    from datatrove.utils.text import PUNCTUATION_SET, TERMINAL_PUNCTUATION
    from spacy.lang import char_classes as cc
    from spacy.lang.punctuation import TOKENIZER_PREFIXES
    from spacy.pipeline.sentencizer import Sentencizer

    en, xx = spacy_tools()
    in_class = lambda c: re.compile("[" + c + "]").match
    alpha, lower, upper = in_class(cc.ALPHA), in_class(cc.ALPHA_LOWER), in_class(cc.ALPHA_UPPER)
    quote, icon = in_class(cc.CONCAT_QUOTES), in_class(cc.CONCAT_ICONS)
    behind = re.compile(
        r"[0-9{al}{e}{p}(?:{q})]".format(al=cc.ALPHA_LOWER, e=r"%²\-\+", q=cc.CONCAT_QUOTES, p=cc.PUNCT)
    ).match
    word, digit = re.compile(r"\w").match, re.compile(r"\d").match
    stops = set(Sentencizer.default_punct_chars)
    breaks = [(regex.compile(r"\p{WB=" + w + "}"), i) for i, w in enumerate(WORD_BREAK) if i]
    pictographic = regex.compile(r"\p{Extended_Pictographic}")
    out = []
    for cp in range(0x110000):
        c = chr(cp)
        if 0xD800 <= cp < 0xE000:
            out.append(0)
            continue
        category = unicodedata.category(c)
        # Alone as well as before a letter: the plus sign is a prefix unless a digit follows.
        tests = (
            c.isspace(), word(c), digit(c),
            cp != ord("+") and en.prefix_search(c + "x"),
            # Behind a letter that no look-behind accepts, so that only unconditional ones are left.
            en.suffix_search("\u0e01" + c),
            alpha(c), lower(c), upper(c), quote(c), icon(c) or c == "…", behind(c),
            c.isalpha(), category[0] == "P", c in PUNCTUATION_SET, c in TERMINAL_PUNCTUATION,
            c in stops, len(("a" + c + "b").splitlines()) > 1, category[0] == "M", c.isupper(),
        )
        bits = sum(1 << i for i, t in enumerate(tests) if t)
        for pattern, i in breaks:
            if pattern.match(c):
                bits |= i << 24
                break
        if pictographic.match(c):
            bits |= 1 << 30
        out.append(bits)
    assert (en.prefix_search.__self__.pattern == xx.prefix_search.__self__.pattern), "prefixes differ"
    assert (en.suffix_search.__self__.pattern == xx.suffix_search.__self__.pattern), "suffixes differ"
    assert TOKENIZER_PREFIXES
    return out


def numbers(values, per_line=24):
    rows = [values[i : i + per_line] for i in range(0, len(values), per_line)]
    return "".join("    " + ", ".join(str(v) for v in r) + ",\n" for r in rows)


def c_text(s):
    """A C string literal of the UTF-8 bytes of s."""
    out = ""
    for b in s.encode():
        out += chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else "\\%03o" % b
    return '"' + out + '"'


def write_classes(path):
    all_bits = classes()
    palette = sorted(set(all_bits))
    assert len(palette) <= 256
    index = {b: i for i, b in enumerate(palette)}
    blocks, stage1 = {}, []
    for at in range(0, 0x110000, 128):
        key = tuple(index[b] for b in all_bits[at : at + 128])
        stage1.append(blocks.setdefault(key, len(blocks)))
    assert len(blocks) <= 65536
    with open(path, "w") as f:
        f.write(HEAD.format(f"classes of characters, Unicode {unicodedata.unidata_version}."))
        f.write(f"#define CH_BLOCKS {len(blocks)}\n")
        f.write("const uint32_t gw_ch_ascii[128] = {\n" + numbers([hex(b) + "u" for b in all_bits[:128]], 9) + "};\n")
        f.write("static const uint32_t ch_palette[] = {\n" + numbers([hex(b) + "u" for b in palette], 9) + "};\n")
        f.write(f"static const uint16_t ch_stage1[{len(stage1)}] = {{\n" + numbers(stage1) + "};\n")
        f.write("static const uint8_t ch_stage2[CH_BLOCKS][128] = {\n")
        for key in blocks:
            f.write("    {" + ",".join(map(str, key)) + "},\n")
        f.write("};\n")
    print(f"{len(palette)} classes, {len(blocks)} blocks")


def write_english(path):
    en, xx = spacy_tools()
    from spacy.lang.char_classes import CURRENCY, UNITS
    from spacy.symbols import ORTH

    with open(path, "w") as f:
        f.write(HEAD.format("special cases of spaCy's tokenizers: the parts of each."))
        for name, tok in (("special_xx", xx), ("special_en", en)):
            rules = {k: [t[ORTH] for t in v] for k, v in tok.rules.items()}
            if name == "special_en":
                assert all(rules.get(k.text if hasattr(k, "text") else k) for k in xx.rules)
                rules = {k: v for k, v in rules.items() if k not in xx.rules}
            f.write(f"static const char *const {name}[] = {{\n")
            for k in sorted(rules):
                parts = [tok.vocab.strings[p] if isinstance(p, int) else p for p in rules[k]]
                assert "".join(parts) == k
                if not k.strip():
                    continue  # white space is dropped afterwards
                assert not re.search(r"\s", k)
                f.write("    " + c_text("\x01".join(parts)) + ",\n")
            f.write("};\n")
        for name, text in (("suffix_units", UNITS), ("suffix_currency", CURRENCY)):
            f.write(f"static const char *const {name}[] = {{\n")
            for u in dict.fromkeys(text.replace("\\", "").split("|")):
                f.write("    " + c_text(u) + ",\n")
            f.write("};\n")


# Texts that meet the rules, joined at random: any error of a rule shows on some of them.
PIECES = (
    "a b I the cannot Cannot gonna c'mon I'm don't DON'T won't wouldn't've y'all ma'am o'clock it's "
    "he'll Mr. Mrs. Dr. e.g. i.e. a.m. p.m. 10a.m. 3pm 12pm U.S. U.S.A. Ph.D. co. vs. w/o and/or ’s 's 'S n't "
    "'cause em 'em don’t it’s ‘S :) :-) :( ;-) :D xD <3 >.< (^_^) ^_^ -_- o.O :/ (: ): 8) ¯\\(ツ)/¯ ಠ_ಠ "
    "http://example.com https://www.example.org/a?b=c#d example.com foo.bar@example.com mailto:a@b.io "
    "user:pass@host.net:8080/x ftp://1.2.3.4/x 10.0.0.1 192.168.1.1 8.8.8.8 8.8.8.8:53 www.exämple.de a.b.c "
    "lower.Upper Upper.lower end.Start x.y,z a,b 1,2 1.5 10-20 1+1 2*3 5^2 3-4 x-y well-known state-of-the-art "
    "a--b a---b a–b a—b a~b 5km 10m² 3kg 20% 100$ $100 US$5 C$5 €5 5€ 5£ £5 10°C. 10°C °c. 5+ +5 +x ++ +1-2 "
    "... .. …. …… … ........ word... ...word word.. ( ) [ ] { } (word) [word]. \"word\" 'word' “word” ‘word’ «word» "
    "word, word; word: word! word? word!? ?! !!! , ; : ! ? -- - — – = => <= == a=b a<b a>b a/b a:b 1:2 1/2 a:1 "
    "# #tag @name & * ** _x_ __init__ x_y $ % § ^ ` ~ | \\ / a|b a\\b \\n \\t C++ C# .NET node.js v1.2.3 1.2.3.4.5 "
    "café naïve ñ Ångström ßtraße Москва, Москва. Кто-то г.Москва 10км 5кг ελληνικά. 漢字。 漢字，漢字 日本語！ かな "
    "한국어. العربية، עברית. हिन्दी। ไทย 5كم १२३ ٣٤ 😀 😀😀 a😀b ☺ ©2020 ®x 10© ✓ → ½ ² x² m² a.B A.b A.B aa.Bb z.Z "
    "\u200b \ufeff a\u200bb a\u00adb \u0301e e\u0301. i̇ ǆ ﬁ Ⅷ x\ufffdy 'tis 'twas rock'n'roll O'Neill's James' dogs' "
    "USD5 A$10 a$ 5A$ 5US$ 9US$. 1st 2nd 3rd 100th 4x4 10mm. 10mm, 5m/s 5km/h. 5TB 5T 5G 5M. 5K) (5%) 5%. .5 5. A. b. z. ä. ü. Z. "
    "word.) word.\" word'. word.'' word''. word”. )word (word -word word- =word word= ,word .word ..word word/ /word "
    "1.a 1.A a.1 A.1 9a 9A a9 A9 9-a a-9 9–a 9:a a:9 9/a 9=a 9<a a,9 9,a \u2014 \u2014a a\u2014 IS_ALPH"
).split()


def golden_texts():
    rng = random.Random(8)
    for p in PIECES:
        yield p
        yield "(" + p + ".)"
    for _ in range(300):
        n = rng.randint(1, 8)
        yield "".join(
            rng.choice(PIECES) + rng.choice((" ", " ", " ", "", "", "  ", "\n", "\n\n", ". ", ", ", "\t", "\u00a0", "\u3000"))
            for _ in range(n)
        )
    alphabet = "aB1.,:;'\"-–—…()[]$€%+=/<>*^~#@&!? \n’“é°CΩж漢‘ू•km²"
    for _ in range(500):
        yield "".join(rng.choice(alphabet) for _ in range(rng.randint(1, 24)))


def write_golden(path):
    import regex
    from datatrove.utils.text import split_into_sentences, split_into_words
    from datatrove.utils.word_tokenizers import SpaCyTokenizer

    xx = SpaCyTokenizer("xx")
    boundary = regex.compile(r"(?w)\b")
    with open(path, "w", encoding="utf-8", newline="\n") as f:
        f.write("# text, then its words: spacy_en, spacy_xx, whitespace, unicode; then the number of sentences\n")
        show = lambda s: s.encode("unicode_escape").decode("ascii")
        for t in golden_texts():
            if not t:
                continue
            pieces = [p for p in boundary.split(t) if p and p[0].isalnum()]
            rows = (split_into_words(t, "en"), xx.word_tokenize(t), t.split(), pieces)
            f.write(show(t) + "\n")
            for words in rows:
                f.write("\x1f".join(show(w) for w in words) + "\n")
            f.write(f"{len(split_into_sentences(t, 'en'))}\n")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("tables", "golden"):
        sys.exit(__doc__)
    if sys.argv[1] == "tables":
        write_classes(sys.argv[2] + "/words_tables.inc")
        write_english(sys.argv[2] + "/words_en.inc")
    else:
        write_golden(sys.argv[2])
