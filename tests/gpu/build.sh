#!/usr/bin/env bash
# Builds every program of the GPU suite, all at once. usage: build.sh FOLDER [ARCH]
set -u
HERE=$(cd "$(dirname "$0")" && pwd)
BIN=${1:?usage: build.sh FOLDER [ARCH]}
ARCH=${2:-native}
NVCC=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
CUDA=$(cd "$(dirname "$(readlink -f "$NVCC")")/.." && pwd)
mkdir -p "$BIN" || exit 1
BIN=$(cd "$BIN" && pwd)

cuda=("$NVCC" -O2 -std=c++17 "-arch=$ARCH" -Wno-deprecated-gpu-targets
    -Xcompiler -Wall,-Wextra,-Wno-missing-field-initializers)
c=("${CC:-gcc}" -O2 -fPIC -std=gnu11 -Wall -Wextra "-I$CUDA/include")
link_cuda=("-L$CUDA/lib64/stubs" -lcuda)

# build TARGET SOURCE COMMAND...: unless the target is newer than its sources.
build() {
    local target=$BIN/$1 source=$HERE/$2
    shift 2
    if [[ $target -nt $source && $target -nt $HERE/check.h && $target -nt $HERE/driver.h &&
        $target -nt $HERE/graph.h && $target -nt $HERE/own.h && $target -nt $HERE/build.sh ]]; then
        return
    fi
    "$@" "$source" -o "$target" "${link[@]}" >"$target.log" 2>&1 &
    pids+=($!)
    names+=("$target")
}

pids=() names=() link=()
build plain_static plain.cu "${cuda[@]}"
build plain_shared plain.cu "${cuda[@]}" -cudart shared -Xlinker "-rpath,$CUDA/lib64"
build plain_per_thread plain.cu "${cuda[@]}" --default-stream per-thread
build driver_kernels.fatbin driver_kernels.cu "${cuda[@]}" -fatbin
for name in app_pools corruption order barrier device_printf soak getinfo reset oom capture forked peers managed \
    spill capture_threads devices out_of_bounds ends; do
    build "$name" "$name.cu" "${cuda[@]}"
done
build barrier_variable barrier.cu "${cuda[@]}" -DMANAGED_VARIABLE
link=("${link_cuda[@]}")
for name in many pitch bench ipc launches life graph_facts graph_bytes graph_loop; do
    build "$name" "$name.cu" "${cuda[@]}"
done
for name in pool_facts contexts contexts_two green counted launch_pointer; do
    build "$name" "$name.c" "${c[@]}"
done
build driver_linked driver.c "${c[@]}"
build libdeep.so life.cu "${cuda[@]}" -shared -Xcompiler -fPIC -cudart static
link=(-ldl)
build driver_dlsym driver.c "${c[@]}" -DVIA_DLSYM
build startup startup.c "${c[@]}"
build cublas_capture cublas_capture.cu "${cuda[@]}"
build sim_truth sim_truth.c "${c[@]}" -pthread
build bypass bypass.c "${c[@]}"

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
