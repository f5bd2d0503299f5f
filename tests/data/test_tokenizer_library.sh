#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# timeout: 400
#
# A vocabulary trained here is one for the reference library: it loads the file, gives the same ids in two
# dozen scripts, decodes them, and learns the same merges from the same text.
set -euo pipefail
cd "$TMPDIR"

venv=$(BUILD=${GW_MAKE_BUILD:-build} "$GW_TESTS_DIR/../scripts/test_venv.sh" 2>why) || {
    cat why
    exit 77
}
"$venv/bin/python" -c "import tokenizers" 2>why || {
    cat why
    exit 77
}
check=$GW_TESTS_DIR/golden/check_tokenizer.py
"$venv/bin/python" "$check" corpus corpus.txt
quick=
for split in llama3 gpt2; do
    "$GW_BIN" tokenizer train corpus.txt --out $split.json --vocab-size 1500 --split $split --threads 2 --quiet
    "$GW_BIN" tokenizer train corpus.txt --out again.json --vocab-size 1500 --split $split --threads 1 --quiet
    cmp $split.json again.json
    echo "$split"
    "$venv/bin/python" "$check" check "$GW_BIN" corpus.txt $split.json $quick
    quick=quick
done
