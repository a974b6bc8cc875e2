# Programs that capture their own graphs, and libraries that work inside a capture.

# several NAME [VAR=VALUE]... -- COMMAND...
# The same output by default, under the pool, with frees that wait, and managed.
several() {
    local name=$1
    shift
    background check "$name" same_output "$@"
    background check "$name-pool" same_output ALLOGRAFT_POLICY=pool "$@"
    background check "$name-sync" same_output ALLOGRAFT_FREE=sync "$@"
    background check "$name-managed" same_output ALLOGRAFT_POLICY=managed "$@"
}

# Where the toolkit and Python's packages have their libraries.
library_path() {
    local nvcc
    nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
    printf '%s' "$(dirname "$(readlink -f "$nvcc")")/../lib64"
    python3 -c 'import glob, nvidia
for folder in nvidia.__path__:
    for path in glob.glob(folder + "/*/lib"):
        print(":" + path, end="")' 2>/dev/null
}

capture_checks() {
    several capture/threads -- "$BIN/capture_threads"
    several capture/changed-copies -- "$BIN/changed_copies"
    background check capture/changed-copies-page same_output ALLOGRAFT_LIMIT=64MiB ALLOGRAFT_OOM=page ALLOGRAFT_LOG=error -- \
        "$BIN/changed_copies"
    several capture/cublas LD_LIBRARY_PATH="$(library_path)" -- "$BIN/cublas_capture"
}

capture_framework_checks() {
    # shellcheck disable=SC2034  # read by run_as
    local LIMIT_S=200
    several capture/torch-graphs -- python3 "$HERE/frameworks/torch_graphs.py" graphs
    several capture/torch-compile -- python3 "$HERE/frameworks/torch_graphs.py" compile
}
