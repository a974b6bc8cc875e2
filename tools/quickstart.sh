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
    say "Setting up build/ (log: build/quickstart.log)"
    configure "$BUILD" "$LOG" || fail "the build could not be set up" "$LOG"
    say "Building the library, the command and what the demo needs"
    built "$LOG" building "$BUILD" liballograft.so liballograft-audit.so allograft "$@" || fail "the build failed" "$LOG"
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
    say "Compiling the demo with nvcc for this GPU"
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

# next_steps [simulated]: three commands for a program of one's own.
next_steps() {
    say
    say "Next, three commands for a program of your own:"
    if [ "${1:-}" = simulated ]; then
        say "  build/allograft doctor --simulate                        # what works here, with a self-test"
        say "  build/allograft run --simulate --stats run.json -- ./program"
        say "  build/allograft report --html run.html run.json          # its report as a page"
        say "The simulated driver runs programs that call the driver API themselves: docs/usage.md, Without a GPU, has one and"
        say "says how to compile yours. On a machine with a GPU leave --simulate out, and let"
        say "build/allograft tune -- ./program name the best settings."
    else
        say "  build/allograft doctor                                   # what this machine allows, with a self-test"
        say "  build/allograft run -- ./program                         # runs it; a report at exit"
        say "  build/allograft tune -- ./program                        # tries settings on it and names the best"
    fi
}

case ${1:-} in
'') ;;
--help | -h)
    say "tools/quickstart.sh: installs what a build needs and this machine lacks (the distribution's packages; the rest"
    say "into build-deps/), builds into build/, and runs the demo, on a simulated driver where there is no GPU."
    exit 0
    ;;
*)
    say "tools/quickstart.sh takes no arguments, not $1; --help says what it does" >&2
    exit 2
    ;;
esac

say "Looking for what a build needs, and installing what is missing"
setup_everything
if ! has_gpu; then
    demo_on_simulation "this machine has no NVIDIA GPU (nvidia-smi shows none)."
    next_steps simulated
elif [ -z "$NVCC" ]; then
    demo_on_simulation "there is a GPU but no nvcc to compile for it."
    next_steps
else
    demo_on_gpu
    next_steps
fi
