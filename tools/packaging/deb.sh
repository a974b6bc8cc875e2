#!/bin/bash
# Makes Debian packages: deb.sh [--stage DIR] OUT.
#
# DIR is a tree that `meson install` made, for this machine or another; without it the project is built for /usr and
# installed into one.
# OUT is the folder that gets the packages, whose names are printed: allograft, then allograft-dev with the header and,
# where the tree has debug information, allograft-dbgsym with that. ALLOGRAFT_HOMEPAGE and ALLOGRAFT_MAINTAINER in the
# environment become their fields of these names. Needs dpkg-deb, and no network.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# refuse WHAT
refuse() {
    echo "deb.sh: $1; usage: deb.sh [--stage DIR] OUT" >&2
    exit 2
}

stage=
if [ "${1:-}" = --stage ]; then
    [ -d "${2:-}" ] || refuse "--stage needs a folder, not '${2:-}'"
    stage=$2
    shift 2
fi
case $#:${1:-} in
1:-*) refuse "no option '$1'" ;;
1:?*) out=$1 ;;
*) refuse "one folder is needed, not $#" ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree

# For a prefix of the distribution's, with the libraries where its linker looks for them.
build() {
    local libdir=lib

    if command -v dpkg-architecture >/dev/null; then
        libdir=lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
    fi
    {
        "${MESON:-meson}" setup "$work/build" "$ROOT" --prefix=/usr --libdir="$libdir" \
            --buildtype=debugoptimized -Dtests=false -Dstrip=false
        "${MESON:-meson}" compile -C "$work/build"
        "${MESON:-meson}" install -C "$work/build" --no-rebuild --destdir "$tree"
    } >"$work/log" 2>&1 || {
        tail -n 25 "$work/log" >&2
        exit 1
    }
}

# The C library that the programs need, by the newest version of its symbols: they are linked with no other.
depends() {
    local newest

    newest=$(find "$tree" -type f \( -path '*/bin/*' -o -name '*.so' -o -name '*.so.*' \) -exec readelf -VW {} + |
        sed -n 's/.*Name: GLIBC_\([0-9.]*\) .*/\1/p' | sort -Vu | tail -n 1)
    printf 'libc6 (>= %s)\n' "$newest"
}

# opens FILE: a library's name stands alone in the command; in messages there are words around it.
opens() {
    grep -aqzx "$1" "$command"
}

# What the command opens when it is asked for it; jansson only where that was there as a shared library alone.
recommends() {
    local found=

    ! opens 'libdw\.so\.1' || found+=', libdw1 | libdw1t64'
    ! opens 'libmicrohttpd\.so\.12' || found+=', libmicrohttpd12 | libmicrohttpd12t64'
    ! opens 'libjansson\.so\.4' || found+=', libjansson4'
    [ -z "$found" ] || printf '\nRecommends: %s' "${found#, }"
}

# move_debug FILE: what debuggers read goes to the package of that, under the build's id, where they look for it.
move_debug() {
    local id file

    readelf -SW "$1" | grep -q ' \.debug_info ' || return 0
    id=$(readelf -n "$1" | sed -n 's/^ *Build ID: //p')
    [ -n "$id" ] || return 0
    file=$work/dbgsym/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug
    mkdir -p "${file%/*}"
    "${tools}objcopy" --only-keep-debug --compress-debug-sections "$1" "$file"
    chmod 644 "$file"
    "${tools}strip" --strip-unneeded --remove-section=.comment --remove-section=.note "$1"
}

# make NAME TREE FIELDS: makes a package of a tree. The last line of FIELDS has its description's end.
make() {
    local package=$out/$1_${version}_$architecture.deb

    mkdir -p "$2/DEBIAN"
    {
        printf 'Package: %s\nVersion: %s\nArchitecture: %s\n' "$1" "$version" "$architecture"
        printf 'Maintainer: %s\n' "${ALLOGRAFT_MAINTAINER:-The Allograft developers <allograft@localhost>}"
        printf 'Priority: optional\n'
        printf 'Installed-Size: %s\n' "$(du -sk --exclude=DEBIAN "$2" | cut -f1)"
        [ -z "${ALLOGRAFT_HOMEPAGE:-}" ] || printf 'Homepage: %s\n' "$ALLOGRAFT_HOMEPAGE"
        printf '%s\n' "$3"
    } >"$2/DEBIAN/control"
    dpkg-deb --root-owner-group --build "$2" "$package" >/dev/null
    printf '%s\n' "$package"
}

# move_into TREE PATH: moves what a folder of the tree has into the tree of another package.
move_into() {
    mkdir -p "$1/${2%/*}"
    mv "$tree/$2" "$1/$2"
}

if [ -n "$stage" ]; then
    cp -a "$stage" "$tree"
else
    build
fi
command=$(find "$tree" -path '*/bin/allograft' -type f)
library=$(find "$tree" -name liballograft.so -type f)
if [ -z "$command" ] || [ -z "$library" ]; then
    echo "deb.sh: no command or no library in the tree" >&2
    exit 1
fi
version=$(sed -n "s/^  version: '\(.*\)',$/\1/p" "$ROOT/meson.build")
# What the tree is for, and the beginning of the names of tools that may change its files: those of another machine's
# files are the cross compiler's.
case $(LC_ALL=C readelf -h "$library" | sed -n 's/^ *Machine: *//p') in
*X86-64) machine=x86_64 architecture=amd64 ;;
AArch64) machine=aarch64 architecture=arm64 ;;
*) refuse "no package is made for the machine of $library" ;;
esac
tools=
[ "$machine" = "$(uname -m)" ] || tools=$machine-linux-gnu-

doc=$tree/usr/share/doc/allograft
mkdir -p "$doc"
{
    cat "$ROOT/LICENSE"
    printf '\nThe command carries uPlot for the pages that it writes:\n\n'
    cat "$ROOT/tools/report/web/LICENSE.uPlot"
    printf '\nand, where its static library was there, jansson to read JSON:\n\n'
    cat "$ROOT/tools/report/LICENSE.jansson"
} >"$doc/copyright"
# Debian's zsh looks for what packages bring in a folder of its own.
find "$tree" -type d -path '*/zsh/site-functions' -exec sh -c 'mv "$1" "${1%/*}/vendor-completions"' - {} \; -prune
find "$tree" -path '*/man/*' -type f -name '*.[17]' -exec gzip -9n {} +
while read -r file; do
    move_debug "$file"
done < <(find "$tree" -type f \( -path '*/bin/*' -o -name '*.so' -o -name '*.so.*' \))
for path in $(cd "$tree" && find . \( -name include -o -name pkgconfig \) -type d -prune -printf '%P\n'); do
    move_into "$work/dev" "$path"
done
for name in dev dbgsym; do
    [ ! -d "$work/$name" ] || install -D -m 644 "$doc/copyright" "$work/$name/usr/share/doc/allograft-$name/copyright"
done

mkdir -p "$out" "$tree/DEBIAN"
find "$tree" -type f \( -name '*.so' -o -name '*.so.*' \) -exec chmod 644 {} +
echo 'activate-noawait ldconfig' >"$tree/DEBIAN/triggers"
make allograft "$tree" "Section: utils
Depends: $(depends)$(recommends)
Description: runs CUDA programs with device memory that is reused
 A library to be preloaded into unchanged CUDA programs. By default the memory
 that they free is kept and handed out again; a program that would gain nothing
 from it runs as it does natively. On request, memory comes from a pool or is
 managed, and repeated work is launched as CUDA graphs. A report says what was done. The command starts
 programs under it and reads what it wrote."
if [ -d "$work/dev" ]; then
    make allograft-dev "$work/dev" "Section: libdevel
Depends: allograft (= $version)
Description: header of Allograft's control interface
 allograft.h, for programs that move managed memory, record graphs or ask for
 statistics where Allograft is preloaded, and what pkg-config says of it."
fi
if [ -d "$work/dbgsym" ]; then
    make allograft-dbgsym "$work/dbgsym" "Section: debug
Depends: allograft (= $version)
Description: debug symbols of Allograft
 What debuggers and profilers read to show the functions and lines of the
 library and of the command."
fi
