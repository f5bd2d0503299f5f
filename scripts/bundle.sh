#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
#   scripts/bundle.sh PROGRAM DIR
#
# Makes DIR a folder that runs wherever it is moved: bin/gradwright, the shared libraries it needs in
# lib/ (all but the C library, which belongs to the kernel and the machine), their licences in
# share/doc/, and the pages that `make install` brings. PROGRAM is linked with the run path
# $ORIGIN/../lib. At the end a copy at another place is run, with an empty environment, and each
# library must come from that copy.
set -euo pipefail
cd "$(dirname "$0")/.."

program=$1
dir=$2

# The dynamic loader and glibc's own libraries.
glibc='^(ld-linux.*|libc|libm|libdl|libpthread|librt|libutil|libresolv|libanl|libmvec|linux-vdso.*)\.so'

rm -rf "$dir"
mkdir -p "$dir/lib"
DESTDIR='' prefix=$dir scripts/install.sh install "$program" >/dev/null

missing=$(ldd "$program" | awk '/not found/ { print $1 }')
if [ -n "$missing" ]; then
    echo "bundle: libraries that $program needs are not found: $missing" >&2
    exit 1
fi

ldd "$program" | awk '$2 == "=>" { print $1, $3 }' | while read -r name path; do
    [[ $name =~ $glibc ]] && continue
    install -m 644 "$path" "$dir/lib/$name"
    # A library is passed on with its licence.
    if package=$(dpkg-query -S "$(readlink -f "$path")" 2>/dev/null | cut -d: -f1); then
        install -D -m 644 "/usr/share/doc/$package/copyright" "$dir/share/doc/$package/copyright"
    fi
done

# It must run when it stands elsewhere, from its own libraries.
elsewhere=$(mktemp -d)
trap 'rm -rf "$elsewhere"' EXIT
cp -r "$dir" "$elsewhere/moved"
moved=$elsewhere/moved
env -i "$moved/bin/gradwright" --version >/dev/null
stray=$(env -i ldd "$moved/bin/gradwright" | awk '$2 == "=>" { print $1, $3 }' |
    while read -r name path; do
        [[ $name =~ $glibc ]] && continue
        # The path is as the loader writes it: .../bin/../lib/name.
        case $(readlink -f "$path") in
        "$(readlink -f "$moved")"/lib/*) ;;
        *) echo "$name from $path" ;;
        esac
    done)
if [ -n "$stray" ]; then
    echo "bundle: not from the bundle: $stray" >&2
    exit 1
fi
echo "bundle: $dir ($(du -sh "$dir" | cut -f1)), runs when moved"
