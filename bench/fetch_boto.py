# SPDX-License-Identifier: Apache-2.0
"""boto3's side of bench/fetch: downloads objects in order of their numbers, several at a time, with its defaults.

    fetch_boto.py ENDPOINT OBJECTS BYTES RATE_MB
"""
import io
import json
import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import boto3
from botocore import UNSIGNED
from botocore.config import Config


def main():
    endpoint, objects, size, rate = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]) * 1e6
    s3 = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1",
                      config=Config(signature_version=UNSIGNED, max_pool_connections=100))

    def get(i):
        out = io.BytesIO()
        s3.download_fileobj("noise", f"{i}/{size}", out)
        return out.getbuffer().nbytes

    t0 = time.monotonic()
    with ThreadPoolExecutor(4) as pool:  # each download has ten threads of its own for large objects
        moved = sum(pool.map(get, range(objects)))
    took = time.monotonic() - t0
    use = resource.getrusage(resource.RUSAGE_SELF)
    assert moved == objects * size
    print(json.dumps({"seconds": round(took, 3), "mb_per_s": round(moved / took * 1e-6, 2),
                      "share_with_warm_up": round(moved / took / rate, 4),
                      "cpu_s_per_gb": round((use.ru_utime + use.ru_stime) / (moved * 1e-9), 3)}))


main()
