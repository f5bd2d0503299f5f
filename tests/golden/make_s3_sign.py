#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Signatures of requests with odd keys and queries, by botocore (PyPI), for tests/file/test_store_sign.c.

    python3 tests/golden/make_s3_sign.py > tests/golden/s3_sign.json

Each case has method, path, query and headers unescaped, and the Authorization that botocore's signer for
S3 gives, at one fixed time.
"""
import datetime
import json
from urllib.parse import quote

from botocore import auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

WHEN = datetime.datetime(2026, 11, 30, 12, 34, 56, tzinfo=datetime.timezone.utc)
auth.get_current_datetime = lambda **kw: WHEN.replace(tzinfo=None) if kw.get("remove_tzinfo", True) else WHEN

KEYS = ["plain.txt", "a=b/c", "plus+plus", "space here", "tilde~", "percent%41", "amp&er=s?and#", "quote'\"",
        "semi;colon:at@", "(paren)!", "star*", "schön/日本語", "back\\slash", "curly{}[]|^`<>", "x//y", "comma,dollar$"]
QUERIES = [[], [("uploads", "")], [("list-type", "2"), ("prefix", "a=b/c d+e"), ("delimiter", "/"), ("max-keys", "1000")],
           [("partNumber", "7"), ("uploadId", "a.b-c_d~e/f+g==")], [("b", "2"), ("a", "2"), ("a", "1"), ("B", "3")],
           [("continuation-token", "1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM="), ("prefix", "ünï")]]


def sign(method, path, query, headers, body, token):
    url = "https://bucket.s3.eu-central-1.amazonaws.com" + quote(path, safe="/~")
    if query:
        url += "?" + "&".join(quote(k, safe="-_.~") + "=" + quote(v, safe="-_.~") for k, v in query)
    r = AWSRequest(method=method, url=url, headers=dict(headers), data=body)
    signer = auth.S3SigV4Auth(Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", token), "s3", "eu-central-1")
    signer.add_auth(r)
    assert r.headers["X-Amz-Date"] == "20261130T123456Z", r.headers["X-Amz-Date"]
    return r.headers["Authorization"]


cases = []
n = 0
for key in KEYS:
    for query in QUERIES:
        n += 1
        method = ["GET", "PUT", "DELETE", "HEAD", "POST"][n % 5]
        body = f"body {n}" if method in ("PUT", "POST") else ""
        headers = [] if n % 3 else [("Range", f"bytes={n}-{2 * n}"), ("If-Match", '"etag  %d "' % n)]
        token = "session/token+=" if n % 4 == 0 else None
        path = "/" + key
        cases.append({"method": method, "path": path, "query": query, "headers": headers, "body": body, "token": token or "",
                      "authorization": sign(method, path, query, headers, body, token)})
print("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]")
