#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# timeout: 240
# A build with every kind of dedup: the same bytes for any number of workers, of ranks under mpirun, and
# however often it is killed; what it leaves behind for later builds too.
set -euo pipefail
[ -x "$GW_BIN" ] || { echo "no program in GW_BIN"; exit 77; }
cd "$TMPDIR"
fail() { echo "$*"; exit 1; }
data() { "$GW_BIN" data "$@"; }

# Documents of prose with equal ones, nearly equal ones, and repeated lines, paragraphs and runs of words.
mkdir in
awk 'function word(  n) { x = x * 16807 % 2147483647; n = int(x / 4096)
    return sprintf("%c%c%c%c", 97 + n % 26, 97 + int(n / 26) % 26, 97 + int(n / 676) % 4, 97 + int(n / 2704) % 4) }
function words(n,  s, i) { s = word(); for (i = 1; i < n; i++) s = s " " word(); return s }
BEGIN {
    x = 7
    line = "One line that many of the pages of this site have at their end"
    para = words(20) "\\n" words(20)
    run = words(70)
    three = "This is the first of three. Here the second one follows it. And that was the last of them."
    for (f = 0; f < 6; f++) {
        file = sprintf("in/%02d.jsonl", f)
        for (d = 0; d < 40; d++) {
            t = words(60 + d)
            if (d % 9 == 0 && f > 0) t = kept[(f - 1) % 3 "," d]
            else if (d % 9 == 1 && f > 0) t = kept[(f - 1) % 3 "," d] " " word()
            else if (d % 9 == 5 && f > 3) t = late[d]
            else if (d % 9 == 6 && f > 3) t = late[d] " " word()
            if (f < 3) kept[f "," d] = t
            if (f == 3) late[d] = t
            if (d % 5 == 2) t = t "\\n" line
            if (d % 7 == 3) t = t "\\n\\n" para "\\n\\n" words(30)
            if (d % 8 == 6) t = t ". " words(9) ". " three " " words(20) "."
            if (d % 6 == 4) t = t " " run " " words(25)
            printf "{\"text\": \"%s\"}\n", t > file
        }
    }
}'
cat > p.yaml <<YAML
input: {paths: [in], unit_bytes: 1}
dedup:
  near: redpajama-v2-0.9 # few bands: each is a file that is synced
  jaccard: 0.6
  signatures: SIG
  spans: [lines, paragraphs, sentences]
  span_bytes: 40
  substring: 60
  index: first/index
  index_out: INDEX
  bloom: paragraphs
  bloom_keys: 20000
  bloom_out: BLOOM
tokenizer: {path: bytes}
output: {dir: out, format: both, shard_bytes: 64kB}
YAML
data build p.yaml --set "input.paths=[in/00.jsonl]" --set output.dir=first --set 'dedup.index=""' \
    --set dedup.index_out=first/index --set 'dedup.signatures=""' --set 'dedup.bloom_out=""' --quiet
# Without the index and the files beside, what is written has a name of its own for each build.
build() { # NAME WORKERS
    data build p.yaml --set "output.dir=$1" --set "dedup.signatures=$1/sig" --set "dedup.index_out=$1/index" \
        --set "dedup.bloom_out=$1/f.bloom" --workers "$2" --quiet
}
sum() { (cd "$1" && find mds megatron manifest.json sig f.bloom index -type f | LC_ALL=C sort |
    while read -r f; do case $f in
        index/*) # the keys; which run wrote a file stands in its head
            tail -c +129 "$f" | sha256sum | sed "s|-|$f|" ;;
        *) sha256sum "$f" ;;
    esac; done | sha256sum); }

build one 1
want=$(sum one)
for key in near exact index; do
    grep -Eq "\"$key\": [1-9]" one/report.json || fail "nothing went because of $key: $(grep -A12 '"dedup"' one/report.json)"
done
for kind in lines paragraphs sentences substrings seen; do
    tr -d ' \n' < one/report.json | grep -Eq "\"$kind\":\{\"ranges\":[1-9]" || fail "no $kind were cut"
done
for w in 2 4; do
    build w$w $w
    [ "$(sum w$w)" = "$want" ] || fail "$w workers: other bytes than one worker"
    rm -rf w$w
done
killed=0
for i in 1 2 3 4 5 6 7 8; do
    { timeout -s KILL "0.$((i * 7 % 10))$((i * 3 % 10))" "$GW_BIN" data build p.yaml --set output.dir=k \
        --set dedup.signatures=k/sig --set dedup.index_out=k/index --set dedup.bloom_out=k/f.bloom \
        --workers $((1 + i % 4)) --quiet; } 2> /dev/null || killed=$((killed + 1))
done
mkdir -p k/sig/bucket_000 # what a kill leaves at the worst moment
touch k/sig/bucket_000/00000.minhash.sig.tmp-1-a-0 k/f.bloom.tmp-1-a-0 k/f.bloom.xxh128.tmp-1-a-0
build k 3
[ "$(sum k)" = "$want" ] || fail "killed $killed times: other bytes"
[ -z "$(find k -name '*.tmp*')" ] || fail "temporary files stay: $(find k -name '*.tmp*')"
[ "$killed" -gt 0 ] || echo "note: no kill came early enough"

# What is done stays; another folder for the index makes that alone.
before=$(stat -c %n%i one/work/dedup/*.keys one/work/unit-*.toks one/mds/*.mds)
build one 2
[ "$(stat -c %n%i one/work/dedup/*.keys one/work/unit-*.toks one/mds/*.mds)" = "$before" ] || fail "done again"

# A filter that has seen paragraphs knows nothing of lines.
if data build p.yaml --set output.dir=other --set dedup.bloom=lines --set dedup.bloom_keys=1000000 \
    --set dedup.bloom_in=one/f.bloom --set 'dedup.bloom_out=""' --set 'dedup.signatures=""' \
    --set 'dedup.index_out=""' --quiet 2> err; then fail "a filter of paragraphs was asked for lines"; fi
grep -q 'has seen paragraphs' err || fail "bloom_in: $(cat err)"

if command -v mpirun > /dev/null && [ -e "$(dirname "$GW_BIN")/gradwright-mpi.so" ]; then
    export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" # Open MPI keeps memory
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    mpirun --oversubscribe -n 2 "$GW_BIN" data build p.yaml --set output.dir=m --set dedup.signatures=m/sig \
        --set dedup.index_out=m/index --set dedup.bloom_out=m/f.bloom --quiet
    [ "$(sum m)" = "$want" ] || fail "two ranks: other bytes than one process"
fi
