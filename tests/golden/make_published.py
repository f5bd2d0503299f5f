# SPDX-License-Identifier: Apache-2.0
"""Make tests/golden/tokenizers/published.json: check sums of what tiktoken and Hugging Face
tokenizers give with published vocabularies, which are not stored (vocabularies.py finds them).

    python make_published.py VOCABULARIES

Every code point up to U+33FFF stands in six contexts, 4096 code points a check sum (CRC-32 of the ids as int32,
little endian); the texts, in twenty scripts and of what tokenizers cut in odd places, are stored.
"""

import base64
import json
import pathlib
import sys
import zlib

import numpy
import tiktoken
from tokenizers import Tokenizer

from make_tokenizers import CL100K, LLAMA3, O200K, QWEN2, R50K

PATTERNS = {"r50k.tiktoken": ("gpt2", R50K), "cl100k.tiktoken": ("cl100k", CL100K),
            "o200k.tiktoken": ("o200k", O200K), "llama3.tiktoken": ("llama3", LLAMA3),
            "qwen.tiktoken": ("qwen2", QWEN2)}
JSONS = ["deepseek3.json", "anthropic.json"]
BLOCK = 4096
END = 0x34000      # past it no character is a letter, number or space
CONTEXTS = ["a{}a", " {}", "{}{}", "1{}2", "{}\n", ".{}'s"]
SCRIPTS = [
    "The quick brown fox doesn't jump over 12345 lazy dogs; it's 3.14159 o'clock.",
    "Το πρόγραμμα μαθαίνει γλώσσα από κείμενο ΚΑΙ ΞΑΝΑ.", "Программа учится читать текст и ЕЩЁ РАЗ.",
    "البرنامج يتعلم اللغة من النص مَرَّةً أخرى ١٢٣.", "התוכנית לומדת שפה מטקסט שָׁלוֹם.",
    "कार्यक्रम पाठ से भाषा सीखता है हिन्दी १२३।", "โปรแกรมเรียนรู้ภาษาจากข้อความ น้ำ ๑๒๓",
    "程序从文本中学习语言，然后再次计算。一二三", "プログラムはテキストから言語を学びます。カタカナ",
    "프로그램은 텍스트에서 언어를 배웁니다 한국어", "Das Programm lernt größere Wörter, schöner als früher.",
    "Chương trình học ngôn ngữ từ văn bản tiếng Việt.", "Ծրագիրը սովորում է լեզուն տեքստից։",
    "პროგრამა სწავლობს ენას ტექსტიდან.", "প্রোগ্রামটি পাঠ্য থেকে ভাষা শেখে ১২৩।",
    "நிரல் உரையிலிருந்து மொழியைக் கற்கிறது.", "ప్రోగ్రామ్ వచనం నుండి భాషను నేర్చుకుంటుంది.",
    "ಪ್ರೋಗ್ರಾಂ ಪಠ್ಯದಿಂದ ಭಾಷೆಯನ್ನು ಕಲಿಯುತ್ತದೆ.", "പ്രോഗ്രാം വാചകത്തിൽ നിന്ന് ഭാഷ പഠിക്കുന്നു.",
    "ပရိုဂရမ်သည် စာသားမှ ဘာသာစကားကို လေ့လာသည်။", "ፕሮግራሙ ቋንቋን ከጽሑፍ ይማራል።",
    "កម្មវិធីរៀនភាសាពីអត្ថបទ។", "ང་ཚོས་ཡི་གེ་ནས་སྐད་ཡིག་སྦྱོང་།"]
OTHERS = ["for (int i = 0; i < n; i++) {\n    sum += x[i] * y[i];  // HTMLParser\n}\n\n\n",
          "def f(self, lr=1e-3):\n\treturn self.w - lr * self.g  # it'S\r\n\r\n", "x\n\n  \n   y \t z  ",
          "don'T I'LL we'Ve 'S camelCaseABCdEF", "a \nb\n c \n\n d\n/ e;\n// f", " " * 100 + "x",
          "\n" * 80, "\t \t" * 30, "1234567890" * 12, "^" * 1000, "x" * 3000, "=" * 79, "🙂" * 60,
          "👩‍💻 e\u0301 ½ Ⅷ ǅ \u3000\u00a0 \u200b", "aaa bbb " * 40]


def text_of(first):
    cps = [c for c in range(first, first + BLOCK) if not 0xD800 <= c < 0xE000]
    return "".join(k.replace("{}", chr(c)) for c in cps for k in CONTEXTS)


def check_sum(ids):
    return zlib.crc32(numpy.asarray(ids, "<i4").tobytes())


def encoder(path):
    if path.suffix == ".json":
        t = Tokenizer.from_file(str(path))
        return lambda text: t.encode(text, add_special_tokens=False).ids
    ranks = {base64.b64decode(a): int(b) for a, b in
             (x.split() for x in path.read_bytes().splitlines() if x)}
    return tiktoken.Encoding(path.stem, pat_str=PATTERNS[path.name][1], mergeable_ranks=ranks,
                             special_tokens={}).encode_ordinary


def main():
    folder = pathlib.Path(sys.argv[1])
    path = pathlib.Path(__file__).parent / "tokenizers" / "published.json"
    out = {"contexts": CONTEXTS, "block": BLOCK, "end": END, "texts": SCRIPTS + OTHERS,
           "vocabularies": {}}
    for name in [*PATTERNS, *JSONS]:
        encode = encoder(folder / name)
        out["vocabularies"][name] = {
            "pattern": PATTERNS.get(name, (None,))[0],
            "texts": [check_sum(encode(t)) for t in out["texts"]],
            "code_points": [check_sum(encode(text_of(b))) for b in range(0, END, BLOCK)]}
        path.write_text(json.dumps(out, ensure_ascii=False, separators=(",", ":")) + "\n",
                        encoding="utf-8")
        print(name, flush=True)


if __name__ == "__main__":
    main()
