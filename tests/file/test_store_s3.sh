#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# timeout: 400
#
# The store against moto, an S3 server of others, on loopback: the tests named s3_* of tests/file; and
# objects that boto3 wrote or reads, so that both clients see the same.
set -uo pipefail

work=$(mktemp -d)
server=
clean_up() {
    [ -z "$server" ] || kill "$server" 2>/dev/null
    [ -z "$server" ] || wait "$server" 2>/dev/null
    rm -rf "$work"
}
trap clean_up EXIT

fail() {
    echo "$*"
    exit 1
}

root=${GW_TESTS_DIR:?}/..
tests=${GW_BUILD:?}/tests/file
[ -x "$tests" ] || { echo "skip: $tests is not built"; exit 77; }
venv=$(BUILD=${GW_MAKE_BUILD:-build} "$root/scripts/test_venv.sh" 2>"$work/why") || {
    echo "skip: $(cat "$work/why")"
    exit 77
}

# A free port is only known once the server has it: try a few.
start_server() {
    local port
    for port in $((20000 + $$ % 20000)) $((20001 + $$ % 20000)) $((20002 + $$ % 20000)); do
        "$venv/bin/moto_server" -H 127.0.0.1 -p "$port" >"$work/server.log" 2>&1 &
        server=$!
        for _ in $(seq 200); do
            kill -0 "$server" 2>/dev/null || break
            if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
                endpoint=http://127.0.0.1:$port
                return 0
            fi
            sleep 0.05
        done
        kill "$server" 2>/dev/null
        wait "$server" 2>/dev/null
    done
    cat "$work/server.log"
    return 1
}
start_server || fail "moto does not start"

unset AWS_PROFILE AWS_SESSION_TOKEN AWS_CONFIG_FILE AWS_SHARED_CREDENTIALS_FILE
export AWS_ACCESS_KEY_ID=test-key AWS_SECRET_ACCESS_KEY=test-secret AWS_REGION=us-east-1
export AWS_ENDPOINT_URL_S3=$endpoint GW_TEST_S3=$endpoint AWS_DEFAULT_REGION=us-east-1

# Before our tests: what boto3 writes. s3_boto_* read it.
"$venv/bin/python" - <<'END' || fail "boto3 cannot write"
import boto3
s3 = boto3.client("s3")
s3.create_bucket(Bucket="gradwright-test")
for key in ("from boto/a=b+c d.txt", "from boto/ünï/~tilde", "from boto/100%.txt"):
    s3.put_object(Bucket="gradwright-test", Key=key, Body=key.encode())
END

names=$("$tests" --list | awk '$1 ~ /^s3_/ { print $1 }')
[ "$(wc -w <<<"$names")" -ge 8 ] || fail "too few tests: $names"
for name in $names; do
    timeout 100 "$tests" "$name" >"$work/out" 2>&1 || {
        cat "$work/out"
        fail "$name"
    }
done

# After them: boto3 reads what we wrote, checksums and all.
"$venv/bin/python" - <<'END' || fail "boto3 does not read what we wrote"
import base64, hashlib
import boto3
s3 = boto3.client("s3")
B = "gradwright-test"
keys = {o["Key"] for p in s3.get_paginator("list_objects_v2").paginate(Bucket=B) for o in p.get("Contents", [])}
odd = [k for k in keys if k.startswith("odd=keys/with space+/")]
assert len(odd) >= 19, odd
for k in odd:
    body = s3.get_object(Bucket=B, Key=k)["Body"].read().decode()
    assert "odd=keys/with space+/" + body == k, (k, body)
head = s3.head_object(Bucket=B, Key="basic/other.txt", ChecksumMode="ENABLED")
assert head["ContentLength"] == 12
r = s3.get_object(Bucket=B, Key="commit/manifest", ChecksumMode="ENABLED")
body = r["Body"].read()
assert body == b"first"
assert r.get("ChecksumSHA256") in (None, base64.b64encode(hashlib.sha256(body).digest()).decode())
assert len(r["Metadata"]["gradwright-writer"]) == 32
assert s3.head_object(Bucket=B, Key="streams/seven parts")["ContentLength"] == 7 * (5 << 20) - 3
assert not s3.list_multipart_uploads(Bucket=B).get("Uploads")
END
