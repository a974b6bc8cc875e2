#!/usr/bin/env bash
# From a fresh Debian or Ubuntu machine to a CUDA program running on the pool, with its report.
# Installs what is missing, builds into build/, runs the demo. Running it again does only what is
# left to do.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD=$ROOT/build
LOG=$BUILD/quickstart.log
DEMO=$ROOT/tests/sim/demo/demo.cu

# shellcheck source=tools/setup.sh
. "$ROOT/tools/setup.sh"

# build TARGET...: what the demo needs, of the library and the tests.
build() {
    mkdir -p "$BUILD"
    : >"$LOG"
    say "Building into build/"
    configure "$BUILD" "$LOG" || fail "the build could not be set up" "$LOG"
    logged "$LOG" ninja -C "$BUILD" liballograft.so allograft "$@" || fail "the build failed" "$LOG"
}

# run_demo PROGRAM [OPTION]...: as a person would type it, and with that line shown.
run_demo() {
    local program=$1
    shift
    set -- "$@" --policy pool
    say "  \$ build/allograft run $* -- ${program#"$ROOT"/}"
    say
    "$BUILD/allograft" run "$@" --stats stderr -- "$program"
}

demo_on_gpu() {
    build
    logged "$LOG" "$NVCC" -O2 -arch=native -o "$BUILD/demo" "$DEMO" ||
        fail "nvcc could not compile the demo" "$LOG"
    say
    say "Running the demo on the GPU: $(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)"
    run_demo "$BUILD/demo"
}

# demo_on_simulation WHY
demo_on_simulation() {
    build tests/sim/libcuda.so.1 tests/sim/demo/demo-sim
    say
    say "Running the demo on the simulated driver, because $1"
    run_demo "$BUILD/tests/sim/demo/demo-sim" --simulate
}

setup_everything
if ! has_gpu; then
    demo_on_simulation "this machine has no NVIDIA GPU (nvidia-smi shows none)."
    say
    say "More without a GPU, for programs that call the driver API themselves:"
    say "  build/allograft doctor --simulate"
    say "  build/allograft run --simulate -- ./program"
elif [ -z "$NVCC" ]; then
    demo_on_simulation "there is a GPU but no nvcc to compile for it."
else
    demo_on_gpu
fi
say
say "Your own program: build/allograft run -- ./program      or: LD_PRELOAD=$BUILD/liballograft.so ./program"
