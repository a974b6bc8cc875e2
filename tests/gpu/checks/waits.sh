# ALLOGRAFT_WAIT: waits that sleep are the same waits, and leave their core to others.

WAIT_KINDS=(legacy blocking own event device copy apart device_apart event_apart)

# same_waits WAY PART: the same lines as natively; something slept, where it can.
same_waits() {
    same_output ALLOGRAFT_WAIT="$1" -- "$BIN/sleeps" "$2" || return 1
    case $1-$2 in
        sleep-spin) report 'waiting.slept == 0' 'waiting.flags > 0' ;;
        sleep-right) report 'waiting.slept > 100' ;;
        sleep-broken) ;;
        sleep-*) report 'waiting.slept > 0' ;;
    esac
}

waits_background_checks() {
    local way part
    for way in sleep auto; do
        for part in right later later-all apart captures broken spin; do
            background check "waits/$way-$part" same_waits "$way" "$part"
        done
    done
}

# measure_waits WAY: natively and with the library in turns.
measure_waits() {
    local iteration TAG
    for ((iteration = 1; iteration <= SPEED_ITERATIONS; iteration++)); do
        TAG=waits-$1.$iteration
        run_native -- "$BIN/sleeps" measure || { died native $?; return 1; }
        run_with ALLOGRAFT_WAIT="$1" -- "$BIN/sleeps" measure || { died with $?; return 1; }
    done
    medians "waits-$1" "$OUT/waits-$1".?.native.out -- "$OUT/waits-$1".?.with.out || return 1
    echo "medians of $SPEED_ITERATIONS iterations"
    tabulate "waits-$1"
}

# Waits of varying length, against those for which the driver sleeps.
measure_varied_waits() {
    local iteration TAG
    for ((iteration = 1; iteration <= SPEED_ITERATIONS; iteration++)); do
        TAG=waits-varied.$iteration
        run_native -- "$BIN/sleeps" blocked || { died native $?; return 1; }
        run_with ALLOGRAFT_WAIT=sleep -- "$BIN/sleeps" varied || { died with $?; return 1; }
    done
    medians waits-varied "$OUT"/waits-varied.?.native.out -- "$OUT"/waits-varied.?.with.out || return 1
    echo "medians of $SPEED_ITERATIONS iterations"
    tabulate waits-varied
}

# Natively: what the driver remembers of events that block, and of those of a context.
waits_history() {
    run_native -- "$BIN/sleeps" history || { died native $?; return 1; }
    paste -sd ';' "$OUT/$TAG.native.out"
}

waits_varied_checks() {
    local kind pattern name names=()
    for kind in blocking event device; do
        for pattern in turns any; do
            names+=("waits/varied-core-$kind-$pattern" "waits/varied-late-$kind-$pattern")
        done
    done
    any_wanted waits/varied-measured "${names[@]}" || return 0
    : >"$OUT/waits-varied"
    measures waits/varied-measured measure_varied_waits
    for kind in blocking event device; do
        for pattern in turns any; do
            name=${kind}_$pattern
            check "waits/varied-core-$kind-$pattern" bound judge waits-varied "${name}_core_percent" 'w <= 10'
            check "waits/varied-late-$kind-$pattern" bound judge waits-varied "${name}_late_us" 'w <= n + 20'
        done
    done
}

waits_checks() {
    local kind
    check waits/history waits_history
    waits_varied_checks
    any_wanted waits/{records,{sleep,auto}-{measured,idle-{stream,event,device}},auto-later-{stream,event,device}} ||
        any_wanted "${WAIT_KINDS[@]/#/waits/sleep-core-}" \
        "${WAIT_KINDS[@]/#/waits/sleep-late-}" "${WAIT_KINDS[@]/#/waits/auto-short-}" \
        "${WAIT_KINDS[@]/#/waits/auto-core-}" "${WAIT_KINDS[@]/#/waits/auto-late-}" || return 0
    : >"$OUT/waits-sleep"
    : >"$OUT/waits-auto"
    measures waits/sleep-measured measure_waits sleep
    check waits/records bound judge waits-sleep record_done_us 'w <= 1.02 * n || w <= n + 0.05'
    for kind in "${WAIT_KINDS[@]}"; do
        check "waits/sleep-core-$kind" bound judge waits-sleep "${kind}_5ms_core_percent" 'w <= 4'
        check "waits/sleep-late-$kind" bound judge waits-sleep "${kind}_5ms_us" 'w <= n + 100'
    done
    # 2.4 to 2.9 us, of which ours are a query and the guard of captures. The driver alone takes no longer after events
    # that block (waits/history).
    for kind in stream event; do
        check "waits/sleep-idle-$kind" bound judge waits-sleep "idle_${kind}_us" 'w <= n + 4'
    done
    measures waits/auto-measured measure_waits auto
    for kind in "${WAIT_KINDS[@]}"; do
        check "waits/auto-short-$kind" bound judge waits-auto "${kind}_10us_us" 'w <= 1.3 * n'
        check "waits/auto-core-$kind" bound judge waits-auto "${kind}_5ms_core_percent" 'w <= 4'
        check "waits/auto-late-$kind" bound judge waits-auto "${kind}_5ms_us" 'w <= n + 50'
    done
    for kind in stream event device; do
        check "waits/auto-idle-$kind" bound judge waits-auto "idle_${kind}_us" 'w <= n + 0.5'
        check "waits/auto-later-$kind" bound judge waits-auto "later_idle_${kind}_us" 'w <= n + 0.5'
    done
}
