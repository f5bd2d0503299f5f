# SPDX-License-Identifier: Apache-2.0
"""One peer of bench/data over the first pages of a WARC: data_peers.py NAME WARC BYTES FOLDER.

Prints one line of JSON: CPU seconds, bytes of HTML, documents, documents kept. What is imported and
loaded before the first page does not count.
"""

import gzip
import json
import os
import pathlib
import shutil
import sys


def header(f):
    """The lines of a header as a dictionary; None at the end of the file."""
    fields, line = {}, f.readline()
    if not line:
        return None
    while line.strip():
        name, _, value = line.decode("utf-8", "replace").partition(":")
        fields[name.strip().lower()] = value.strip()
        line = f.readline()
    return fields


def pages(path, most):
    """(url, html bytes) of a WARC that bench/data has written, until their sum reaches `most`."""
    total = 0
    with gzip.open(path, "rb") as f:
        while total < most:
            fields = header(f)
            if fields is None:
                return
            block = f.read(int(fields["content-length"]) + 4)
            body = block[block.index(b"\r\n\r\n") + 4:-4]
            yield fields["warc-target-uri"], body
            total += len(body)


def cpu():
    t = os.times()
    return t.user + t.system + t.children_user + t.children_system


def extraction(name, path, most):
    if name == "trafilatura":
        import trafilatura

        def extract(body):
            return trafilatura.extract(body.decode("utf-8", "replace"), favor_precision=True,
                                       include_comments=False, deduplicate=True)
    else:
        from resiliparse.extract.html2text import extract_plain_text
        from resiliparse.parse.encoding import bytes_to_str, detect_encoding

        def extract(body):
            return extract_plain_text(bytes_to_str(body, detect_encoding(body)), main_content=True)
    extract(b"<html><body><p>warm</p></body></html>")
    begin, total, n, kept = cpu(), 0, 0, 0
    for _, body in pages(path, most):
        total += len(body)
        n += 1
        kept += bool(extract(body))
    return dict(seconds=cpu() - begin, bytes=total, documents=n, kept=kept)


def datatrove(path, most, folder):
    from datatrove.data import Document
    from datatrove.pipeline.dedup import MinhashDedupSignature
    from datatrove.pipeline.dedup.minhash import MinhashConfig
    from datatrove.pipeline.extractors import Trafilatura
    from datatrove.pipeline.filters import (C4QualityFilter, FineWebQualityFilter,
                                            GopherQualityFilter, GopherRepetitionFilter)
    from datatrove.pipeline.formatters import PIIFormatter
    from datatrove.utils.logging import logger
    logger.remove()
    out = pathlib.Path(folder) / "datatrove"
    shutil.rmtree(out, ignore_errors=True)
    steps = [Trafilatura(favour_precision=True, timeout=10), GopherRepetitionFilter(),
             GopherQualityFilter(), C4QualityFilter(filter_no_terminal_punct=False),
             FineWebQualityFilter()]
    count = dict(total=0, n=0, kept=0)

    def read():
        for url, body in pages(path, most):
            count["total"] += len(body)
            count["n"] += 1
            yield Document(text=body.decode("utf-8", "replace"), id=url, metadata={"url": url})

    def counted(docs):
        for d in docs:
            count["kept"] += 1
            yield d

    def run(docs):
        for s in steps:
            docs = s.run(docs, 0, 1)
        docs = PIIFormatter().run(counted(docs), 0, 1)
        MinhashDedupSignature(output_folder=str(out), config=MinhashConfig()).run(docs, 0, 1)

    from datatrove.utils.word_tokenizers import load_word_tokenizer
    load_word_tokenizer("en").word_tokenize("warm up.")
    begin = cpu()
    run(read())
    return dict(seconds=cpu() - begin, bytes=count["total"], documents=count["n"],
                kept=count["kept"])


def main():
    name, path, most, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    r = datatrove(path, most, folder) if name == "datatrove" else extraction(name, path, most)
    print(json.dumps(r))


main()
