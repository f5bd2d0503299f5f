#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables and golden cuts of the languages whose words datatrove cuts by spaCy's rules.

    make_languages.py tables OUT_DIR     words_lang.inc: patterns, special cases, codes of languages
    make_languages.py golden OUT_FILE    tests/golden/languages.txt: texts and how each is cut
    make_languages.py check RUN [TEXTS]  compares the cuts of build/release/bench/filters_run with the libraries' on
                                         many generated texts (10000 a language); exit 1 where one differs

A language's patterns (prefix, suffix, infix, and what stays whole) are regular expressions over hundreds
of character ranges. Here each is parsed by Python's own parser, the sets of characters in it are made
explicit, and characters that no set tells apart become one symbol of a byte. What is written are the same
expressions over symbols, so that matching them needs no Unicode, and which symbol each character has.
The golden file is made by the libraries themselves, not from these tables.

Needs spacy, datatrove, numpy, regex and Python 3.11 (its Unicode version is the tables').
"""

import random
import sys

import numpy
import re._casefix
import re._constants as op
import re._parser
import _sre

import make_words

POINTS = 0x30000  # characters beyond have classes that some before them have, and no set names one
MOST_IN_A_ROW = 200
PRINTED = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
ENGINES = {  # what datatrove asks, where rules do not do
    "StanzaTokenizer": "a model of Stanza", "ThaiTokenizer": "PyThaiNLP's dictionary", "KiwiTokenizer": "Kiwi's model",
    "KhmerTokenizer": "khmer-nltk's model", "LaoTokenizer": "LaoNLP's dictionary", "TibetanTokenizer": "botok's dictionary",
    "BurmeseTokenizer": "pyidaungsu's model", "IndicNLPTokenizer": "the Indic NLP library",
}
SPACY_ENGINES = {"zh": "jieba's dictionary", "ja": "SudachiPy's dictionary", "vi": "pyvi's model"}


# ------------------------------------------------------------------------------ sets of characters


class Sets:
    """The sets of characters that a language's patterns hold."""

    def __init__(self):
        self.members, self.index = [], {}
        text = [chr(c) for c in range(POINTS)]
        self.category = {
            op.CATEGORY_DIGIT: numpy.array([c.isdecimal() for c in text]),
            op.CATEGORY_SPACE: numpy.array([c.isspace() for c in text]),
            op.CATEGORY_WORD: numpy.array([c.isalnum() or c == "_" for c in text]),
        }
        self.category[op.CATEGORY_NOT_DIGIT] = ~self.category[op.CATEGORY_DIGIT]
        self.category[op.CATEGORY_NOT_SPACE] = ~self.category[op.CATEGORY_SPACE]
        self.category[op.CATEGORY_NOT_WORD] = ~self.category[op.CATEGORY_WORD]
        self.letter = numpy.array([c.isalpha() for c in text])
        self.ascii_letter = self.letter & (numpy.arange(POINTS) < 128)
        self.lower = numpy.array([_sre.unicode_tolower(c) for c in range(POINTS)])

    def clear(self):
        self.members, self.index = [], {}

    def add(self, mask):
        key = numpy.packbits(mask).tobytes()
        if key not in self.index:
            self.index[key] = len(self.members)
            self.members.append(mask)
        return self.index[key]

    def of(self, items, fold):
        """The set of a class's items; with `fold`, of what matches them when case is ignored."""
        negate = bool(items) and items[0][0] is op.NEGATE
        mask = numpy.zeros(POINTS, bool)
        for kind, value in items[1:] if negate else items:
            if kind is op.LITERAL:
                mask[value] = True
            elif kind is op.RANGE:
                mask[value[0] : value[1] + 1] = True
            elif kind is op.CATEGORY:
                mask |= self.category[value]
            else:
                raise ValueError(f"class item {kind}")
        if fold:
            low = numpy.zeros(POINTS, bool)
            low[self.lower[mask]] = True
            for c in numpy.flatnonzero(low):
                for other in re._casefix._EXTRA_CASES.get(int(c), ()):
                    low[other] = True
            mask = low[self.lower]
        return self.add(~mask if negate else mask)


# ------------------------------------------------------------------------------ patterns


def tree(sets, parsed, fold):
    """A pattern as nested tuples over sets."""
    out = []
    for kind, value in parsed:
        if kind is op.LITERAL:
            out.append(("set", sets.of([(op.LITERAL, value)], fold)))
        elif kind is op.NOT_LITERAL:
            out.append(("set", sets.of([(op.NEGATE, None), (op.LITERAL, value)], fold)))
        elif kind is op.IN:
            out.append(("set", sets.of(value, fold)))
        elif kind is op.ANY:
            out.append(("set", sets.of([(op.NEGATE, None), (op.LITERAL, 10)], False)))
        elif kind is op.BRANCH:
            # Hungarian's rules name all symbols in a row where a set of them is meant: no text holds that.
            out.append(("or", [tree(sets, p, fold) for p in value[1] if len(p) < MOST_IN_A_ROW]))
        elif kind is op.SUBPATTERN:
            assert not value[1] and not value[2], "flags inside"
            out.append(tree(sets, value[3], fold))
        elif kind in (op.MAX_REPEAT, op.MIN_REPEAT):
            most = None if value[1] is op.MAXREPEAT else int(value[1])
            out.append(("repeat", value[0], most, kind is op.MAX_REPEAT, tree(sets, value[2], fold)))
        elif kind in (op.ASSERT, op.ASSERT_NOT):
            out.append(("look", value[0] > 0, kind is op.ASSERT, tree(sets, value[1], fold)))
        elif kind is op.AT and value in (op.AT_BEGINNING, op.AT_BEGINNING_STRING):
            out.append(("begin",))
        elif kind is op.AT and value in (op.AT_END, op.AT_END_STRING):
            out.append(("end",))
        else:
            raise ValueError(f"construct {kind} {value}")
    return ("row", out)


def parse(sets, pattern):
    if pattern is None:
        return None
    parsed = re._parser.parse(pattern)
    return tree(sets, parsed, bool(parsed.state.flags & op.SRE_FLAG_IGNORECASE))


def symbol_text(s):
    return chr(s) if chr(s) in PRINTED else "\\x%02x" % s


def symbols_text(symbols):
    """A class of symbols in PCRE2's writing."""
    if not symbols:
        return "(?!)"
    if len(symbols) == 1:
        return symbol_text(symbols[0])
    out, i = "", 0
    while i < len(symbols):
        k = i
        while k + 1 < len(symbols) and symbols[k + 1] == symbols[k] + 1:
            k += 1
        out += symbol_text(symbols[i]) + ("" if k == i else ("-" if k > i + 1 else "") + symbol_text(symbols[k]))
        i = k + 1
    return "[" + out + "]"


def partition(sets):
    """The symbol of each character: one for those that no set tells apart, itself for letters of ASCII."""
    key = numpy.zeros(POINTS, numpy.uint64)
    rng = numpy.random.default_rng(1)
    for mask in sets.members:
        key[mask] ^= rng.integers(1, 2**63, dtype=numpy.uint64)
    _, group = numpy.unique(key, return_inverse=True)
    group = group.reshape(-1)
    count = int(group.max()) + 1
    assert count <= 256, f"{count} symbols"
    number = {int(group[ord(c)]): ord(c) for c in reversed(PRINTED)}
    free = iter([s for s in range(256) if s not in number.values()])
    table = numpy.array([number[g] if g in number else next(free) for g in range(count)])
    return table[group], count


def factored(node):
    """Alternatives that end alike put together: for a pattern of which only is asked whether it matches."""
    if node[0] != "row" or len(node[1]) != 1 or node[1][0][0] != "or":
        return node
    groups = {}
    for row in node[1][0][1]:
        parts = row[1]
        tail = max(1, len(parts) - 4) if len(parts) > 4 else len(parts)
        groups.setdefault(repr(parts[tail:]), (parts[tail:], []))[1].append(("row", parts[:tail]))
    return ("row", [("or", [("row", [("or", heads)] + tail) for tail, heads in groups.values()])])


def written(node, of_set):
    kind = node[0]
    if kind == "set":
        return of_set[node[1]]
    if kind == "row":
        return "".join(written(n, of_set) for n in node[1])
    if kind == "or":
        return "(?:" + "|".join(written(n, of_set) for n in node[1]) + ")"
    if kind == "repeat":
        _, least, most, greedy, inner = node
        times = "{%d,%s}" % (least, "" if most is None else most)
        times = {"{0,}": "*", "{1,}": "+", "{0,1}": "?"}.get(times, times)
        text = written(inner, of_set)
        single = inner[0] == "row" and len(inner[1]) == 1 and inner[1][0][0] == "set"
        return (text if single else "(?:" + text + ")") + times + ("" if greedy else "?")
    if kind == "look":
        return "(?" + ("" if node[1] else "<") + ("=" if node[2] else "!") + written(node[3], of_set) + ")"
    return {"begin": "\\A", "end": "\\z"}[kind]


def needs_other(node, sets, letters):
    """Whether every match of the pattern meets a character that is not among `letters`."""
    kind = node[0]
    if kind == "set":
        return not (sets.members[node[1]] & letters).any()
    if kind == "row":
        return any(needs_other(n, sets, letters) for n in node[1])
    if kind == "or":
        return all(needs_other(n, sets, letters) for n in node[1])
    if kind == "repeat":
        return node[1] > 0 and needs_other(node[4], sets, letters)
    return kind == "look" and node[2] and needs_other(node[3], sets, letters)


# ------------------------------------------------------------------------------ languages


class SymbolMap:
    """The usual symbol of each class of words_tables.inc, and the characters that have another."""

    def __init__(self, symbol, palette_index):
        self.usual = numpy.zeros(palette_index.max() + 1, numpy.int64)
        for c in range(len(self.usual)):
            members = symbol[palette_index == c]
            self.usual[c] = numpy.bincount(members).argmax() if len(members) else 0
        self.ranges = []
        for cp in numpy.flatnonzero(symbol != self.usual[palette_index]).tolist():
            last = self.ranges[-1] if self.ranges else None
            if last and last[1] == cp - 1 and last[2] == symbol[cp]:
                last[1] = cp
            else:
                self.ranges.append([cp, cp, int(symbol[cp])])

    def write(self, f, name):
        f.write(f"static const uint8_t usual_{name}[] = {{\n" + make_words.numbers(self.usual.tolist()) + "};\n")
        f.write(f"static const words_lang_range odd_{name}[] = {{\n")
        for at in range(0, len(self.ranges), 5):
            f.write("    " + ", ".join("{0x%x, 0x%x, %d}" % tuple(r) for r in self.ranges[at : at + 5]) + ",\n")
        f.write("};\n")
        f.write(f"static const words_lang_map map_{name} = {{usual_{name}, odd_{name}, {len(self.ranges)}}};\n")


def variants(word):
    """How Indonesian's and Malay's lists write a word besides."""
    return {word, word.upper(), word.capitalize(), word.title(), "-".join(p.title() for p in word.split("-"))}


def without_variants(specials):
    """Words whose other writings are all there, and the rest."""
    base, rest = [], dict(specials)
    for k in sorted(specials):
        if k.isascii() and k == k.lower() and k.isprintable() and "-" in k and all(specials.get(v) == [v] for v in variants(k)) and len(variants(k)) > 1:
            base.append(k)
            for v in variants(k):
                rest.pop(v, None)
    return base, rest


class Language:
    """A rule set of spaCy: patterns over symbols, symbols of characters, special cases."""

    def __init__(self, sets, code, palette_index, xx_specials):
        import spacy

        self.code = code
        tok = spacy.blank(code).tokenizer
        assert type(tok).__name__ == "Tokenizer", code
        found = lambda r: None if r is None else r.__self__.pattern
        self.sources = [found(r) for r in (tok.prefix_search, tok.suffix_search, tok.infix_finditer, tok.token_match)]
        self.url = found(tok.url_match)
        self.specials = special_cases(tok)
        sets.clear()
        trees = [parse(sets, p) for p in self.sources[:3]]
        symbol, self.count = partition(sets)
        of_set = [symbols_text(sorted(set(symbol[m].tolist()))) for m in sets.members]
        self.patterns = [None if t is None else written(t, of_set) for t in trees]
        affixes = [t for t in trees[:3] if t]
        self.plain = 2 if all(needs_other(t, sets, sets.letter) for t in affixes) else (
            1 if all(needs_other(t, sets, sets.ascii_letter) for t in affixes) else 0)
        self.map = SymbolMap(symbol, palette_index)
        # What stays whole has symbols of its own: sets that ignore case, and no units.
        sets.clear()
        self.whole_map = None
        whole = parse(sets, self.sources[3])
        if whole:
            symbol, _ = partition(sets)
            of_set = [symbols_text(sorted(set(symbol[m].tolist()))) for m in sets.members]
            self.whole_map = SymbolMap(symbol, palette_index)
            self.patterns.append(written(factored(whole), of_set))
        else:
            self.patterns.append(None)
        self.with_xx = all(self.specials.get(k) == v for k, v in xx_specials.items())
        if self.with_xx:
            self.specials = {k: v for k, v in self.specials.items() if k not in xx_specials}


def special_cases(tok):
    from spacy.symbols import ORTH

    out = {}
    for text, tokens in tok.rules.items():
        parts = [t[ORTH] for t in tokens]
        parts = [tok.vocab.strings[p] if isinstance(p, int) else p for p in parts]
        assert "".join(parts) == text
        if text.strip():
            out[text] = parts
    return out


def assignments():
    """{code: (tokenizer class, its argument)} as datatrove's table means them. A code without a script is the row
    that the table calls the default: the library itself lets the last row of a code win (0.10.1)."""
    import csv
    import os

    from datatrove.utils._import_utils import ASSETS_PATH
    from datatrove.utils.word_tokenizers import load_tokenizer_assignments

    out = {code: f.args for code, f in load_tokenizer_assignments().items()}
    with open(os.path.join(ASSETS_PATH, "tokenizer_assignment.csv")) as f:
        for row in csv.DictReader(f):
            if row["type"] and row["default_script"] == "TRUE":
                out[row["code_3"]] = (row["type"], row["tok_code"])
                if row["code_1"] and row["default_code_1"] == "TRUE":
                    out[row["code_1"]] = (row["type"], row["tok_code"])
    return out


def codes_text(codes):
    lines, line = [], ""
    for c in sorted(codes):
        if len(line) + len(c) > 90:
            lines.append(line)
            line = ""
        line += c + " "
    return lines + [line]


def short_codes(table):
    """Codes without a script, and those with one that are cut otherwise than without."""
    return {c: v for c, v in table.items() if "_" not in c or table.get(c.split("_")[0]) != v}


def write_tables(path):
    import spacy

    bits = numpy.array(make_words.classes(), numpy.uint64)
    palette = numpy.unique(bits)
    assert len(numpy.unique(bits[:POINTS])) == len(palette)
    palette_index = numpy.searchsorted(palette, bits[:POINTS])
    sets = Sets()
    xx = Language(sets, "xx", palette_index, {})
    en = Language(sets, "en", palette_index, xx.specials)
    table = short_codes(assignments())
    same, languages = {}, []  # argument -> language

    def language_of(code):
        if code not in same:
            l = Language(sets, code, palette_index, xx.specials)
            l.whole = (l.sources, l.url, sorted(special_cases(spacy.blank(code).tokenizer).items()))
            assert l.url == xx.url, f"{code}: addresses differ"
            twin = next((o for o in languages if o.whole == l.whole), None)
            if not twin:
                languages.append(l)
            same[code] = twin or l
        return same[code]

    xx.whole = (xx.sources, xx.url, sorted(special_cases(spacy.blank("xx").tokenizer).items()))
    same.update(xx=xx, en=en)
    languages.append(xx)
    cut, refused = {}, {}
    for code, (kind, argument) in table.items():
        if kind == "SpaCyTokenizer" and argument not in SPACY_ENGINES:
            cut.setdefault(language_of(argument).code, []).append(code)
        elif kind == "WhitespaceTokenizer":
            cut.setdefault("trove", []).append(code)
        else:
            refused.setdefault(SPACY_ENGINES.get(argument) or ENGINES[kind], []).append(code)
    languages.remove(xx)
    languages.sort(key=lambda l: l.code)
    with open(path, "w", encoding="utf-8") as f:
        head = make_words.HEAD.replace("make_words.py", "make_languages.py")
        f.write(head.format("spaCy's rules of languages over symbols."))
        for l in languages:
            l.map.write(f, l.code)
            if l.whole_map:
                l.whole_map.write(f, l.code + "_whole")
            for i, p in enumerate(l.patterns):
                if p is not None:
                    f.write(f"static const char *const pattern_{l.code}_{i}[] = {{\n" + pieces(p) + "    NULL,\n};\n")
            base, rest = without_variants(l.specials)
            for k in rest:
                assert len(k.encode()) < 64 and len(rest[k]) <= 4, (l.code, k)
            f.write(f"static const char *const special_{l.code}[] = {{\n")
            items = [raw_text("\x01".join(rest[k])) for k in sorted(rest)] + [raw_text("\x02" + k) for k in base]
            line = ""
            for item in items:
                if len(line) + len(item) > 150:
                    f.write("    " + line + "\n")
                    line = ""
                line += item + ", "
            f.write("    " + line + "NULL,\n};\n")
        f.write("static const words_lang_rules languages[] = {\n")
        for l in languages:
            f.write(f'    {{\n        "spacy_{l.code}",\n        {{')
            f.write(", ".join("NULL" if p is None else f"pattern_{l.code}_{i}" for i, p in enumerate(l.patterns)))
            f.write(f"}},\n        &map_{l.code},\n        {f'&map_{l.code}_whole' if l.whole_map else 'NULL'},\n")
            f.write(f"        special_{l.code},\n        {len(l.specials)},\n        {str(l.with_xx).lower()},\n        {l.plain},\n    }},\n")
        f.write("};\n")
        write_codes(f, "cut_by", "Codes of languages by what cuts them.", {{"trove": "trove_xx"}.get(n, f"spacy_{n}"): c for n, c in cut.items()})
        write_codes(f, "not_cut", "Codes of languages that need what is not here.", refused)
    for l in languages:
        print(f"{l.code}: {l.count} symbols, {len(l.map.ranges)} ranges, {len(l.specials)} special cases, plain {l.plain}, "
              f"spaces {sum(' ' in k for k in l.specials)}")


def write_codes(f, array, about, codes):
    f.write(f"/* {about} */\nstatic const words_lang_codes {array}[] = {{\n")
    for name in sorted(codes):
        lines = codes_text(codes[name])
        for at in range(0, len(lines), 40):  # a literal has at most 4095 characters
            f.write(f'    {{"{name}",\n' + "".join(f'     "{line}"\n' for line in lines[at : at + 40]) + "    },\n")
    f.write("};\n")


def raw_text(s):
    """A C string literal in UTF-8; controls and what C reads otherwise in octal."""
    out = ""
    for c in s:
        out += "\\%03o" % ord(c) if ord(c) < 32 or c in '"\\?' else c
    return '"' + out + '"'


def pieces(p):
    """A pattern as C strings, none longer than the standard allows; PCRE2 reads the escapes."""
    p = p.replace("\\", "\\\\").replace("?", "\\?")
    rows, at = [], 0
    while at < len(p):
        end = min(len(p), at + 120)
        while end < len(p) and p[end - 1] == "\\":
            end += 1
        rows.append('    "' + p[at:end] + '",\n')
        at = end
    return "".join(rows)


# ------------------------------------------------------------------------------ golden cuts

# Pieces that meet the rules of some language; make_words.PIECES meet the common ones.
PIECES = (
    "l'homme L’eau d'accord aujourd'hui qu'il est-ce-que va-t-il ceux-là dis-moi donne-le-moi 100% n'est-il entr'acte grand-mère saint-pierre "
    "porte-monnaie arc-en-ciel week-end dell'arte un'altra '90 90° l'80 c'è dall'Italia's vom z.B. d.h. u.s.w. Dr.med. geht's 's-Gravenhage "
    "z.d. m.a.w. ,,citaat'' Jan's auto's foto’s ’t ’n kinderen-boek długo-letni jedno-osobowy Jan-Maria np. tzw. m.in. 10-ego "
    "guarda-chuva couve-flor-roxa R$50 US$10 Sr. Sra. dá-lhe fê-lo V. pág. 12º 3ª ¿Qué? ¡Hola! él-ella Sr.Lopez 10%. 5€. 1.º "
    "và-se'n dona-m'ho s'ha l'Hospitalet 'ls la- -la -me d'n 3-4% 'm meu-ho ἄνθρωπος· ἔφη. 12' α' 'αβγ' αβγ' όνομα* -12.13 Α. Β.Γ. abc-def name1/name2/name3 "
    "10.9.9 10,11-12,13 1ης-2 15/2/17 13mg 1.2m +90% $5.5 πρώτος-δεύτερος κ.λπ. π.χ. 30ος "
    "9-án 10-e magyar-e kb. pl. 99° 2012-ben 12:30 1. 5-10. a-ban Kft. Zrt.-nek ház-ból +36 -e "
    "Türkiye'nin İstanbul'da vb. 3. 15'inci TBMM'nin Dr.'un XV. m.ö. 1.000,50 5'te "
    "dintr-o într-un s-a n-am de-a prim-ministru mi-ai -ul -ului cu-i DINTR-O Și-a sută-n Ți-am "
    "buku-buku rumah-rumahnya kata-kata-mu anak2 RMIT RM50 Rp5.000 USD50 <b/>kata kata</b> 50ribu 3juta SGD1 makan-nya -Nya -ku 10%-20 a/b-c <a href=x> #tag ke-2 2-ke "
    "сөз-сөз т.б. т.д. км/ч 10-чы 5-топ и.о. т.е. кто-нибудь т.п. А.С. Пушкин ё́лка. е́,а а́-б а́.Б 5-й № "
    "10-тӹ Київ'ський п'ять з-за 5-ти м. ім. о'кей "
    "አማርኛ። ሰላም፡ዓለም፣ ፤ ወ.ዘ.ተ. ትግርኛ፦ 5% السلام، عليكم؟ 5كجم. العربية. فارسی، می‌روم ۱۲٪ 5%. «گفت» اردو۔ ہے؟ বাংলা। ২০-৩০ ১০% "
    "שלום\" צה\"ל ג'ירפה ה- Հայերեն: Ի՞նչ։ åre's Ole' Lars's Mats' stk. f.eks. bl.a. c/o kl.12 §5 10. des a:b A:B SAS:s tv:n EU:ssa 3:sta "
    "n-ais d'fhear a-mháin b'fhéidir t-uisce ag-obair M'Anam D'fhág d’Schoul d'Stad d'accord z.B.D. lëtzebuergesch d'éischt 1-2 "
    "10-mis a--b (a)b a)b( a[b]c \"a\"b a\"b «a»b a“b”c 5+ 5+5 5*-5 5/5 a/5 5/a x:y<z a!b a?b a,b! a()b a--(b) J.K. BTC-jev USA-ja MMS-i 5-krat •a ×5 =a +a a+ "
    "'n 's 't 'k aan't n'ai t'ap m'ap l'ap k'ap li'm pa'w se'l 10% 5-6 a'm. m'. (a).! "
    "tat. st. prof. mgr. s.r.o. a.s. např. tj. č. 5. r. o'Neill e-mail"
).split()
TEXTS = (
    "Das ist z.B. ein Test (mit Klammern), d.h. am 3. Mai geht's los!", "L'été dernier, j'ai vu qu'elle n'était pas là: est-ce grave?",
    "El Sr. López pagó 5.000€ (aprox.) el día 10/2/2020, ¿verdad?", "Un'altra volta, c'è l'uomo dell'800 che va all'aria.",
    "Het kost 5,- euro; d.w.z. foto's van 's ochtends.", "W 2020 r. prof. Kowalski napisał: „długo-letni” plan, tzw. np. ten.",
    "O guarda-chuva custa R$50,00; dá-lhe o livro às 10h30.", "Din cauza asta, s-a dus într-un sat cu mi-ai spus-o.",
    "Buku-bukunya berharga Rp50.000 di RMIT; kata-kata dan -nya.", "А.С. Пушкин родился 6 июня 1799 г. в Москве, т.е. давно.",
    "Π.χ. ο άνθρωπος είπε: «καλημέρα» στις 10.30' της 15/2/17.", "A 9-én tartott ülésen 12:30-kor kb. 5%-kal nőtt, ugye-e?",
    "هذا نص عربي، وفيه 5% من الأرقام؟ نعم.", "این یک متن فارسی است، ۱۰٪ درست.", "יש כאן טקסט בעברית, עם צה\"ל וג'ירפה.",
)


def golden_texts(rng):
    for t in TEXTS:
        yield t
    for p in PIECES:
        yield p
        yield "(" + p + ")."
    both = PIECES + make_words.PIECES
    for _ in range(120):
        yield "".join(rng.choice(both) + rng.choice((" ", " ", " ", "", "", "  ", "\n", ". ", ", ")) for _ in range(rng.randint(1, 8)))
    alphabet = "aBdlmsé1.,:;'’\"-–—…()[]%+=/<>*!? «»“ж漢ñºªçșțاα°²km$€"
    for _ in range(200):
        yield "".join(rng.choice(alphabet) for _ in range(rng.randint(1, 20)))


def write_golden(path):
    """For each rule set its texts: words, and sentences; a text that all cut alike stands once."""
    from datatrove.utils.word_tokenizers import SpaCyTokenizer, WhitespaceTokenizer

    table = assignments()
    names = sorted({a for k, a in table.values() if k == "SpaCyTokenizer" and a not in SPACY_ENGINES} - {"en", "xx"})
    tokenizers = {f"spacy_{n}": SpaCyTokenizer(n) for n in names}
    tokenizers["trove_xx"] = WhitespaceTokenizer()
    rng = random.Random(9)
    texts = [t for t in dict.fromkeys(golden_texts(rng)) if t.strip()]
    show = lambda s: s.encode("unicode_escape").decode("ascii")
    with open(path, "w", encoding="ascii", newline="\n") as f:
        f.write("# written by make_languages.py: a text; then NAMES, a tab, the number of sentences, a tab, its words\n")
        for t in texts:
            cuts = {}
            for name, tok in tokenizers.items():
                words = "\x1f".join(show(w) for w in tok.word_tokenize(t))
                cuts.setdefault((len(list(tok.span_tokenize(t))), words), []).append(name)
            f.write(show(t) + "\n")
            usual = max(cuts, key=lambda c: len(cuts[c]))
            for cut, which in cuts.items():
                f.write(f"{'*' if cut == usual else ' '.join(which)}\t{cut[0]}\t{cut[1]}\n")
            f.write("\n")


def check(program, count):
    import os
    import subprocess
    import tempfile

    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../bench"))
    import filters
    from datatrove.utils.word_tokenizers import SpaCyTokenizer

    names = sorted({a for k, a in assignments().values() if k == "SpaCyTokenizer" and a not in SPACY_ENGINES} - {"en", "xx"})
    rng = random.Random(10)
    both = PIECES + make_words.PIECES
    pages = filters.make_documents(2000)
    bad = 0
    with tempfile.TemporaryDirectory() as tmp:
        for name in names:
            tok = SpaCyTokenizer(name)
            texts = [t for _ in range(20) for t in golden_texts(rng)][:count]
            while len(texts) < count:
                texts.append("".join(rng.choice(both) + rng.choice((" ", " ", "", ", ", "\n")) for _ in range(rng.randint(1, 12))))
            texts += rng.sample(pages, 200)
            filters.write(tmp + "/docs", texts)
            code = min(c for c, a in assignments().items() if a == ("SpaCyTokenizer", name))
            subprocess.run([program, "words", code, tmp + "/docs", tmp + "/out"], check=True)
            theirs = ["\x1f".join(tok.word_tokenize(t)) for t in texts]
            bad += not filters.compare(f"words {name} ({code})", texts, theirs, list(filters.records(tmp + "/out")), 1)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("tables", "golden", "check"):
        sys.exit(__doc__)
    if sys.argv[1] == "tables":
        write_tables(sys.argv[2] + "/words_lang.inc")
    elif sys.argv[1] == "golden":
        write_golden(sys.argv[2])
    else:
        check(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 10000)
