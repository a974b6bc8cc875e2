#!/bin/sh
# fetch.sh: fetches the libraries of the pages that are kept in this folder, at the version below, and checks them by
# their hashes. The build does not need it: what it fetches is part of the source. `fetch.sh --check` only checks.
set -eu

cd "$(dirname "$0")"
version=1.6.32
base=https://raw.githubusercontent.com/leeoniya/uPlot/$version

if [ "${1-}" != --check ]; then
    for file in dist/uPlot.iife.min.js dist/uPlot.min.css; do
        curl --fail --silent --show-error --location --output "$(basename "$file")" "$base/$file"
    done
    curl --fail --silent --show-error --location --output LICENSE.uPlot "$base/LICENSE"
fi
sha256sum --check --quiet hashes
