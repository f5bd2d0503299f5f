# SPDX-License-Identifier: Apache-2.0
"""bench/data: WARC.gz to shards of tokens, on one core.

The pages are HTML that Debian's documentation packages have put on this machine (/usr/share/doc),
written as a WARC with one gzip member a record; when they are fewer bytes than asked for, they are
repeated with a line of their own, and the table says how many are distinct. gradwright runs the
whole pipeline of FineWeb (language, Gopher repetition and quality, C4, FineWeb filters, MinHash,
PII, tokens, shards). The peers run on the first pages of the same archive, in the same turns:
datatrove its own steps of the same names, and resiliparse and trafilatura extraction alone.

A figure is MB of HTML a second of CPU time, so that other programs on the machine count little.
"""

import argparse
import gzip
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOTS = ("/usr/share/doc", "/usr/share/help", "/usr/share/gtk-doc")
GW = os.environ.get("GW_BIN", str(HERE.parent / "gradwright"))
PYTHON = os.environ.get("GW_BENCH_PYTHON", "python3")

PIPELINE = """\
input: {{paths: [{warc}]}}
filters:
  - language/datatrove: {{languages: en, language_threshold: 0.65}}
  - gopher_repetition/datatrove
  - gopher_quality/datatrove
  - c4/datatrove: {{filter_no_terminal_punct: false}}
  - fineweb_quality/datatrove
dedup: {{exact: true, near: fineweb}}
pii: {{email: replace, ip: replace}}
tokenizer: {{path: {tokenizer}}}
output: {{dir: {out}, format: mds}}
"""


def find_pages():
    """HTML files by path; names that lead out of the folders are left alone."""
    pages = []
    for root in ROOTS:
        for path in sorted(pathlib.Path(root).rglob("*.html")):
            if path.is_file() and not path.is_symlink():
                pages.append(path)
    return pages


def record(url, body):
    http = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body
    head = (f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:x:{url}>\r\n"
            f"WARC-Target-URI: {url}\r\nWARC-Date: 2026-01-01T00:00:00Z\r\n"
            f"Content-Type: application/http; msgtype=response\r\n"
            f"Content-Length: {len(http)}\r\n\r\n").encode()
    return head + http + b"\r\n\r\n"


def write_warc(path, pages, want):
    """Returns (html bytes, distinct bytes, records)."""
    total = distinct = records = turn = 0
    with open(path, "wb") as out:
        while total < want and pages:
            for page in pages:
                body = page.read_bytes()
                if turn:
                    body += f"<p>This is copy {turn} of {page.name}.</p>".encode()
                else:
                    distinct += len(body)
                url = f"http://example.org/{turn}{page}"
                out.write(gzip.compress(record(url, body), 6))
                total += len(body)
                records += 1
                if total >= want:
                    break
            turn += 1
    return total, distinct, records


def ours(work, warc, tokenizer, cpu, sets):
    out = work / "out"
    shutil.rmtree(out, ignore_errors=True)
    (work / "p.yaml").write_text(PIPELINE.format(warc=warc, tokenizer=tokenizer, out=out))
    before = os.times()
    subprocess.run(["taskset", "-c", str(cpu), GW, "data", "build", str(work / "p.yaml"),
                    "--workers", "1", "--quiet"] + [a for x in sets for a in ("--set", x)], check=True)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return used, json.loads((out / "report.json").read_text())


def peer(name, warc, most, cpu, work):
    """{"seconds": CPU, "bytes": HTML, "documents": n, "kept": n}, or the reason why not."""
    done = subprocess.run(["taskset", "-c", str(cpu), PYTHON, str(HERE / "data_peers.py"), name,
                           str(warc), str(most), str(work)], capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"why": (done.stderr.strip().splitlines() or ["no output"])[-1]}
    return json.loads(lines[-1])


def main():
    p = argparse.ArgumentParser(prog="bench/data", description="Pages to tokens on one core.")
    p.add_argument("--bytes", type=int, default=256_000_000, help="of HTML for gradwright")
    p.add_argument("--peer-bytes", type=int, default=4_000_000, help="of HTML for the peers")
    p.add_argument("--quick", action="store_true", help="32 MB and 1 MB, two turns")
    p.add_argument("--turns", type=int, default=5)
    p.add_argument("--cpu", type=int, default=0, help="the core that all run on")
    p.add_argument("--tokenizer", default="bytes")
    p.add_argument("--no-peers", action="store_true")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                   help="a key of the pipeline, such as measure_removed=false; repeatable")
    p.add_argument("--json", help="write all figures to this file")
    o = p.parse_args()
    if o.quick:
        o.bytes, o.peer_bytes, o.turns = 32_000_000, 1_000_000, 2
    pages = find_pages()
    if not pages:
        sys.exit("bench/data: no HTML below /usr/share/doc: apt-get install debian-handbook python3-doc")
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        warc = work / "pages.warc.gz"
        total, distinct, records = write_warc(warc, pages, o.bytes)
        print(f"{records} pages, {total / 1e6:.1f} MB of HTML ({distinct / 1e6:.1f} MB distinct), "
              f"{warc.stat().st_size / 1e6:.1f} MB of WARC.gz; core {o.cpu}")
        rates, report, peers = [], None, {}
        names = [] if o.no_peers else ["datatrove", "trafilatura", "resiliparse"]
        for turn in range(o.turns):
            used, report = ours(work, warc, o.tokenizer, o.cpu, o.set)
            rates.append(total / 1e6 / used)
            for name in names:
                if "why" in peers.get(name, [{}])[-1]:
                    continue
                peers.setdefault(name, []).append(peer(name, warc, o.peer_bytes, o.cpu, work))
        best = statistics.median(rates)
        print(f"\ngradwright, whole pipeline   {best:8.1f} MB/s a core   (least {min(rates):.1f}, "
              f"most {max(rates):.1f}, {len(rates)} turns)")
        for name, runs in peers.items():
            good = [r["bytes"] / 1e6 / r["seconds"] for r in runs if "seconds" in r]
            if not good:
                print(f"{name:28} not run: {runs[-1]['why']}")
                continue
            m = statistics.median(good)
            what = "its pipeline" if name == "datatrove" else "extraction alone"
            print(f"{name + ', ' + what:28} {m:8.2f} MB/s a core   gradwright is {best / m:.0f} times as "
                  f"fast ({runs[-1]['documents']} pages, {runs[-1]['kept']} kept)")
        print("\nstage        CPU s   MB of HTML/s")
        for name, s in report["stages"].items():
            print(f"{name:10} {s['cpu_s']:7.2f} {s['MB_per_s']:12.0f}")
        for name in ("dedup", "shards"):
            print(f"{name:10} {report['phases_cpu_s'][name]:7.2f}")
        print()
        for b in report["boundaries"]:
            print(f"{b['name']:10} {b['documents']:8} documents {b['bytes'] / 1e6:10.1f} MB")
        if o.json:
            pathlib.Path(o.json).write_text(json.dumps(
                {"bytes": total, "distinct": distinct, "pages": records, "rates": rates,
                 "peers": peers, "report": report}, indent=1))


main()
