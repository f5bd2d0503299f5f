#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
#
# make install and make uninstall are each other's inverse, an installed program runs, and a bundle
# runs where it is moved to (scripts/bundle.sh checks that itself, so it need only succeed).
set -euo pipefail
root=$(dirname "$GW_TESTS_DIR")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset MAKEFLAGS MFLAGS MAKELEVEL V PREFIX prefix DESTDIR
# As the program was made: written otherwise, the flags would differ and all of it be compiled again.
make=(make -C "$root" --no-print-directory MODE="$GW_MODE" BUILD="$GW_MAKE_BUILD" CC="$GW_MAKE_CC")

DESTDIR=$work prefix=/opt/gw "$root/scripts/install.sh" install "$GW_BIN" >/dev/null
program=$work/opt/gw/bin/gradwright
[ -x "$program" ] || { echo "no program at $program"; exit 1; }
cmp "$program" "$GW_BIN"
version=$("$program" --version)
[[ $version == *"$(cat "$root/VERSION")"* ]] || { echo "--version says: $version"; exit 1; }
[ -s "$work/opt/gw/share/doc/gradwright/LICENSE" ] || { echo "no licence installed"; exit 1; }
for f in quickstart.yaml schedules/1f1b.txt; do
    [ -s "$work/opt/gw/share/doc/gradwright/examples/$f" ] || { echo "no examples/$f installed"; exit 1; }
done
DESTDIR=$work prefix=/opt/gw "$root/scripts/install.sh" uninstall
left=$(find "$work" ! -type d)
[ -z "$left" ] || { echo "uninstall left: $left"; exit 1; }

case $GW_MODE in
asan | tsan) ;; # a sanitizer's runtime is not something to pass on
*) "${make[@]}" bundle ;;
esac
