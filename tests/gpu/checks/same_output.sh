# Unmodified programs through every lookup path print the same with and without the library.

same_output_checks() {
    local policy
    background check same/static same_output -- "$BIN/plain_static"
    background check same/shared same_output -- "$BIN/plain_shared"
    background check same/per-thread same_output -- "$BIN/plain_per_thread"
    background check same/driver-linked same_output -- \
        "$BIN/driver_linked" "$BIN/driver_kernels.fatbin"
    background check same/driver-dlsym same_output -- \
        "$BIN/driver_dlsym" "$BIN/driver_kernels.fatbin"
    for policy in ALLOGRAFT_FREE=sync ALLOGRAFT_FREE=ordered ALLOGRAFT_POLICY=native ALLOGRAFT_POLICY=pool; do
        background check "same/per-thread-${policy##*=}" same_output "$policy" -- \
            "$BIN/plain_per_thread"
    done
}

# These look at how much memory is free: nothing else may run beside them.
same_many_checks() {
    check same/many same_output -- "$BIN/many"
    check same/many-pool same_output ALLOGRAFT_POLICY=pool -- "$BIN/many"
    check same/many-sync same_output ALLOGRAFT_FREE=sync -- "$BIN/many"
    check same/many-ordered same_output ALLOGRAFT_FREE=ordered -- "$BIN/many"
    check same/many-native same_output ALLOGRAFT_POLICY=native -- "$BIN/many"
    LEAVE_OUT=placement: check same/many-managed same_output ALLOGRAFT_POLICY=managed -- \
        "$BIN/many" modest
}

# Frameworks come with threads, libraries, compilers and allocators of their own.
framework() {
    local name=$1
    shift
    background check "same/$name" same_output "$@"
}

same_framework_checks() {
    # shellcheck disable=SC2034  # read by run_as
    local LIMIT_S=200
    framework torch -- python3 "$HERE/frameworks/torch_train.py"
    framework torch-uncached PYTORCH_NO_CUDA_MEMORY_CACHING=1 -- python3 "$HERE/frameworks/torch_train.py"
    framework jax-platform XLA_PYTHON_CLIENT_ALLOCATOR=platform -- python3 "$HERE/frameworks/jax_loop.py"
    framework jax -- python3 "$HERE/frameworks/jax_loop.py"
    framework cupy -- python3 "$HERE/frameworks/cupy_loop.py"
    framework cupy-nopool -- python3 "$HERE/frameworks/cupy_loop.py" nopool
    framework triton -- python3 "$HERE/frameworks/triton_kernel.py"
}
