#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes the Python environment with what tests talk to or compare with, and prints its path.
#
#   scripts/test_venv.sh            build/test-venv (or $BUILD/test-venv), made once and kept
#
# Pinned packages of PyPI: boto3, moto and of moto[server] what its S3 needs; tokenizers. The environment counts only when its mark has
# the present list of pins, so that a change of pins makes it anew. Without python3-venv or a reachable
# package index it prints the reason on stderr and ends with 77, which tests take as "skip".
# GW_TEST_VENV names one that is there already.
set -euo pipefail
cd "$(dirname "$0")/.."

pins='moto==5.2.5
boto3==1.44.8
flask==3.1.3
flask-cors==6.0.5
py-partiql-parser==0.6.3
PyYAML==6.0.4
tokenizers==0.23.3'

if [ -n "${GW_TEST_VENV:-}" ]; then
    echo "$GW_TEST_VENV"
    exit 0
fi

venv=${BUILD:-build}/test-venv
mkdir -p "${BUILD:-build}"
exec 9>"$venv.lock"
flock 9

if [ "$(cat "$venv/pins" 2>/dev/null)" = "$pins" ]; then
    realpath "$venv"
    exit 0
fi

skip() {
    echo "test_venv: $1" >&2
    exit 77
}

rm -rf "$venv"
python3 -m venv "$venv" >/dev/null 2>&1 || skip "python3 -m venv does not work here (python3-venv)"
log=$venv/pip.log
mapfile -t packages <<<"$pins"
timeout 300 "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 1 --timeout 20 \
    "${packages[@]}" >"$log" 2>&1 ||
    skip "pip cannot install moto, boto3 and tokenizers: $(tail -n 1 "$log")"
echo "$pins" >"$venv/pins"
realpath "$venv"
