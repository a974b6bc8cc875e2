# Managed memory at the speed of device memory, and programs that need more than they are given.
# Nothing here asks for more than 8 GiB of managed memory, far below what a card has free, but for managed/room: 80 % of it.

# in_turn FILE MODE [VAR=VALUE]...: medians of `managed MODE`, natively and with the library in turn;
# a last run has the program ask for managed memory itself, for the table.
in_turn() {
    local file=$1 mode=$2 iteration TAG
    shift 2
    for ((iteration = 1; iteration <= SPEED_ITERATIONS; iteration++)); do
        TAG=$file.$iteration
        run_native -- "$BIN/managed" "$mode" || { died native $?; return 1; }
        run_with "$@" -- "$BIN/managed" "$mode" || { died with $?; return 1; }
        report 'coverage.redirected > 0' 'devices.*.placements.managed.allocs > 0' \
            'devices.*.placements.pool.allocs == 0' || return 1
    done
    TAG=$file.naive
    run_native -- "$BIN/managed" "$mode" naive || { died native $?; return 1; }
    medians "$file" "${OF:---median}" "$OUT/$file".?.native.out -- "$OUT/$file".?.with.out || return 1
    table "$file" native with times "the program's own managed memory"
    local name native with ratio
    while read -r name native with ratio; do
        figure "$name" "$native" "$with" "${ratio}x" \
            "$(awk -v name="$name" '$1 == name { print $2 }' "$OUT/$file.naive.native.out")"
    done <"$OUT/$file"
    echo "${OF:---median} of $SPEED_ITERATIONS iterations"
}

# judge FILE NAME CONDITION: an awk condition on n, the native figure, and w, that with the library.
judge() {
    awk -v name="$2" -v wanted="$3" '
        $1 == name { n = $2; w = $3; found = 1; good = ('"$3"')
            printf "native %s, with %s (wanted %s)\n", n, w, wanted }
        END { if (!found) print "not measured"; exit !(found && good) }' "$OUT/$1"
}

# room [WORD] [VAR=VALUE]...: memory that the program makes managed itself is as fast as natively, whatever was freed.
room() {
    local words=()
    [[ ${1:-} == prefetch ]] && { words=(prefetch); shift; }
    run_native -- "$BIN/managed_room" "${words[@]}" || { died native $?; return 1; }
    run_with "$@" -- "$BIN/managed_room" "${words[@]}" || { died with $?; return 1; }
    silent && medians "$TAG" "$OUT/$TAG.native.out" -- "$OUT/$TAG.with.out" &&
        judge "$TAG" managed_gb_per_s 'w >= 0.9 * n'
}

managed_room_checks() {
    check managed/room again room
    check managed/room-prefetch again room prefetch
    check managed/room-pool again room prefetch ALLOGRAFT_POLICY=pool
}

managed_speed_checks() {
    if any_wanted managed/{measured,ready,ready-again,first-touch,first-touch-again,steady}; then
        measures managed/measured in_turn managed-stream stream ALLOGRAFT_POLICY=managed
        check managed/ready bound judge managed-stream ready_first_ms 'w <= 15' # 8 to 13 ms, by the host
        check managed/ready-again bound judge managed-stream ready_again_us 'w <= 10'
        check managed/first-touch bound judge managed-stream touch_first_ms 'w <= 1.3 * n'
        check managed/first-touch-again bound judge managed-stream touch_again_ms 'w <= 1.3 * n'
        check managed/steady bound judge managed-stream copy_gb_per_s 'w >= 0.99 * n'
    fi
    if any_wanted managed/pairs-{pool,plain}{,-large,-measured} managed/pairs-uncached{,-measured}; then
        measures managed/pairs-pool-measured in_turn managed-pairs-pool pairs \
            ALLOGRAFT_POLICY=managed ALLOGRAFT_MANAGED_BACKEND=pool
        check managed/pairs-pool bound judge managed-pairs-pool pair_1mib_ns 'w <= 2000'
        measures managed/pairs-plain-measured in_turn managed-pairs-plain pairs \
            ALLOGRAFT_POLICY=managed ALLOGRAFT_MANAGED_BACKEND=plain
        check managed/pairs-plain bound judge managed-pairs-plain pair_1mib_ns 'w <= 4000'
        check managed/pairs-plain-large bound judge managed-pairs-plain pair_1gib_ns 'w <= 4000'
        # Every pair goes to the driver's pool, and every free is ordered: what is left of the gain.
        measures managed/pairs-uncached-measured in_turn managed-pairs-uncached pairs \
            ALLOGRAFT_POLICY=managed ALLOGRAFT_MANAGED_BACKEND=pool ALLOGRAFT_CACHE=0
        check managed/pairs-uncached bound judge managed-pairs-uncached pair_1mib_ns 'w < n'
    fi
}

# Training from cudaMalloc's memory and from managed memory: same losses, and as fast.
trained() {
    local iteration status LIMIT_S=120 iterations=3
    [[ $QUICK ]] && iterations=1 # the device is what takes the time, the same in each process
    for ((iteration = 1; iteration <= iterations; iteration++)); do
        LEAVE_OUT=step_ms same_output ALLOGRAFT_POLICY=managed -- \
            python3 "$HERE/frameworks/torch_speed.py" >"$OUT/$TAG.verdict"
        status=$?
        ((status == 0)) || { cat "$OUT/$TAG.verdict"; return $status; }
        report 'devices.*.placements.managed.allocs > 0' || return 1
        grep step_ms "$OUT/$TAG.native.out" >"$OUT/managed-training.$iteration.native"
        grep step_ms "$OUT/$TAG.with.out" >"$OUT/managed-training.$iteration.with"
    done
    cat "$OUT/$TAG.verdict"
    medians managed-training "$OUT"/managed-training.?.native -- "$OUT"/managed-training.?.with || return 1
    tabulate managed-training
    judge managed-training step_ms 'w <= 1.03 * n'
}

# Three times what it is given: the same bytes, the bus is used well, and what stayed on the device is read as natively.
spilled() {
    local native pinned
    LEAVE_OUT=figure same_output ALLOGRAFT_LIMIT=2GiB ALLOGRAFT_OOM=spill "$@" -- \
        "$BIN/spill" bytes || return 1
    report 'pressure.spilled >= 8' 'pressure.over_limit > 0' 'pressure.refused == 0' || return 1
    sed -n 's/^figure //p' "$OUT/$TAG.with.out"
    if sed -n 's/^figure //p' "$OUT/$TAG.native.out" | grep '^spilled_blocks [^0]'; then
        return 1
    fi
    native=$(sed -n 's/^figure device_read_gb_per_s //p' "$OUT/$TAG.native.out")
    # 36 to 51 GB/s, by the host: then as fast as pinned memory is read, nearly.
    pinned=$(sed -n 's/^figure pinned_read_gb_per_s //p' "$OUT/$TAG.with.out")
    # A device too small for two blocks, or one that is not limited at all, is no test.
    fulfils spilled_blocks '>= 8' && fulfils spilled_blocks '<= 10' &&
        fulfils spilled_read_gb_per_s ">= (0.85 * $pinned < 45 ? 0.85 * $pinned : 45)" && fulfils device_read_gb_per_s ">= 0.9 * $native" || return 1
    table "${TAG//./-}" with
    sed -n 's/^figure //p' "$OUT/$TAG.with.out" | while read -r name value; do
        figure "$name" "$value"
    done
}

# fulfils NAME CONDITION: a figure of the run with the library.
fulfils() {
    sed 's/^figure //' "$OUT/$TAG.with.out" | awk -v name="$1" -v wanted="$2" '
        $1 == name { found = 1; good = ($2 '"$2"'); if (!good) print name, $2 ", wanted", wanted }
        END { if (!found) print name, "is not there"; exit !(found && good) }'
}

# As on a card of that size: an error in time, the program goes on, what it freed can be had again.
limited() {
    run_native -- "$BIN/spill" exhaust || { died native $?; return 1; }
    grep -q '^blocks 12$' "$OUT/$TAG.native.out" || { echo "natively there is too little"; return 1; }
    run_with ALLOGRAFT_LIMIT=2GiB ALLOGRAFT_OOM=error -- "$BIN/spill" exhaust ||
        { died with $?; return 1; }
    tr '\n' ';' <"$OUT/$TAG.with.out"
    silent && fulfils total_mib '== 2048' && fulfils blocks '>= 3' && fulfils blocks '<= 4' &&
        fulfils code '== 2' && fulfils free_mib '< 512' && fulfils free_mib '>= 0' &&
        fulfils right ">= $(awk '$1 == "blocks" { print $2 }' "$OUT/$TAG.with.out")" &&
        fulfils again '== "cudaSuccess"' && report 'pressure.refused > 0' 'pressure.spilled == 0'
}

# PyTorch gives its cache back and tries again, as it does where it is itself told to use no more.
retried() {
    run_native -- python3 "$HERE/frameworks/torch_retry.py" share
    local status=$?
    ((status == STATUS_SKIP)) && { echo "not possible here"; return $STATUS_SKIP; }
    ((status == 0)) || { died native $status; return 1; }
    grep -q 'retries: some' "$OUT/$TAG.native.out" || { echo "natively nothing is retried"; return 1; }
    run_with ALLOGRAFT_LIMIT=2GiB ALLOGRAFT_OOM=error "$@" -- python3 "$HERE/frameworks/torch_retry.py" ||
        { died with $?; return 1; }
    compare_output && silent && report 'pressure.refused > 0' || return 1
    echo "$(wc -l <"$OUT/$TAG.with.out") lines equal"
}

# A spilled block becomes device memory once there is room, and only if asked to.
unspilled() {
    run_native -- "$BIN/spill" room || { died native $?; return 1; }
    run_with ALLOGRAFT_LIMIT=2GiB ALLOGRAFT_OOM=spill ALLOGRAFT_UNSPILL="$1" -- "$BIN/spill" room ||
        { died with $?; return 1; }
    tr '\n' ';' <"$OUT/$TAG.with.out"
    silent && fulfils spilled '== 1' && fulfils bytes '== "right"' || return 1
    if [[ $1 == 1 ]]; then
        fulfils before_gb_per_s '< 100' && fulfils after_gb_per_s '>= 500' &&
            report 'pressure.unspilled == 1'
    else
        fulfils after_gb_per_s '< 100' && report 'pressure.unspilled == 0'
    fi
}

# PyTorch with most of its memory on the host computes the same.
spilled_torch() {
    LIMIT_S=120 same_output ALLOGRAFT_LIMIT=16MiB ALLOGRAFT_OOM=spill -- \
        python3 "$HERE/frameworks/torch_train.py" || return $?
    report 'pressure.spilled > 0'
}

managed_background_checks() {
    background check spill/torch-retry retried
    background check spill/torch-retry-managed retried ALLOGRAFT_POLICY=managed
    background check spill/torch spilled_torch
}

# Nothing may run beside these: they measure.
managed_checks() {
    managed_room_checks
    managed_speed_checks
    check managed/torch-training again trained
    check spill/bytes again spilled
    check spill/bytes-sync again spilled ALLOGRAFT_FREE=sync
    check spill/error limited
    check spill/unspill unspilled 1
    check spill/no-unspill unspilled 0
}
