#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
# Measuring only until a filter removes a document leaves the same shards, and is not to be judged again by
# other thresholds without extracting.
set -eu
[ -x "$GW_BIN" ] || { echo "no program in GW_BIN"; exit 77; }
cd "$TMPDIR"

fail() { echo "$*"; exit 1; }
data() { "$GW_BIN" data "$@"; }
sum() { (cd "$1" && find mds -type f | LC_ALL=C sort | xargs sha256sum | sha256sum); }

# Pages of which some repeat themselves, some are short, and some stay.
mkdir pages
i=0
while [ $i -lt 60 ]; do
    case $((i % 3)) in
        0) yes "Page $i says the same again and again." | head -n 40 ;;
        1) echo "Page $i is short." ;;
        2) awk -v n=$i 'BEGIN { srand(n); for (l = 0; l < 30; l++) { s = "The line";
               for (w = 0; w < 12; w++) s = s " word" int(rand() * 5000) " of"; print s " that." } }' ;;
    esac > pages/$i.txt
    i=$((i + 1))
done
cat > p.yaml <<YAML
input: {paths: [pages]}
language: {model: none}
filters:
  - gopher_repetition/datatrove
  - gopher_quality/datatrove: {max_avg_word_length: 12}
  - fineweb_quality/datatrove
dedup: {exact: false, near: none}
tokenizer: {path: bytes}
output: {dir: all}
YAML
data build p.yaml --quiet
data build p.yaml --quiet --set output.dir=some --set measure_removed=false
[ "$(sum all)" = "$(sum some)" ] || fail "other shards"
grep -q '"documents"' some/report.json || fail "no report"

# Behind the filter that removed them, documents are not measured.
measured() { data stats "$1" --column 'fineweb_quality/datatrove.lines' --json | tr -d ' \n'; }
[ "$(measured all)" != "$(measured some)" ] || fail "removed documents were measured"

# Other thresholds: from columns with the one, by extraction with the other.
sed 's/max_avg_word_length: 12/max_avg_word_length: 3/' p.yaml > q.yaml
data refilter q.yaml --quiet || fail "all columns are there"
if data refilter q.yaml --quiet --set output.dir=some --set measure_removed=false 2> err; then
    fail "judged again from columns that are not there"
fi
grep -q 'extracted' err || fail "no reason: $(cat err)"
data build q.yaml --quiet
data build q.yaml --quiet --set output.dir=some --set measure_removed=false
[ "$(sum all)" = "$(sum some)" ] || fail "other shards after another threshold"
