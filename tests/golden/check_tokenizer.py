#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A vocabulary that gradwright trained, beside the `tokenizers` library.

    check_tokenizer.py corpus OUT_FILE               the text to train on: prose in two dozen scripts, code, numbers
    check_tokenizer.py check GRADWRIGHT CORPUS TOKENIZER_JSON [quick]

`check` loads the file with the library and compares ids on every text below and on each line of the
corpus, with special tokens as text and as ids; decodes them back (`quick`: all texts as one); and trains the library's own BPE on the
same corpus with the same split: its merges must be the same, in the same order. Both take the pair that
occurs most, and of several the one with the smaller ids; ids differ between the two (the library sorts its
alphabet after the specials), so equals can be taken in another order: a difference counts only where the
counts of the two pairs differ. Exit 1 and what differs.
"""

import collections
import json
import os
import random
import subprocess
import sys
import tempfile

SENTENCES = {
    "Latin": "All the people of the village came to the river, and 42 of them sang until 10:30.",
    "Latin, accents": "Où est l’été? Ça coûte 3,50 € à Besançon; größer, wäre, señor, não, łódź, İstanbul.",
    "Vietnamese": "Tiếng Việt có nhiều dấu thanh và những chữ cái đặc biệt.",
    "Greek": "Η γρήγορη αλεπού πηδάει πάνω από το τεμπέλικο σκυλί, Άθως και Ώρα.",
    "Cyrillic": "Съешь ещё этих мягких французских булок, да выпей чаю.",
    "Armenian": "Բարեւ Ձեզ, ես կարդում եմ գիրք ամեն օր։",
    "Georgian": "გამარჯობა, მე ვკითხულობ წიგნს ყოველ დღე.",
    "Hebrew": "שלום לכולם, הספר הזה נכתב בעברית בשנת 1998.",
    "Arabic": "مرحبا بكم، هذا الكتاب مكتوب باللغة العربية عام ١٩٩٨.",
    "Devanagari": "नमस्ते, यह किताब हिन्दी में लिखी गई है।",
    "Bengali": "নমস্কার, এই বইটি বাংলায় লেখা হয়েছে।",
    "Gurmukhi": "ਸਤ ਸ੍ਰੀ ਅਕਾਲ, ਇਹ ਕਿਤਾਬ ਪੰਜਾਬੀ ਵਿੱਚ ਹੈ।",
    "Gujarati": "નમસ્તે, આ પુસ્તક ગુજરાતીમાં લખાયેલું છે.",
    "Tamil": "வணக்கம், இந்த புத்தகம் தமிழில் எழுதப்பட்டது.",
    "Telugu": "నమస్కారం, ఈ పుస్తకం తెలుగులో వ్రాయబడింది.",
    "Kannada": "ನಮಸ್ಕಾರ, ಈ ಪುಸ್ತಕ ಕನ್ನಡದಲ್ಲಿ ಬರೆಯಲಾಗಿದೆ.",
    "Malayalam": "നമസ്കാരം, ഈ പുസ്തകം മലയാളത്തിൽ എഴുതിയതാണ്.",
    "Sinhala": "ආයුබෝවන්, මෙම පොත සිංහලෙන් ලියා ඇත.",
    "Thai": "สวัสดี หนังสือเล่มนี้เขียนเป็นภาษาไทย",
    "Lao": "ສະບາຍດີ ປຶ້ມນີ້ຂຽນເປັນພາສາລາວ",
    "Khmer": "សួស្តី សៀវភៅនេះសរសេរជាភាសាខ្មែរ",
    "Burmese": "မင်္ဂလာပါ ဒီစာအုပ်ကို မြန်မာလို ရေးထားတယ်။",
    "Tibetan": "བཀྲ་ཤིས་བདེ་ལེགས། དེབ་འདི་བོད་ཡིག་ནང་བྲིས་ཡོད།",
    "Ethiopic": "ሰላም፣ ይህ መጽሐፍ በአማርኛ ተጻፈ።",
    "Hangul": "안녕하세요, 이 책은 한국어로 쓰여 있습니다.",
    "Han": "你好，这本书是用中文写的。國語與漢字。",
    "Kana": "こんにちは、この本は日本語で書かれています。カタカナも。",
    "code": "int main(void) {\n\tfor (int i = 0; i < 10; i++) printf(\"%d\\n\", x[i]);\n}\n# comment_with_snake and CamelCase\n",
    "numbers": "1 12 123 1234 12345 3.14159 1,000,000 0x7fff 2024-05-17T10:00:00Z +49 30 1234567",
}
TEXTS = list(SENTENCES.values()) + [
    "", " ", "  ", "\n", "\r\n\r\n", " \t \n x", "a", "A's it's WE'RE they'll I'D", "x" * 300, "ab" * 200, "\u0000\u0001\u007f",
    "👩‍👩‍👧‍👦 😀🇩🇪 ✈️", "e\u0301 é \u200b \u00a0\u3000 \ufeff", "<|endoftext|>", "a<|endoftext|>b <|endoftext|>", "<|endoftext|", "<|im_start|>user\nhi",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 \U0010ffff", "ﬁ Ⅷ ½ ² ٣ ४", "....... !!! ??? --- ===", "ends with spaces   ", "   begins", "line\n\n\n\nline   \n  line",
]


def write_corpus(path):
    rng = random.Random(11)
    words = {k: v.split(" ") for k, v in SENTENCES.items()}
    with open(path, "w", encoding="utf-8", newline="\n") as f:
        for k, v in SENTENCES.items():
            f.write(v + "\n")
        for _ in range(3000):
            w = words[rng.choice(list(words))]
            f.write(" ".join(rng.choice(w) for _ in range(rng.randint(3, 14))) + rng.choice([".", "!", "", "?", "\n"]) + "\n")


def ours(program, tokenizer, text, *options):
    with tempfile.NamedTemporaryFile("wb", suffix=".txt", delete=False) as f:
        f.write(text.encode())
    out = subprocess.run([program, "tokenizer", "encode", tokenizer, f.name, "--json", "--quiet", *options], check=True, stdout=subprocess.PIPE).stdout
    os.unlink(f.name)
    return json.loads(out)["ids"]


def back(program, tokenizer, ids):
    run = subprocess.run([program, "tokenizer", "decode", tokenizer], input=" ".join(map(str, ids)).encode(), check=True, stdout=subprocess.PIPE)
    return run.stdout


def check_ids(program, corpus, tokenizer, lib, quick):
    wrong = 0

    def same(text, a, b, what):
        nonlocal wrong
        if a != b:
            wrong += 1
            if wrong < 10:
                print(f"{what} of {text!r:.200}: the library {a}, here {b}")

    specials = [t.content for t in lib.get_added_tokens_decoder().values() if t.special]
    assert specials, "no special tokens"
    all_texts = ["".join(TEXTS), f"x{specials[0]}y {specials[0]}{specials[-1]}"] + ([] if quick else TEXTS)
    for text in all_texts:
        lib.encode_special_tokens = True
        plain = lib.encode(text, add_special_tokens=False).ids
        same(text, plain, ours(program, tokenizer, text), "ids")
        lib.encode_special_tokens = False
        control = lib.encode(text, add_special_tokens=False).ids
        same(text, control, ours(program, tokenizer, text, "--specials"), "ids with specials")
        for ids in (plain, control) if control != plain else (plain,):
            same(text, lib.decode(ids, skip_special_tokens=False).encode(), text.encode(), "the library's round trip")
            same(text, back(program, tokenizer, ids), text.encode(), "round trip")
    lib.encode_special_tokens = True
    with open(corpus, "rb") as f:
        whole = f.read().decode()
    same("the corpus", lib.encode(whole, add_special_tokens=False).ids, ours(program, tokenizer, whole), "ids")
    print(f"ids of {len(all_texts)} texts and {len(whole.encode())} bytes: {wrong} differ")
    return wrong == 0


def pair_counts(words, merges):
    """Counts of all pairs after some merges, by definition."""
    rank = {tuple(m): i for i, m in enumerate(merges)}
    counts = collections.Counter()
    for word, n in words.items():
        parts = list(word)
        while True:
            best = min(((rank.get(p, len(rank)), i) for i, p in enumerate(zip(parts, parts[1:]))), default=(len(rank), 0))
            if best[0] == len(rank):
                break
            left, right = merges[best[0]]
            out, i = [], 0
            while i < len(parts):
                if i + 1 < len(parts) and parts[i] == left and parts[i + 1] == right:
                    out.append(left + right)
                    i += 2
                else:
                    out.append(parts[i])
                    i += 1
            parts = out
        for p in zip(parts, parts[1:]):
            counts[p] += n
    return counts


def check_merges(corpus, tokenizer, lib):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    with open(tokenizer) as f:
        mine = json.load(f)
    mine_merges = [tuple(m if isinstance(m, list) else m.split(" ")) for m in mine["model"]["merges"]]
    own = Tokenizer(models.BPE())
    own.pre_tokenizer = lib.pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=len(mine["model"]["vocab"]), min_frequency=2, special_tokens=[t["content"] for t in mine["added_tokens"]],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
    )
    with open(corpus, encoding="utf-8", newline="") as f:
        whole = f.read()
    own.train_from_iterator([whole], trainer)
    theirs = [tuple(m if isinstance(m, list) else m.split(" ")) for m in json.loads(own.to_str())["model"]["merges"]]
    words = collections.Counter(w for w, _ in lib.pre_tokenizer.pre_tokenize_str(whole))
    same = 0
    while same < min(len(theirs), len(mine_merges)) and theirs[same] == mine_merges[same]:
        same += 1
    if same == len(theirs) == len(mine_merges):
        print(f"merges: all {same} equal, in the same order")
        return True
    counts = pair_counts(words, mine_merges[:same])
    a, b = theirs[same], mine_merges[same]
    print(f"merges: {same} of {len(theirs)} equal, then the library takes {a} ({counts[a]} times), here {b} ({counts[b]} times)")
    print(f"merges: as sets {len(set(theirs) & set(mine_merges))} of {len(theirs)} and {len(mine_merges)} are in both")
    return counts[a] == counts[b]


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "corpus":
        write_corpus(sys.argv[2])
        return
    if len(sys.argv) not in (5, 6) or sys.argv[1] != "check":
        sys.exit(__doc__)
    from tokenizers import Tokenizer

    program, corpus, tokenizer = sys.argv[2:5]
    lib = Tokenizer.from_file(tokenizer)
    good = check_ids(program, corpus, tokenizer, lib, len(sys.argv) == 6)
    good &= check_merges(corpus, tokenizer, lib)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
