#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every check of scripts/lint.sh fails on the fault it is there for, and passes without it. Needs no
# compiler: the build check is what `make lint` itself is.
set -euo pipefail
root=$(dirname "$GW_TESTS_DIR")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
spdx='// SPDX-License-Identifier: Apache-2.0'
todo=$(printf '%s%s' TO DO)

fresh() {
    rm -rf "$work/tree"
    mkdir -p "$work/tree/scripts" "$work/tree/src/base" "$work/tree/src/ir" "$work/tree/src/cli"
    cd "$work/tree"
    cp "$root/scripts/lint.sh" scripts/
    cp "$root/.clang-format" .
    local d
    for d in base ir cli; do
        printf '%s\n/* strcpy( in a comment, and "sprintf(" here */\nint %s_one;\n' "$spdx" $d >src/$d/a.c
        echo "# $d" >src/$d/README.md
    done
    printf '%s\n#include "base/x.h" /* above */\n#include "version.h"\n#include "ir/y.h"\n' "$spdx" >src/ir/b.c
}

# expect CHECK PATTERN: the check fails, and says so in a line that matches.
expect() {
    local out
    if out=$(scripts/lint.sh "$1" 2>&1); then
        echo "check '$1' passed a tree with: $2"
        exit 1
    fi
    grep -qE -- "$2" <<<"$out" || { echo "check '$1' did not say '$2' but:"; echo "$out"; exit 1; }
}

fresh
scripts/lint.sh spdx lines words banned include readme >out 2>&1 || { cat out; exit 1; }
rm out

fresh; sed -i 1d src/ir/a.c
expect spdx '^src/ir/a.c:1: no line'
fresh; printf '%s\n' "$spdx" >src/base/long.c; seq 901 | sed 's|.*|/* & */|' >>src/base/long.c
expect lines '^src/base/long.c: 902 lines'
fresh; echo "/* $todo: later */" >>src/base/a.c
expect words "^src/base/a.c:4:.*$todo"
fresh; echo 'int f(char *s) { return atoi(s); }' >>src/cli/a.c
expect banned '^src/cli/a.c:4:.*forbidden'
fresh; echo '#include "cli/command.h"' >>src/ir/a.c
expect include '^src/ir/a.c:4: src/ir may not include "cli/command.h"'
fresh; echo '#include "nowhere/z.h"' >>src/ir/a.c
expect include 'is in no folder of the house'
fresh; mkdir src/attic; cp src/ir/b.c src/attic/
expect include 'src/attic is not a folder of the house'
fresh; rm src/cli/README.md
expect readme '^src/cli/README.md: missing'
if command -v shellcheck >/dev/null; then
    fresh; printf '#!/bin/bash\nrm %s1/*\n' "\$" >scripts/bad.sh
    expect shell 'SC2086'
fi
if command -v clang-format >/dev/null; then
    fresh; echo 'int   f( void ) ;' >>src/base/a.c
    expect format '^src/base/a.c:4:.*not formatted'
fi
