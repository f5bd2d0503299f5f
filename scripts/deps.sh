#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What building, testing and the quickstart need, and how to get it.
#
#   scripts/deps.sh          installs what is missing (as root, or through sudo without a password)
#   scripts/deps.sh --all    also what only clusters and some tests need; CI=true does it too
#   scripts/deps.sh --list   prints the Debian packages, one a line
#
# A line of the table is a Debian package and what shows that it is there, so that a library under
# PREFIX or another system's package counts as well:  pc:MODULE (pkg-config)  cmd:PROGRAM  hdr:HEADER
# file:PATH. A third word "cluster": Open MPI's plugin, mpirun, and a Slurm that tests start for
# themselves; and the images that a test trains on. Without them the build leaves the plugin out and
# such tests say that they are skipped.
# Everything is looked at afresh each time; that takes a fraction of a second.
set -euo pipefail

table='
gcc               cmd:gcc
libc6-dev         hdr:stdio.h
make              cmd:make
pkg-config        cmd:pkg-config
libdnnl-dev       hdr:oneapi/dnnl/dnnl.h
libfyaml-dev      pc:libfyaml
libjansson-dev    pc:jansson
libxxhash-dev     pc:libxxhash
libpcre2-dev      pc:libpcre2-8
libutf8proc-dev   pc:libutf8proc
libzstd-dev       pc:libzstd
zlib1g-dev        pc:zlib
libdeflate-dev    pc:libdeflate
libssl-dev        pc:libcrypto
libcurl4-openssl-dev pc:libcurl
libxml2-dev       pc:libxml-2.0
libbrotli-dev     pc:libbrotlidec
gzip              cmd:gzip
bible-kjv         cmd:bible
bible-kjv-text    file:/usr/lib/bible.data
clang-format      cmd:clang-format
shellcheck        cmd:shellcheck
python3-venv      file:/usr/share/doc/python3-venv
libopenmpi-dev    pc:ompi-c               cluster
openmpi-bin       cmd:mpirun              cluster
slurm-wlm         cmd:srun                cluster
munge             cmd:munged              cluster
iproute2          cmd:ip                  cluster
debian-handbook   file:/usr/share/doc/debian-handbook/html/en-US/index.html  cluster
python3-sklearn   file:/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz  cluster
'

if [ -n "${PREFIX:-}" ]; then
    export PKG_CONFIG_PATH="$PREFIX/lib/pkgconfig:$PREFIX/lib64/pkgconfig:${PKG_CONFIG_PATH:-}"
fi

# present KIND:NAME
present() {
    local what=${1#*:}
    case $1 in
    pc:*) pkg-config --exists "$what" 2>/dev/null ;;
    cmd:*) command -v "$what" >/dev/null 2>&1 ;;
    file:*) [ -e "$what" ] ;;
    hdr:*)
        # A compiler that finds it, or the file itself where there is no compiler yet.
        if command -v "${CC:-gcc}" >/dev/null 2>&1; then
            echo "#include <$what>" |
                "${CC:-gcc}" ${PREFIX:+-I"$PREFIX/include"} -E -x c - >/dev/null 2>&1
        else
            [ -e "/usr/include/$what" ]
        fi
        ;;
    esac
}

list() { awk 'NF { print $1 }' <<<"$table"; }

missing() {
    local package check group
    while read -r package check group; do
        [ -n "$package" ] || continue
        [ "$group" != cluster ] || [ "$cluster" = true ] || continue
        present "$check" || echo "$package"
    done <<<"$table"
}

cluster=${CI:-false}
case ${1:-} in
--list)
    list
    exit 0
    ;;
--all) cluster=true ;;
esac

mapfile -t need < <(missing)
if [ ${#need[@]} -eq 0 ]; then
    echo "deps: all there"
    exit 0
fi

if ! command -v apt-get >/dev/null 2>&1; then
    {
        echo "deps: missing; the names of the Debian packages are:"
        printf '  %s\n' "${need[@]}"
        echo "Install them with this system's package manager, or below a prefix: make PREFIX=/where/they/are"
    } >&2
    exit 1
fi

if [ "$(id -u)" -eq 0 ]; then
    as_root=()
elif sudo -n true 2>/dev/null; then
    as_root=(sudo -n)
else
    {
        echo "deps: these Debian packages are missing, and installing them needs root:"
        printf '  %s\n' "${need[@]}"
        echo "Run: sudo apt-get install ${need[*]}"
        echo "Without root, build the libraries below a prefix and say: make PREFIX=/where/they/are"
    } >&2
    exit 1
fi

install_packages() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -q --no-install-recommends "${need[@]}"
}

echo "deps: installing ${need[*]}"
if ! compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; then
    "${as_root[@]}" apt-get update -q
fi
# Package lists that are out of date name files that are gone: refresh them once.
install_packages || { "${as_root[@]}" apt-get update -q && install_packages; }

mapfile -t need < <(missing)
if [ ${#need[@]} -ne 0 ]; then
    echo "deps: still missing after the installation: ${need[*]}" >&2
    exit 1
fi
