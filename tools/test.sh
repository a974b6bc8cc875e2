#!/usr/bin/env bash
# Builds and runs every suite that can run on this machine, and sums them up in the last line:
# "N passed, N failed, N skipped". Installs what is missing first.
set -uo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=tools/setup.sh
. "$ROOT/tools/setup.sh"

usage="tools/test.sh [--plain] [--clang] [--asan] [--tsan] [--lint] [--coverage] [--gpu] [--all]
              [--build FOLDER]

  --plain      the suites, built with gcc and -Werror          (FOLDER, default build)
  --clang      the same, built with clang                      (FOLDER-clang)
  --asan       the same, under AddressSanitizer and UBSan      (FOLDER-asan)
  --tsan       those about threads, under ThreadSanitizer      (FOLDER-tsan)
  --lint       clang-format; clang-tidy and cppcheck, where they are installed
  --coverage   which lines of the library the suites reach     (FOLDER-coverage)
  --gpu        tests/gpu/run.sh on the GPU of this machine
  --all        everything above

Without one of them: everything but --clang."

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

# For ThreadSanitizer, and for the coverage of the library: suites and tests as `meson test` takes them.
THREADED_TESTS=(--suite threads)
COVERING_TESTS=(--suite unit --suite preload --suite api --suite graph --suite faults --suite runtime --suite fuzz)

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

# The environment of sanitized tests is Meson's to set: tests/tools/meson.build. The ranks of our locks
# are checked here too.
sanitized_suite() {
    meson_suite "$@" -Dbuildtype=debug -Doptimization=1 -Db_lundef=false -Dlock_checks=true
}

suite_asan() {
    sanitized_suite "gcc, AddressSanitizer and UndefinedBehaviorSanitizer" "$BUILD-asan" \
        -Db_sanitize=address,undefined
}

suite_tsan() {
    # What runs threads of its own. Its runtime finds the place of its shadow memory occupied where
    # addresses are much randomised.
    local test_selection=("${THREADED_TESTS[@]}") test_wrapper=()
    setarch -R true 2>/dev/null && test_wrapper=(setarch -R)
    sanitized_suite "gcc, ThreadSanitizer" "$BUILD-tsan" -Db_sanitize=thread
}

# Each tool is one check.
suite_lint() {
    local log=$BUILD/lint.log name word
    say
    say "=== lint"
    setup_wanted clang-tidy cppcheck
    setup_clang_format
    mkdir -p "$BUILD"
    : >"$log"
    if [ ! -f "$BUILD/compile_commands.json" ] && ! configure "$BUILD" "$log"; then
        broken "lint" "could not be set up" "$log"
        return
    fi
    # Headers that the build makes.
    if ! logged "$log" ninja -C "$BUILD" all; then
        broken "lint" "did not build" "$log"
        return
    fi
    for name in clang-format clang-tidy cppcheck; do
        python3 "$ROOT/tests/lint/lint.py" "$ROOT" "$BUILD" "$name" </dev/null 2>&1 | tee "$log"
        word=$(sed -n "s/^$name: //p" "$log" | tail -n 1)
        case $word in
        ok) count 1 0 0 ;;
        skipped) count 0 0 1 ;;
        *) count 0 1 0 ;;
        esac
    done
}

# One check: the suites reach at least this share of the library's lines, in percent. (What they reach of
# exit_hooks.c does not count: it ends the process before the counts are written.)
COVERAGE_LEAST=90

suite_coverage() {
    local build=$BUILD-coverage log=$BUILD-coverage/test.log lenient=()
    say
    say "=== coverage of interpose/, policy/ and graph/"
    setup_gcovr
    if [ -z "$GCOVR" ]; then
        say "skipped: gcovr is not to be had here"
        count 0 0 1
        return
    fi
    mkdir -p "$build"
    : >"$log"
    # Threads count at once: counts that were lost come out negative. As under a sanitizer, each part of a program
    # runs under some of the variants only: lines are reached or not.
    if ! configure "$build" "$log" -Db_coverage=true -Dbuildtype=debug \
        -Dc_args=-fprofile-update=atomic; then
        broken "coverage" "could not be set up" "$log"
        return
    fi
    if ! logged "$log" ninja -C "$build" all meson-test-prereq; then
        broken "coverage" "did not build" "$log"
        return
    fi
    find "$build" -name '*.gcda' -delete
    # What fails here fails above too; this is about the lines.
    logged "$log" "$MESON" test -C "$build" --no-rebuild "${COVERING_TESTS[@]}"
    # A process that ends while its threads still count is written between two counters of one branch, and gcov,
    # which takes one from the other, may then say that it was taken -1 times; one that is killed while it writes
    # leaves anything. The newer gcovr stops at both.
    if "$GCOVR" --help </dev/null | grep -q 'negative_hits\.warn_once_per_file'; then
        lenient=(--gcov-ignore-parse-errors=all)
    fi
    if (cd "$build" && "$GCOVR" "${lenient[@]}" --root "$ROOT" --filter "$ROOT/interpose/" --filter "$ROOT/policy/" \
        --filter "$ROOT/graph/" --exclude ".*[.]def" \
        --fail-under-line "$COVERAGE_LEAST" .) </dev/null; then
        count 1 0 0
    else
        count 0 1 0
    fi
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
    --plain | --clang | --asan | --tsan | --lint | --coverage | --gpu) suites+=("${1#--}") ;;
    --all) suites=(plain clang asan tsan lint coverage gpu) ;;
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
[ ${#suites[@]} -gt 0 ] || suites=(plain asan tsan lint coverage gpu)

timings=() began=$SECONDS
setup_everything
for suite in "${suites[@]}"; do
    suite_began=$SECONDS
    "suite_$suite"
    timings+=("$suite $((SECONDS - suite_began)) s")
done
say
(IFS=, && say "Time: ${timings[*]}, all $((SECONDS - began)) s")
say "$n_passed passed, $n_failed failed, $n_skipped skipped"
[ "$n_failed" -eq 0 ]
