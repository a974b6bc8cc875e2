# Many threads, sizes and streams for a while: no wrong byte, nothing left behind.

# soaked SECONDS MIB_PER_THREAD [VAR=VALUE]...
soaked() {
    local seconds=$1 mib=$2 status LIMIT_S=$(($1 + 60))
    shift 2
    run_with "$@" -- "$BIN/soak" "$seconds" "$mib"
    status=$?
    tail -n1 "$OUT/$TAG.with.out"
    ((status == 0)) || { died with $status; return 1; }
    silent || return 1
    report 'coverage.redirected > 0' 'devices.*.placements.*.current_bytes == 0' \
        'devices.*.placements.*.current_blocks == 0' || return 1
    ways
}

soaked_natively() {
    run_native -- "$BIN/soak" 3 || { died native $?; return 1; }
    tail -n1 "$OUT/$TAG.native.out"
}

soak_checks() {
    background check soak/can-fail found_out "$BIN/soak" 2 256 planted
    background check soak/native soaked_natively
    background check soak/sync soaked 4 256 ALLOGRAFT_FREE=sync
    background check soak/ordered soaked 4 256 ALLOGRAFT_FREE=ordered
    background check soak/pool soaked 4 256 ALLOGRAFT_POLICY=pool
    background check soak/auto soaked 4 256 ALLOGRAFT_POLICY=auto
    background check soak/no-cache soaked 4 256 ALLOGRAFT_CACHE=0
    background check soak/little-pending soaked 4 256 ALLOGRAFT_PENDING=64MiB
    # Managed memory is kept far below what the device has, also what waits to be freed.
    background check soak/managed soaked 4 64 ALLOGRAFT_POLICY=managed ALLOGRAFT_CACHE=256MiB \
        ALLOGRAFT_PENDING=256MiB
    wait_for_background
    check soak/long soaked "$SOAK_S" 256
}
