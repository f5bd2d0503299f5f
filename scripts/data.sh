#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Prepares what examples/quickstart.yaml reads, under build/data:
#
#   train.txt valid.txt        English prose, one document a chapter, two blank lines between; valid.txt is
#                              the last books, at least a twentieth of the text
#   tokenizer.json             a vocabulary learned from train.txt
#   train.bin .idx, valid.*    the tokens of both
#
# The prose is the King James Bible, as the Debian packages bible-kjv and bible-kjv-text bring it. Each
# file is made again only when what it is made from is newer. The last line says what gzip -9 needs for
# valid.txt, the figure that a trained model is compared with.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."

gradwright=${GW_BIN:-./gradwright}
dir=${BUILD:-build}/data
vocab=4096
mkdir -p "$dir"

# stale FILE SOURCE...: FILE is absent or older than a source
stale() {
    local file=$1 source
    shift
    [ -s "$file" ] || return 0
    for source; do [ "$file" -nt "$source" ] || return 0; done
    return 1
}

# One block a chapter: "Genesis 1", a blank line, then a verse a line without its number.
chapters() {
    bible -l1000000 'gen1:1-rev22:21' </dev/null | awk '
        /^[^ ].* [0-9]+$/ { printf "%s%s\n\n", (seen++ ? "\n\n" : ""), $0; next }
        /^ *[0-9]+ /      { sub(/^ *[0-9]+ /, ""); print }'
}

# The book of a chapter heading is the heading without its number.
split_books() {
    awk -v train="$1" -v valid="$2" '
        BEGIN { RS = "\n\n\n"; ORS = "" }
        {
            book = $0; sub(/\n.*/, "", book); sub(/ [0-9]+$/, "", book)
            if (book != last) { books++; last = book }
            text[NR] = $0; of[NR] = books; size[books] += length($0) + 3; total += length($0) + 3
        }
        END {
            for (cut = books + 1; cut > 1 && held < total / 20; cut--) held += size[cut - 1]
            for (i = 1; i <= NR; i++) {
                sub(/\n+$/, "", text[i])
                if (of[i] < cut) print (n++ ? "\n\n\n" : "") text[i] > train
                else             print (m++ ? "\n\n\n" : "") text[i] > valid
            }
            print "\n" > train; print "\n" > valid
        }'
}

if stale "$dir/train.txt" /usr/lib/bible.data scripts/data.sh || [ ! -s "$dir/valid.txt" ]; then
    command -v bible >/dev/null || { echo "data: no 'bible' program: make deps installs it" >&2; exit 1; }
    chapters | split_books "$dir/train.new" "$dir/valid.new"
    size=$(cat "$dir/train.new" "$dir/valid.new" | wc -c)
    if [ "$size" -lt 4000000 ]; then
        echo "data: only $size bytes of text came from the bible program" >&2
        exit 1
    fi
    mv "$dir/valid.new" "$dir/valid.txt"
    mv "$dir/train.new" "$dir/train.txt"
fi

if stale "$dir/tokenizer.json" "$dir/train.txt"; then
    "$gradwright" tokenizer train "$dir/train.txt" --vocab-size "$vocab" --out "$dir/tokenizer.json"
fi

for part in train valid; do
    if stale "$dir/$part.idx" "$dir/$part.txt" "$dir/tokenizer.json"; then
        "$gradwright" tokenizer encode "$dir/tokenizer.json" "$dir/$part.txt" --documents blank \
            --out "$dir/$part"
    fi
done

bytes=$(wc -c <"$dir/valid.txt")
packed=$(gzip -9 -n -c "$dir/valid.txt" | wc -c)
awk -v dir="$dir" -v n="$bytes" -v z="$packed" 'BEGIN {
    printf "%s: ready; gzip -9 needs %.3f bits per byte for valid.txt (%d of %d bytes)\n", dir, 8 * z / n, z, n }'
