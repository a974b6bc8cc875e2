# Guards find planted mistakes, name them exactly, find nothing in right programs, and take at most twice the time.

# finds MODE PART WRITTEN BYTES OFFSET WRONG [VAR=VALUE]: the one finding, and its line.
finds() {
    local status
    run_with ALLOGRAFT_GUARD="$1" "${@:7}" -- "$BIN/guards" "$2"
    status=$?
    ((status == 0)) || { died with $status; return 1; }
    report 'guard.findings.0.bytes == '"$4" 'guard.findings.0.first_offset == '"$5" \
        'guard.findings.0.wrong_bytes == '"$6" || return 1
    grep -c '^allograft: guard: ' "$OUT/$TAG.with.err" | grep -qx 1 || { cat "$OUT/$TAG.with.err"; return 1; }
    grep "^allograft: guard: $6 bytes were written $3 the block of $4 bytes .* at offset $5; " "$OUT/$TAG.with.err"
}

# stops PART: the device refuses the access, with an illegal address.
stops() {
    run_with ALLOGRAFT_GUARD=page -- "$BIN/guards" "$1"
    grep '^after it: 700' "$OUT/$TAG.with.out" || { cat "$OUT/$TAG.with.out" "$OUT/$TAG.with.err"; return 1; }
}

# finds_nothing VAR=VALUE... -- COMMAND...: the native output, and no finding.
finds_nothing() {
    local status
    run_native "$@"
    status=$?
    ((status == 0)) || { died native $status; return 1; }
    run_with "$@"
    status=$?
    ((status == 0)) || { died with $status; return 1; }
    compare_output || return 1
    silent || return 1
    report 'guard.guarded > 0' 'guard.written_before == 0' 'guard.written_behind == 0' \
        'guard.written_after_free == 0' || return 1
    echo "$(report guard.guarded) blocks guarded, $(report guard.checked) checks"
}

# takes MODE: pairs of cudaMalloc and cudaFree, natively and guarded, the best of three. Pages are mapped each time:
# how long that takes is only shown.
takes() {
    local i bound='w <= 2 * n'
    for i in 1 2 3; do
        run_native -- "$BIN/guards" pairs || return 1
        sed -n 's/^pairs: \(.*\) ns/pair_1mib_ns \1/p' "$OUT/$TAG.native.out" >"$OUT/guard-$1.$i.native"
        run_with ALLOGRAFT_GUARD="$1" -- "$BIN/guards" pairs || return 1
        sed -n 's/^pairs: \(.*\) ns/pair_1mib_ns \1/p' "$OUT/$TAG.with.out" >"$OUT/guard-$1.$i.with"
    done
    medians "guard-$1" --least "$OUT/guard-$1".?.native -- "$OUT/guard-$1".?.with || return 1
    tabulate "guard-$1"
    [[ $1 != page ]] || bound='w > 0'
    judge "guard-$1" pair_1mib_ns "$bound"
}

guard_checks() {
    local mode policy
    for policy in auto pool; do
        check guard/behind-$policy finds canary behind behind 1000 1000 12 ALLOGRAFT_POLICY=$policy
        check guard/before-$policy finds canary before before 3000 -8 8 ALLOGRAFT_POLICY=$policy
    done
    check guard/freed-by-kernel finds poison freed-by-kernel 'after the free of' 5000 400 16
    check guard/freed-by-copy finds poison freed-by-copy 'after the free of' 6000 5994 6
    check guard/page-behind finds page behind behind 1000 1000 12
    check guard/page-beyond stops beyond
    check guard/page-stale stops stale
    for mode in poison canary page; do
        check guard/clean-$mode finds_nothing ALLOGRAFT_GUARD=$mode -- "$BIN/guards" clean
        check guard/plain-$mode finds_nothing ALLOGRAFT_GUARD=$mode -- "$BIN/plain_static"
    done
}

guard_speed_checks() {
    local mode
    for mode in poison canary page; do
        check guard/takes-$mode takes $mode
    done
}
