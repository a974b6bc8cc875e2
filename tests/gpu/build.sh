#!/usr/bin/env bash
# Builds every program of the GPU suite, all at once. usage: build.sh FOLDER [ARCH]
set -u
HERE=$(cd "$(dirname "$0")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
BIN=${1:?usage: build.sh FOLDER [ARCH]}
ARCH=${2:-native}
NVCC=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
CUDA=$(cd "$(dirname "$(readlink -f "$NVCC")")/.." && pwd)
mkdir -p "$BIN" || exit 1
BIN=$(cd "$BIN" && pwd)

# Includes are written from the root.
cuda=("$NVCC" -O2 -std=c++17 "-arch=$ARCH" "-I$ROOT" -Wno-deprecated-gpu-targets
    -Xcompiler -Wall,-Wextra,-Wno-missing-field-initializers)
c=("${CC:-gcc}" -O2 -fPIC -std=gnu11 -Wall -Wextra "-I$ROOT" "-I$CUDA/include")
link_cuda=("-L$CUDA/lib64/stubs" -lcuda)

# build TARGET SOURCE COMMAND...: unless the target is newer than its source, all headers and this script. A source that
# is a folder stands for all C files in it.
build() {
    local target=$BIN/$1 sources=("$HERE/$2")
    [[ $2 == *.c* ]] || sources=("$HERE/$2"/*.c)
    shift 2
    if [[ -e $target && -z $(find "${sources[@]}" -newer "$target") &&
        -z $(find "$HERE" "$ROOT/tests/common" -newer "$target" \( -name '*.h' -o -name build.sh \)) ]]; then
        return
    fi
    "$@" "${sources[@]}" -o "$target" "${link[@]}" >"$target.log" 2>&1 &
    pids+=($!)
    names+=("$target")
}

# build_all LANGUAGE FOLDER NAME...: programs named after their only source.
build_all() {
    local language=$1 folder=$2 name
    shift 2
    for name; do
        if [[ $language == cuda ]]; then
            build "$name" "$folder/$name.cu" "${cuda[@]}"
        else
            build "$name" "$folder/$name.c" "${c[@]}"
        fi
    done
}

pids=() names=() link=()
build plain_static memory/plain.cu "${cuda[@]}"
build plain_shared memory/plain.cu "${cuda[@]}" -cudart shared -Xlinker "-rpath,$CUDA/lib64"
build plain_per_thread memory/plain.cu "${cuda[@]}" --default-stream per-thread
build driver_kernels.fatbin lookup/driver_kernels.cu "${cuda[@]}" -fatbin
build_all cuda memory app_pools barrier capture capture_threads corruption device_printf first getinfo managed oom \
    order out_of_bounds persistent slabs soak spill turns
build_all cuda guard fails guards
build_all cuda speed host_copies random_turns threads_work
build_all cuda devices devices launch_room managed_room neighbour peers reset
build_all cuda process ends forked others own_graphs
build barrier_variable memory/barrier.cu "${cuda[@]}" -DMANAGED_VARIABLE
link=("${link_cuda[@]}")
build_all cuda memory bench ipc many pitch
build_all cuda pinned pinned
build_all cuda paging paging shared
build_all cuda devices full kept
build_all cuda process life sleeps
build_all cuda replay changed_copies early graph_bytes graph_loop launches
build holders memory/holders.cu "${cuda[@]}" -g
build waits process/waits.cu "${cuda[@]}" -g
build libholders_plugin.so memory/holders.cu "${cuda[@]}" -g -DPLUGIN -shared -Xcompiler -fPIC
build_all c memory counted
build_all c devices contexts contexts_two green
build_all c lookup launch_pointer
build hostile_copies ../hostile/memory/copies.c "${c[@]}" -pthread
build driver_linked lookup/driver.c "${c[@]}"
build scope_linked ../preload/lookup/lookup_scope.c "${c[@]}" -DLINKED
build libscope_linked.so ../preload/lookup/scope.c "${c[@]}" -DLINKED -shared
build libdeep.so process/life.cu "${cuda[@]}" -shared -Xcompiler -fPIC -cudart static
link=(-ldl)
build driver_dlsym lookup/driver.c "${c[@]}" -DVIA_DLSYM
build scope_opened ../preload/lookup/lookup_scope.c "${c[@]}"
build libscope_opened.so ../preload/lookup/scope.c "${c[@]}" -shared
build_all c lookup bypass
build_all c process startup
build_all cuda frameworks cublas_capture
build sim_truth sim_truth "${c[@]}" -pthread

failed=0
for i in "${!pids[@]}"; do
    if ! wait "${pids[i]}"; then
        rm -f "${names[i]}"
        echo "could not build ${names[i]##*/}:"
        cat "${names[i]}.log"
        failed=1
    fi
done
exit $failed
