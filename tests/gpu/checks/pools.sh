# The program's own stream-ordered pools: the same bytes and codes, at the same cost; what is kept, and
# what goes to managed pools, where that is asked for.

# same_pools [VAR=VALUE]...: four threads with 51 allocations each, and three more. Lines that say what kind of memory it is are not compared.
same_pools() {
    LEAVE_OUT=kind: same_output "$@" -- "$BIN/app_pools" bytes || return $?
    report 'async.captured == 6' 'app_pools.*.allocs == 207'
}

# What names no pool is redirected.
same_managed() {
    LEAVE_OUT=kind: same_output ALLOGRAFT_RULES='*:async=managed' -- \
        "$BIN/app_pools" bytes || return $?
    report 'async.managed == 106' 'async.managed_own_pool == 2' 'async.captured == 6' 'app_pools.*.allocs == 101'
}

# PyTorch on the driver's stream-ordered allocator. same_torch CONDITION [VAR=VALUE]...
same_torch() {
    local condition=$1
    shift
    LIMIT_S=200 same_output ALLOGRAFT_POLICY=native PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync \
        "$@" -- python3 "$HERE/frameworks/torch_train.py" || return $?
    report "$condition"
}

# pools_in_turn FILE MODE [VAR=VALUE]...
pools_in_turn() {
    local file=$1 mode=$2 iteration TAG
    shift 2
    for ((iteration = 1; iteration <= SPEED_ITERATIONS; iteration++)); do
        TAG=$file.$iteration
        run_native -- "$BIN/app_pools" "$mode" || { died native $?; return 1; }
        run_with "$@" -- "$BIN/app_pools" "$mode" || { died with $?; return 1; }
    done
    medians "$file" "$OUT/$file".?.native.out -- "$OUT/$file".?.with.out || return 1
    tabulate "$file"
    echo "medians of $SPEED_ITERATIONS iterations"
}

pools_background_checks() {
    background check pools/bytes same_pools
    background check pools/bytes-kept same_pools ALLOGRAFT_APP_POOL_KEEP=max
    background check pools/bytes-managed same_managed
    background check pools/behind again same_output -- "$BIN/app_pools" behind
    background check pools/behind-pool again same_output ALLOGRAFT_POLICY=pool -- "$BIN/app_pools" behind
    background check pools/torch same_torch 'app_pools.*.allocs > 1000'
    background check pools/torch-managed same_torch 'async.managed > 1000' ALLOGRAFT_RULES='*:async=managed'
}

# Nothing may run beside these: they measure.
pools_checks() {
    if any_wanted pools/cost{,-measured}; then
        measures pools/cost-measured pools_in_turn pools-pairs pairs
        check pools/cost bound judge pools-pairs pair_64kib_ns 'w <= 1.05 * n + 80'
    fi
    if any_wanted pools/kept{,-measured}; then
        measures pools/kept-measured pools_in_turn pools-loop loop ALLOGRAFT_APP_POOL_KEEP=max
        check pools/kept bound judge pools-loop loop_us 'w <= n / 1.5'
    fi
}
