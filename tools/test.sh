#!/usr/bin/env bash
# Builds and runs every suite that can run on this machine, and sums them up in the last line:
# "N passed, N failed, N skipped". Installs what is missing first.
set -uo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=tools/setup.sh
. "$ROOT/tools/setup.sh"

usage="tools/test.sh [--plain] [--clang] [--asan] [--tsan] [--gpu] [--build FOLDER]

  --plain    the suites, built with gcc and -Werror          (FOLDER, default build)
  --clang    the same, built with clang                      (FOLDER-clang)
  --asan     the same, under AddressSanitizer and UBSan      (FOLDER-asan)
  --tsan     the same, under ThreadSanitizer                 (FOLDER-tsan)
  --gpu      tests/gpu/run.sh on the GPU of this machine

Without one of them: --plain, --asan and, where there is a GPU, --gpu."

n_passed=0 n_failed=0 n_skipped=0

# count PASSED FAILED SKIPPED
count() {
    n_passed=$((n_passed + $1))
    n_failed=$((n_failed + $2))
    n_skipped=$((n_skipped + $3))
}

# The results in Meson's own log (one JSON object a line) as "PASSED FAILED SKIPPED".
read_testlog() {
    python3 - "$1" <<'PYTHON'
import collections, json, sys

tally = collections.Counter()
for line in open(sys.argv[1], encoding="utf-8"):
    result = json.loads(line)["result"]
    passed = result in ("OK", "EXPECTEDFAIL")
    tally["passed" if passed else "skipped" if result == "SKIP" else "failed"] += 1
print(tally["passed"], tally["failed"], tally["skipped"])
PYTHON
}

# broken NAME WHAT LOG: a suite that did not get as far as its tests counts as one failure.
broken() {
    say "$1: $2. The end of $3:"
    tail -n 60 "$3" | sed 's/^/    /'
    count 0 1 0
}

# What `meson test` runs below, and which tests; suites may set them.
test_wrapper=() test_selection=()

# meson_suite NAME FOLDER OPTIONS...
meson_suite() {
    local name=$1 build=$2 log=$2/test.log counts
    shift 2
    say
    say "=== $name"
    mkdir -p "$build"
    : >"$log"
    if ! configure "$build" "$log" -Dwerror=true "$@"; then
        broken "$name" "could not be set up" "$log"
        return
    fi
    if ! logged "$log" ninja -C "$build" all meson-test-prereq; then
        broken "$name" "did not build" "$log"
        return
    fi
    rm -f "$build/meson-logs/testlog.json"
    "${test_wrapper[@]}" "$MESON" test -C "$build" --no-rebuild --print-errorlogs \
        "${test_selection[@]}" </dev/null
    if ! counts=$(read_testlog "$build/meson-logs/testlog.json") || [ "$counts" = "0 0 0" ]; then
        broken "$name" "ran no test" "$log"
        return
    fi
    # shellcheck disable=SC2086
    count $counts
}

suite_plain() {
    meson_suite "gcc" "$BUILD" -Db_sanitize=none
}

suite_clang() {
    setup_clang
    CC=clang meson_suite "clang" "$BUILD-clang"
}

# The environment of sanitized tests is Meson's to set: tests/tools/meson.build.
sanitized_suite() {
    meson_suite "$@" -Dbuildtype=debug -Doptimization=1 -Db_lundef=false
}

suite_asan() {
    sanitized_suite "gcc, AddressSanitizer and UndefinedBehaviorSanitizer" "$BUILD-asan" \
        -Db_sanitize=address,undefined
}

suite_tsan() {
    # Its runtime cannot be preloaded into a shell, which is what the tests of the command run, and
    # finds the place of its shadow memory occupied where addresses are much randomised.
    local test_selection=(--no-suite tools --no-suite contract) test_wrapper=()
    setarch -R true 2>/dev/null && test_wrapper=(setarch -R)
    sanitized_suite "gcc, ThreadSanitizer" "$BUILD-tsan" -Db_sanitize=thread
}

# The GPU tests sum themselves up in a last line like ours.
suite_gpu() {
    local log=$BUILD/gpu.log status counts
    say
    say "=== GPU"
    if ! has_gpu; then
        say "skipped: no NVIDIA GPU here"
        count 0 0 1
        return
    fi
    mkdir -p "$BUILD"
    bash "$ROOT/tests/gpu/run.sh" "$BUILD" </dev/null 2>&1 | tee "$log"
    status=$?
    if [ "$status" -eq 77 ]; then
        count 0 0 1
        return
    fi
    counts=$(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p' "$log" |
        tail -n 1)
    # shellcheck disable=SC2086
    count ${counts:-0 1 0}
    if [ "$status" -ne 0 ] && [ -n "$counts" ] && [ "$(echo "$counts" | cut -d' ' -f2)" -eq 0 ]; then
        count 0 1 0
    fi
}

BUILD=$ROOT/build
suites=()
while [ $# -gt 0 ]; do
    case $1 in
    --plain | --clang | --asan | --tsan | --gpu) suites+=("${1#--}") ;;
    --build)
        [ $# -ge 2 ] || fail "--build takes a folder"
        BUILD=$(realpath -m "$2")
        shift
        ;;
    --help | -h)
        say "$usage"
        exit 0
        ;;
    *)
        printf '%s\n' "unknown option $1" "$usage" >&2
        exit 2
        ;;
    esac
    shift
done
[ ${#suites[@]} -gt 0 ] || suites=(plain asan gpu)

setup_everything
for suite in "${suites[@]}"; do
    "suite_$suite"
done
say
say "$n_passed passed, $n_failed failed, $n_skipped skipped"
[ "$n_failed" -eq 0 ]
