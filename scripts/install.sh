#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
#   scripts/install.sh install PROGRAM    copies the program and its pages below $DESTDIR$prefix
#   scripts/install.sh uninstall          removes the same files
#
# One table says what goes where; both verbs read it, so that nothing stays behind.
set -euo pipefail
cd "$(dirname "$0")/.."

verb=$1
program=${2:-}
prefix=${prefix:-/usr/local}
root=${DESTDIR:-}$prefix

# SOURCE TARGET MODE; a source that does not exist is left out of the installation.
table() {
    echo "${program:-gradwright} bin/gradwright 755"
    echo "$(dirname "${program:-gradwright}")/gradwright-mpi.so lib/gradwright/gradwright-mpi.so 755"
    echo "docs/gradwright.1 share/man/man1/gradwright.1 644"
    echo "completions/gradwright.bash share/bash-completion/completions/gradwright 644"
    echo "completions/_gradwright share/zsh/site-functions/_gradwright 644"
    echo "completions/gradwright.fish share/fish/vendor_completions.d/gradwright.fish 644"
    echo "docs/run.schema.json share/gradwright/run.schema.json 644"
    echo "LICENSE share/doc/gradwright/LICENSE 644"
    echo "README.md share/doc/gradwright/README.md 644"
    echo "CHANGELOG.md share/doc/gradwright/CHANGELOG.md 644"
    echo "docs/third-party.md share/doc/gradwright/third-party.md 644"
    local f
    for f in examples/*.yaml examples/*.sbatch examples/schedules/*.txt; do
        [ -f "$f" ] && echo "$f share/doc/gradwright/$f 644"
    done
    return 0
}

case $verb in
install)
    table | while read -r source target mode; do
        [ -f "$source" ] || continue
        install -D -m "$mode" "$source" "$root/$target"
        echo "  $root/$target"
    done
    ;;
uninstall)
    table | while read -r _ target _; do rm -f "$root/$target"; done
    for d in share/doc/gradwright/examples/schedules share/doc/gradwright/examples \
        share/doc/gradwright share/gradwright lib/gradwright; do
        rmdir "$root/$d" 2>/dev/null || true
    done
    ;;
*)
    echo "usage: scripts/install.sh install PROGRAM | uninstall" >&2
    exit 2
    ;;
esac
