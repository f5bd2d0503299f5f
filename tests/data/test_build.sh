#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# timeout: 240
# A build of real pages: the same bytes for any number of workers and however often it is killed; what
# changes makes again what hangs on it, and only that; damage is named; shards verify, and train.
set -eu
[ -x "$GW_BIN" ] || { echo "no program in GW_BIN"; exit 77; }
pages=/usr/share/doc/debian-handbook/html/en-US
[ -d "$pages" ] || { echo "no $pages: apt-get install debian-handbook"; exit 77; }
cd "$TMPDIR"

fail() { echo "$*"; exit 1; }
data() { "$GW_BIN" data "$@"; }
# What a reader sees of a build: its files but the report, which has times.
sum() { (cd "$1" && find mds megatron manifest.json -type f | LC_ALL=C sort | xargs sha256sum | sha256sum); }

cat > p.yaml <<YAML
input:
  paths: [$pages]
  unit_bytes: 300kB
filters:
  - gopher_repetition/datatrove
  - gopher_quality/datatrove
  - c4/datatrove: {filter_no_terminal_punct: false}
  - fineweb_quality/datatrove
tokenizer: {path: bytes}
output: {dir: out, format: both, shard_bytes: 128kB}
YAML

# --- workers and kills
data build p.yaml --set output.dir=one --workers 1 > one.txt
grep -q 'deduped' one.txt || fail "no table of boundaries"
want=$(sum one)
for w in 2 4; do
    data build p.yaml --set output.dir=w$w --workers $w --quiet
    [ "$(sum w$w)" = "$want" ] || fail "$w workers: other bytes than one worker"
    rm -rf w$w
done
i=0
killed=0
while [ $i -lt 12 ]; do
    i=$((i + 1))
    # From before the first unit to after the last shard.
    if timeout -s KILL "0.0$((i * 7 % 10))$((i * 3 % 10))" "$GW_BIN" data build p.yaml --set output.dir=k \
        --workers $((1 + i % 4)) --quiet 2> /dev/null; then :; else killed=$((killed + 1)); fi
    # An index never stands over shards that are not whole.
    [ ! -e k/mds/index.json ] || data verify k/mds --quiet || fail "an index over damaged shards"
done
data build p.yaml --set output.dir=k --workers 2 --quiet
[ "$(sum k)" = "$want" ] || fail "killed $killed times: other bytes"
[ -z "$(find k -name '*.tmp*')" ] || fail "temporary files stay: $(find k -name '*.tmp*')"
[ "$killed" -gt 0 ] || echo "note: no kill came early enough"
data verify k > verify.txt || fail "a build does not verify"
grep -q ': whole$' verify.txt
rm -rf k

# --- what is done stays: nothing is written again
before=$(stat -c %Y%i one/work/unit-00000.docs one/mds/shard.00000.mds one/megatron/tokens-00000.bin)
data build p.yaml --set output.dir=one --quiet
[ "$(stat -c %Y%i one/work/unit-00000.docs one/mds/shard.00000.mds one/megatron/tokens-00000.bin)" = "$before" ] ||
    fail "a finished build was done again"

# --- new thresholds: columns stay, verdicts and shards follow; back again gives the first bytes
docs=$(stat -c %i one/work/unit-*.docs)
cat > q.yaml <<YAML
input: {paths: [$pages], unit_bytes: 300kB}
filters:
  - gopher_repetition/datatrove
  - gopher_quality/datatrove: {min_doc_words: 400}
  - c4/datatrove: {filter_no_terminal_punct: false}
  - fineweb_quality/datatrove
tokenizer: {path: bytes}
output: {dir: one, format: both, shard_bytes: 128kB}
YAML
data refilter q.yaml --quiet
[ "$(stat -c %i one/work/unit-*.docs)" = "$docs" ] || fail "refilter extracted again"
[ "$(sum one)" != "$want" ] || fail "a threshold changed nothing"
data build q.yaml --set output.dir=fresh --quiet
[ "$(sum one)" = "$(sum fresh)" ] || fail "refilter and a fresh build differ"
rm -rf fresh
data refilter p.yaml --set output.dir=one --quiet
[ "$(sum one)" = "$want" ] || fail "the first thresholds do not give the first bytes"
# Other columns are needed for other filters: refilter says so and leaves what there is.
cp q.yaml r.yaml
sed -i 's/gopher_repetition\/datatrove/gopher_repetition\/dolma/' r.yaml
if data refilter r.yaml --quiet 2> err; then fail "refilter without columns"; fi
grep -q 'data-refilter' err || fail "refilter: $(cat err)"
[ "$(sum one)" = "$want" ] || fail "a refused refilter changed the shards"

# --- one new input makes one unit again
mkdir in
cp "$pages"/a*.html in/
data build p.yaml --set "input.paths=[in]" --set input.unit_bytes=1 --set output.dir=inc --quiet
docs=$(stat -c %n%i inc/work/unit-0000[01].docs)
cp "$pages/sect.virtual-private-network.html" in/z.html
data build p.yaml --set "input.paths=[in]" --set input.unit_bytes=1 --set output.dir=inc --quiet
[ "$(stat -c %n%i inc/work/unit-0000[01].docs)" = "$docs" ] || fail "old inputs were extracted again"
data build p.yaml --set "input.paths=[in]" --set input.unit_bytes=1 --set output.dir=inc2 --quiet
[ "$(sum inc)" = "$(sum inc2)" ] || fail "an added input: other bytes than a fresh build"

# --- text that spells the end-of-text token stays text; only ends of documents are the token
# (tokenizers#1437, dolma#176)
mkdir j
printf '%s\n' '{"text": "before <|endoftext|> after", "url": "u"}' 'no json' '{"text": "second"}' > j/a.jsonl
data build p.yaml --set "input.paths=[j]" --set output.dir=eos --set "filters=[]" --quiet
data sample eos/mds --count 9 --json > eos.json
tr -s ' \n' '  ' < eos.json | grep -q '98 101 102 111 114 101 32 60 124 101 110 100 111 102 116 101 120 116 124 62' ||
    fail "the literal token is not text: $(cat eos.json)"
[ "$(tr -c '0-9\n' '\n' < eos.json | grep -c '^256$')" = 2 ] || fail "not one end per document"
grep -q '"special_texts": 1' eos/manifest.json || fail "the literal token was not counted"
grep -q '"damages": 1' eos/report.json || fail "the bad line is not in the report"
# The same damage is an error where it must not be.
if data build p.yaml --set "input.paths=[j]" --set output.dir=strict --set "filters=[]" --set input.strict=true \
    --quiet 2> err; then fail "strict passed damage over"; fi
grep -q 'a.jsonl' err || fail "strict does not name the file: $(cat err)"

# --- an input that cannot be read is named; the work on the others is kept
if [ "$(id -u)" != 0 ]; then
    cp "$pages"/b*.html in/
    chmod 000 in/z.html
    if data build p.yaml --set "input.paths=[in]" --set input.unit_bytes=1 --set output.dir=part --quiet 2> err; then
        fail "an unreadable input passed"
    fi
    grep -q 'z.html' err || fail "the unreadable input is not named"
    ls part/work/unit-00000.docs > /dev/null || fail "the other units' work is lost"
    chmod 644 in/z.html
fi

# --- a flipped byte is named with file and offset, in shards and in tables
cp -r one bad
printf 'X' | dd of=bad/mds/shard.00000.mds bs=1 seek=70000 conv=notrunc 2> /dev/null
if data verify bad > /dev/null 2> err; then fail "a flipped byte verifies"; fi
grep -q 'shard.00000.mds.*offset 0 to ' err || fail "verify: $(cat err)"
rm -rf bad
cp -r one bad
printf 'XX' | dd of=bad/work/unit-00001.docs bs=1 seek=5000 conv=notrunc 2> /dev/null
if data verify bad > /dev/null 2> err; then fail "a damaged table verifies"; fi
grep -q 'unit-00001.docs.*offset' err || fail "verify: $(cat err)"
rm -rf bad
cp -r one bad
printf 'XX' | dd of=bad/work/dedup/unit-00001.keys bs=1 seek=2000 conv=notrunc 2> /dev/null
if data verify bad > /dev/null 2> err; then fail "damaged keys verify"; fi
grep -q 'unit-00001.keys.*hash' err || fail "verify: $(cat err)"

# --- a filter by language without a language model would remove all
if data build p.yaml --set 'filters=[language/datatrove]' --set language.model=none --set output.dir=nolang --quiet 2> err
then fail "languages of nobody"; fi
grep -q 'language.model is none' err || fail "language: $(cat err)"

# --- looking in
data inspect one one/mds one/megatron/tokens-00000 one/work/unit-00000.docs "$pages/index.html" > inspect.txt
grep -q 'gopher_quality/datatrove' inspect.txt
grep -q 'ndarray:uint16' inspect.txt
data inspect one/megatron/tokens-00000.idx --json | grep -q '"token_bytes": 2'
data sample one --count 2 --seed 5 > a.txt
data sample one --count 2 --seed 5 > b.txt
data sample one --count 2 --seed 6 > c.txt
cmp -s a.txt b.txt || fail "a seed gives two samples"
! cmp -s a.txt c.txt || fail "two seeds give one sample"
data sample one/megatron/tokens-00000 --tokenizer bytes --count 1 | grep -q 'tokens'
data stats one --column 'gopher_quality*' > stats.txt
grep -q 'gopher_quality/datatrove' stats.txt || fail "no statistics: $(cat stats.txt)"
if data stats one --column nothing 2> /dev/null; then fail "statistics of no column"; fi

# --- a file is read once whatever its names, and a build does not read what it wrote
mkdir same
printf '{"text": "one"}\n' > same/a.jsonl
ln -s a.jsonl same/b.jsonl
once() { data build p.yaml --set "$1" --set output.dir=same/out --set 'filters=[]' > /dev/null 2> err; }
once "input.paths=[same,./same,$PWD/same]"
grep -q 'are read once' err || fail "names: $(cat err)"
once 'input.paths=[same]'
[ "$(data sample same/out/mds --count 99 --json | tr -c '0-9\n' '\n' | grep -c '^256$')" = 1 ] ||
    fail "more than one document"
if once 'input.paths=[same/out]'; then fail "a build read its own output"; fi
grep -q 'is output.dir' err || fail "own output: $(cat err)"

# --- sums that are lost come back; without an output earlier shards go
cp -r one sums
rm sums/mds/shard.00000.mds.xxh3
truncate -s 7 sums/megatron/tokens-00000.idx.xxh3
data build p.yaml --set output.dir=sums --quiet
data verify sums | grep -q whole || fail "sums did not come back"
data build p.yaml --set output.dir=sums --set output.format=none --quiet
[ -z "$(find sums/mds sums/megatron -type f)" ] || fail "shards of an earlier build are left"

# --- a second build in the folder waits for nobody: it says that it is busy
(flock 9; sleep 6) 9> one/work/lock &
sleep 0.3
if data build p.yaml --set output.dir=one --quiet 2> err; then fail "two builds in one folder"; fi
grep -q 'data-busy' err || fail "busy: $(cat err)"
wait

# --- a full disk ends with a named error, and the next build goes on
if command -v prlimit > /dev/null; then
    if prlimit --fsize=60000 "$GW_BIN" data build p.yaml --set output.dir=full --quiet 2> err; then
        fail "files past the limit were written"
    fi
    grep -q 'unit-0\|shard' err || grep -q 'data-worker' err || fail "full: $(cat err)"
    data build p.yaml --set output.dir=full --quiet
    [ "$(sum full)" = "$want" ] || fail "after a full disk: other bytes"
fi

# --- raw to train in two commands: the example's pipeline, a few steps of the example's run
examples=$GW_TESTS_DIR/../examples
data build "$examples/pipeline.yaml" --dry-run | grep -q 'files in'
data build "$examples/pipeline.yaml" --set output.dir=book --quiet
"$GW_BIN" train "$examples/handbook.yaml" --set data.train=book/mds --set train.steps=3 --set train.seq_len=64 \
    --set optimizer.warmup_steps=1 --out run > train.txt 2>&1 || fail "train: $(cat train.txt)"
grep -q 'step 3/3' train.txt || fail "train: $(cat train.txt)"
