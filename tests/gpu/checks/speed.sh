# How fast it is against the native driver, measured in turn in one run of the suite.

# Alternates native runs and runs with the library, so that both see the same machine.
measure_speed() {
    local iteration TAG
    for ((iteration = 1; iteration <= SPEED_ITERATIONS; iteration++)); do
        TAG=speed.$iteration
        run_native -- "$BIN/bench" || { died native $?; return 1; }
        run_with -- "$BIN/bench" || { died with $?; return 1; }
    done
    medians speed "$OUT"/speed.?.native.out -- "$OUT"/speed.?.with.out || return 1
    python3 -IS "$HERE/medians.py" --least "$OUT"/speed.?.native.out -- "$OUT"/speed.?.with.out \
        >"$OUT/speed-best" || return 1
    echo "medians of $SPEED_ITERATIONS iterations"
    beside sync ALLOGRAFT_FREE=sync -- "$BIN/bench"
    beside pinned -- "$BIN/bench" pinned
    table speed native with times "with, FREE=sync" "with, pinned memory held"
    local name native with ratio
    while read -r name native with ratio; do
        figure "$name" "$native" "$with" "${ratio}x" "$(beside_value sync "$name")" \
            "$(beside_value pinned "$name")"
    done <"$OUT/speed"
}

# What allocating and freeing adds to kernels, and what hides a slow allocator: for the table.
measure_turns() {
    local iteration TAG
    for ((iteration = 1; iteration <= SPEED_ITERATIONS; iteration++)); do
        TAG=speed-turns.$iteration
        run_native -- "$BIN/turns" || { died native $?; return 1; }
        run_with -- "$BIN/turns" || { died with $?; return 1; }
    done
    medians speed-turns "$OUT"/speed-turns.?.native.out -- "$OUT"/speed-turns.?.with.out || return 1
    echo "medians of $SPEED_ITERATIONS iterations"
    tabulate speed-turns
}

# Ten blocks freed in a row after work on three streams.
ten_frees() {
    run_with -- "$BIN/turns" ten-frees || { died with $?; return 1; }
    local n barriers
    n=$(tail -n1 "$OUT/$TAG.with.out")
    barriers=$(report frees.fences.barriers) || return 1
    echo "$barriers barriers for $n times ten frees"
    table ten-frees with
    figure "barriers_of_${n}_times_ten_frees" "$barriers"
}

# beside WHAT [VAR=VALUE]... -- COMMAND...: one more run with the library, for the table only.
beside() {
    local TAG=speed-$1
    shift
    run_with "$@" || died with $?
}

beside_value() {
    awk -v name="$2" '$1 == name { print $2 }' "$OUT/speed-$1.with.out"
}

# ratio NAME AT_LEAST: how many times better than native.
ratio() {
    awk -v name="$1" -v wanted="$2" '
        $1 == name { found = 1; good = $4 >= wanted
            printf "native %s, with %s, %sx (wanted %sx)\n", $2, $3, $4, wanted }
        END { if (!found) print "not measured"; exit !(found && good) }' "$OUT/speed"
}

# value NAME AT_LEAST: the figure with the library, in the best of the iterations.
value() {
    awk -v name="$1" -v wanted="$2" '
        $1 == name { found = 1; good = $3 >= wanted
            printf "native %s, with %s (wanted %s)\n", $2, $3, wanted }
        END { if (!found) print "not measured"; exit !(found && good) }' "$OUT/speed-best"
}

# A process that allocates little, that often each way. On some hosts a process has one of two speeds, by chance, and the
# medians of 21 are those of the way that had the slow one more often (H200, few_us: six of 21 native processes took 1549
# to 1751 us and four of 21 with the library 1532 to 1645, the others 2065 to 2763 and 1821 to 2828). So the quickest of
# each way is judged, as what disturbs a process only makes it slower. The page has all of them.
FIRST_PROCESSES=21
measure_first() {
    local i TAG
    for ((i = 1; i <= FIRST_PROCESSES; i++)); do
        TAG=first.$i
        run_native -- "$BIN/first" || { died native $?; return 1; }
        run_with -- "$BIN/first" || { died with $?; return 1; }
        report 'coverage.redirected == 64' 'frees.native == 64' 'pool.made == 0' || return 1
    done
    medians first --least "$OUT"/first.*.native.out -- "$OUT"/first.*.with.out || return 1
    echo "the quickest of $FIRST_PROCESSES processes"
    tabulate first
}

first_checks() {
    any_wanted speed/{first,few} || return 0
    : >"$OUT/first"
    measures speed/first-measured measure_first
    # Forty us more, where all takes longer, are nothing beside the tenth of a second in which CUDA starts.
    check speed/first bound judge first first_us 'w <= 1.2 * n || w <= n + 40'
    # 128 calls, each the first of its kind or nearly so: a microsecond for what they find in no cache.
    check speed/few bound judge first few_us 'w <= 1.02 * n || w <= n + 128 + 40'
}

# Small blocks, of which nothing was freed before: with each policy, beside the driver.
measure_slabs() {
    local iteration policy TAG
    for policy in auto pool managed; do
        for ((iteration = 1; iteration <= SPEED_ITERATIONS; iteration++)); do
            TAG=slabs-$policy.$iteration
            run_native -- "$BIN/slabs" || { died native $?; return 1; }
            run_with ALLOGRAFT_POLICY="$policy" -- "$BIN/slabs" || { died with $?; return 1; }
            report 'slabs.blocks_cut > 30000' || return 1
        done
        medians "slabs-$policy" "$OUT/slabs-$policy".?.native.out -- "$OUT/slabs-$policy".?.with.out || return 1
        tabulate "slabs-$policy"
    done
    echo "medians of $SPEED_ITERATIONS iterations"
}

# A handful of them, and nothing else: the quickest of processes, as for measure_first. They are the driver's own, and go back
# to it at once, since nothing was allocated after a free.
measure_handful() {
    local i TAG
    for ((i = 1; i <= FIRST_PROCESSES; i++)); do
        TAG=handful.$i
        run_native -- "$BIN/slabs" handful || { died native $?; return 1; }
        run_with -- "$BIN/slabs" handful || { died with $?; return 1; }
        report 'coverage.redirected == 8' 'frees.native == 8' 'slabs.made == 0' 'pool.made == 0' || return 1
    done
    medians handful --least "$OUT"/handful.*.native.out -- "$OUT"/handful.*.with.out || return 1
    echo "the quickest of $FIRST_PROCESSES processes"
    tabulate handful
}

slab_checks() {
    local policy kib
    any_wanted speed/{cold-{auto,pool,managed}-{1,4,16,64}kib,handful-{time,memory}} || return 0
    for policy in auto pool managed; do
        : >"$OUT/slabs-$policy"
    done
    : >"$OUT/handful"
    measures speed/slabs-measured measure_slabs
    for policy in auto pool managed; do
        for kib in 1 4 16 64; do
            # 0.3 us on a host where the driver takes 1.5; some hosts take twice that for everything.
            check "speed/cold-$policy-${kib}kib" bound judge "slabs-$policy" "cold_median_${kib}kib_us" \
                'w <= 0.3 || w * 2 <= n'
        done
    done
    measures speed/handful-measured measure_handful
    check speed/handful-time bound judge handful handful_us 'w <= 1.2 * n || w <= n + 40' # most of it is the first
    check speed/handful-memory bound judge handful handful_taken_mib 'w <= n'
}

# Random programs, other ones each time; RANDOM_SEED=N for those of a run again, RANDOM_SEEDS=N for so many.
random_turns() {
    local status turns
    python3 -IS "$HERE/speed/random_turns.py" "$BIN/random_turns" "$LIB" "$1" "${RANDOM_SEED:-$(date +%s)}" \
        "$OUT/random" 200 4000 >"$OUT/$TAG.out"
    status=$?
    grep slower "$OUT/$TAG.out"
    ((status == 2)) && tail -n1 "$OUT/$TAG.out"
    for turns in 200 4000; do
        [[ -f $OUT/random-$turns ]] && tabulate "random-$turns"
    done
    return $status
}

random_checks() {
    local seeds=12
    [[ $QUICK ]] && seeds=3
    check speed/random random_turns "${RANDOM_SEEDS:-$seeds}"
}

# Threads that have work of their own: natively, by default, and where frees wait on the host. Whole processes, as the first
# turns count, too; threads disturb each other by chance, so the quickest of each way is judged.
measure_threads_work() {
    local iteration threads us TAG name native with ratio
    for ((iteration = 1; iteration <= SPEED_ITERATIONS; iteration++)); do
        rm -f "$OUT/threads-work.$iteration".{native,with,sync}
        for threads in 1 2 4 8; do
            for us in 20 2; do
                TAG=threads-work-$threads-$us.$iteration
                run_native -- "$BIN/threads_work" $threads $us || { died native $?; return 1; }
                cat "$OUT/$TAG.native.out" >>"$OUT/threads-work.$iteration.native"
                run_with ALLOGRAFT_FREE=sync -- "$BIN/threads_work" $threads $us || { died with $?; return 1; }
                cat "$OUT/$TAG.with.out" >>"$OUT/threads-work.$iteration.sync"
                run_with -- "$BIN/threads_work" $threads $us || { died with $?; return 1; }
                cat "$OUT/$TAG.with.out" >>"$OUT/threads-work.$iteration.with"
            done
        done
    done
    medians threads-work-sync --least "$OUT"/threads-work.?.sync -- "$OUT"/threads-work.?.with || return 1
    medians threads-work --least "$OUT"/threads-work.?.native -- "$OUT"/threads-work.?.with || return 1
    echo "the quickest of $SPEED_ITERATIONS processes"
    table threads-work native with times "with, FREE=sync"
    while read -r name native with ratio; do
        figure "$name" "$native" "$with" "${ratio}x" "$(awk -v name="$name" '$1 == name { print $2 }' "$OUT/threads-work-sync")"
    done <"$OUT/threads-work"
}

# So many threads are no slower than natively; of several, at most a tenth slower than where frees wait on the host.
threads_keep_up() {
    local us
    for us in 20 2; do
        judge threads-work "threads_$1_${us}us_us" 'w <= n' || return 1
        (($1 == 1)) && continue
        echo "beside FREE=sync:"
        judge threads-work-sync "threads_$1_${us}us_us" 'w <= 1.1 * n' || return 1
    done
}

threads_work_checks() {
    local threads
    any_wanted speed/threads-work-{1,2,4,8} || return 0
    : >"$OUT/threads-work"
    : >"$OUT/threads-work-sync"
    measures speed/threads-work-measured measure_threads_work
    for threads in 1 2 4 8; do
        check "speed/threads-work-$threads" bound threads_keep_up "$threads"
    done
}

speed_checks() {
    local way names=(speed/{1mib,1gib,loop,16-threads}-{a,b})
    check speed/launch-pointer launch_pointer
    first_checks
    slab_checks
    check speed/turns measure_turns
    check speed/ten-frees ten_frees
    threads_work_checks
    random_checks
    any_wanted "${names[@]}" || return 0
    : >"$OUT/speed"
    measures speed/measured measure_speed
    for way in a b; do
        check "speed/1mib-$way" bound ratio "pair_1mib_${way}_ns" 50
        check "speed/1gib-$way" bound ratio "pair_1gib_${way}_ns" 100
        check "speed/loop-$way" bound ratio "loop_${way}_us" 2
        check "speed/16-threads-$way" bound value "threads_64kib_${way}_per_s" 10000000
    done
}

# Where all memory is the driver's, a program that only launches kernels holds the driver's own pointers. What is linked
# with the driver finds our symbol, which jumps on; launch/cost in launch.sh says what that costs.
launch_pointer() {
    run_native -- "$BIN/launch_pointer" || { died native $?; return 1; }
    run_with ALLOGRAFT_POLICY=native ALLOGRAFT_FREE=sync -- "$BIN/launch_pointer" || { died with $?; return 1; }
    if grep -v ' libcuda$' "$OUT/$TAG.native.out"; then
        return 1
    fi
    if grep 'cuLaunch\|cuCtxGetDevice' "$OUT/$TAG.with.out" | grep -v '^linked\| libcuda$' ||
        grep cuMemAlloc "$OUT/$TAG.with.out" | grep -v ' liballograft$'; then
        return 1
    fi
    echo "$(grep -c ' libcuda$' "$OUT/$TAG.with.out") launch pointers are libcuda's," \
        "$(grep -c 'cuMemAlloc liballograft$' "$OUT/$TAG.with.out") of cuMemAlloc are ours"
}
