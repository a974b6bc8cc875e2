#!/bin/bash
# Makes a Debian package: deb.sh [--stage DIR] OUT.
#
# DIR is a tree that `meson install` made; without it the project is built for /usr and installed into one.
# OUT is the folder that gets the package, whose name is printed. Needs dpkg-deb, and no network.
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
            --buildtype=debugoptimized -Dtests=false
        "${MESON:-meson}" compile -C "$work/build"
        "${MESON:-meson}" install -C "$work/build" --no-rebuild --destdir "$tree"
    } >"$work/log" 2>&1 || {
        tail -n 25 "$work/log" >&2
        exit 1
    }
}

# The packages whose libraries the programs need; libc alone where nothing can tell.
depends() {
    local found=

    mkdir -p "$work/debian"
    printf 'Source: allograft\n\nPackage: allograft\nArchitecture: any\n' >"$work/debian/control"
    if command -v dpkg-shlibdeps >/dev/null; then
        found=$(cd "$work" && dpkg-shlibdeps --ignore-missing-info -O -e"$command" -e"$library" \
            2>/dev/null | sed -n 's/^shlibs:Depends=//p') || found=
    fi
    printf '%s\n' "${found:-libc6}"
}

# jansson, where the command opens it because it was there as a shared library only.
recommends() {
    if grep -q 'libjansson\.so' "$command"; then
        printf ', libjansson4'
    fi
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
architecture=$(dpkg --print-architecture)

doc=$tree/usr/share/doc/allograft
mkdir -p "$tree/DEBIAN" "$doc"
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
cat >"$tree/DEBIAN/control" <<END
Package: allograft
Version: $version
Architecture: $architecture
Maintainer: The Allograft developers <allograft@localhost>
Section: utils
Priority: optional
Depends: $(depends)
Recommends: libdw1 | libdw1t64$(recommends)
Installed-Size: $(du -sk --exclude=DEBIAN "$tree" | cut -f1)
Description: runs CUDA programs on a memory pool and their repeated work as graphs
 A library to be preloaded into unchanged CUDA programs: cudaMalloc and cudaFree
 are served from a stream-ordered pool or from managed memory, repeated work is
 launched as CUDA graphs, and a report says what was done. The command starts
 programs under it and reads what it wrote.
END
mkdir -p "$out"
package=$out/allograft_${version}_$architecture.deb
dpkg-deb --root-owner-group --build "$tree" "$package" >/dev/null
printf '%s\n' "$package"
