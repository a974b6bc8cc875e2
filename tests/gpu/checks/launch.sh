# ALLOGRAFT_PREFETCH=launch: what a launch costs that needs nothing, what the first one gains, same bytes.

WATCHED=(ALLOGRAFT_POLICY=managed ALLOGRAFT_PREFETCH=launch)

# All ways in turn; the quickest process of each counts, as for unmarked_costs in graph.sh.
launch_costs() {
    local iteration TAG way
    for ((iteration = 1; iteration <= SPEED_ITERATIONS; iteration++)); do
        TAG=launch.few.$iteration
        run_native -- "$BIN/launches" cost || { died native $?; return 1; }
        TAG=launch.many.$iteration
        run_native -- "$BIN/launches" cost 1000 || { died native $?; return 1; }
        TAG=launch.unwatched.$iteration
        run_with -- "$BIN/launches" cost || { died with $?; return 1; }
        report 'managed.launches_looked_at == 0' || return 1
        TAG=launch.settled.$iteration
        run_with "${WATCHED[@]}" -- "$BIN/launches" cost || { died with $?; return 1; }
        TAG=launch.blocks.$iteration
        run_with "${WATCHED[@]}" -- "$BIN/launches" cost 1000 || { died with $?; return 1; }
        report 'managed.launches_looked_at > 100000' 'managed.launch_prefetches == 1007' \
            'managed.launches_of_unknown_layout == 0' || return 1
    done
    for way in unwatched settled blocks; do
        local native=few
        [[ $way == blocks ]] && native=many
        medians "launch-$way" --where-least own_ns "$OUT"/launch.$native.?.native.out -- \
            "$OUT"/launch.$way.?.with.out || return 1
    done
    table launches native "not watched" "8 blocks, nothing to do" "native, 1000 blocks" \
        "1000 blocks, nothing to do"
    for way in {runtime,linked,own,runtime_more,linked_more}_ns; do
        figure "$way" "$(launch_value unwatched $way 2)" "$(launch_value unwatched $way 3)" \
            "$(launch_value settled $way 3)" "$(launch_value blocks $way 2)" "$(launch_value blocks $way 3)"
    done
    echo "the quickest of $SPEED_ITERATIONS iterations"
}

launch_value() {
    awk -v name="$2" -v column="$3" '$1 == name { print $column }' "$OUT/launch-$1"
}

# Each way of prefetching in one run of its own, then the one promised against doing nothing.
first_launch() {
    local way TAG values=()
    TAG=launch.first.native
    run_native -- "$BIN/launches" first || { died native $?; return 1; }
    for way in off alloc launch; do
        TAG=launch.first.$way
        run_with ALLOGRAFT_POLICY=managed ALLOGRAFT_MANAGED_BACKEND=plain ALLOGRAFT_PREFETCH=$way -- \
            "$BIN/launches" first || { died with $?; return 1; }
    done
    report 'managed.launch_prefetches == 1' 'managed.launch_prefetches_failed == 0' || return 1
    table launch-first native "prefetch=off" "prefetch=alloc" "prefetch=launch"
    for way in alloc_ms first_launch_ms first_ms second_launch_ms second_ms; do
        values=()
        for TAG in native.native off.with alloc.with launch.with; do
            values+=("$(awk -v name=$way '$1 == name { print $2 }' "$OUT/launch.first.$TAG.out")")
        done
        figure "$way" "${values[@]}"
    done
    cat "$OUT/launch.first.off.with.out" "$OUT/launch.first.launch.with.out" |
        awk '$1 == "first_ms" { without = with; with = $2 }
            END { printf "first kernel %s ms, without prefetch %s ms\n", with, without
                exit !(with * 2 <= without) }'
}

# What the driver tells of parameters: for whoever reads the output of a failed check.
told_layouts() {
    run_native -- "$BIN/launches" layouts || { died native $?; return 1; }
    cat "$OUT/$TAG.native.out"
    grep -q '^given kernel asked as kernel: (0,8) (8,8) (16,8) (24,8) (32,8) (40,8) (48,8) (56,8) then code 1$' \
        "$OUT/$TAG.native.out"
}

launch_background_checks() {
    local name
    for name in plain_static plain_shared plain_per_thread capture; do
        background check "launch/same-$name" same_output "${WATCHED[@]}" -- "$BIN/$name"
    done
    background check launch/same-rule same_output \
        'ALLOGRAFT_RULES=size>=1MiB:managed,prefetch=launch' -- "$BIN/plain_static"
    background check launch/same-torch same_output "${WATCHED[@]}" -- python3 "$HERE/frameworks/torch_train.py"
    background check launch/same-triton same_output "${WATCHED[@]}" -- python3 "$HERE/frameworks/triton_kernel.py"
    LIMIT_S=30 background check launch/held holds 'managed.launch_prefetches >= 4' \
        'managed.launch_prefetches_failed == 0' -- "${WATCHED[@]}" -- "$BIN/launches" held
    background check launch/layouts told_layouts
}

launch_checks() {
    if any_wanted launch/{cost,unwatched,settled,blocks}{,-linked}; then
        measures launch/cost launch_costs
        # More than the driver's own function takes in the same process: one process is a third slower than the next.
        check launch/unwatched bound judge launch-unwatched runtime_more_ns 'w <= n + 50'
        check launch/unwatched-linked bound judge launch-unwatched linked_more_ns 'w <= n + 50'
        check launch/settled bound judge launch-settled runtime_more_ns 'w <= n + 300'
        check launch/settled-linked bound judge launch-settled linked_more_ns 'w <= n + 300'
        check launch/blocks bound judge launch-blocks runtime_more_ns 'w <= n + 300'
        check launch/blocks-linked bound judge launch-blocks linked_more_ns 'w <= n + 300'
    fi
    check launch/first first_launch
}
