#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Everything `make lint` checks, apart from the tests. Each check says what is wrong and where, all
# checks run, and the last line is "lint: clean" or the number of checks that failed.
#
#   scripts/lint.sh [CHECK...]    runs the named checks only: spdx lines words banned include readme
#                                 shell format build
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2

jobs=${JOBS:-2}
house='base ir ops sched pass model kernel comm run plan file data ckpt train net serve ship gateway fleet cli'

# Tracked files and new ones that git does not ignore; outside git, all but what is built.
list_files() {
    if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        git ls-files -co --exclude-standard | while read -r f; do [ -f "$f" ] && echo "$f"; done
    else
        find . -type f -not -path './build/*' -not -path './gradwright' | sed 's|^\./||'
    fi
}
mapfile -t files < <(list_files | sort)
matching() { printf '%s\n' "${files[@]}" | grep -E "$1"; }
mapfile -t c_files < <(matching '^(src|tests|bench|examples)/.*\.(c|h|def|cu)$')
mapfile -t scripts < <(matching '\.sh$|^\.ci/run$|^bench/[^.]*$')

# C text without comments and without what string literals hold, line numbers kept.
strip_c() {
    awk '
    {
        line = $0; out = ""
        while (length(line)) {
            if (in_comment) {
                at = index(line, "*/")
                if (!at) { line = ""; break }
                line = substr(line, at + 2); in_comment = 0
            } else if (match(line, /\/\*|\/\/|"|\047/)) {
                out = out substr(line, 1, RSTART - 1)
                mark = substr(line, RSTART, 2); line = substr(line, RSTART)
                if (mark == "/*") { in_comment = 1; line = substr(line, 3) }
                else if (mark == "//") line = ""
                else {
                    quote = substr(line, 1, 1); out = out quote quote; line = substr(line, 2)
                    while (length(line) && substr(line, 1, 1) != quote)
                        line = substr(line, substr(line, 1, 1) == "\\" ? 3 : 2)
                    line = substr(line, 2)
                }
            } else { out = out line; line = "" }
        }
        print out
    }' "$1"
}

check_spdx() { # a licence line within the first three lines of whatever can carry a comment
    local f bad=0
    for f in $(matching '\.(c|h|def|cu|sh|py|yaml|yml|mk|supp)$|(^|/)Makefile$|^\.ci/run$|^\.clang-format$|^\.gitignore$'); do
        if ! head -n 3 "$f" | grep -q 'SPDX-License-Identifier: Apache-2.0'; then
            echo "$f:1: no line 'SPDX-License-Identifier: Apache-2.0'"
            bad=1
        fi
    done
    return $bad
}

check_lines() { # no source file over 900 lines
    local f n bad=0
    for f in "${c_files[@]}" "${scripts[@]}" $(matching '\.py$'); do
        n=$(wc -l <"$f")
        if [ "$n" -gt 900 ]; then
            echo "$f: $n lines; a file past 900 has two subjects"
            bad=1
        fi
    done
    return $bad
}

check_words() { # no unfinished marks; the pattern is split so that this line does not match itself
    local pattern='\b(TO''DO|FIX''ME|XX''X)\b'
    ! matching '\.(c|h|def|cu|sh|py|md|yaml|yml)$|(^|/)Makefile$|^\.ci/run$' |
        xargs grep -nE "$pattern" /dev/null
}

check_banned() { # functions that overflow, keep hidden state or hide errors
    local f bad=0 hits
    for f in $(matching '^(src|tests|bench)/.*\.(c|h|cu)$'); do
        hits=$(strip_c "$f" | grep -nE '\b(sprintf|vsprintf|strcpy|strcat|strncat|gets|strtok|atoi|atol|atof|alloca)[[:space:]]*\(')
        if [ -n "$hits" ]; then
            while read -r line; do echo "$f:$line: forbidden function"; done <<<"$hits"
            bad=1
        fi
    done
    return $bad
}

check_include() { # a folder includes only itself and the folders above it
    matching '^src/.*\.(c|h|def|cu)$' | while read -r f; do
        grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "$f" /dev/null
    done | awk -F: -v house="$house" '
    BEGIN { n = split(house, names, " "); for (i = 1; i <= n; i++) order[names[i]] = i }
    {
        split($1, part, "/"); from = part[2]
        target = $3; sub(/^[^"]*"/, "", target); sub(/".*/, "", target)
        to = target; if (!sub(/\/.*/, "", to)) to = from  # "version.h", or a file beside it
        if (!(from in order)) { print $1 ": src/" from " is not a folder of the house"; bad = 1 }
        else if (!(to in order)) { print $1 ":" $2 ": \"" target "\" is in no folder of the house"; bad = 1 }
        else if (order[to] > order[from]) {
            print $1 ":" $2 ": src/" from " may not include \"" target "\": " to " stands below it"; bad = 1
        }
    }
    END { exit bad }'
}

check_readme() { # each folder of src explains itself
    local d bad=0
    for d in src/*/; do
        compgen -G "${d}*.[ch]" >/dev/null || compgen -G "${d}*/*.[ch]" >/dev/null || continue
        if [ ! -s "${d}README.md" ]; then
            echo "${d}README.md: missing"
            bad=1
        fi
    done
    return $bad
}

check_shell() {
    if ! command -v shellcheck >/dev/null; then
        echo "shellcheck is not installed; 'make deps' installs it"
        return 1
    fi
    shellcheck -x "${scripts[@]}"
}

check_format() {
    if ! command -v clang-format >/dev/null; then
        echo "clang-format is not installed; 'make deps' installs it"
        return 1
    fi
    # The first place in each file is enough.
    matching '^(src|tests|bench)/.*\.[ch]$' | xargs -r clang-format --dry-run -Werror 2>&1 |
        awk -F: '/error:/ && !seen[$1]++ {
            sub(/code should be clang-formatted.*/, "not formatted; make fmt does it"); print; bad = 1
        } END { exit bad }'
}

# Builds everything with warnings as errors, in a folder of its own.
build_with() {
    local log=build/lint/$1.log
    mkdir -p build/lint
    if ! make -k -j"$jobs" CC="$1" WERROR=1 BUILD="build/lint/$1" test-build >"$log" 2>&1; then
        grep -E 'error|Error|warning' "$log" | head -n 40
        return 1
    fi
}

check_build() {
    local bad=0
    build_with gcc || bad=1
    if command -v clang >/dev/null; then
        build_with clang || bad=1
    else
        echo "note: clang is not installed; built with gcc only"
    fi
    return $bad
}

failed=0
for check in "${@:-spdx lines words banned include readme shell format build}"; do
    for name in $check; do
        if out=$("check_$name" 2>&1); then
            [ -z "$out" ] || echo "$out"
            echo "lint: $name ok"
        else
            echo "$out"
            echo "lint: $name FAILED"
            failed=$((failed + 1))
        fi
    done
done
if [ $failed -ne 0 ]; then
    echo "lint: $failed checks failed"
    exit 1
fi
echo "lint: clean"
