# What else a program sees of its memory: amounts, contexts, the end of memory, capture, pitch.

# The simulated driver's rules are this driver's: every question answered as tests/sim/RULES.md says. Most questions wait
# long, and are asked while other programs run.
ask_beside_others() {
    LIMIT_S=400 run_native -- "$BIN/sim_truth" --beside-others || { died native $?; return 1; }
    echo "$(grep -c '^R' "$OUT/$TAG.native.out") questions asked"
}

# hold_rules WORD...: holds the answers against the table. With one GPU the questions about two stay open.
hold_rules() {
    local partial=()
    (($(nvidia-smi --list-gpus | wc -l) > 1)) || partial=(--partial)
    python3 -IS "$ROOT/tests/sim/rules.py" "$ROOT/tests/sim/RULES.md" "${partial[@]}" --output "$OUT/sim.asked" "$@"
}

# What other programs may have disturbed, what no GPU had answered before, and what takes all memory is asked again; of what
# is asked twice, the last answer counts.
ask_rules() {
    local groups=() beside=$OUT/sim.beside-others.native.out
    if [[ -f $OUT/sim.asked ]]; then
        mapfile -t groups < <(hold_rules --groups)
    elif [[ -s $beside ]]; then
        cp "$beside" "$OUT/sim.asked"
        mapfile -t groups < <(hold_rules --groups)
        groups+=("managed room")
    fi
    LIMIT_S=240 run_native -- "$BIN/sim_truth" "${groups[@]}" || { died native $?; return 1; }
    cat "$OUT/$TAG.native.out" >>"$OUT/sim.asked"
    hold_rules >"$OUT/$TAG.rules" 2>&1
}

# Some answers are amounts of free memory, in which a process that just ended still counts for a while:
# what differs is asked once more.
same_rules() {
    ask_rules || { sleep 3; ask_rules; } ||
        { echo "$(sed '/^answered for/,$d' "$OUT/$TAG.rules" | grep -c '^R') answers differ: $(head -n 2 "$OUT/$TAG.rules" | tr '\n' ' ')"; return 1; }
    head -n 1 "$OUT/$TAG.rules" # what is answered for the first time follows there
}

# What is kept beside the blocks in use: a tenth, and the driver's pages.
kept_little() {
    run_native -- "$BIN/kept" || { died native $?; return 1; }
    run_with "$@" -- "$BIN/kept" || { died with $?; return 1; }
    silent || return 1
    cat "$OUT/$TAG.native.out" "$OUT/$TAG.with.out" | awk '
        $1 == "held_mib" { n = with; with = $2 }
        $1 == "wrong" { wrong += $2 }
        END { printf "%d MiB natively, %d with, %d wrong words\n", n, with, wrong
            exit !(n && with <= 1.1 * n + 40 && !wrong) }' # a pool grows by 32 MiB
}

# The device waits for what the host does after its allocation: that waits for the driver, but not for long.
kept_while_waiting() {
    holds 'coverage.redirected > 0' -- "$@" -- "$BIN/kept" waits || return 1
    awk '$1 == "waited_ms" { exit !($2 <= 400) }' "$OUT/$TAG.with.out"
}

# Another process gets what this one has freed, and allocates and frees again and again.
neighbour() {
    run_native -- "$BIN/neighbour" || { died native $?; return 1; }
    run_with "$@" -- "$BIN/neighbour" || { died with $?; return 1; }
    silent && report 'cache.hits > 10000' && medians "$TAG" "$OUT/$TAG.native.out" -- "$OUT/$TAG.with.out" &&
        judge "$TAG" freed_mib 'n >= 40 * 1024 && w >= 0.98 * n' && judge "$TAG" neighbour_mib 'w >= 0.98 * n'
}

# These look at how much memory is free or take all of it: one after the other.
api_checks() {
    check api/getinfo holds 'coverage.redirected > 0' -- -- "$BIN/getinfo"
    check api/getinfo-sync holds 'coverage.redirected > 0' -- ALLOGRAFT_FREE=sync -- "$BIN/getinfo"
    check api/kept kept_little
    check api/kept-pool kept_little ALLOGRAFT_POLICY=pool
    check api/kept-waits kept_while_waiting
    check api/kept-waits-pool kept_while_waiting ALLOGRAFT_POLICY=pool
    check api/neighbour neighbour
    check api/neighbour-pool neighbour ALLOGRAFT_POLICY=pool
    check api/neighbour-max neighbour ALLOGRAFT_CACHE=max
    check api/reset same_output -- "$BIN/reset"
    check api/contexts same_output -- "$BIN/contexts" "$BIN/driver_kernels.fatbin"
    check api/out-of-memory holds 'coverage.redirected > 0' \
        'devices.*.placements.*.current_bytes == 0' -- -- "$BIN/oom"
    check api/out-of-memory-no-cache holds 'coverage.redirected > 0' -- \
        ALLOGRAFT_CACHE=0 -- "$BIN/oom"
    check api/full same_output -- "$BIN/full"
    check api/launch-room same_output -- "$BIN/launch_room"
    check api/launch-room-sync same_output ALLOGRAFT_FREE=sync -- "$BIN/launch_room"
    check api/launch-room-pool same_output ALLOGRAFT_POLICY=pool -- "$BIN/launch_room"
    check api/launch-room-replay same_output ALLOGRAFT_GRAPH=all -- "$BIN/launch_room"
    check sim/rules same_rules
}

api_background_checks() {
    background check sim/beside-others ask_beside_others
    background check api/capture same_output -- "$BIN/capture"
    background check api/pitch same_output -- "$BIN/pitch"
    background check api/peers same_output -- "$BIN/peers"
    background check api/peers-sync same_output ALLOGRAFT_FREE=sync -- "$BIN/peers"
}
