# SPDX-License-Identifier: Apache-2.0
#
# The program behind bench/extract: F1 of main text over tokens, and speed, of gradwright,
# trafilatura and resiliparse on the pages of extract_set.py.
import argparse
import collections
import os
import re
import subprocess
import sys
import tempfile
import time

import extract_set

WORD = re.compile(r"\w+")


def score(truth, text):
    """F1, precision and recall over tokens as multisets."""
    a, b = collections.Counter(WORD.findall(truth.lower())), collections.Counter(WORD.findall(text.lower()))
    both = sum((a & b).values())
    precision = both / max(1, sum(b.values()))
    recall = both / max(1, sum(a.values()))
    return (2 * precision * recall / (precision + recall) if both else 0.0), precision, recall


def ours(pages, paths, program, favour):
    run = subprocess.run([program, "text", favour], input="\n".join(paths).encode(), stdout=subprocess.PIPE, check=True)
    out, data, at = [], run.stdout, 0
    for _ in pages:
        end = data.index(b"\n", at)
        n = int(data[at:end])
        out.append(data[end + 1:end + 1 + n].decode())
        at = end + 1 + n
    run = subprocess.run([program, "time", favour], input="\n".join(paths).encode(), stdout=subprocess.PIPE, check=True)
    _, total, seconds = run.stdout.split()
    return out, float(seconds)


def each(pages, function):
    """CPU seconds of this process, HTML decoding included as each library does it."""
    out, start = [], time.process_time()
    for page in pages:
        try:
            out.append(function(page["html"]) or "")
        except Exception as error:  # a page that a library cannot read has no text
            print(f"{page['name']}: {error}", file=sys.stderr)
            out.append("")
    return out, time.process_time() - start


def peers():
    found = {}
    try:
        import trafilatura

        found["trafilatura"] = lambda raw: trafilatura.extract(raw, include_comments=False)
        found["trafilatura precision"] = lambda raw: trafilatura.extract(
            raw, include_comments=False, favor_precision=True)
    except ImportError:
        print("trafilatura is not installed here: left out")
    try:
        from resiliparse.extract.html2text import extract_plain_text
        from resiliparse.parse.encoding import bytes_to_str

        found["resiliparse"] = lambda raw: extract_plain_text(bytes_to_str(raw, "utf-8"), main_content=True)
    except ImportError:
        print("resiliparse is not installed here: left out")
    return found


def row(name, pages, texts, seconds, half, kind):
    total = [score(p["text"], t) for p, t in zip(pages, texts)
             if (half is None or p["half"] == half) and (kind is None or p["kind"] == kind)]
    n = len(total)
    f1, precision, recall = (sum(s[i] for s in total) / n for i in range(3))
    nbytes = sum(len(p["html"]) for p in pages)
    speed = f"{nbytes / seconds / 1e6:8.1f}" if half is None and kind is None else " " * 8
    print(f"{name:24} {half or 'all':5} {kind or 'all':5} {n:5}  {f1:.4f}  {precision:.4f}  {recall:.4f} {speed}")
    return f1


def groups(pages, results):
    print("\nF1 by group")
    names = list(results)
    print(f"{'group':22} {'half':5} " + " ".join(f"{n[:14]:>14}" for n in names))
    for group in sorted({p["group"] for p in pages}):
        for half in ("tune", "held"):
            index = [i for i, p in enumerate(pages) if p["group"] == group and p["half"] == half]
            if index:
                f = [sum(score(pages[i]["text"], results[n][0][i])[0] for i in index) / len(index) for n in names]
                print(f"{group:22} {half:5} " + " ".join(f"{x:14.4f}" for x in f))


def worst(pages, texts, n):
    order = sorted(range(len(pages)), key=lambda i: score(pages[i]["text"], texts[i])[0])
    for i in order[:n]:
        f1, precision, recall = score(pages[i]["text"], texts[i])
        print(f"{pages[i]['name']:44} F1 {f1:.3f} P {precision:.3f} R {recall:.3f}")


def main():
    arg = argparse.ArgumentParser()
    arg.add_argument("--program", required=True, help="the built extract_pages")
    arg.add_argument("--no-peers", action="store_true")
    arg.add_argument("--worst", type=int, default=0, help="list so many of our worst pages")
    arg.add_argument("--keep", help="write pages, truths and our texts below this folder")
    arg.add_argument("--half", help="only this half: tune or held")
    a = arg.parse_args()
    pages = [p for p in extract_set.pages() if not a.half or p["half"] == a.half]
    if len(pages) < 100:
        sys.exit("too few pages: install the documentation packages that docs/extraction.md names")
    folder = a.keep or tempfile.mkdtemp()
    paths = []
    for page in pages:
        path = os.path.join(folder, page["name"].replace("/", "__"))
        os.makedirs(folder, exist_ok=True)
        with open(path, "wb") as f:
            f.write(page["html"])
        paths.append(path)
    results = {}
    for favour in ("balanced", "precision", "recall"):
        results["gradwright" if favour == "balanced" else f"gradwright {favour}"] = ours(pages, paths, a.program, favour)
    if not a.no_peers:
        for name, function in peers().items():
            results[name] = each(pages, function)
    print(f"{len(pages)} pages, {sum(len(p['html']) for p in pages) / 1e6:.1f} MB of HTML\n")
    print(f"{'':24} half  kind  pages      F1   precis.  recall     MB/s")
    f1 = {}
    for name, (texts, seconds) in results.items():
        halves = [a.half] if a.half else [None, "tune", "held"]
        for half in halves:
            f1[name, half] = row(name, pages, texts, seconds, half, None)
        for kind in ("docs", "made"):
            row(name, pages, texts, seconds, halves[-1], kind)
    groups(pages, results)
    if a.worst:
        print()
        worst(pages, results["gradwright"][0], a.worst)
    if a.keep:
        for page, path, text in zip(pages, paths, results["gradwright"][0]):
            with open(path + ".truth", "w") as f:
                f.write(page["text"])
            with open(path + ".ours", "w") as f:
                f.write(text)
    best = max((v for (n, h), v in f1.items() if not n.startswith("gradwright") and h != "tune"), default=None)
    if best is not None:
        for half in {h for _, h in f1} - {"tune"}:
            peer = max(v for (n, h), v in f1.items() if not n.startswith("gradwright") and h == half)
            print(f"\n{half or 'all'}: gradwright {f1['gradwright', half]:.4f}, best peer {peer:.4f}: "
                  f"{'holds' if f1['gradwright', half] >= peer - 0.01 else 'FAILS'} (no worse than the peer minus 0.01)")
    if not a.keep:
        for path in paths:
            os.unlink(path)
        os.rmdir(folder)


main()
