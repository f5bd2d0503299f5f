# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2034,SC2164
#
# What the scripts share that strike ranks of `gradwright train`. To be sourced: it goes to $TMPDIR, and makes
# t there, the tokens of a short text.

[ -x "$GW_BIN" ] || { echo "no program in GW_BIN"; exit 77; }
cd "$TMPDIR"
slower=1
case ${GW_MODE:-release} in asan | tsan) export ASAN_OPTIONS=detect_leaks=0; slower=4 ;; esac

i=0
while [ $i -lt 200 ]; do echo "the wright makes step $i and another step. "; i=$((i + 1)); done > text
"$GW_BIN" tokenizer encode bytes text --out t > /dev/null

ranks_of() { # PARENT: its ranks, one a line
    for d in /proc/[0-9]*; do
        if grep -q "^PPid:[[:space:]]*$1\$" "$d/status" 2> /dev/null; then echo "${d#/proc/}"; fi
    done
}
