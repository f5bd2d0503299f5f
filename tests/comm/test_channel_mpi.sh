#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
#
# Channels under mpirun on this host: values, orders, places, and the lines of faults.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../dist/lib.sh
. "$GW_TESTS_DIR/dist/lib.sh"
cd "$(mktemp -d)"

# ranks N SCENARIO [VARIABLE=VALUE...]: sets $code and $out
ranks() {
    local n=$1 scenario=$2
    shift 2
    code=0
    env GW_CHANNELS="$scenario" "$@" timeout -k 5 $((30 * slower)) mpirun --oversubscribe \
        --bind-to none -n "$n" "$GW_BUILD/tests/comm" channel_rank >ranks.log 2>&1 || code=$?
    out=$(<ranks.log)
}

for scenario in 'sizes 2' 'orders 2' 'ring 4' 'pipeline 3' 'drained 2' 'bounded 2' 'slow 2' 'ahead 2'; do
    ranks "${scenario#* }" "${scenario% *}"
    expect 0 '^rank 0: ok' '^rank 1: ok'
done

# Who stops or sleeps is named, with the message that waits and what this side was doing.
for scene in 'stopped 0' 'stopped 1' 'slept 2'; do
    victim=${scene#* }
    ranks 3 "${scene% *}" GW_CHANNELS_RANK="$victim"
    expect 1 "^error: rank $victim gives no sign of life for .*activations, rank . to ..*micro-batch . of stage" \
        "rank $victim was last in forward of micro-batch 3 of stage 1 .action 17 of 40"
    [ "$(grep -c '^error:' <<<"$out")" -eq 1 ] || { echo "more than one line:"; echo "$out"; exit 1; }
done
ranks 2 circle
expect 1 '^error: rank . stands still .*waiting for rank .*in (forward|backward) of micro-batch 0'
# The ranks that have nothing to say wait for the one that has, however late it comes to it.
for late in 0 1.5; do
    ranks 4 misfit GW_CHANNELS_LATE=$late
    expect 1 "^error: the sides of channel 'grads of stage 1', tag 3, differ: rank 2 sends messages of 512 bytes"
done
