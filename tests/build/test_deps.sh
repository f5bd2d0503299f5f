#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# scripts/deps.sh on machines that this one is not: stand-ins for apt-get, sudo, id and pkg-config say
# what such a machine would, and record what they are asked.
set -euo pipefail
root=$(dirname "$GW_TESTS_DIR")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
log=$work/log

stand_in() { # NAME BODY
    printf '#!/bin/bash\n%s\n' "$2" >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}
# A machine on which libfyaml is missing until apt-get installs it.
machine() { # UID
    rm -rf "${work:?}/bin" "$log" "$work/installed"
    mkdir "$work/bin"
    stand_in id "echo $1"
    # shellcheck disable=SC2016
    stand_in pkg-config "[ \"\$2\" != libfyaml ] || [ -e '$work/installed' ]"
    stand_in apt-get "echo \"apt-get \$*\" >>'$log'; case \$* in *install*libfyaml-dev*) touch '$work/installed' ;; esac"
    stand_in sudo 'exit 1'
}
run() { # the script, with the stand-ins first
    code=0
    out=$(PATH=$work/bin:$PATH "$root/scripts/deps.sh" 2>&1) || code=$?
}
check() { # CONDITION... : shows what the script said where it does not hold
    "$@" && return
    printf 'not so: %s\nexit status %s, output:\n%s\n' "$*" "$code" "$out"
    exit 1
}
says() { grep -qE -- "$1" <<<"$out"; }
asked() { grep -qE -- "$1" "$log"; }

# What else this machine lacks (the prose, a linter) would be asked for too; only libfyaml is judged.
machine 0
run
check says '^deps: installing .*libfyaml-dev'
check asked '^apt-get install .*--no-install-recommends.* libfyaml-dev'

machine 1000
run
check test "$code" -eq 1
check says '^  libfyaml-dev$'
check says 'sudo apt-get install .*libfyaml-dev'
check test ! -e "$log"

machine 1000
# shellcheck disable=SC2016
stand_in sudo '[ "$1" = -n ] && shift && exec "$@"'
run
check asked '^apt-get install .*libfyaml-dev'

# Nothing missing: one line, nothing asked.
machine 0
touch "$work/installed"
run
if [ "$code" -eq 0 ] && [ ! -e "$log" ]; then
    check test "$out" = "deps: all there"
fi

# The list holds every library that the Makefile asks pkg-config for.
read -ra modules < <(sed -n 's/^PC_MODULES := //p' "$root/Makefile")
for module in "${modules[@]}"; do
    grep -q "pc:$module\$" "$root/scripts/deps.sh" || { echo "deps.sh knows nothing of $module"; exit 1; }
done
