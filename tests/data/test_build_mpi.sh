#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
# Ranks of mpirun build the same bytes as one process, and one rank alone speaks.
set -euo pipefail
# shellcheck source=tests/dist/lib.sh
. "$GW_TESTS_DIR/dist/lib.sh"
pages=/usr/share/doc/debian-handbook/html/en-US
[ -d "$pages" ] || skip "no $pages: apt-get install debian-handbook"
cd "$TMPDIR"
cat > p.yaml <<YAML
input: {paths: [$pages], unit_bytes: 400kB}
filters:
  - gopher_quality/datatrove
  - c4/datatrove: {filter_no_terminal_punct: false}
tokenizer: {path: bytes}
output: {dir: out, format: both, shard_bytes: 256kB}
YAML
sum() { (cd "$1" && find mds megatron manifest.json -type f | LC_ALL=C sort | xargs sha256sum | sha256sum); }
"$GW_BIN" data build p.yaml --set output.dir=one --workers 1 --quiet
for n in 2 3; do
    code=0
    out=$(mpirun --oversubscribe -n "$n" "$GW_BIN" data build p.yaml --set "output.dir=m$n" 2>&1) || code=$?
    expect 0 "m$n: manifest.json"
    [ "$(grep -c '^deduped' <<<"$out")" = 1 ] || { echo "several ranks speak:"; echo "$out"; exit 1; }
    [ "$(sum "m$n")" = "$(sum one)" ] || { echo "$n ranks: other bytes than one process"; exit 1; }
done
# An error of one rank's unit is one error, and ends all ranks.
cp "$pages/index.html" here.html
ln -s "$PWD/gone.html" there.html
code=0
out=$(mpirun --oversubscribe -n 2 "$GW_BIN" data build p.yaml --set "input.paths=[here.html, there.html]" \
    --set output.dir=bad 2>&1) || code=$?
[ "$code" -ne 0 ] || { echo "a missing input passed"; exit 1; }
grep -q "there.html" <<<"$out" || { echo "the input is not named:"; echo "$out"; exit 1; }
