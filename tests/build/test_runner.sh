#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
#
# The runner itself: a crash, a hang, a failure and a skip are told apart, left-over processes and
# folders go, the last line counts, and the filter selects. Stand-ins play the test executables.
set -euo pipefail
runner=$GW_BUILD/run_tests
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset GW_TEST_FILTER GW_MODE V

fail() {
    echo "$1"
    echo "the runner said:"
    cat "$work/out"
    exit 1
}
wants() { grep -qxE -- "$1" "$work/out" || fail "no line matches: $1"; }

cat >"$work/folder" <<'STANDIN'
#!/bin/bash
case $1 in
--list) printf '%s\n' 'passes 60' 'fails 60' 'crashes 60' 'hangs 1' 'skips 60' 'litters 60' ;;
passes) echo "a quiet line" ;;
fails) echo "the reason"; exit 1 ;;
crashes) ulimit -c 0; kill -SEGV $$ ;;
hangs) echo "before the hang"; sleep 987 & sleep 987 ;;
skips) echo "chatter"; echo "no such device"; exit 77 ;;
litters) mkdir -p "$TMPDIR/a/b"; echo "$TMPDIR" >"$(dirname "$0")/litter"; chmod 500 "$TMPDIR/a" ;;
esac
STANDIN
chmod +x "$work/folder"
mkdir "$work/scripts"
printf '#!/bin/bash\n# timeout: 1\nsleep 987\n' >"$work/scripts/test_slow.sh"
printf '#!/bin/bash\nexit 0\n' >"$work/scripts/test_fine.sh"

code=0
"$runner" "$work/folder" "$work"/scripts/*.sh >"$work/out" 2>&1 || code=$?
[ "$code" -eq 1 ] || fail "exit status $code, wanted 1"
wants 'not ok folder/fails - exit status 1 .*'
wants '    the reason'
wants 'not ok folder/crashes - killed by signal 11 .*'
wants 'not ok folder/hangs - ran past its limit of 1 s .*'
wants '    before the hang'
wants 'ok folder/skips # SKIP no such device'
wants 'not ok scripts/test_slow.sh - ran past its limit of 1 s .*'
[ "$(tail -n 1 "$work/out")" = "3 passed, 4 failed, 1 skipped" ] || fail "wrong last line"
! grep -q 'quiet line' "$work/out" || fail "a pass was shown"
[ ! -e "$(cat "$work/litter")" ] || fail "the test's temporary folder is still there"
! pgrep -f '^sleep 987$' >/dev/null || fail "a child of a killed test still runs"

GW_TEST_FILTER='folder/pass scripts/*fine*' "$runner" "$work/folder" "$work"/scripts/*.sh >"$work/out" 2>&1 ||
    fail "the filtered run failed"
[ "$(cat "$work/out")" = "2 passed, 0 failed, 0 skipped" ] || fail "the filter chose otherwise"

if GW_TEST_FILTER=nothing "$runner" "$work/folder" >"$work/out" 2>&1; then
    fail "a run of no tests must not succeed"
fi
