#!/usr/bin/env bash
# Builds and runs every suite that can run on this machine, and sums them up in the last line:
# "N passed, N failed, N skipped". Installs what is missing first.
set -uo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=tools/setup.sh
. "$ROOT/tools/setup.sh"

usage="tools/test.sh [--plain] [--clang] [--asan] [--tsan] [--lint] [--coverage] [--arm]
              [--assembly] [--gpu] [--full] [--quick] [--budget] [--build FOLDER]

  --plain      the suites, built with gcc and -Werror          (FOLDER, default build)
  --clang      the same, built with clang                      (FOLDER-clang)
  --asan       the same, under AddressSanitizer and UBSan      (FOLDER-asan)
  --tsan       those about threads, under ThreadSanitizer      (FOLDER-tsan)
  --lint       clang-format; cppcheck, and clang-tidy of what changed, where they are installed
  --coverage   which lines of the library the suites reach     (FOLDER-coverage)
  --arm        cross-built for aarch64, and under an emulator: the unit tests, look-ups, trampolines and exits,
               launches, answers, 150 random programs, the packages       (FOLDER-arm)
  --assembly   of those, the unit tests of what is written for each processor, where compiler and emulator are
  --gpu        tests/gpu/run.sh on the GPU of this machine
  --full       everything above; under AddressSanitizer every suite, clang-tidy of all sources, the fuzzers, more
               random programs, every variant of the others, and more calls that fail

Without one of them: --plain --asan --tsan --lint --assembly --gpu.

  --budget     a suite fails, too, that takes a quarter more processor time than tools/test_budgets says

  --quick      for the loop of edit and test, in two minutes: the plain build, and of its suites a tenth of the
               random programs, some of the variants of each program, and clang-format. It leaves out the other
               builds, clang-tidy, cppcheck and coverage, the mutants, the fuzzers (but for the inputs kept),
               the failing of every driver call (faults_calls, _replay, _arguments), the scripts, tune and
               install, and of hostile/ what waits long."

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

# For ThreadSanitizer, and for the coverage of the library: the others reach two lines in a hundred that these do not,
# in twice the time.
THREADED_SUITES=(threads)
COVERING_SUITES=(unit preload api)
# For AddressSanitizer, unless everything is asked for: what reaches memory in ways of its own. The command is reached by
# the corpora of its parsers; loops and the simulated driver do under it what they do without.
MEMORY_SUITES=(unit preload api faults hostile fuzz diff runtime)

# What --quick leaves out: patterns of the names of tests.
SLOW_TESTS=(mutants library_mutants_\* fuzz_\* faults_calls faults_replay faults_arguments tools_scripts tools_tune
    tools_install hostile_growth hostile_realtime hostile_ends hostile_reports hostile_mutated_files hostile_go
    hostile_surroundings diff_replay_threads unit_ipc_socket)

# Many tests wait more than they compute.
N_PROCESSES=$(($(nproc) * 3))

# What `meson test` runs below, and what it runs: the tests of these suites (without one, all) whose names match one of
# the patterns (without one, all), and none of others. Suites may set them.
test_wrapper=() test_suites=() test_chosen=() test_excluded=()

# chosen names|targets BUILD: the tests that are to run, or what Ninja has to build for them.
chosen() {
    "$MESON" introspect --tests --targets "$2" </dev/null | python3 -c '
import fnmatch, json, os, sys

what, build, suites = sys.argv[1], os.path.realpath(sys.argv[2]), set(sys.argv[3].split())
chosen, excluded = (patterns.split() for patterns in sys.argv[4:6])
known = json.load(sys.stdin)
tests = [test for test in known["tests"]
         if not suites or suites & {suite.split(":")[-1] for suite in test["suite"]}]
tests = [test for test in tests if any(fnmatch.fnmatch(test["name"], pattern) for pattern in chosen or "*")]
tests = [test for test in tests if not any(fnmatch.fnmatch(test["name"], pattern) for pattern in excluded)]
wanted = {target for test in tests for target in test["depends"]}
files = [path for target in known["targets"] if target["id"] in wanted for path in target["filename"]]
for line in dict.fromkeys(test["name"] for test in tests) if what == "names" else [os.path.relpath(path, build) for path in files]:
    print(line)
' "$1" "$2" "${test_suites[*]}" "${test_chosen[*]}" "${test_excluded[*]}"
}

# What make_ready leaves: the names of the tests to run, none for all.
test_names=()

# make_ready NAME BUILD LOG OPTIONS...: configures, and builds what the tests need.
make_ready() {
    local name=$1 build=$2 log=$3 targets=(all meson-test-prereq)
    mkdir -p "$build"
    : >"$log"
    if ! configure "$build" "$log" -Dwerror=true "${@:4}"; then
        broken "$name" "could not be set up" "$log"
        return 1
    fi
    test_names=()
    if [ -n "${test_suites[*]}${test_chosen[*]}${test_excluded[*]}" ]; then
        mapfile -t test_names < <(chosen names "$build")
        mapfile -t targets < <(chosen targets "$build")
    fi
    if ! built "$log" building "$build" "${targets[@]}"; then
        broken "$name" "did not build" "$log"
        return 1
    fi
}

# run_tests BUILD OPTION...: those that make_ready has chosen.
run_tests() {
    "${test_wrapper[@]}" "$MESON" test -C "$1" --no-rebuild --num-processes "$N_PROCESSES" "${@:2}" \
        "${test_names[@]}" </dev/null
}

# meson_suite NAME FOLDER OPTIONS...
meson_suite() {
    local name=$1 build=$2 log=$2/test.log counts
    make_ready "$name" "$build" "$log" "${@:3}" || return
    rm -f "$build/meson-logs/testlog.json"
    run_tests "$build" --print-errorlogs
    if ! counts=$(read_testlog "$build/meson-logs/testlog.json") || [ "$counts" = "0 0 0" ]; then
        broken "$name" "ran no test" "$log"
        return
    fi
    # shellcheck disable=SC2086
    count $counts
}

# The fuzzers' corpora and variations of them are read by corpus_* in any case.
suite_plain() {
    local test_excluded=("${test_excluded[@]}")
    [ "$effort" = full ] || test_excluded+=(fuzz_\*)
    meson_suite "gcc" "$BUILD" -Db_sanitize=none -Dc_args=-g1
}

suite_clang() {
    setup_clang
    CC=clang meson_suite "clang" "$BUILD-clang"
}

# sanitized_suite NAME FOLDER SANITIZERS ARGUMENT...: the environment of sanitized tests is Meson's to set
# (tests/tools/meson.build). The ranks of our locks are checked here too. Reports of a sanitizer need lines and no
# variables: half of what -g costs.
sanitized_suite() {
    meson_suite "$1" "$2" -Db_sanitize="$3" -Dbuildtype=plain -Doptimization=1 -Dc_args="-g1 ${*:4}" -Db_lundef=false \
        -Dlock_checks=true
}

suite_asan() {
    local test_suites=()
    [ "$effort" = full ] || test_suites=("${MEMORY_SUITES[@]}")
    # A trap instead of a sentence: the sentences are most of what is to be relocated at each start of thousands.
    # AddressSanitizer's report of the trap has the line (handle_sigill).
    sanitized_suite "gcc, AddressSanitizer and UndefinedBehaviorSanitizer" "$BUILD-asan" address,undefined \
        -fsanitize-undefined-trap-on-error
}

suite_tsan() {
    # What runs threads of its own. Its runtime finds the place of its shadow memory occupied where
    # addresses are much randomised.
    local test_suites=("${THREADED_SUITES[@]}") test_wrapper=()
    setarch -R true 2>/dev/null && test_wrapper=(setarch -R)
    sanitized_suite "gcc, ThreadSanitizer" "$BUILD-tsan" thread
}

# What an emulator is no machine for: it has no MADV_POPULATE_WRITE (arena, pages, reach, touch) and no process_vm_readv
# (image), and puts libraries elsewhere each time (walk).
NOT_EMULATED=(unit_arena unit_pages unit_reach unit_touch unit_image unit_walk)
# What has a part for each processor: the trampolines, the pause of a spinning thread, the clock, the look-up of a caller.
ASSEMBLY_TESTS=(unit_trampolines unit_wait unit_lock unit_once unit_caller unit_timing)
# These start programs that start others. The last makes a Debian package and a wheel, and starts programs under both.
EMULATED_TESTS=(preload_lookups preload_loaders preload_trampolines preload_exits preload_lives preload_launches
    preload_semantics diff_policies diff_replay tools_install)

# skipped_arm WHY
skipped_arm() {
    say "skipped: $1"
    count 0 0 1
}

# arm_tests NAME: builds for aarch64 without a warning, and runs what is chosen.
arm_tests() {
    meson_suite "$1" "$BUILD-arm" --cross-file "$ROOT/tests/arm/cross.ini"
}

suite_arm() {
    local test_suites=(unit) test_excluded=("${NOT_EMULATED[@]}") test_wrapper=() test_chosen=()
    if ! setup_arm; then
        skipped_arm "no compiler or no emulator for aarch64 is to be had here"
        return
    fi
    arm_tests "aarch64, unit tests"
    if ! sh "$ROOT/tests/arm/emulated.sh" --probe 2>/dev/null; then
        skipped_arm "${EMULATED_TESTS[*]}: programs for aarch64 cannot start others here (needs Linux 6.7)"
        return
    fi
    test_suites=() test_excluded=() test_chosen=("${EMULATED_TESTS[@]}")
    test_wrapper=(env TEST_EFFORT=some DIFF_SHARE=6 sh "$ROOT/tests/arm/emulated.sh")
    arm_tests "aarch64, programs"
}

suite_assembly() {
    local test_chosen=("${ASSEMBLY_TESTS[@]}")
    if ! has_arm; then
        skipped_arm "no aarch64-linux-gnu-gcc or no qemu-aarch64-static here"
        return
    fi
    arm_tests "aarch64, assembly"
}

linters=(clang-format clang-tidy cppcheck)
# The commit since which clang-tidy reads what has changed, unless everything is asked for: four hours old, and twenty
# others ago. Nothing where there is none such: then it reads all. What is older was read when it landed.
linted_commit() {
    local hours twenty
    hours=$(git -C "$ROOT" rev-list -1 --before="4 hours ago" HEAD 2>/dev/null) || return
    twenty=$(git -C "$ROOT" rev-parse --quiet --verify HEAD~20) || return
    git -C "$ROOT" merge-base --is-ancestor "$twenty" "$hours" 2>/dev/null && hours=$twenty
    echo "$hours"
}

# make_headers LOG: the generated ones, which other files include.
make_headers() {
    local headers
    mapfile -t headers < <(ninja -C "$BUILD" -t targets rule CUSTOM_COMMAND | grep '\.h$')
    [ ${#headers[@]} -eq 0 ] || logged "$1" ninja -C "$BUILD" "${headers[@]}"
}

# Each tool is one check. The budget is of the other two: clang-tidy reads a few files or nearly all, as they changed.
suite_lint() {
    local log=$BUILD/lint.log name word used_before since=
    [ ${#linters[@]} -eq 1 ] || setup_wanted clang-tidy cppcheck
    setup_clang_format
    mkdir -p "$BUILD"
    : >"$log"
    if [ ! -f "$BUILD/compile_commands.json" ] && ! { configure "$BUILD" "$log" && make_headers "$log"; }; then
        broken "lint" "could not be set up" "$log"
        return
    fi
    [ "$effort" = full ] || since=$(linted_commit)
    for name in "${linters[@]}"; do
        used_before=$(used_s)
        LINT_SINCE=$since python3 "$ROOT/tests/lint/lint.py" "$ROOT" "$BUILD" "$name" </dev/null 2>&1 | tee "$log" | progress "$name" all
        [ "$name" != clang-tidy ] || unbudgeted_s=$(($(used_s) - used_before))
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
    local build=$BUILD-coverage log=$BUILD-coverage/test.log lenient=() test_suites=("${COVERING_SUITES[@]}")
    setup_gcovr
    if [ -z "$GCOVR" ]; then
        say "skipped: gcovr is not to be had here"
        count 0 0 1
        return
    fi
    # Threads count at once: counts that were lost come out negative. As under a sanitizer, each part of a program
    # runs under some of the variants only: lines are reached or not.
    make_ready "coverage" "$build" "$log" -Db_coverage=true -Dbuildtype=plain -Doptimization=0 \
        -Dc_args=-fprofile-update=atomic || return
    find "$build" -name '*.gcda' -delete
    # What fails here fails above too; this is about the lines.
    run_tests "$build" 2>&1 | tee -a "$log" | progress testing
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

# The plain build and its quicker tests, each with less of everything.
suite_quick() {
    local test_excluded=("${SLOW_TESTS[@]}") linters=(clang-format)
    export TEST_EFFORT=some DIFF_SHARE=10
    suite_plain
    suite_lint
}

# used_s: the processor seconds of all that this script has run and waited for.
used_s() {
    awk -v ticks="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); print int(($14 + $15) / ticks) }' /proc/$$/stat
}

# yardstick: a fixed piece of work of the kinds that tests consist of: a compilation, and starts of processes.
yardstick() {
    CCACHE_DISABLE=1 gcc -O2 -x c - -c -o /dev/null <<'C'
#define F(n) int f##n(int *a, int k) { for (int i = 0; i < k; i++) if (a[i] % n == k) a[i] += a[k - i] * n; return a[n]; }
#define TEN(n) F(n##0) F(n##1) F(n##2) F(n##3) F(n##4) F(n##5) F(n##6) F(n##7) F(n##8) F(n##9)
TEN(1)
C
    for _ in {1..100}; do /bin/true; done
}

# sample_speed FILE: adds to it every 20 s, until it is killed or this script ends, the processor time of the yardstick,
# user and system.
# Machines differ by a factor of two in what the same tests take, and so do hours of one machine.
sample_speed() {
    local TIMEFORMAT='%3U %3S'
    trap 'kill $!; exit' TERM
    while kill -0 $$; do
        { time yardstick 2>/dev/null; } 2>>"$1"
        sleep 20 &
        wait $!
    done
}

# judge_budget SUITE SECONDS SAMPLES: minutes depend on who else uses the machine, processor seconds less; the budgets are
# for a machine that needs as long as they say for the yardstick.
judge_budget() {
    local most scaled
    most=$(sed -n "s/^$1 //p" "$ROOT/tools/test_budgets")
    [ -n "$most" ] || return
    scaled=$(awk -v seconds="$2" -v usual="$(sed -n 's/^yardstick //p' "$ROOT/tools/test_budgets")" \
        '{ sum += $1 + $2 } END { print int(seconds * (sum > 0 && usual > 0 ? usual * NR / sum : 1) + 0.5) }' "$3")
    say "$1: $2 processor seconds, $scaled on the usual machine; its budget is $most"
    if [ $((4 * scaled)) -gt $((5 * most)) ]; then
        say "$1 takes over a quarter more than its budget: what makes it slower, or tools/test_budgets?"
        count 0 1 0
    fi
}

# run_suite NAME: with a line that says what comes and how long it took last time.
run_suite() {
    local suite=$1 times=$BUILD/test-times samples=$BUILD/test-speed last used_before sampler
    last=$(sed -n "s/^$suite //p" "$times" 2>/dev/null)
    suite_began=$SECONDS
    used_before=$(used_s)
    unbudgeted_s=0
    n_begun=$((n_begun + 1))
    say
    say "=== $n_begun of ${#suites[@]}: ${TITLES[$suite]}${last:+ (last time $last s)}"
    mkdir -p "$BUILD"
    if [ -n "$budget" ]; then
        : >"$samples"
        sample_speed "$samples" </dev/null >/dev/null 2>&1 &
        sampler=$!
    fi
    "suite_$suite"
    timings+=("$suite $((SECONDS - suite_began)) s")
    if [ -n "$budget" ]; then
        kill "$sampler"
        wait "$sampler"
        judge_budget "$suite" $(($(used_s) - used_before - unbudgeted_s)) "$samples"
        rm -f "$samples"
    fi
    { sed "/^$suite /d" "$times" 2>/dev/null; say "$suite $((SECONDS - suite_began))"; } >"$times.new"
    mv "$times.new" "$times"
}

declare -A TITLES=([plain]="gcc" [clang]="clang" [asan]="gcc, AddressSanitizer and UndefinedBehaviorSanitizer"
    [tsan]="gcc, ThreadSanitizer" [lint]="lint" [coverage]="coverage of interpose/, policy/ and graph/" [gpu]="GPU"
    [arm]="aarch64, emulated" [assembly]="assembly for aarch64"
    [quick]="gcc, the quick tests; clang-format")
BUILD=$ROOT/build
suites=() effort=usual budget=
while [ $# -gt 0 ]; do
    case $1 in
    --plain | --clang | --asan | --tsan | --lint | --coverage | --arm | --assembly | --gpu | --quick) suites+=("${1#--}") ;;
    --full)
        suites=(plain clang asan tsan lint coverage arm gpu) effort=full
        export TEST_EFFORT=all DIFF_SHARE=1300 FUZZ_SHARE=100 LINT_DEPTH=${LINT_DEPTH:-30000}
        ;;
    --budget) budget=1 ;;
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
[ ${#suites[@]} -gt 0 ] || suites=(plain asan tsan lint assembly gpu)

timings=() began=$SECONDS n_begun=0
setup_everything
setup_python_packages
for suite in "${suites[@]}"; do
    run_suite "$suite"
done
say
(IFS=, && say "Time: ${timings[*]}, all $((SECONDS - began)) s")
say "$n_passed passed, $n_failed failed, $n_skipped skipped"
[ "$n_failed" -eq 0 ]
