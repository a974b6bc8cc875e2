# shellcheck shell=bash
# Brings what a build needs onto a Debian or Ubuntu machine. Sourced by quickstart.sh and test.sh:
# setup_everything installs only what is missing and leaves MESON, CUDA_ROOT and NVCC set.
#
# Nothing is installed outside the distribution's own packages; what comes from Python's package
# registry goes into build-deps/ in the checkout, and `rm -r build-deps` undoes it.

SETUP_DEPS=$ROOT/build-deps
SETUP_LOG=$SETUP_DEPS/setup.log

# The headers we build against must know every driver function of this version (cuda.h's number).
SETUP_CUDA_VERSION=13000
SETUP_CUDA_PACKAGES=("nvidia-cuda-runtime==13.0.*" "nvidia-cuda-crt==13.0.*")
SETUP_NVCC_PACKAGES=("nvidia-cuda-nvcc==13.0.*" "nvidia-nvvm==13.0.*" "nvidia-cuda-cccl==13.0.*")

# The formatter's layout changes from one version to the next.
SETUP_CLANG_FORMAT_VERSION=18.1.8

say() {
    printf '%s\n' "$*"
}

# fail MESSAGE [LOG]: the reason and the end of the log it stands in, then out.
fail() {
    printf 'error: %s\n' "$1" >&2
    if [ -n "${2:-}" ] && [ -s "$2" ]; then
        printf 'The end of %s:\n' "$2" >&2
        tail -n 25 "$2" | sed 's/^/    /' >&2
    fi
    exit 1
}

# logged LOG COMMAND...: runs it silently, its output appended to the log.
logged() {
    local log=$1
    shift
    printf '\n$ %s\n' "$*" >>"$log"
    "$@" >>"$log" 2>&1 </dev/null
}

# progress LABEL [all]: shows how far it is what writes "[12/800] ..." or "12/800 ..." to our input: on a terminal in one
# line that is written over, elsewhere now and then. Other lines are passed on with "all".
progress() {
    local line shown=$SECONDS

    while IFS= read -r line; do
        if [[ ! $line =~ ^\[?\ *([0-9]+)/([0-9]+)[]\ ] ]]; then
            [ "${2:-}" != all ] || say "$line"
        elif [ -t 1 ]; then
            printf '\r\033[K  %s: %s of %s' "$1" "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
        elif [ $((SECONDS - shown)) -ge 10 ]; then
            say "  $1: ${BASH_REMATCH[1]} of ${BASH_REMATCH[2]}"
            shown=$SECONDS
        fi
    done
    [ ! -t 1 ] || printf '\r\033[K'
}

# built LOG LABEL BUILD TARGET...: builds them, its output appended to the log, and shows how far it is.
built() {
    local log=$1 label=$2
    shift 2
    printf '\n$ ninja -C %s\n' "$*" >>"$log"
    NINJA_STATUS='[%f/%t] ' ninja -C "$@" 2>&1 </dev/null | tee -a "$log" | progress "$label"
}

setup_as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        return 1
    fi
}

setup_apt_updated=no

# setup_apt PACKAGE...: installs them, having fetched the list of packages once.
setup_apt() {
    command -v apt-get >/dev/null 2>&1 ||
        fail "missing here: $*. Only apt-get is known to this script; please install them yourself."
    if [ "$setup_apt_updated" = no ]; then
        say "Fetching the list of packages"
        logged "$SETUP_LOG" setup_as_root apt-get update || say "  (failed; going on with the old one)"
        setup_apt_updated=yes
    fi
    say "Installing $*"
    logged "$SETUP_LOG" setup_as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends "$@" ||
        fail "could not install $* (root or sudo is needed)" "$SETUP_LOG"
}

# The compiler, the builder and Python, by what is missing.
setup_tools() {
    local missing=()

    printf '#include <stdio.h>\nint main(void) { return 0; }\n' |
        gcc -x c -o "$SETUP_DEPS/probe" - >/dev/null 2>&1 || missing+=(gcc libc6-dev)
    rm -f "$SETUP_DEPS/probe"
    command -v ninja >/dev/null 2>&1 || missing+=(ninja-build)
    command -v python3 >/dev/null 2>&1 || missing+=(python3)
    command -v pkg-config >/dev/null 2>&1 || missing+=(pkg-config)
    command -v readelf >/dev/null 2>&1 || missing+=(binutils)
    [ ${#missing[@]} -eq 0 ] || setup_apt "${missing[@]}"
    # The python3 of a version manager is a script that takes ten times as long to start as Python itself does.
    PATH=$(dirname "$(python3 -c 'import sys; print(sys.executable)')"):$PATH
}

setup_clang() {
    command -v clang >/dev/null 2>&1 || setup_apt clang
}

# The compiler for aarch64, and what runs its programs.
has_arm() {
    command -v aarch64-linux-gnu-gcc >/dev/null 2>&1 && command -v qemu-aarch64-static >/dev/null 2>&1
}

# False: they are not to be had.
setup_arm() {
    has_arm || (setup_apt gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static) 2>>"$SETUP_LOG"
}

# setup_wanted PACKAGE...: what checks look for and can do without. Installed where checks run by
# themselves (CI=true); elsewhere nobody asked for it.
setup_wanted() {
    local missing=() package

    for package in "$@"; do
        command -v "$package" >/dev/null 2>&1 || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] && [ "${CI:-}" = true ] || return 0
    (setup_apt "${missing[@]}") 2>>"$SETUP_LOG" || say "  (not to be had here; going on without)"
}

# setup_optional MODULE PACKAGE: what pkg-config calls MODULE, where it is to be had; a build does without.
setup_optional() {
    ! pkg-config --exists "$1" 2>/dev/null || return 0
    (setup_apt "$2") 2>>"$SETUP_LOG" || say "  ($2 is not to be had here; going on without)"
}

# GCOVR: the table of lines that tests reach; empty when it is not to be had.
setup_gcovr() {
    GCOVR=$(command -v gcovr || true)
    [ -z "$GCOVR" ] || return 0
    GCOVR=$SETUP_DEPS/venv/bin/gcovr
    [ ! -x "$GCOVR" ] || return 0
    setup_venv
    say "Installing gcovr from Python's package registry into build-deps/"
    logged "$SETUP_LOG" "$SETUP_DEPS/venv/bin/pip" install --quiet gcovr || GCOVR=
}

# What some tests use and others do without, in build-deps/python/, where CI=true: the parser that metrics are checked
# with, and pytest.
setup_python_packages() {
    [ "${CI:-}" = true ] && [ ! -d "$SETUP_DEPS/python/pytest" ] || return 0
    setup_venv
    say "Installing prometheus_client and pytest from Python's package registry into build-deps/"
    logged "$SETUP_LOG" "$SETUP_DEPS/venv/bin/pip" install --quiet --target "$SETUP_DEPS/python" \
        prometheus_client pytest || say "  (not to be had here; going on without)"
}

# CLANG_FORMAT: the formatter, of the one version that .clang-format is written for; empty when it is
# not to be had.
setup_clang_format() {
    export CLANG_FORMAT=$SETUP_DEPS/venv/bin/clang-format

    [ ! -x "$CLANG_FORMAT" ] || return 0
    setup_venv
    say "Installing clang-format $SETUP_CLANG_FORMAT_VERSION from Python's package registry into build-deps/"
    logged "$SETUP_LOG" "$SETUP_DEPS/venv/bin/pip" install --quiet \
        "clang-format==$SETUP_CLANG_FORMAT_VERSION" || CLANG_FORMAT=
}

# A virtual environment of our own for what comes from Python's package registry.
setup_venv() {
    [ -x "$SETUP_DEPS/venv/bin/pip" ] && return
    rm -rf "$SETUP_DEPS/venv"
    if ! logged "$SETUP_LOG" python3 -m venv "$SETUP_DEPS/venv"; then
        setup_apt python3-venv
        rm -rf "$SETUP_DEPS/venv"
        logged "$SETUP_LOG" python3 -m venv "$SETUP_DEPS/venv" ||
            fail "python3 -m venv does not work" "$SETUP_LOG"
    fi
}

setup_at_least() {
    [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]
}

# Meson 1.0 or newer: the one that is there, the distribution's, or one of our own.
setup_meson() {
    local packaged

    for MESON in meson "$SETUP_DEPS/venv/bin/meson"; do
        setup_at_least 1.0 "$("$MESON" --version 2>/dev/null || echo 0)" && return
    done
    packaged=$(apt-cache policy meson 2>/dev/null | sed -n 's/^ *Candidate: //p')
    if setup_at_least 1.0 "${packaged:-0}"; then
        setup_apt meson
        MESON=meson
        return
    fi
    setup_venv
    say "Installing meson from Python's package registry into build-deps/"
    logged "$SETUP_LOG" "$SETUP_DEPS/venv/bin/pip" install --quiet "meson>=1.0" ||
        fail "could not install meson" "$SETUP_LOG"
    MESON=$SETUP_DEPS/venv/bin/meson
}

# setup_has_headers FOLDER: the driver's headers are below it, new enough, with the runtime's.
setup_has_headers() {
    local version

    [ -f "$1/include/cudaTypedefs.h" ] && [ -f "$1/include/crt/host_defines.h" ] || return 1
    version=$(sed -n 's/^#define CUDA_VERSION \([0-9]*\).*/\1/p' "$1/include/cuda.h" 2>/dev/null)
    [ "${version:-0}" -ge "$SETUP_CUDA_VERSION" ]
}

setup_pip_cuda() {
    setup_venv
    say "Installing $1 from Python's package registry into build-deps/"
    shift
    # All in one call: the packages share a folder, and pip replaces the folders of earlier calls.
    logged "$SETUP_LOG" "$SETUP_DEPS/venv/bin/pip" install --quiet --no-deps --upgrade \
        --target "$SETUP_DEPS/cuda" "$@" || return
    # The names under which nvcc and the linker look for what the packages hold.
    [ ! -d "$SETUP_DEPS/cuda/nvidia/cu13/lib" ] || (
        cd "$SETUP_DEPS/cuda/nvidia/cu13" && ln -sfn lib lib64 && ln -sf libcudart.so.13 lib/libcudart.so
    )
}

# CUDA_ROOT: the toolkit of this machine, else headers from the registry.
setup_cuda_headers() {
    for CUDA_ROOT in "${CUDA_HOME:-/nowhere}" /usr/local/cuda "$SETUP_DEPS/cuda/nvidia/cu13"; do
        setup_has_headers "$CUDA_ROOT" && return
    done
    setup_pip_cuda "the CUDA headers" "${SETUP_CUDA_PACKAGES[@]}" ||
        fail "could not install the CUDA headers" "$SETUP_LOG"
    setup_has_headers "$CUDA_ROOT" ||
        fail "the CUDA headers that were installed lack cuda.h or cudaTypedefs.h" "$SETUP_LOG"
}

# NVCC: the compiler of this machine, else one from the registry, and in PATH; empty when there is
# none for it. It compiles host code with g++.
setup_nvcc() {
    local own=$SETUP_DEPS/cuda/nvidia/cu13/bin/nvcc

    for NVCC in "$(command -v nvcc || true)" "$CUDA_ROOT/bin/nvcc" "$own"; do
        [ -x "$NVCC" ] && break
    done
    if [ ! -x "$NVCC" ] && ! {
        setup_pip_cuda "nvcc" "${SETUP_CUDA_PACKAGES[@]}" "${SETUP_NVCC_PACKAGES[@]}" && [ -x "$own" ]
    }; then
        say "nvcc is not to be had here; going on without it"
        NVCC=
        return
    fi
    command -v g++ >/dev/null 2>&1 || setup_apt g++
    PATH=$(dirname "$NVCC"):$PATH
}

setup_everything() {
    mkdir -p "$SETUP_DEPS"
    : >"$SETUP_LOG"
    setup_tools
    setup_optional jansson libjansson-dev # `allograft report` reads JSON with it
    setup_optional libmicrohttpd libmicrohttpd-dev # `allograft top` serves metrics with it
    setup_optional libdw libdw-dev        # and names files and lines of stacks with this
    setup_meson
    setup_cuda_headers
    setup_nvcc
}

# configure BUILD LOG OPTIONS...: a build folder with these options, new or as it was.
configure() {
    local build=$1 log=$2
    shift 2
    set -- "-Dcuda-root=$CUDA_ROOT" "$@"
    if [ -f "$build/build.ninja" ] && logged "$log" "$MESON" setup --reconfigure "$@" "$build" "$ROOT"; then
        return
    fi
    # A folder that cannot be reconfigured (moved, or by another Meson) is made anew.
    rm -rf "$build/meson-private" "$build/meson-info" "$build/build.ninja"
    logged "$log" "$MESON" setup "$@" "$build" "$ROOT"
}

# Whether there is a GPU that CUDA programs can use.
has_gpu() {
    command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q '^GPU '
}
