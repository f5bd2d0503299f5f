# SPDX-License-Identifier: Apache-2.0
"""Make the golden files for tokenizers: tests/golden/tokenizers/.

Small vocabularies are trained on text that this script generates, in each form that published
models use, and every case below is encoded and decoded by the public libraries: Hugging Face
tokenizers for tokenizer.json, tiktoken for .tiktoken. README.md says what a case holds.

    python make_tokenizers.py [OUT_DIR]
"""

import base64
import collections
import functools
import itertools
import json
import pathlib
import platform
import random
import shutil
import sys
import unicodedata

import tiktoken
import tokenizers
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

SEED = 20240229
VERSIONS = {"python": platform.python_version(), "tokenizers": tokenizers.__version__,
            "tiktoken": tiktoken.__version__,
            "unicode_of_sampling": unicodedata.unidata_version}

WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = "|".join([CONTRACTION, WORD, r"\p{N}{1,3}", TAIL])
QWEN2 = "|".join([CONTRACTION, WORD, r"\p{N}", TAIL])
DEEPSEEK3 = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
             r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"""
             r"""[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
             r"""\s*[\r\n]+|\s+(?!\S)|\s+"""]
# The three patterns of tiktoken, in the spelling it ships.
R50K = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+|"
          r" ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = "|".join([rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTION}?",
                  rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTION}?",
                  r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)",
                  r"\s+"])

# ------------------------------------------------------------------------------------ training

SCRIPTS = {
    "greek": "Το πρόγραμμα μαθαίνει γλώσσα από κείμενο ΚΑΙ ΞΑΝΑ",
    "cyrillic": "Программа учится читать текст и ЕЩЁ РАЗ считает",
    "arabic": "البرنامج يتعلم اللغة من النص مَرَّةً أخرى ١٢٣",
    "hebrew": "התוכנית לומדת שפה מטקסט שָׁלוֹם",
    "hindi": "कार्यक्रम पाठ से भाषा सीखता है हिन्दी १२३",
    "thai": "โปรแกรมเรียนรู้ภาษาจากข้อความ น้ำ ๑๒๓",
    "chinese": "程序从文本中学习语言，然后再次计算。一二三",
    "japanese": "プログラムはテキストから言語を学びます。カタカナ ひらがな 漢字",
    "korean": "프로그램은 텍스트에서 언어를 배웁니다 한국어",
    "german": "Das Programm lernt Sprache, größer und schöner als früher",
    "vietnamese": "Chương trình học ngôn ngữ từ văn bản tiếng Việt",
}
NOUNS = "model gradient layer token weight step batch tensor memory cache kernel matrix".split()
VERBS = "learns computes reads writes updates predicts reduces gathers scatters keeps".split()
ADJECTIVES = "small large sparse dense deep fast slow random exact cold Warm BIG".split()
CODE = ["for (int i = 0; i < n; i++) {\n    sum += x[i] * y[i];\n}\n",
        "def step(self, lr=1e-3):\n\treturn self.w - lr * self.g  # descend\n",
        "if (a != b && c >= d) return NULL;\r\n", "x = y ** 2 // 3\n\n\n",
        "^^^^ xxxx ^^^^^^^^ xxxxxxxx\n"]


def corpus(n=4000):
    """Generated text: the same at every run, none of it from elsewhere."""
    rng = random.Random(SEED)
    scripts = list(SCRIPTS.values())
    lines = []
    for _ in range(n):
        kind = rng.random()
        if kind < 0.55:
            words = ["The" if rng.random() < 0.5 else "a", rng.choice(ADJECTIVES),
                     rng.choice(NOUNS), rng.choice(VERBS), "the", rng.choice(NOUNS)]
            if rng.random() < 0.3:
                words[2] += rng.choice(["'s", "'S", "'ll", "'LL", "'ve", "'re", "'d", "'t", "'m"])
            if rng.random() < 0.3:
                words.insert(4, str(rng.randrange(10 ** rng.randrange(1, 7))))
            lines.append(" ".join(words) + rng.choice([".", "!", "?", "...", ",", " -", ".\n"]))
        elif kind < 0.7:
            lines.append(rng.choice(CODE))
        elif kind < 0.75:
            lines.append(" " * rng.randrange(1, 17) + "\t" * rng.randrange(3))
        else:
            words = rng.choice(scripts).split(" ")
            lines.append(" ".join(rng.sample(words, k=min(3, len(words)))))
    return lines


def train(tokenizer, size, specials=(), alphabet=None):
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(specials), show_progress=False,
        initial_alphabet=alphabet or pre_tokenizers.ByteLevel.alphabet(), min_frequency=2)
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def byte_of_letter():
    """The byte-level alphabet: the byte each letter of a token stands for."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


# Each becomes a token, and each beginning of it.
BOUNDARY_TEXTS = [
    "\n/", " \n", " \n\n", "\n\n\n", "\n  ", "\r\n", " \r\n", "   ", " \t", "\t\t", "\t ", ".\n\n",
    ";\n", "!\n", "/\n", "//\n", "\na", "\ta", "\n\"", "1234", "234", "34", "45", "56", "78", "90",
    "000", "22", "333", "444", "55", "a1", "1a", "'s", "'S", "'t", "'T", "'ll", "'LL", "'re", "'RE",
    "'ve", "'VE", "'m", "'M", "'d", "'D", "sb", "Sb", "Sa", "t'", "I'l", "E'", "lC", "oW", "Ow",
    "OW", "eS", "PS", "Se", " 1", "-4", "-a", "_a", "(a", ")[", "\"a", "/a", ".a", "a.", "a/", "?a",
    " -", " .", " '", "a'", "x[", "<|", "|>"]


def with_boundary_merges(t):
    """Add merges across the places where split rules cut: where a rare code point meets a letter,
    a digit, a full stop, an apostrophe or a space, and in whitespace, numbers, contractions and
    changes of case. A cut in a wrong place changes ids only where a merge could cross it."""
    letter = {b: c for c, b in byte_of_letter().items()}
    raw = json.loads(t.to_str())
    lead, trail = range(0xC2, 0xF5), range(0x80, 0xC0)
    pairs = [(letter[ord(p)], letter[b]) for p in "a1.' " for b in lead]
    pairs += [(letter[b], "a") for b in trail]
    for text in BOUNDARY_TEXTS:
        mapped = [letter[b] for b in text.encode()]
        pairs += [("".join(mapped[:i]), mapped[i]) for i in range(1, len(mapped))]
    pairs += [(left, right) for left in "aA1." for right in ("'s", "'S", "'ll", "'LL", "'re", "'d")]
    for left, right in pairs:
        if left + right not in raw["model"]["vocab"]:
            raw["model"]["vocab"][left + right] = len(raw["model"]["vocab"])
            raw["model"]["merges"].append([left, right])
    return Tokenizer.from_str(json.dumps(raw))


def byte_level(patterns, size, ignore_merges=False):
    """A byte-level BPE: split by each pattern in turn, then map bytes to letters."""
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if patterns is None:
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        t.pre_tokenizer = pre_tokenizers.Sequence(
            [split(p) for p in patterns]
            + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    return with_boundary_merges(train(t, size))


def make_gpt2():
    t = byte_level(None, 800)
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.add_special_tokens([AddedToken("<|endoftext|>", normalized=False)])
    return t, "legacy"


def make_llama3():
    """Two whole words are put into the vocabulary that no merge leads to: ignore_merges alone
    can emit them."""
    raw = json.loads(byte_level([LLAMA3], 760, ignore_merges=True).to_str())
    for word in ("Ġunreachable", "zebra"):
        raw["model"]["vocab"][word] = len(raw["model"]["vocab"])
    t = Tokenizer.from_str(json.dumps(raw))
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
             "<|eot_id|>"]
    t.add_special_tokens([AddedToken(n, normalized=False) for n in names])
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(
            single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B:1",
            special_tokens=[("<|begin_of_text|>", t.token_to_id("<|begin_of_text|>"))])])
    return t, "pairs"


def make_qwen2():
    t = byte_level([QWEN2], 720)
    t.normalizer = normalizers.NFC()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.add_special_tokens([AddedToken(n, normalized=False)
                          for n in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    t.add_tokens([AddedToken("<tool_call>", normalized=False),
                  AddedToken("</tool_call>", normalized=False)])
    return t, "legacy"


def make_deepseek3():
    t = byte_level(DEEPSEEK3, 700)
    t.add_special_tokens([AddedToken("<｜begin▁of▁sentence｜>", normalized=False),
                          AddedToken("<｜end▁of▁sentence｜>", normalized=False)])
    return t, "pairs"


def make_added():
    """Every flag of an added token, over the vocabulary and normalizer of the Qwen2 form."""
    t = byte_level([QWEN2], 400)
    t.normalizer = normalizers.NFC()
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False),
                          AddedToken("<sep>", rstrip=True, normalized=False),
                          AddedToken("<both>", lstrip=True, rstrip=True, normalized=False),
                          AddedToken("<word>", single_word=True, normalized=False)])
    t.add_tokens([AddedToken("caf\u00e9", normalized=True),
                  AddedToken("plain\u00e9", normalized=False),
                  AddedToken("token", single_word=True, normalized=False),
                  AddedToken("<a>", normalized=False), AddedToken("<a><b>", normalized=False)])
    return t, "pairs"


@functools.cache
def sentencepiece_model():
    """The JSON of a BPE model as converted from SentencePiece: three controls, 256 bytes, the
    merged pieces, then the single characters. Runs of spaces are pieces too."""
    text = [line.replace("\n", " ").replace("\t", " ") for line in corpus()]
    counts = collections.Counter("".join(text))
    kept = set(sorted(counts, key=lambda c: (-counts[c], c))[:170])   # the rest falls to bytes
    text = [" ".join(w for w in line.split(" ") if kept.issuperset(w)) for line in text]
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    letters = [chr(c) for c in range(33, 127)] + ["▁"]
    trainer = trainers.BpeTrainer(vocab_size=640, show_progress=False, initial_alphabet=letters,
                                  min_frequency=2)
    t.train_from_iterator(text, trainer)
    raw = json.loads(t.to_str())["model"]
    merges = [list(m) for m in raw["merges"]] + [["▁", "▁"], ["▁▁", "▁▁"], ["▁▁▁▁", "▁▁▁▁"]]
    merged = ["".join(m) for m in merges]
    single = [k for k in raw["vocab"] if k not in set(merged)]
    pieces = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + merged + single
    pieces = list(dict.fromkeys(pieces))
    return {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True,
            "ignore_merges": False, "vocab": {p: i for i, p in enumerate(pieces)}, "merges": merges}


def sentencepiece(legacy):
    """Llama 2 and Mistral: the older conversion rewrites spaces in a normalizer and has no
    pre-tokenizer; the newer one uses Metaspace, which prefixes the first piece only."""
    t = Tokenizer.from_str(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
        "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None,
        "model": sentencepiece_model()}))
    if legacy:
        t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"),
                                             normalizers.Replace(" ", "▁")])
    else:
        t.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first",
                                                   split=False)
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                   decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.add_special_tokens([AddedToken(n, normalized=False) for n in ("<unk>", "<s>", "</s>")])
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    return t, "legacy" if legacy else "pairs"


# --------------------------------------------------------------------------------------- cases

PIECES = ["a", "The", "model", "'s", "'S", "'ll", "'LL", "'Ve", "'", "’s", "7", "42", "123",
          "45678", " ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", "\u00a0", "\u3000", "\u200b",
          ".", "...", "!?", "-", "--", "_", "/", "//", "(", ")", "é", "e\u0301", "ß", "ЕЩЁ", "漢字",
          "かな", "한국", "\u1112\u1161\u11ab", "١٢", "½", "²", "Ⅷ", "ǅ", "🙂", "👩\u200d💻", "\u0301",
          "कि", "น้ำ", "€", "^", "x", "<|", "|>"]


# Around the ends of the ranges that the DeepSeek pattern names.
HAN_AND_KANA_EDGES = ("\u4e00\u9fa5\u9fa6\u3400\u3040\u3041"
                      "\u309f\u30a0\u30fb\u30fc\u30ff\u3100\uff9e")


def sampled_code_points():
    """Some code points of every general category, all planes, as this Python knows them."""
    by_category = {}
    for cp in range(0x80, 0x110000):
        by_category.setdefault(unicodedata.category(chr(cp)), []).append(cp)
    rng = random.Random(SEED + 1)
    picked = []
    for category, cps in sorted(by_category.items()):
        if category in ("Cn", "Cs"):
            continue
        picked += rng.sample(cps, min(len(cps), 4 if category == "Co" else 15))
    rng.shuffle(picked)
    return picked


def all_cases():
    """(group, text), the same list for every tokenizer."""
    rng = random.Random(SEED + 2)
    cases = []

    def add(group, *texts):
        cases.extend((group, t) for t in texts)

    add("edge", "", " ", "a", "\n", "\0", "a\0b", "\0\0 \0", "\ufffd", "a\ufffd\ufffdb", "\ufeffa",
        "\x7f", "\x80\x9f", "\uffff", "\U0010ffff", "\ue000")
    add("ascii", "".join(map(chr, range(128))), " ".join(map(chr, range(33, 127))),
        "".join(chr(c) + "a" for c in range(128)), "".join("1" + chr(c) for c in range(128)))
    add("latin1", "".join(map(chr, range(128, 256))),
        "".join("a" + chr(c) for c in range(128, 256)))
    add("fault-newline", "This is an \nexample", "This is an\nexample", "This is an \n example",
        "This is an \n\n example", "This is an  \n", "This is an \t\n \r\nexample")
    add("fault-emoji", "a \U0001fae8", "a\U0001fae8", "\U0001fae8", "a \U0001fae8 b\U0001fae8\n")
    controls = ["<|endoftext|>", "<|begin_of_text|>", "<|end_of_text|>", "<|im_start|>",
                "<|im_end|>", "<tool_call>", "</s>", "<s>", "<unk>", "<0x0A>",
                "<｜end▁of▁sentence｜>", "<|eot_id|>"]
    add("fault-control", *controls, *(f"The model {c} reads {c}{c}\n" for c in controls),
        "user<|im_start|>user\nhi<|im_end|>\n", "<|endoftext", "|endoftext|>", "<|endoftext|>a",
        "< |endoftext|>", "<|ENDOFTEXT|>")
    add("contraction",
        "it's IT'S I'll I'LL we're WE'RE they've THEY'VE I'm I'M he'd HE'D don't DON'T",
        "'s't're've'm'll'd", "'S'T'RE'VE'M'LL'D", "'lL'Ll 'rE", "a'sb a'Sb", "x'llama y'veto",
        "rock 'n' roll", "''s '' 's", "it’s", "'\u017f a'\u017f", "'\u017fa 'Sa", "'s1 1's 's\n",
        "O'Brien's L'été d'été", "HTML's iOS's")
    add("contraction",
        *(f"{left}{c} {left}{c}"
          for left in "aA1." for c in ("'s", "'S", "'ll", "'LL", "'re", "'d")))
    add("number", "0", "12", "123", "1234", "1234567890", "3.14159", "1,000,000", "-42", "1e-05",
        "0x1F", "v1.2.3", "a1b22c333d4444", "١٢٣٤٥", "१२३४", "½ ⅓ ² ³ Ⅷ 五", "1 22 333 4444 55555",
        "１２３４５", "1\n23")
    add("whitespace", "  ", "   ", " a", "  a", "   a", "a ", "a  ", "a   ", "\t", "\t\t", "\ta",
        " \ta", "\t a", "a\tb", "a \t b", "\r", "\r\n", "\n\r", "\r\n\r\n", "a\r\nb", "a \r\n b",
        "\n\n\n", " \n \n ", "a\n\n  b", "a\n ", "a \n", "\n a", "\u00a0", "\u00a0a", "a\u00a0b",
        "a \u00a0 b", "\u3000a\u3000\u3000b", " \u00a0\u3000\t\n ", "a\u2028b\u2029c\u0085d",
        "a\u200bb a\u200b b", "a\x0bb\x0cc", "\x1c\x1d\x1e\x1f a", "a\u1680b\u2003c\u202fd\u205fe",
        "\u180ea", "end.  \n\n\n  Start", "a" + " " * 20 + "b", " " * 33, "\n" * 9, "\t" * 9 + "x",
        "    if x:\n        y\n")
    add("punctuation", "Hello, world!", "...", "!!!???", "a.b.c", "(a)[b]{c}", "\"quoted\" 'text'",
        "—–-‐", "a--b", "http://example.com/a?b=c&d=%20#e", "user@example.com", "C++ C# .NET",
        "@#$%^&*()_+", " .a", ".a", "/a/b//c/\n", "…", "¿Qué? ¡No!", "«a» „b“", "$5.00 €5 £5 ¥5",
        "a\u0301.", "!\n\n!", "/\r\n/", "///\n///", "!\n/", "a.\n/b\n/", "!\r\n/", "`code`",
        "~~~\n")
    add("case", "HelloWorld", "helloWORLD", "HELLOworld", "camelCaseHTTPServer", "ǅungla ǅ",
        "ÉCOLE École école", "ΣΊΣΥΦΟΣ", "ŉ ß ẞ İ ı", "ʰᵃ ﬁ ª º", "iPhone's McDonald'S")
    add("script", *SCRIPTS.values(), "".join(SCRIPTS.values()), "ไทยภาษา ไทย", "中文English混合123文字",
        "日本語とKoreanと한국어", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟘𝟙𝟚", "𠀀𠀁𪚥", "ᚠᛇᚻ", "𐍈 𐎠 𐤀", "ꦲꦏ꧀ꦱꦫ", "မြန်မာ", "ខ្មែរ", "ታሪክ",
        "ᏣᎳᎩ", "བོད་ཡིག")
    add("script", *(f"a{c}a {c}{c}1{c}" for c in HAN_AND_KANA_EDGES))
    add("combining", "e\u0301", "\u00e9", "cafe\u0301", "caf\u00e9", "a\u0301\u0302\u0303",
        "\u0301", " \u0301", "A\u030a \u00c5 \u212b", "\u1e9b\u0323",
        "\u1112\u1161\u11ab\u1100\u1173\u11af", "\ud55c\uae00", "q\u0307\u0323 q\u0323\u0307",
        "\u0958 \u0915\u093c", "\u2126 \u03a9", "\uf900 \u8c48", "\u0344 \u0308\u0301",
        "n\u0303o ni\u0303o", "\u0f73 \u0f71\u0f72", "\U0001d15e", "a\u0315\u0300\u05ae\u0062",
        "\ufb01 \ufb2a", "1\u20e3 #\ufe0f\u20e3", "\u09c7\u09be", "\uac00\u11a8")
    add("emoji", "🙂", "🙂🙂", " 🙂", "a🙂b", "👍🏽", "👨‍👩‍👧‍👦", "👩🏾‍💻 👩‍💻", "🏳️‍🌈", "🇫🇷🇩🇪", "☺️ ☺",
        "❤️‍🔥", "🙂\n🙂", "©®™ ℹ️", "🀄🃏")
    add("code", *CODE, "#include <stdio.h>\nint main(void) { return 0; }\n",
        "SELECT * FROM t WHERE a>=1;--\n", "<a href=\"x\">y</a>\n", "{\"k\": [1, 2, null]}",
        "\\n \\t \\\\ %d\\r\\n", "a->b = &c[i++];", "std::vector<int>")
    add("merges", " unreachable", "unreachable", "zebra", " zebra", "zebras", "xxxx^^^^", "x" * 33,
        "^" * 33, "ab" * 20, "the the the", "modelmodelmodel", " token" * 5)
    for chunk in batched(sampled_code_points(), 6):
        add("codepoints", "".join(f"a{chr(c)}a" + rng.choice("1. '") + chr(c) for c in chunk))
    newer = [0x11F04, 0x1E4D0, 0x1E030, 0x10EFD, 0x1FA75, 0x1FADA, 0x0CF3, 0x31350,  # Unicode 15
             0x2FFC, 0x2EBF0,                                                        # 15.1
             0x10D50, 0x105C0, 0x1C89, 0xA7CB, 0x1FAE9, 0x11BC0, 0x10D40,            # 16
             0x10940, 0x323B0, 0xA7CE, 0x20C1, 0x16EA0]                              # 17
    add("unicode-newer", *(f"a{chr(c)}a.{chr(c)}1{chr(c)}1 {chr(c)}" for c in newer))
    for _ in range(70):
        add("mixed", "".join(rng.choices(PIECES, k=rng.randrange(3, 14))))
    return cases


def batched(items, n):
    return [items[i:i + n] for i in range(0, len(items), n)]


ADDED_CASES = [
    "a <mask> b", "a<mask>b", "a  \t<mask>  b", "<mask>", " <mask> <mask> ", "\n<mask>\n",
    "a <sep> b", "a <sep>  \n b", "a<sep>b<sep>", "a <both> b", "  <both>  ", "<both><both>",
    "a <word> b", "a<word>b", "<word>", "a<word> b", "a.<word>.b", "_<word>_", "1<word>", "é<word>",
    "caf\u00e9", "cafe\u0301", "a caf\u00e9s", "plain\u00e9", "plaine\u0301", "token", "tokens",
    "a token.", "atoken token", "token_", "<a>", "<a><b>", "<a><a><b>", "<a><b", "<a> <b>",
    "a\u00a0<mask>", "\u3000<sep>\u3000x", "<mask><sep><both><word>token<a>"]

RUNS = [("^", 1000), ("^", 4097), ("^", 100000), ("x", 1000), ("x", 4096), ("x", 65536),
        (" ", 1000), (" ", 5001), ("\n", 2000), ("\t", 777), ("0", 1001), ("é", 3000), ("a ", 2000),
        ("漢", 2000), ("🙂", 1500), ("ab", 5000), ("'s", 500), ("!", 20000), ("The model ", 1000)]


def rle(ids):
    return [[i, len(list(g))] for i, g in itertools.groupby(ids)]


def compact_rle(ids):
    """Run lengths where they are short; otherwise a head, a unit that repeats, and a tail."""
    runs = rle(ids)
    if len(runs) <= 40:
        return {"ids_rle": runs}
    for period in range(2, 60):
        for head in range(0, 24):
            body = ids[head:]
            n = 0
            unit = body[:period]
            while body[n * period:(n + 1) * period] == unit:
                n += 1
            if len(body) - n * period < 60 and n > 2:
                return {"ids_head": ids[:head], "ids_unit": unit, "unit_count": n,
                        "ids_tail": body[n * period:]}
    raise SystemExit("a run of one text gives ids that do not repeat")


# --------------------------------------------------------------------------------------- output

def hf_case(t, group, text):
    ids = t.encode(text, add_special_tokens=False).ids
    case = {"group": group, "text": text, "ids": ids, "ids_special": t.encode(text).ids,
            "decoded": t.decode(ids, skip_special_tokens=False)}
    t.encode_special_tokens = True
    plain = t.encode(text, add_special_tokens=False).ids
    t.encode_special_tokens = False
    if plain != ids:
        case["ids_plain"] = plain
    return case


def decode_cases(n, decode, rng):
    return [{"ids": ids, **decode(ids)}
            for ids in ([rng.randrange(n) for _ in range(rng.randrange(1, 14))] for _ in range(60))]


def write_json(path, head, lists):
    """Compact JSON, one case a line."""
    def line(x):
        return json.dumps(x, ensure_ascii=False, separators=(",", ":"))
    parts = [line(head)[:-1]]
    for name, rows in lists.items():
        parts.append(f'"{name}":[\n' + ",\n".join(map(line, rows)) + "]")
    path.write_text(",\n".join(parts) + "}\n", encoding="utf-8", newline="\n")


def hf_json(t, spelling):
    """The text of tokenizer.json with merges in the spelling asked for."""
    raw = json.loads(t.to_str())
    merges = [m.split(" ") if isinstance(m, str) else m for m in raw["model"]["merges"]]
    raw["model"]["merges"] = [" ".join(m) for m in merges] if spelling == "legacy" else merges
    return json.dumps(raw, ensure_ascii=False, separators=(",", ":"))


def write_hf(root, name, made, cases):
    t, spelling = made
    folder = root / name
    folder.mkdir(parents=True)
    text = hf_json(t, spelling)
    (folder / "tokenizer.json").write_text(text + "\n", encoding="utf-8", newline="\n")
    t = Tokenizer.from_file(str(folder / "tokenizer.json"))     # what is on disk is what is tested
    rng = random.Random(SEED + 3)
    rows = [hf_case(t, g, x) for g, x in cases]
    runs = [{"repeat": s, "count": n, **compact_rle(t.encode(s * n, add_special_tokens=False).ids)}
            for s, n in (RUNS if name != "added_tokens" else [])]
    decode = decode_cases(t.get_vocab_size(), lambda ids: {
        "decoded": t.decode(ids, skip_special_tokens=False),
        "decoded_skip": t.decode(ids, skip_special_tokens=True)}, rng)
    write_json(folder / "cases.json", {"tokenizer": name, "versions": VERSIONS,
                                       "vocab_size": t.get_vocab_size(),
                                       "merges_spelling": spelling},
               {"cases": rows, "runs": runs, "decode": decode})


def write_tiktoken(root, name, pattern, size, cases):
    """Ranks are the ids of a byte-level BPE trained with the same pattern."""
    trained = byte_level([pattern], size)
    table = byte_of_letter()
    ranks = {bytes(table[c] for c in token): i for token, i in trained.get_vocab().items()}
    assert sorted(ranks.values()) == list(range(len(ranks)))
    specials = {"<|endoftext|>": len(ranks), "<|endofprompt|>": len(ranks) + 18}
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "vocab.tiktoken").write_bytes(b"".join(
        base64.b64encode(token) + b" %d\n" % rank
        for token, rank in sorted(ranks.items(), key=lambda kv: kv[1])))
    t = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=specials)
    rows = []
    for group, text in cases:
        ids = t.encode_ordinary(text)
        row = {"group": group, "text": text, "ids": ids, "decoded": t.decode(ids)}
        special = t.encode(text, allowed_special="all")
        if special != ids:
            row["ids_special"] = special
        rows.append(row)
    for units in ("d83d", "0061d83d0062", "de00d83d", "d83dde00"):
        ids = t.encode_ordinary(bytes.fromhex(units).decode("utf-16-be", "surrogatepass"))
        rows.append({"group": "utf16", "utf16": units, "ids": ids, "decoded": t.decode(ids)})
    runs = [{"repeat": s, "count": n, **compact_rle(t.encode_ordinary(s * n))} for s, n in RUNS]
    rng = random.Random(SEED + 4)
    decode = decode_cases(len(ranks), lambda ids: {"bytes": t.decode_bytes(ids).hex(),
                                                   "decoded": t.decode(ids)}, rng)
    write_json(folder / "cases.json", {"tokenizer": name, "versions": VERSIONS, "pattern": pattern,
                                       "special_tokens": specials, "vocab_size": len(ranks)},
               {"cases": rows, "runs": runs, "decode": decode})


def main():
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent
    root = out / "tokenizers"
    for folder in root.glob("*/"):      # published.json is another script's
        shutil.rmtree(folder)
    cases = all_cases()
    write_hf(root, "gpt2", make_gpt2(), cases)
    write_hf(root, "llama3", make_llama3(), cases)
    write_hf(root, "qwen2", make_qwen2(), cases)
    write_hf(root, "deepseek3", make_deepseek3(), cases)
    write_hf(root, "llama2_legacy", sentencepiece(legacy=True), cases)
    write_hf(root, "llama2_metaspace", sentencepiece(legacy=False), cases)
    write_hf(root, "added_tokens", make_added(), [("added", x) for x in ADDED_CASES])
    write_tiktoken(root, "tiktoken_r50k", R50K, 800, cases)
    write_tiktoken(root, "tiktoken_cl100k", CL100K, 760, cases)
    write_tiktoken(root, "tiktoken_o200k", O200K, 760, cases)
    for folder in sorted(root.iterdir()):
        size = sum(f.stat().st_size for f in folder.iterdir())
        print(f"{folder.name:18} {size / 1000:7.0f} kB  "
              + "  ".join(f"{f.name} {f.stat().st_size / 1000:.0f}" for f in folder.iterdir()))
    print(len(cases), "cases")


if __name__ == "__main__":
    main()
