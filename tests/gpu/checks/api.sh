# What else a program sees of its memory: amounts, contexts, the end of memory, capture, pitch.

# The simulated driver's rules are this driver's: every question answered as tests/sim/RULES.md says.
# With one GPU the questions about two stay open.
ask_rules() {
    local partial=()
    (($(nvidia-smi --list-gpus | wc -l) > 1)) || partial=(--partial)
    timeout 150 "$BIN/sim_truth" >"$OUT/$TAG.native.out" 2>"$OUT/$TAG.native.err" ||
        { died native $?; return 1; }
    python3 -IS "$ROOT/tests/sim/rules.py" "$ROOT/tests/sim/RULES.md" "${partial[@]}" \
        --output "$OUT/$TAG.native.out" >"$OUT/$TAG.rules" 2>&1
}

# Some answers are amounts of free memory, in which a process that just ended still counts for a while:
# what differs is asked once more.
same_rules() {
    ask_rules || { sleep 3; ask_rules; } ||
        { echo "$(grep -c '^R' "$OUT/$TAG.rules") answers differ: $(head -n 2 "$OUT/$TAG.rules" | tr '\n' ' ')"; return 1; }
    cat "$OUT/$TAG.rules"
}

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
    check sim/rules same_rules
}

api_background_checks() {
    background check api/capture same_output -- "$BIN/capture"
    background check api/pitch same_output -- "$BIN/pitch"
    background check api/peers same_output -- "$BIN/peers"
    background check api/peers-sync same_output ALLOGRAFT_FREE=sync -- "$BIN/peers"
}
