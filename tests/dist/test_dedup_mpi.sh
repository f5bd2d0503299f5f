#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
#
# Deduplication by ranks under mpirun, with one folder for all and with one each: the list of what goes is
# that of one process, to the byte, in every folder; units that no rank has are named.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$GW_TESTS_DIR/dist/lib.sh"
cd "$(mktemp -d)"
bin=$GW_BUILD/tests/data
[ -x "$bin" ] || skip "tests/data is not built"

# together NAME N [VARIABLE=VALUE...]: sets $code and $out
together() {
    local name=$1 n=$2
    shift 2
    code=0
    env GW_DEDUP_RANKS="$PWD/$name" "$@" timeout -k 5 $((60 * slower)) \
        mpirun --oversubscribe --bind-to none -n "$n" "$bin" dedup_rank >ranks.log 2>&1 || code=$?
    out=$(<ranks.log)
}

GW_DEDUP_RANKS=$PWD/one timeout 60 "$bin" dedup_rank >ranks.log 2>&1
grep -q 'removed [1-9]' ranks.log
for n in 2 3; do
    together "apart$n" $n
    expect 0 "^rank $((n - 1)) of $n: removed [1-9]"
    for ((r = 0; r < n; r++)); do cmp one/0/removed.recs "apart$n/$r/removed.recs"; done
    together "shared$n" $n GW_DEDUP_SHARED=1
    expect 0 "^rank 0 of $n: removed [1-9]"
    cmp one/0/removed.recs "shared$n/0/removed.recs"
done

# A folder of one rank that another run has filled: a unit would stand on two ranks.
cp -r apart2 twice
rm twice/*/removed.recs
cp twice/0/unit-00000.keys twice/1/
together twice 2
expect 1 'unit 0 has its keys on 2 ranks instead of one'
