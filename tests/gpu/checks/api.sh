# What else a program sees of its memory: amounts, contexts, the end of memory, capture, pitch.

# These look at how much memory is free or take all of it: one after the other.
api_checks() {
    check api/getinfo holds 'coverage.redirected > 0' -- -- "$BIN/getinfo"
    check api/getinfo-sync holds 'coverage.redirected > 0' -- ALLOGRAFT_FREE=sync -- "$BIN/getinfo"
    check api/reset same_output -- "$BIN/reset"
    check api/contexts same_output -- "$BIN/contexts" "$BIN/driver_kernels.fatbin"
    check api/out-of-memory holds 'coverage.redirected > 0' \
        'devices.*.placements.*.current_bytes == 0' -- -- "$BIN/oom"
    check api/out-of-memory-no-cache holds 'coverage.redirected > 0' -- \
        ALLOGRAFT_CACHE=0 -- "$BIN/oom"
}

api_background_checks() {
    background check api/capture same_output -- "$BIN/capture"
    background check api/pitch same_output -- "$BIN/pitch"
    background check api/peers same_output -- "$BIN/peers"
    background check api/peers-sync same_output ALLOGRAFT_FREE=sync -- "$BIN/peers"
}
