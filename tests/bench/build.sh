#!/usr/bin/env bash
# Builds the bench. usage: build.sh FOLDER [--rmm SITE_PACKAGES] [--torch] [--arch ARCH]
#   --rmm: where the wheels librmm-cu* and rapids_logger were unpacked or installed
#   --torch: with PyTorch's allocator, of the PyTorch that python3 finds
set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
case ${1:--} in
-*)
    echo "build.sh: a folder comes first, not '${1:-}'; usage:" \
        "build.sh FOLDER [--rmm SITE_PACKAGES] [--torch] [--arch ARCH]" >&2
    exit 2
    ;;
esac
FOLDER=$1
shift
NVCC=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
CUDA=$(cd "$(dirname "$(readlink -f "$NVCC")")/.." && pwd)
arch=native rmm='' torch=''
while [ $# -gt 0 ]; do
    case $1 in
    --rmm | --arch)
        [ -n "${2:-}" ] || { echo "build.sh: $1 needs a value" >&2 && exit 2; }
        if [ "$1" = --rmm ]; then rmm=$2; else arch=$2; fi
        shift
        ;;
    --torch) torch=$(python3 -c 'import os, torch; print(os.path.dirname(torch.__file__))') ;;
    *) echo "build.sh: $1 is not an option: --rmm FOLDER, --torch, --arch ARCH" >&2 && exit 2 ;;
    esac
    shift
done
mkdir -p "$FOLDER"
cxx=("${CXX:-g++}" -O2 -std=c++20 "-I$ROOT" "-I$CUDA/include" -c)
objects=() link=(-ldl)

# library FOLDER NAME: links with it, and finds it there again.
library() {
    link+=("-L$1" "-l$2" -Xlinker "-rpath,$1")
}

if [ -n "$rmm" ]; then
    [ -d "$rmm/librmm" ] || { echo "build.sh: there is no librmm in $rmm" >&2 && exit 2; }
    "${cxx[@]}" "-I$rmm/librmm/include" "-I$rmm/librmm/include/rapids" "-I$rmm/rapids_logger/include" \
        "$HERE/heap_rmm.cpp" -o "$FOLDER/heap_rmm.o" &
    objects+=("$FOLDER/heap_rmm.o")
    library "$rmm/librmm/lib64" rmm
    library "$rmm/rapids_logger/lib64" rapids_logger
fi
if [ -n "$torch" ]; then
    "${cxx[@]}" "-I$torch/include" "$HERE/heap_torch.cpp" -o "$FOLDER/heap_torch.o" &
    objects+=("$FOLDER/heap_torch.o")
    library "$torch/lib" c10
    library "$torch/lib" c10_cuda
fi
for job in $(jobs -p); do
    wait "$job"
done
"$NVCC" -O2 -std=c++17 "-arch=$arch" "-I$ROOT" "$HERE"/{bench.cu,trace.cpp,heap_cuda.cpp,device_memory.cpp} \
    "${objects[@]}" "${link[@]}" -o "$FOLDER/bench"
