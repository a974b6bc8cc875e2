# compute-sanitizer's memcheck finds no wrong access that it does not find natively. (Calls that return
# errors are left out: some are answered without the driver, some are tried in a pool first.)

# findings FILE: what was found, without addresses, process ids and places in memory.
findings() {
    grep '^=========' "$1" | grep -v 'COMPUTE-SANITIZER\|Host Frame\|in .*+0x\|^========= *$' |
        sed 's/0x[0-9a-f]*/ADDRESS/g; s/[0-9]* bytes \(after\|before\|inside\).*/N bytes away/' | sort
}

# sanitized COMMAND...; SANITIZED_WITH: variables of the run with the library.
SANITIZED_WITH=()
sanitized() {
    local side tool=(compute-sanitizer --tool memcheck --report-api-errors no) reports LIMIT_S=150
    command -v compute-sanitizer >/dev/null || { echo "not installed"; return $STATUS_SKIP; }
    run_native -- "${tool[@]}" "$@" || { died native $?; return 1; }
    grep -q 'ERROR SUMMARY' "$OUT/$TAG.native.out" || { echo "it does not work here"; return $STATUS_SKIP; }
    run_with "${SANITIZED_WITH[@]}" -- "${tool[@]}" "$@" || { died with $?; return 1; }
    for side in native with; do
        findings "$OUT/$TAG.$side.out" >"$OUT/$TAG.$side.findings"
    done
    cmp -s "$OUT/$TAG.native.findings" "$OUT/$TAG.with.findings" ||
        { diff "$OUT/$TAG.native.findings" "$OUT/$TAG.with.findings" | sed -n 2,5p; return 1; }
    # The program's own report: compute-sanitizer itself uses no CUDA.
    reports=("$OUT/$TAG.with."*.json)
    [[ ${#reports[@]} == 1 && -e ${reports[0]} ]] || { echo "${#reports[@]} reports"; return 1; }
    python3 -IS "$HERE/report.py" "${reports[0]}" 'coverage.redirected > 0' || return 1
    grep 'ERROR SUMMARY' "$OUT/$TAG.with.findings"
}

sanitizer_checks() {
    background check sanitizer/static sanitized "$BIN/plain_static"
    background check sanitizer/per-thread sanitized "$BIN/plain_per_thread"
    background check sanitizer/driver sanitized "$BIN/driver_linked" "$BIN/driver_kernels.fatbin"
    background check sanitizer/pitch sanitized "$BIN/pitch"
    background check sanitizer/capture sanitized "$BIN/capture_threads"
    background check sanitizer/contexts sanitized "$BIN/contexts" "$BIN/driver_kernels.fatbin"
    background check sanitizer/can-fail sanitizer_sees "$BIN/out_of_bounds"
}

# A write past the end of an allocation is found natively and with the library.
sanitizer_sees() {
    command -v compute-sanitizer >/dev/null || { echo "not installed"; return $STATUS_SKIP; }
    local side
    run_native -- compute-sanitizer --tool memcheck "$@"
    run_with -- compute-sanitizer --tool memcheck "$@"
    for side in native with; do
        grep -q 'Invalid __global__ write' "$OUT/$TAG.$side.out" ||
            { echo "$side: the write past the end is not seen"; return 1; }
    done
    echo "a write past the end is seen"
}
