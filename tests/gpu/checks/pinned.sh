# Pinned memory that is kept (ALLOGRAFT_HOST): answers, order and bytes as natively, and how long a pair takes.

# same_pinned MODE: the same text; some of it was kept.
same_pinned() {
    same_output ALLOGRAFT_HOST="$1" ALLOGRAFT_POLICY=native -- "$BIN/pinned" answers || return $?
    report 'pinned.hits >= 4' || return 1
    echo "$(report pinned.made) large blocks were of our own making"
}

pinned_background_checks() {
    background check pinned/answers-cache same_pinned cache
    background check pinned/answers-fast same_pinned fast
    background check pinned/wait holds 'pinned.hits >= 3' 'pinned.waited >= 4' -- ALLOGRAFT_HOST=cache -- "$BIN/pinned" wait
    background check pinned/wait-native-memory holds 'pinned.waited >= 4' -- \
        ALLOGRAFT_HOST=cache ALLOGRAFT_POLICY=native -- "$BIN/pinned" wait
    background check pinned/can-fail-wait found_out "$BIN/pinned" wait nofree
    background check pinned/early-cache holds 'pinned.hits >= 9' -- ALLOGRAFT_HOST=cache -- "$BIN/pinned" early
    background check pinned/early-fast holds 'pinned.left >= 9' -- ALLOGRAFT_HOST=fast -- "$BIN/pinned" early
    background check pinned/rules-wait holds 'pinned.hits >= 3' 'pinned.waited >= 4' 'pinned.left == 0' -- \
        ALLOGRAFT_HOST=fast ALLOGRAFT_RULES='*:host=cache' -- "$BIN/pinned" wait
    background check pinned/rules-early holds 'pinned.left >= 9' -- ALLOGRAFT_RULES='*:host=fast' -- "$BIN/pinned" early
    background check pinned/by-default holds 'pinned.asked == 0' -- -- "$BIN/pinned" early
}

# pinned_in_turn FILE MODE WAY: natively and with ALLOGRAFT_HOST=WAY.
pinned_in_turn() {
    local file=$1 mode=$2 way=$3 iteration TAG
    for ((iteration = 1; iteration <= SPEED_ITERATIONS; iteration++)); do
        TAG=$file.$iteration
        run_native -- "$BIN/pinned" "$mode" || { died native $?; return 1; }
        run_with ALLOGRAFT_HOST="$way" -- "$BIN/pinned" "$mode" || { died with $?; return 1; }
    done
    medians "$file" "$OUT/$file".?.native.out -- "$OUT/$file".?.with.out || return 1
    tabulate "$file"
    echo "medians of $SPEED_ITERATIONS iterations; in the last $(report pinned.hits) of $(report pinned.asked) were kept ones," \
        "$(report pinned.waited) frees waited, $(report pinned.left) did not"
}

# Nothing may run beside these: they measure.
pinned_checks() {
    local way
    for way in cache fast; do
        if any_wanted "pinned/$way-"{pairs,4kib,1mib,64mib,after-work,first,blocks,new-16mib,new-256mib,new-1gib,new-up,new-down,new-kernel,threads-measured,threads,threads-first}; then
            measures "pinned/$way-pairs" pinned_in_turn "pinned-pairs-$way" pairs "$way"
            check "pinned/$way-4kib" bound judge "pinned-pairs-$way" pair_4kib_us 'w <= 0.3'
            check "pinned/$way-1mib" bound judge "pinned-pairs-$way" pair_1mib_us 'w <= 0.3'
            check "pinned/$way-64mib" bound judge "pinned-pairs-$way" pair_64mib_us 'w <= 0.3'
            check "pinned/$way-after-work" bound judge "pinned-pairs-$way" pair_after_work_4kib_us 'w <= n / 20'
            check "pinned/$way-first" bound judge "pinned-pairs-$way" first_256mib_us 'w <= 1.03 * n'
            measures "pinned/$way-blocks" pinned_in_turn "pinned-blocks-$way" blocks "$way"
            check "pinned/$way-new-16mib" bound judge "pinned-blocks-$way" new_16mib_us 'w <= 1.03 * n'
            check "pinned/$way-new-256mib" bound judge "pinned-blocks-$way" new_256mib_us 'w <= 1.03 * n'
            check "pinned/$way-new-1gib" bound judge "pinned-blocks-$way" new_1gib_us 'w <= n / 3'
            check "pinned/$way-new-up" bound judge "pinned-blocks-$way" new_up_gb_per_s 'w >= 0.97 * n'
            check "pinned/$way-new-down" bound judge "pinned-blocks-$way" new_down_gb_per_s 'w >= 0.97 * n'
            check "pinned/$way-new-kernel" bound judge "pinned-blocks-$way" new_kernel_gb_per_s 'w >= 0.97 * n'
            measures "pinned/$way-threads-measured" pinned_in_turn "pinned-threads-$way" threads "$way"
            check "pinned/$way-threads" bound judge "pinned-threads-$way" turn_p99_us 'w <= n / 10'
            check "pinned/$way-threads-first" bound judge "pinned-threads-$way" first_turn_p99_us 'w <= 1.03 * n'
        fi
    done
}
