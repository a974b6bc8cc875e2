# Graph replay: the same bytes and codes whatever is repeated, what it gains and what it costs.

REPLAY=(ALLOGRAFT_GRAPH=all)

# same_bytes CONDITION [VAR=VALUE]... -- PART...: loops of graph_bytes, every one replayed.
same_bytes() {
    local condition=$1 vars=()
    shift
    while [[ $1 != -- ]]; do
        vars+=("$1")
        shift
    done
    shift
    LIMIT_S=90 same_output "${REPLAY[@]}" "${vars[@]}" -- "$BIN/graph_bytes" "$@" || return $?
    report "$condition" || return 1
    echo "($(report replay.replayed) of $(report replay.operations) replayed," \
        "$(report replay.graph_launches_failed) graphs refused)"
}

# A process that ends right behind a launch, in some way: natively the work is done, or it is not. The parent, which
# looks, uses no CUDA and has no report.
same_end() {
    local status
    run_native -- "$BIN/graph_bytes" exits "$1" || { died native $?; return 1; }
    run_with "${REPLAY[@]}" -- "$BIN/graph_bytes" exits "$1"
    status=$?
    ((status == 0)) || { died with $status; return 1; }
    cat "$OUT/$TAG.native.out"
    compare_output && silent
}

sanitized_replay() {
    # shellcheck disable=SC2034  # read by sanitized
    local SANITIZED_WITH=("${REPLAY[@]}")
    sanitized "$@"
}

# Each launch of a graph run both ways: a check of the check, and of replay.
verified() {
    same_bytes 'replay.replayed > 0' ALLOGRAFT_GRAPH_VERIFY=5 -- plain handles operations || return $?
    report 'replay.verified_same > 0' 'replay.verified_different == 0'
}

graph_background_checks() {
    local part how seen='replay.replayed > 0'
    for part in plain many fork_and_join threads pageable pageable_behind queries operations memory kinds handles own_graphs \
        streams refused; do
        background check "graph/bytes-$part" same_bytes "$seen" -- "$part"
    done
    background check graph/bytes-bad-addresses same_bytes "$seen" -- bad_addresses
    background check graph/bytes-long same_bytes "$seen" ALLOGRAFT_GRAPH_SEGMENT=4096 --
    background check graph/bytes-unguarded same_bytes "$seen" ALLOGRAFT_GRAPH_PROFIT=0 ALLOGRAFT_GRAPH_WARMUP=1 --
    background check graph/bytes-small same_bytes "$seen" ALLOGRAFT_GRAPH_PROFIT=0 ALLOGRAFT_GRAPH_SEGMENT=4 \
        ALLOGRAFT_GRAPH_GRAPHS=8 ALLOGRAFT_GRAPH_STAGING=1 ALLOGRAFT_GRAPH_STAGING_SLOT=4KiB --
    background check graph/bytes-few-slots same_bytes "$seen" ALLOGRAFT_GRAPH_PROFIT=0 ALLOGRAFT_GRAPH_STAGING=8 \
        ALLOGRAFT_GRAPH_STAGING_SLOT=4KiB -- pageable_behind
    background check graph/bytes-hasty same_bytes 'replay.operations > 0' ALLOGRAFT_GRAPH_HOLD_US=10 --
    background check graph/bytes-marked-by-waits same_bytes "$seen" ALLOGRAFT_GRAPH_ITERATION=sync --
    background check graph/bytes-free-sync same_bytes "$seen" ALLOGRAFT_FREE=sync --
    background check graph/bytes-managed same_bytes "$seen" ALLOGRAFT_POLICY=managed --
    background check graph/bytes-managed-launch same_bytes "$seen" ALLOGRAFT_POLICY=managed ALLOGRAFT_PREFETCH=launch --
    background check graph/bytes-off same_output ALLOGRAFT_GRAPH=off -- "$BIN/graph_bytes"
    background check graph/code same_bytes "$seen" -- code "$BIN/driver_kernels.fatbin"
    background check graph/fault same_bytes "$seen" -- fault
    background check graph/reset same_bytes "$seen" -- reset
    background check graph/stack same_bytes "$seen" -- stack
    background check graph/elsewhere same_bytes "$seen" -- elsewhere
    for how in exit return destroy reset pause thread; do
        background check "graph/ends-by-$how" same_end "$how"
    done
    background check graph/verified verified
    background check graph/memcheck sanitized_replay "$BIN/graph_bytes" handles fork_and_join pageable own_graphs
    for part in plain_static plain_shared plain_per_thread capture; do
        background check "graph/same-$part" same_output "${REPLAY[@]}" -- "$BIN/$part"
    done
    # How much memory is free is no matter of replay, and other checks run beside this one.
    LEAVE_OUT=placement: background check graph/same-many same_output "${REPLAY[@]}" -- "$BIN/many" modest
    background check graph/same-capture-threads same_output "${REPLAY[@]}" -- "$BIN/capture_threads"
}

loop_counts() {
    report replay.operations replay.replayed replay.released replay.nodes_updated replay.graphs_built \
        replay.eager_iterations replay.watchdog_releases | tr '\n' ' '
}

# loop_in_turn FILE [VAR=VALUE]... -- MODE...: medians of graph_loop, natively and replayed in turn; what the loops
# computed is the same every time. ITERATIONS: how many; OF: --least instead of medians.
loop_in_turn() {
    local file=$1 vars=() iteration TAG LIMIT_S=120 iterations=${ITERATIONS:-$SPEED_ITERATIONS} of=${OF:---median}
    shift
    while [[ $1 != -- ]]; do
        vars+=("$1")
        shift
    done
    shift
    for ((iteration = 1; iteration <= iterations; iteration++)); do
        TAG=$file.$iteration
        run_native -- "$BIN/graph_loop" "$@" || { died native $?; return 1; }
        run_with "${vars[@]}" -- "$BIN/graph_loop" "$@" || { died with $?; return 1; }
        silent || return 1
        cmp -s <(grep ^word "$OUT/$TAG.native.out") <(grep ^word "$OUT/$TAG.with.out") ||
            { echo "other bytes:" "$(diff <(grep ^word "$OUT/$TAG.native.out") <(grep ^word "$OUT/$TAG.with.out") | sed -n 2,5p)"; return 1; }
        grep -v ^word "$OUT/$TAG.native.out" >"$OUT/$file.$iteration.native"
        grep -v ^word "$OUT/$TAG.with.out" >"$OUT/$file.$iteration.with"
        loop_counts >"$OUT/$file.counts"
    done
    loop_figures "$file" "$of" "$iterations"
}

# loop_figures FILE OF ITERATIONS: what loop_in_turn measured.
loop_figures() {
    medians "$1" "$2" "$OUT/$1".*.native -- "$OUT/$1".*.with || return 1
    tabulate "$1"
    echo "${2#--} of $3 iterations; seen, replayed, released, updated, built, eager, watchdog: $(cat "$OUT/$1.counts")"
}

# near_hand N BOUND: how long a replayed iteration takes beside a graph captured by hand, in turns in one process; of
# several processes the least, for a host that is slower for a while makes it more (by hand it has one call to make,
# replayed N), and the median, to be looked at.
near_hand() {
    cat "$OUT"/graph-loops.*.with | awk -v name="same_to_hand_$1_times" '$1 == name { print $2 }' | sort -n |
        awk -v bound="$2" '{ times[NR] = $1 }
            END { if (!NR) { print "not measured"; exit 1 }
                printf "%sx by hand at best, median of %d processes %s (wanted %s)\n", times[1], NR, times[int((NR + 1) / 2)], bound
                exit !(times[1] <= bound) }'
}

# Bounds: how near to a graph captured by hand, and how much faster than eager.
graph_loop_checks() {
    local n near faster
    any_wanted graph/loops-{measured,{near,faster}-{20,200,1000},changing,unwaited,by-hand} || return 0
    # At least one of five processes meets a host that is not slow.
    ITERATIONS=$((SPEED_ITERATIONS > 5 ? SPEED_ITERATIONS : 5)) measures graph/loops-measured \
        loop_in_turn graph-loops "${REPLAY[@]}" -- loops 20 200 1000
    while read -r n near faster; do
        check "graph/loops-near-$n" near_hand "$n" "$near"
        check "graph/loops-faster-$n" bound judge graph-loops "same_${n}_us" "w * $faster <= n"
    done <<<'20 1.12 2.4
200 1.06 2.9
1000 1.02 2.9'
    check graph/loops-changing bound judge graph-loops changing_1000_us 'w * 2.5 <= n'
    check graph/loops-unwaited bound judge graph-loops unwaited_1000_us 'w * 2.9 <= n'
    check graph/loops-by-hand bound judge graph-loops hand_1000_us 'w <= 1.02 * n'
}

# beside_unguarded MEAN MOST: how many times as long the replayed loops take with the guard as without it, all in the
# geometric mean and any of them. One process is 4 % slower than the next, guard or not: the quickest of each way counts.
# These still differ by up to 4 % either way in a loop of ten milliseconds, so what the guard costs is told by the mean.
beside_unguarded() {
    local way
    for way in learn unguarded; do
        python3 -IS "$HERE/medians.py" --least "$OUT/graph-$way".?.native -- "$OUT/graph-$way".?.with \
            >"$OUT/graph-$way-best" || return 1
    done
    awk -v mean_bound="$1" -v most_bound="$2" '$1 !~ /^learn_replayed_/ { next }
        FNR == NR { off[$1] = $3; next }
        { times = $3 / off[$1]; sum += log(times); n++; if (times > most) { most = times; where = $1 } }
        END { if (!n) { print "not measured"; exit 1 }
            mean = exp(sum / n)
            printf "%.3f times as long as without the guard in the mean (wanted <= %s), %.3f at most (%s), %s\n",
                mean, mean_bound, most, most_bound, where
            exit !(mean <= mean_bound && most <= most_bound) }' \
        "$OUT/graph-unguarded-best" "$OUT/graph-learn-best"
}

# learn_with WAY ITERATION [VAR=VALUE]... -- MODE...: graph_loop, which computes what it computed natively; the native
# figures beside its own, of the same names.
learn_with() {
    local TAG=graph-$1.$2 file=graph-$1 native=$OUT/graph-learn.native.out LIMIT_S=120
    run_with "${@:3}" || { died with $?; return 1; }
    silent || return 1
    awk 'FNR == NR { seen[$1, $1 == "word" ? $2 : ""]; next } ($1, $1 == "word" ? $2 : "") in seen' \
        "$OUT/$TAG.with.out" "$native" >"$OUT/$TAG.seen"
    cmp -s <(grep ^word "$OUT/$TAG.seen") <(grep ^word "$OUT/$TAG.with.out") ||
        { echo "other bytes:" "$(diff <(grep ^word "$OUT/$TAG.seen") <(grep ^word "$OUT/$TAG.with.out") | sed -n 2,5p)"; return 1; }
    grep -v ^word "$OUT/$TAG.seen" >"$OUT/$TAG.native"
    grep -v ^word "$OUT/$TAG.with.out" >"$OUT/$TAG.with"
    loop_counts >"$OUT/$file.counts"
}

# Natively once, which says what is computed; with the guard and without it in turns.
learn_in_turn() {
    local iteration TAG=graph-learn LIMIT_S=120
    run_native -- "$BIN/graph_loop" learn once || { died native $?; return 1; }
    for ((iteration = 1; iteration <= SPEED_ITERATIONS; iteration++)); do
        learn_with learn "$iteration" "${REPLAY[@]}" -- "$BIN/graph_loop" learn || return 1
        learn_with unguarded "$iteration" "${REPLAY[@]}" ALLOGRAFT_GRAPH_PROFIT=0 -- \
            "$BIN/graph_loop" learn replayed || return 1
    done
    loop_figures graph-unguarded --median "$SPEED_ITERATIONS" && loop_figures graph-learn --median "$SPEED_ITERATIONS"
}

# Short loops, learning included: beside a graph captured by hand, and beside no guard.
graph_learn_checks() {
    local sets iterations n bound
    any_wanted graph/learn-{measured,guard} graph/learn-{1,13}-{1000x40,200x50,20x200} \
        graph/learn-1-{1000x400,200x2000,20x5000} graph/first-graph || return 0
    measures graph/learn-measured learn_in_turn
    while read -r sets n iterations bound; do
        check "graph/learn-$sets-${n}x$iterations" bound judge graph-learn \
            "learn_to_hand_${sets}x${iterations}_${n}_times" "w <= $bound"
    done <<<'1 1000 40 1.05
1 200 50 1.08
1 20 200 1.12
1 1000 400 1.02
1 200 2000 1.04
1 20 5000 1.10
13 1000 40 1.30
13 200 50 1.35
13 20 200 1.5'
    check graph/learn-guard bound beside_unguarded 1.01 1.05
    # What the first graph of a process costs, for the programs that are too short for it.
    check graph/first-graph loop_in_turn graph-first "${REPLAY[@]}" -- first
}

graph_many_checks() {
    any_wanted graph/many-{measured,same,counting,long,long-legacy} || return 0
    measures graph/many-measured loop_in_turn graph-many "${REPLAY[@]}" -- many
    check graph/many-same bound judge graph-many many_same_100000_us 'w * 2 <= n'
    check graph/many-counting bound judge graph-many many_counting_100000_us 'w * 2 <= n'
    check graph/many-long bound judge graph-many many_20us_8000_us 'w <= 1.01 * n'
    check graph/many-long-legacy bound judge graph-many many_20us_legacy_8000_us 'w <= 1.01 * n'
}

graph_stream_checks() {
    local kib
    if any_wanted graph/fork-{measured,waited,unwaited}; then
        measures graph/fork-measured loop_in_turn graph-fork "${REPLAY[@]}" -- fork
        check graph/fork-waited bound judge graph-fork fork_4_us 'w <= 1.01 * n'
        check graph/fork-unwaited bound judge graph-fork unwaited_fork_4_us 'w <= 1.01 * n'
    fi
    if any_wanted graph/copies-{measured,4,16,64,256,1024}; then
        measures graph/copies-measured loop_in_turn graph-copies "${REPLAY[@]}" -- copies
        for kib in 4 16 64 256 1024; do
            check "graph/copies-$kib" bound judge graph-copies "copy_to_own_kib_${kib}_times" 'w <= 1.01'
        done
    fi
}

# unmarked_costs: launches that are not replayed, with replay on for other streams, and off. One process is some
# hundred ns quicker than the next, so each compares its launches with those that go past whatever is preloaded
# (launches.cu), and what is judged is how much more they take: natively nothing where they are the same calls. While
# the host is slow that is more, too (190 and 350 ns): so the quickest process of each way is judged.
unmarked_costs() {
    local iteration TAG way iterations=$((2 * SPEED_ITERATIONS + 1)) row
    for ((iteration = 1; iteration <= iterations; iteration++)); do
        TAG=graph.native.$iteration
        run_native -- "$BIN/launches" cost || { died native $?; return 1; }
        TAG=graph.unmarked.$iteration
        run_with ALLOGRAFT_GRAPH=nth:1000000 -- "$BIN/launches" cost || { died with $?; return 1; }
        report 'replay.withheld == 0' || return 1
        TAG=graph.off.$iteration
        run_with ALLOGRAFT_GRAPH=off -- "$BIN/launches" cost || { died with $?; return 1; }
        report 'replay.operations == 0' || return 1
    done
    for way in unmarked off; do
        medians "graph-$way" --where-least own_ns "$OUT"/graph.native.*.native.out -- \
            "$OUT"/graph.$way.*.with.out || return 1
    done
    table graph-launches native "others replayed" "replay off"
    paste -d ' ' "$OUT/graph-unmarked" "$OUT/graph-off" | while read -r -a row; do
        figure "${row[0]}" "${row[1]}" "${row[2]}" "${row[6]}"
    done
    echo "the quickest of $iterations iterations"
}

graph_cost_checks() {
    if any_wanted graph/withhold{,-changing,-measured}; then
        measures graph/withhold-measured loop_in_turn graph-withhold "${REPLAY[@]}" \
            ALLOGRAFT_GRAPH_SEGMENT=4096 -- withhold
        check graph/withhold bound judge graph-withhold launch_same_1000_ns 'w <= 100 || w * 25 <= n'
        check graph/withhold-changing bound judge graph-withhold launch_changing_1000_ns 'w <= 100 || w * 25 <= n'
    fi
    if any_wanted graph/random{,-waited,-measured}; then
        measures graph/random-measured loop_in_turn graph-random "${REPLAY[@]}" -- random
        check graph/random bound judge graph-random random_to_own_64_times 'w <= 1.05'
        check graph/random-waited bound judge graph-random random_waited_to_own_64_times 'w <= 1.05'
    fi
    if any_wanted graph/{unmarked,off}{,-linked} graph/unmarked-measured; then
        measures graph/unmarked-measured unmarked_costs
        check graph/unmarked bound judge graph-unmarked runtime_more_ns 'w <= n + 50'
        check graph/unmarked-linked bound judge graph-unmarked linked_more_ns 'w <= n + 50'
        check graph/off bound judge graph-off runtime_more_ns 'w <= n + 20'
        check graph/off-linked bound judge graph-off linked_more_ns 'w <= n + 20'
    fi
    if any_wanted graph/build-{pauses,measured}; then
        # A pause that replay makes is there every time; what the host does besides is not. No longer than the program's
        # longest iteration of 500 launches takes natively: 1.8 to 2.3 ms.
        OF=--least measures graph/build-measured loop_in_turn graph-build "${REPLAY[@]}" -- build
        check graph/build-pauses bound judge graph-build build_longest_1000_us 'w <= n + 1800'
    fi
}

# torch_in_turn FILE VAR=VALUE [ARG]...: every net in one process; the same losses, and the time of a step. Only what takes
# turns within one process is to be compared: two processes of Python differ by more than replay changes.
torch_in_turn() {
    local file=$1 iteration TAG LIMIT_S=240 status iterations=$SPEED_ITERATIONS
    shift
    [[ $QUICK ]] && iterations=1 # half a minute each; steps take turns within it
    for ((iteration = 1; iteration <= iterations; iteration++)); do
        TAG=$file.$iteration
        LEAVE_OUT=step_ms same_output "$1" -- python3 "$HERE/frameworks/torch_replay.py" "${@:2}" >"$OUT/$TAG.verdict"
        status=$?
        ((status == 0)) || { cat "$OUT/$TAG.verdict"; return $status; }
        report 'replay.replayed > 0' || return 1
        grep ^step_ms "$OUT/$TAG.native.out" >"$OUT/$TAG.native"
        grep ^step_ms "$OUT/$TAG.with.out" >"$OUT/$TAG.with"
    done
    cat "$OUT/$TAG.verdict"
    medians "$file" "$OUT/$file".?.native -- "$OUT/$file".?.with || return 1
    tabulate "$file"
    echo "$(report replay.replayed) of $(report replay.operations) replayed, $(report replay.nodes_updated) updates"
}

# same_framework CONDITION COMMAND...: the same output, and a report that fulfils the condition.
same_framework() {
    # shellcheck disable=SC2034  # read by run_as
    local condition=$1 status LIMIT_S=200
    shift
    run_native -- "$@"
    status=$?
    ((status == STATUS_SKIP)) && { echo "not possible here"; return "$STATUS_SKIP"; }
    ((status == 0)) || { died native $status; return 1; }
    run_with "${REPLAY[@]}" -- "$@" || { died with $?; return 1; }
    compare_output && silent && report "$condition" || return 1
    echo "$(wc -l <"$OUT/$TAG.with.out") lines equal, $(report replay.replayed) of $(report replay.operations) replayed"
}

# often N [VAR=VALUE]... -- COMMAND...: so many processes natively at once, then as many replayed: each ends well, and prints
# what the first one did. For what fails now and then: a device and processors that are busy bring other orders of threads
# about.
often() {
    # shellcheck disable=SC2034  # read by run_as
    local n=$1 i way tag=$TAG status vars=() LIMIT_S=200
    shift
    while [[ $1 != -- ]]; do
        vars+=("$1")
        shift
    done
    shift
    for way in native with; do
        local pids=()
        for ((i = 1; i <= n; i++)); do
            TAG=$tag.$i
            if [[ $way == native ]]; then
                run_native -- "$@" &
            else
                run_with "${REPLAY[@]}" "${vars[@]}" -- "$@" &
            fi
            pids+=($!)
        done
        for ((i = 1; i <= n; i++)); do
            wait "${pids[i - 1]}"
            status=$?
            TAG=$tag.$i
            ((status == STATUS_SKIP)) && [[ $way == native ]] && { echo "not possible here"; return "$STATUS_SKIP"; }
            ((status == 0)) || { echo "process $i of $n:"; died "$way" $status; return 1; }
            cmp -s "$OUT/$tag.1.native.out" "$OUT/$TAG.$way.out" || { echo "process $i of $n, $way, says something else"; return 1; }
        done
    done
    echo "$n processes natively and $n replayed, $(wc -l <"$OUT/$tag.1.native.out") lines equal"
}

graph_framework_background_checks() {
    local seen='replay.replayed > 0'
    background check graph-py/torch-train same_framework "$seen" python3 "$HERE/frameworks/torch_train.py"
    LEAVE_OUT=step_ms background check graph-py/torch-nets same_framework "$seen" python3 "$HERE/frameworks/torch_replay.py"
    background check graph-py/torch-graphs same_framework "$seen" python3 "$HERE/frameworks/torch_graphs.py" graphs
    # Memory that PyTorch maps, gives back, and maps again at the same addresses.
    background check graph-py/torch-expandable same_framework "$seen" env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True \
        python3 "$HERE/frameworks/torch_graphs.py" graphs
    background check graph-py/torch-graphs-often often 6 -- python3 "$HERE/frameworks/torch_graphs.py" graphs
    # With busy processors the watchdog submits what would be launched as a graph here, and nothing is seen.
    background check graph-py/torch-graphs-held often 2 ALLOGRAFT_GRAPH_HOLD_US=1000000 -- python3 \
        "$HERE/frameworks/torch_graphs.py" graphs
    # By default XLA makes graphs of its own of a jitted step, which leaves single operations between waits.
    background check graph-py/jax same_framework 'replay.operations > 0' python3 "$HERE/frameworks/jax_loop.py"
    background check graph-py/jax-kernels same_framework "$seen" python3 "$HERE/frameworks/jax_loop.py" kernels
    background check graph-py/cupy same_framework "$seen" python3 "$HERE/frameworks/cupy_loop.py"
    background check graph-py/triton same_framework "$seen" python3 "$HERE/frameworks/triton_kernel.py"
}

graph_framework_checks() {
    if any_wanted graph-py/torch-{turns,gpt2,mlp,mlp-unwaited,resnet,resnet-unwaited,infer}; then
        measures graph-py/torch-turns torch_in_turn graph-torch-turns ALLOGRAFT_GRAPH=priority:-1 turns
        if [[ -f $OUT/graph-torch-turns ]]; then
            # What the driver takes of such a host is little: where launches cost nothing and the device does nothing,
            # the first two are 1.17 to 1.20 times as fast. Twelve processes, of which --quick has one, said 1.035 to
            # 1.11 of the second.
            check graph-py/torch-gpt2 bound judge graph-torch-turns step_ms_gpt2_train_plain_to_marked 'w >= 1.02'
            check graph-py/torch-mlp bound judge graph-torch-turns step_ms_mlp_train_plain_to_marked 'w >= 1.02'
            check graph-py/torch-mlp-unwaited bound judge graph-torch-turns step_ms_mlp_unwaited_plain_to_marked 'w >= 1.02'
            check graph-py/torch-infer bound judge graph-torch-turns step_ms_gpt2_infer_plain_to_marked 'w >= 0.99'
            check graph-py/torch-resnet bound judge graph-torch-turns step_ms_resnet_infer_plain_to_marked 'w >= 1.02'
            check graph-py/torch-resnet-unwaited bound judge graph-torch-turns step_ms_resnet_unwaited_plain_to_marked 'w >= 1.02'
        fi
    fi
}

# A host that is busy otherwise makes the native run late: only then it is asked again.
seen_by_polling() {
    local said status
    for _ in 1 2 3; do
        said=$(holds 'replay.watchdog_releases > 0' -- "${REPLAY[@]}" -- "$BIN/graph_loop" polling)
        status=$?
        [[ $said == "native run"* ]] || break
    done
    echo "$said"
    return $status
}

# Nothing may run beside these: they measure.
graph_checks() {
    check graph/events same_bytes 'replay.operations > 0' -- events
    check graph/polling seen_by_polling
    graph_loop_checks
    graph_learn_checks
    graph_many_checks
    graph_stream_checks
    graph_cost_checks
    graph_framework_checks
}
