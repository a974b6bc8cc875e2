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

# at_most_refused [VAR=VALUE]... -- COMMAND...
# Changes of copies may be refused (1 or 9), since the memory belongs to no context (docs/guarantees.md); what is not
# refused copies the right bytes, and the program's own memory is as natively.
at_most_refused() {
    local lines
    run_native_for_all "$@" || { died native $?; return 1; }
    run_with "$@" || { died with $?; return 1; }
    lines=$(paste -d '|' "$OUT/$TAG.native.out" "$OUT/$TAG.with.out" | awk -F '[|]' '
        { with = $2; gsub(/[19]/, "0", with); refused += $1 == with && $1 != $2; wrong += $1 != with }
        END { print NR + 0, refused + 0, wrong + 0 }')
    [[ $lines =~ ^80\ [1-9][0-9]*\ 0$ ]] || { echo "lines, with refusals, wrong: $lines"; return 1; }
    silent && echo "${lines% *} lines, and lines with refusals"
}

capture_checks() {
    several capture/threads -- "$BIN/capture_threads"
    background check capture/changed-copies same_output -- "$BIN/changed_copies"
    background check capture/changed-copies-sync same_output ALLOGRAFT_FREE=sync -- "$BIN/changed_copies"
    # The second block of 40 MiB has no room but on the host.
    background check capture/changed-copies-spill same_output ALLOGRAFT_LIMIT=64MiB ALLOGRAFT_OOM=spill \
        ALLOGRAFT_LOG=error -- "$BIN/changed_copies"
    background check capture/changed-copies-pool at_most_refused ALLOGRAFT_POLICY=pool -- "$BIN/changed_copies"
    background check capture/changed-copies-managed at_most_refused ALLOGRAFT_POLICY=managed -- "$BIN/changed_copies"
    background check capture/changed-copies-page at_most_refused ALLOGRAFT_LIMIT=64MiB ALLOGRAFT_OOM=page \
        ALLOGRAFT_LOG=error -- "$BIN/changed_copies"
    several capture/cublas LD_LIBRARY_PATH="$(library_path)" -- "$BIN/cublas_capture"
}

capture_framework_checks() {
    # shellcheck disable=SC2034  # read by run_as
    local LIMIT_S=200
    several capture/torch-graphs -- python3 "$HERE/frameworks/torch_graphs.py" graphs
    several capture/torch-compile -- python3 "$HERE/frameworks/torch_graphs.py" compile
}
