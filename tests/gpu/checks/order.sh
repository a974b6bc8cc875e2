# Freed memory is not reused too early, and a cudaFree still orders what it orders natively.

corruption_checks() {
    local s
    for s in nonblocking blocking per-thread late-stream destroyed-{blocking,nonblocking} graph \
        capture; do
        background check "corruption/can-fail-$s" found_out "$BIN/corruption" "$s" naive
    done
    for s in blocking nonblocking; do
        background check "corruption/$s" holds 'frees.watched > 0' 'frees.drained == 0' \
            'frees.null_stream == 0' 'frees.context_fence == 0' -- ALLOGRAFT_POLICY=pool -- "$BIN/corruption" "$s"
    done
    # A barrier at each free, in either way.
    background check corruption/ordered-blocking holds 'frees.null_stream > 0' 'frees.drained == 0' \
        'frees.context_fence == 0' -- ALLOGRAFT_POLICY=pool ALLOGRAFT_FREE=ordered -- "$BIN/corruption" blocking
    background check corruption/ordered-nonblocking holds 'frees.context_fence > 0' 'frees.drained == 0' \
        -- ALLOGRAFT_POLICY=pool ALLOGRAFT_FREE=ordered -- "$BIN/corruption" nonblocking
    background check corruption/per-thread holds 'frees.drain_reasons.several_threads > 0' \
        -- ALLOGRAFT_POLICY=pool -- "$BIN/corruption" per-thread
    for s in late-stream destroyed-{blocking,nonblocking} graph; do
        background check "corruption/$s" holds 'frees.drained == 0' 'coverage.redirected > 0' \
            -- ALLOGRAFT_POLICY=pool -- "$BIN/corruption" "$s"
    done
    background check corruption/capture holds 'coverage.redirected > 0' \
        -- ALLOGRAFT_POLICY=pool -- "$BIN/corruption" capture
    for s in blocking nonblocking per-thread late-stream destroyed-{blocking,nonblocking} graph capture; do
        background check "corruption/auto-$s" holds 'coverage.redirected > 0' -- -- "$BIN/corruption" "$s"
    done
    background check corruption/ordered-capture holds 'frees.set_aside > 0' -- \
        ALLOGRAFT_POLICY=pool ALLOGRAFT_FREE=ordered -- "$BIN/corruption" capture
    for s in blocking nonblocking per-thread late-stream destroyed-nonblocking capture; do
        background check "corruption/sync-$s" holds 'frees.null_stream == 0' \
            'frees.context_fence == 0' 'coverage.redirected > 0' -- \
            ALLOGRAFT_POLICY=pool ALLOGRAFT_FREE=sync -- "$BIN/corruption" "$s"
        background check "corruption/managed-$s" holds \
            'devices.*.placements.managed.allocs > 0' -- \
            ALLOGRAFT_POLICY=managed -- "$BIN/corruption" "$s"
    done
}

# Kernels that may start early, behind a free that did not wait. `kept` says that they do where nothing is freed; what is
# replayed does so within graphs.
early_checks() {
    local s way settings
    for s in blocking nonblocking legacy per-thread event two chain kept; do
        for way in auto pool ordered sync replay managed; do
            case $way in
                auto) settings=() ;;
                ordered | sync) settings=("ALLOGRAFT_FREE=$way") ;;
                replay)
                    [[ $s == kept ]] && continue
                    settings=(ALLOGRAFT_GRAPH=all)
                    ;;
                *) settings=("ALLOGRAFT_POLICY=$way") ;;
            esac
            background check "early/$way-$s" holds 'coverage.redirected > 0' -- "${settings[@]}" -- "$BIN/early" "$s"
        done
    done
}

# What the report must say about the frees of each scenario.
order_conditions() {
    case $1 in
        cross-blocking | cross-nonblocking | cross-thread | cross-copy | cross-legacy-copy)
            printf '%s\n' 'frees.watched > 0' 'frees.drained == 0' ;;
        query-*) printf '%s\n' 'frees.late_waits.query > 0' 'frees.drained == 0' ;;
        host-function | stream-callback)
            printf '%s\n' 'frees.drained > 0' 'frees.drain_reasons.host_functions > 0' ;;
        *) printf '%s\n' 'coverage.redirected > 0' 'frees.drained == 0' ;;
    esac
}

order_checks() {
    local s conditions
    for s in cross-{nonblocking,blocking,priority,copy,late-stream,late-nonblocking} \
        cross-{destroyed,graph,thread,per-thread,per-thread-mixed,legacy-copy} query-{event,stream,elapsed} \
        host-function stream-callback; do
        mapfile -t conditions < <(order_conditions "$s")
        background check "order/$s" holds "${conditions[@]}" -- ALLOGRAFT_POLICY=pool -- "$BIN/order" "$s"
        background check "order/auto-$s" holds 'coverage.redirected > 0' -- -- "$BIN/order" "$s"
        background check "order/can-fail-$s" found_out "$BIN/order" "$s" nobarrier
    done
    for s in cross-nonblocking query-event host-function; do
        background check "order/sync-$s" holds 'frees.null_stream == 0' \
            'frees.context_fence == 0' -- ALLOGRAFT_POLICY=pool ALLOGRAFT_FREE=sync -- "$BIN/order" "$s"
        background check "order/managed-$s" holds 'devices.*.placements.managed.allocs > 0' -- \
            ALLOGRAFT_POLICY=managed -- "$BIN/order" "$s"
    done
    for s in cross-nonblocking cross-blocking query-event query-stream query-elapsed; do
        background check "order/ordered-$s" holds 'frees.drained == 0' -- \
            ALLOGRAFT_POLICY=pool ALLOGRAFT_FREE=ordered -- "$BIN/order" "$s"
    done
    persistent_checks
    others_checks
}

# A kernel that waits for another stream's later work goes on, whatever was freed before.
persistent_checks() {
    local s
    for s in null-nonblocking nonblocking-null nonblocking blocking late beside-late; do
        background check "order/persistent-$s" holds 'frees.watched > 0' 'frees.fences.events > 0' \
            'frees.drained == 0' -- ALLOGRAFT_POLICY=pool -- "$BIN/persistent" "$s"
        background check "order/persistent-ordered-$s" holds 'frees.drained == 0' -- \
            ALLOGRAFT_POLICY=pool ALLOGRAFT_FREE=ordered -- "$BIN/persistent" "$s"
        background check "order/persistent-auto-$s" holds 'coverage.redirected > 0' -- -- "$BIN/persistent" "$s"
        background check "order/can-fail-persistent-$s" found_out "$BIN/persistent" "$s" waits
    done
    for s in late beside-late; do
        background check "order/persistent-replay-$s" holds 'coverage.redirected > 0' -- \
            ALLOGRAFT_POLICY=pool ALLOGRAFT_GRAPH=all -- "$BIN/persistent" "$s"
    done
}

# While a thread is in cudaFree, others ask.
others_checks() {
    background check order/others-auto holds 'frees.drain_reasons.several_threads > 0' -- -- "$BIN/others" asks
    background check order/others-pool holds 'frees.drain_reasons.several_threads > 0' -- \
        ALLOGRAFT_POLICY=pool -- "$BIN/others" asks
    background check order/others-replay holds 'coverage.redirected > 0' -- \
        ALLOGRAFT_POLICY=pool ALLOGRAFT_GRAPH=all -- "$BIN/others" asks
    background check order/can-fail-others found_out "$BIN/others" submits
}
