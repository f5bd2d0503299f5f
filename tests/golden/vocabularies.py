# SPDX-License-Identifier: Apache-2.0
"""Take published vocabularies out of Python packages that carry them.

    python vocabularies.py OUT [FOLDER...]

Each FOLDER holds wheels (pip download --no-deps litellm llama-models dashscope) or installed
packages; without one, those of this interpreter. OUT gets the files of VOCABULARIES that were
found, checked against the start of their SHA-256. None of them is ever committed: golden hashes and
benchmarks are made with them, and tests that want them skip where they are not.
"""

import hashlib
import pathlib
import sys
import sysconfig
import zipfile

LITELLM = "litellm/litellm_core_utils/tokenizers/"
# name: (places in packages, start of the SHA-256, lines to keep)
VOCABULARIES = {
    "r50k.tiktoken": ([LITELLM + "ec7223a39ce59f226a68acc30dc1af2788490e15"], "306cd27f", 50256),
    "cl100k.tiktoken": ([LITELLM + "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
                         "tiktoken_ext/data/cl100k_base.tiktoken"], "223921b7", None),
    "o200k.tiktoken": ([LITELLM + "fb374d419588a4632f3f557e76b4b70aebbca790"], "446a9538", None),
    "llama3.tiktoken": (["llama_models/llama3/tokenizer.model"], "82e9d319", None),
    "qwen.tiktoken": (["dashscope/resources/qwen.tiktoken"], "b2b1b8df", None),
    "deepseek3.json": ([LITELLM + "deepseek_tokenizer.json"], "4607b3d1", None),
    "anthropic.json": ([LITELLM + "anthropic_tokenizer.json"], "c241737d", None),
}


def find(folders, places):
    for folder in folders:
        for place in places:
            if (folder / place).is_file():
                return (folder / place).read_bytes()
        for wheel in sorted(folder.glob("*.whl")):
            with zipfile.ZipFile(wheel) as z:
                names = set(z.namelist())
                for place in places:
                    if place in names:
                        return z.read(place)
    return None


def take(out, folders):
    """Returns the names that were found."""
    out.mkdir(parents=True, exist_ok=True)
    found = []
    for name, (places, start, lines) in VOCABULARIES.items():
        data = find(folders, places)
        if data is None:
            continue
        if lines:       # p50k is r50k and some more ranks
            kept = [x for x in data.split(b"\n") if x and int(x.split()[1]) < lines]
            data = b"\n".join(kept) + b"\n"
        if not hashlib.sha256(data).hexdigest().startswith(start):
            print(f"{name}: not the published file", file=sys.stderr)
            continue
        (out / name).write_bytes(data)
        found.append(name)
    return found


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    folders = [pathlib.Path(f) for f in sys.argv[2:]]
    folders = folders or [pathlib.Path(sysconfig.get_paths()["purelib"])]
    print("\n".join(take(pathlib.Path(sys.argv[1]), folders)) or "none found")


if __name__ == "__main__":
    main()
