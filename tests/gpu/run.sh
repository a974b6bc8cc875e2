#!/usr/bin/env bash
# The GPU suite: builds the library and every program, runs every check, prints a line for each,
# the measured figures and a last line `N passed, N failed, N skipped`. BUILD_DIR/gpu-out/results.json has them all.
#
# usage: run.sh [--quick] [--once] [--only PATTERN] [--resume] [BUILD_DIR]
#   --quick    a short soak and fewer iterations of measuring
#   --once     nothing is measured again that has missed its bound: for whoever has the device for a short time only
#   --only     only the checks whose name contains the pattern, for example order/ or torch
#   --resume   only the checks without a verdict, of a run of the same commit that was cut short, whose BUILD_DIR/gpu-out
#              is there
#   BUILD_DIR  where the library is built, default build; programs and output go below it
#
# Exit status: 0 no check failed, 1 some did or nothing could be built, 77 no GPU here.
set -u
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
# shellcheck disable=SC2034  # read by the files under checks/
ONLY="" QUICK="" ONCE="" RESUME="" SOAK_S=30 SPEED_ITERATIONS=5 BUILD=""

usage() {
    sed -n '/^# usage/,/^# Exit/p' "$0" | sed 's/^# \{0,1\}//' >&2
    exit 2
}

while (($#)); do
    case $1 in
        --quick) QUICK=--quick SOAK_S=8 SPEED_ITERATIONS=3 ;;
        --once) ONCE=--once ;;
        --only)
            [[ $# -gt 1 ]] || usage
            ONLY=$2
            shift
            ;;
        --resume) RESUME=--resume ;;
        -*) usage ;;
        *)
            [[ -z $BUILD ]] || usage
            BUILD=$1
            ;;
    esac
    shift
done
BUILD=${BUILD:-build}
[[ $BUILD == /* ]] || BUILD=$ROOT/$BUILD
OUT=$BUILD/gpu-out BIN=$BUILD/gpu-bin LIB=$BUILD/liballograft.so

# What the user has set must not reach the native runs.
unset LD_PRELOAD
for name in $(compgen -v ALLOGRAFT_); do
    unset "$name"
done

no_gpu() {
    echo "no GPU here: $1"
    exit 77
}

# Opens the driver and says why it cannot; kept open by hold_device.
open_device='import ctypes, sys
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    sys.exit(str(error))
count = ctypes.c_int()
code = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
if code or count.value == 0:
    sys.exit(f"the driver answers {code}, {count.value} devices")'

find_gpu() {
    local why
    command -v nvidia-smi >/dev/null || no_gpu "no nvidia-smi"
    GPU=$(timeout 60 nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>&1) ||
        no_gpu "nvidia-smi: ${GPU%%$'\n'*}"
    why=$(python3 -c "$open_device" 2>&1) || no_gpu "$why"
    echo "on $(head -n1 <<<"$GPU")"
}

# Without a process that has it open, some systems shut the device down between two programs.
hold_device() {
    exec {HOLD}> >(exec python3 -c "$open_device
sys.stdin.read()" >/dev/null 2>&1)
}

build_library() {
    if [[ ! -f $BUILD/build.ninja ]]; then
        meson setup -Dtests=false "$BUILD" "$ROOT" >"$OUT/meson.log" 2>&1 ||
            { tail -n 20 "$OUT/meson.log"; return 1; }
    fi
    ninja -C "$BUILD" liballograft.so liballograft-audit.so allograft >"$OUT/ninja.log" 2>&1 ||
        { tail -n 40 "$OUT/ninja.log"; return 1; }
}

# phase WHAT: for whoever watches, and for who wonders where the time went.
phase() {
    echo "-- $1, from $SECONDS s on"
}

finish() {
    local word counts=()
    [[ -f $OUT/figures ]] && printf '\n' && awk -F '\t' -v OFS='  ' \
        '{ for (i = 1; i <= NF; i++) $i = sprintf(i == 1 ? "%-28s" : "%16s", $i); print }' "$OUT/figures"
    for word in ok FAIL skip; do
        counts+=("$(grep -c "^$word " "$OUT/verdicts")")
    done
    if ((counts[1] > 0)); then
        printf '\nfailed (output in %s):\n' "$OUT"
        sed -n 's/^FAIL \([^:]*\):.*/    \1/p' "$OUT/verdicts"
    fi
    [[ -f $OUT/durations ]] && sort -rn "$OUT/durations" | head -n 12 |
        awk '{ printf "%s%s %s s", NR == 1 ? "\nlongest: " : ", ", $2, $1 } END { print "" }'
    python3 "$HERE/results.py" "$OUT" || counts[1]=$((counts[1] + 1))
    printf '\n%d passed, %d failed, %d skipped\n' "${counts[@]}"
    ((counts[1] == 0 && counts[0] > 0))
}

find_gpu
mkdir -p "$BIN" || exit 1
if [[ $RESUME ]]; then
    python3 "$HERE/results.py" --resume "$OUT" || exit 1
else
    rm -rf "$OUT"
    mkdir -p "$OUT" || exit 1
    : >"$OUT/verdicts"
    python3 "$HERE/results.py" --begin "$OUT" "$(head -n1 <<<"$GPU")" "$SPEED_ITERATIONS" $QUICK $ONCE ${ONLY:+--only "$ONLY"} || exit 1
fi
. "$HERE/lib.sh"
for file in "$HERE"/checks/*.sh; do
    . "$file"
done

hold_device
"$HERE/build.sh" "$BIN" >"$OUT/build.log" 2>&1 &
programs=$!
build_library || { echo "the library could not be built"; exit 1; }

# Frameworks take long to start and need none of the programs: they go on while these are built.
phase "what only compares"
same_framework_checks
capture_framework_checks
cufile_checks
nccl_checks
wait "$programs" || { cat "$OUT/build.log"; echo "the programs could not be built"; exit 1; }

ipc_checks
same_output_checks
rules_checks
guard_checks
corruption_checks
early_checks
order_checks
barrier_checks
printf_checks
pinned_background_checks
api_background_checks
control_background_checks
launch_background_checks
graph_background_checks
graph_framework_background_checks
capture_checks
several_gpu_checks
sanitizer_checks
report_checks
pools_background_checks
managed_background_checks
waits_background_checks
copies_background_checks
wait_for_background
life_checks # beside kernels that do not end
wait_for_background
soak_checks

# From here on nothing runs beside a check that measures time or memory.
phase "what measures"
inert_checks
holders_cost_checks
own_graphs_checks
same_many_checks
api_checks
speed_checks
copies_checks
guard_speed_checks
managed_checks
launch_checks
waits_checks
phase "what measures replay"
graph_checks
phase "what measures pools and the control API"
pools_checks
pinned_checks
paging_checks
control_checks
exec {HOLD}>&-
finish
