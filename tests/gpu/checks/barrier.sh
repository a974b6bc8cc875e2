# The host sees what a native cudaFree would have waited for: host memory and device printf.

# Frees before the host can see anything are ordered, those after it are drained, with a reason.
barrier_checks() {
    local kind reason
    for kind in pinned registered mapped managed copied; do
        case $kind in
            registered) reason=registered_host_memory ;;
            managed) reason=managed_memory ;;
            *) reason=pinned_host_memory ;;
        esac
        background check "barrier/$kind" holds 'frees.drained >= 3' \
            "frees.drain_reasons.$reason >= 3" -- ALLOGRAFT_POLICY=pool -- "$BIN/barrier" "$kind"
        background check "barrier/auto-$kind" holds 'coverage.redirected > 0' -- -- "$BIN/barrier" "$kind"
        background check "barrier/can-fail-$kind" found_out "$BIN/barrier" "$kind" nobarrier
    done
    background check barrier/variable holds 'frees.drained >= 3' \
        'frees.drain_reasons.managed_memory >= 3' -- ALLOGRAFT_POLICY=pool -- "$BIN/barrier_variable" variable
    background check barrier/can-fail-variable found_out "$BIN/barrier_variable" variable nobarrier
    # Not "can-fail": a driver may stage what a batch reads, and wait for what it writes to pageable memory.
    for kind in batch-to batch-from; do
        background check "barrier/$kind" holds 'frees.drained >= 3' \
            'frees.drain_reasons.pageable_memory_access >= 3' -- ALLOGRAFT_POLICY=pool -- "$BIN/barrier" "$kind"
        background check "barrier/auto-$kind" holds 'coverage.redirected > 0' -- -- "$BIN/barrier" "$kind"
    done
    background check barrier/sync holds 'frees.null_stream == 0' -- \
        ALLOGRAFT_POLICY=pool ALLOGRAFT_FREE=sync -- "$BIN/barrier" pinned
    background check barrier/managed-policy holds 'devices.*.placements.managed.allocs > 0' -- \
        ALLOGRAFT_POLICY=managed -- "$BIN/barrier" pinned
}

# Device printf appears before what the host prints after the free, as natively.
printed_in_order() {
    local side
    run_native -- "$BIN/device_printf" host-line || { died native $?; return 1; }
    [[ $(tail -n1 "$OUT/$TAG.native.out") == "host line" ]] ||
        { echo "natively the host's line is not the last"; return 1; }
    run_with ALLOGRAFT_POLICY=pool -- "$BIN/device_printf" host-line || { died with $?; return 1; }
    [[ $(tail -n1 "$OUT/$TAG.with.out") == "host line" ]] ||
        { echo "the host's line is not the last"; return 1; }
    for side in native with; do # blocks print in no fixed order
        sort -o "$OUT/$TAG.$side.out" "$OUT/$TAG.$side.out"
    done
    compare_output || return 1
    report 'frees.drain_reasons.device_printf > 0' 'frees.late_waits.exit == 0' || return 1
    echo "the host's line is the last, as natively"
    ways
}

# printed END ENDED_BY: all lines of the device printf, however the program ends, also when the free
# was ordered and left the wait pending.
printed() {
    local side status
    run_native -- "$BIN/device_printf" "$1" || { died native $?; return 1; }
    run_with ALLOGRAFT_POLICY=pool ALLOGRAFT_FREE=ordered -- "$BIN/device_printf" "$1"
    status=$?
    ((status == 0)) || { died with $status; return 1; }
    for side in native with; do
        sort -o "$OUT/$TAG.$side.out" "$OUT/$TAG.$side.out"
    done
    (($(grep -c '^line' "$OUT/$TAG.native.out") == 32)) ||
        { echo "natively not all lines are printed"; return 1; }
    compare_output || return 1
    report "process.ended_by == $2" 'frees.late_waits.* > 0' 'frees.drained == 0' || return 1
    echo "$(grep -c '^line' "$OUT/$TAG.with.out") of 32 lines"
    ways
}

printf_checks() {
    background check printf/return printed return exit
    background check printf/exit printed exit exit
    background check printf/_exit printed _exit _exit
    background check printf/exec printed exec exec
    background check printf/in-order printed_in_order
}
