#!/usr/bin/env bash
# Formats every source in C, C++ and CUDA, or those named, with the one version of clang-format that
# .clang-format is written for.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=tools/setup.sh
. "$ROOT/tools/setup.sh"

mkdir -p "$SETUP_DEPS"
setup_clang_format
[ -n "$CLANG_FORMAT" ] || fail "clang-format $SETUP_CLANG_FORMAT_VERSION could not be installed" "$SETUP_LOG"
if [ $# -eq 0 ]; then
    mapfile -t files < <(cd "$ROOT" && git ls-files '*.[ch]' '*.cpp' '*.cu')
    cd "$ROOT"
    set -- "${files[@]}"
fi
"$CLANG_FORMAT" -i "$@"
