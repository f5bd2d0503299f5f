#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# `data prove RUN1 RUN2` on ledgers made here: equal runs, a run and what it was when it was stopped
# earlier, runs that part, and what --json says of each.
set -euo pipefail
cd "$TMPDIR"

fail() { echo "$1"; cat out err; exit 1; }
# Lines of batches of $2 samples from $3 to $4; the digest of sample i is i + 1; $5: a sample that differs.
ledger() {
    mkdir -p "$1"
    python3 - "$@" << 'EOP'
import json, sys
run, size, first, end, odd = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
with open(run + "/data.ledger", "w") as f:
    for k, n in enumerate(range(first, end, size)):
        digest = sum(i + 1 + (i == odd) for i in range(n, n + size))
        print(json.dumps({"batch": k, "step": k + 1, "first": n, "next": n + size, "labels": 1, "tokens": 1,
                          "quarantined": 0, "digest": "%032x" % digest}), file=f)
EOP
}
prove() { "$GW_BIN" data prove "$@" > out 2> err || return; }
is() { python3 -c 'import json, sys; o = json.load(open("out")); sys.exit(0 if eval(sys.argv[1]) else 1)' "$1"; }

ledger long 8 0 96 -1
ledger same 8 0 96 -1
ledger short 8 0 40 -1
ledger wide 12 0 60 -1
ledger late 8 16 96 -1
ledger odd 8 0 40 20

prove long same || fail "equal runs"
grep -q '^the same data: samples 0 to 95, in 12 and 12 batches$' out || fail "equal runs"
! grep -q 'ends with' out || fail "equal runs have two ends"

for pair in "long short" "short long"; do
    # shellcheck disable=SC2086 # two words
    prove $pair || fail "$pair"
    grep -q '^the same data where both can be compared: samples 0 to 39, in' out || fail "$pair"
    grep -q '^long: samples 0 to 95, ends with step 12$' out || fail "$pair: the longer"
    grep -q '^short: samples 0 to 39, ends with step 5; all of it was compared$' out || fail "$pair: the shorter"
done
prove long wide || fail "batches of 12" # in common: 0, 24, 48
grep -q 'compared: samples 0 to 47, in 6 and 4 batches' out || fail "batches of 12"
grep -q '^wide: samples 0 to 59, ends with step 5$' out || fail "batches of 12: its end"
prove late long || fail "a later beginning"
grep -q '^late: samples 16 to 95, ends with step 10; all of it was compared$' out || fail "a later beginning"

prove long same --json || fail "--json"
is 'o["same"] and o["whole"] and o["next"] == 96 and all(r["compared_whole"] for r in o["runs"])' || fail "equal as JSON"
prove long short --json || fail "--json"
is 'o["same"] and not o["whole"] and o["next"] == 40 and [r["next"] for r in o["runs"]] == [96, 40]' || fail "shorter as JSON"
is '[r["compared_whole"] for r in o["runs"]] == [False, True] and [r["last_step"] for r in o["runs"]] == [12, 5]' ||
    fail "shorter as JSON"

if prove long odd; then fail "a changed sample"; else [ $? -eq 1 ] || fail "a changed sample: exit code"; fi
grep -q 'part in samples 16 to 23: step 3 of long, step 3 of odd' err || fail "a changed sample"
