#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
#
# Ranks under mpirun on this host: results, faults, exit codes, and what is said without the plugin.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$GW_TESTS_DIR/dist/lib.sh"
cd "$(mktemp -d)"

# ranks N SCENARIO [VARIABLE=VALUE...]: sets $code and $out
ranks() {
    local n=$1 scenario=$2
    shift 2
    code=0
    env GW_DIST="$scenario" GW_DIST_TIMEOUT=$((1 * slower)) "$@" timeout -k 5 $((30 * slower)) \
        mpirun --oversubscribe --bind-to none -n "$n" "$rank" rank >ranks.log 2>&1 || code=$?
    out=$(<ranks.log)
}
took() { # SECONDS: the time since $start is less
    local ms=$((($(date +%s%N) - start) / 1000000))
    [ $ms -lt $(($1 * 1000 * slower)) ] || { echo "took $ms ms"; exit 1; }
}

# Every algorithm, kind and size, on even and odd numbers of ranks.
for n in 2 3 4; do
    ranks $n values
    expect 0 "^rank 0 of $n: ok" "^rank $((n - 1)) of $n: ok" '^all-reduce by ring' '^all-gather by '
done
ranks 2 alive
expect 0 '^rank 0 of 2: ok'
ranks 2 busy
expect 0 '^rank 0 of 2: ok'

# A rank that stops, or does not come: one line names it and the collective.
for kind in all-reduce reduce-scatter all-gather broadcast all-to-all; do
    start=$(date +%s%N)
    ranks 3 stop GW_DIST_RANK=2 GW_DIST_KIND=$kind
    expect 1 "^error: rank 2 gives no sign of life for . s.*($kind|the end)"
    took 8
done
ranks 3 late GW_DIST_RANK=0
expect 1 '^error: rank 0 gives no sign of life for .*all-reduce'
[ "$(grep -c '^error:' <<<"$out")" -eq 1 ] || { echo "more than one line:"; echo "$out"; exit 1; }

# A rank that calls something else.
ranks 3 size GW_DIST_RANK=2
expect 1 '^error: ranks . and . call different collectives: .*1212'
ranks 3 kind GW_DIST_RANK=1
expect 1 '^error: ranks . and . call .*rank 1 .*reduce-scatter'

# A rank that gives up, dies, or leaves: the others end, with its status.
ranks 3 give-up
expect 1 "^error: this rank's disk is full"
ranks 3 die
expect 137 'signal 9'
ranks 3 exit
expect 5
ranks 2 values GW_DIST_CODE=3
expect 3 '^rank 0 of 2: ok'

# A message of more than MPI counts in one piece (and 4 GiB of memory).
if [ "${GW_TEST_LONG:-0}" = 1 ]; then
    ranks 2 big GW_DIST_TIMEOUT=10
    expect 0 '^rank 0 of 2: ok' '^rank 1 of 2: ok'
fi

# Without the plugin, and with something that is none.
ranks 2 values GRADWRIGHT_MPI=/nowhere/gradwright-mpi.so
expect 1 'the MPI plugin .* is not there' 'looked for /nowhere/gradwright-mpi.so' 'libopenmpi-dev'
ranks 2 values GRADWRIGHT_MPI="$GW_TESTS_DIR/README.md"
expect 1 'the MPI plugin cannot be opened'

if trains; then
    small_run
    code=0
    timeout -k 5 $((60 * slower)) mpirun --oversubscribe --bind-to none -n 2 \
        "$GW_BIN" train run.yaml --set layout.dp=2 --out out >ranks.log 2>&1 || code=$?
    out=$(<ranks.log)
    expect 0
    [ "$(wc -l <out/metrics.jsonl)" -ge 4 ]
fi
