# Copies between the device and memory that is not pinned: as fast as promised, never slower, and never a wrong byte.

CREW=(ALLOGRAFT_COPY=auto) # the default

# in_turns NAME WORD...: native runs of host_copies and runs with the crew, in turn; medians of all go to OUT/NAME.
in_turns() {
    local name=$1 iteration TAG LIMIT_S=180 OF=${OF:---median}
    shift
    for ((iteration = 1; iteration <= ${ITERATIONS:-$SPEED_ITERATIONS}; iteration++)); do
        TAG=$name.$iteration
        run_native -- "$BIN/host_copies" "$@" || { died native $?; return 1; }
        run_with "${CREW[@]}" -- "$BIN/host_copies" "$@" || { died with $?; return 1; }
        silent || return 1
    done
    medians "$name" "$OF" "$OUT/$name".*.native.out -- "$OUT/$name".*.with.out || return 1
    tabulate "$name"
    echo "of ${ITERATIONS:-$SPEED_ITERATIONS} processes each way"
}

# as_pinned NAME PINNED AT_LEAST: so many GB/s, or nine tenths of what pinned memory has.
as_pinned() {
    awk -v name="$1" -v pinned="$2" -v wanted="$3" '
        $1 == pinned { p = $2 }
        $1 == name { n = $2; w = $3 }
        END { printf "native %s, with %s, pinned %s (wanted %s, or 0.9 of pinned)\n", n, w, p, wanted
            exit !(w && (w >= wanted || (p && w >= 0.9 * p))) }' "$OUT/copies-rates"
}

rate_checks() {
    local name
    any_wanted copies/{up,down}-{64mib,1gib} copies/{untouched-down,file-up}-1gib || return 0
    : >"$OUT/copies-rates"
    measures copies/rates-measured in_turns copies-rates rates
    for name in 64mib 1gib; do
        check "copies/up-$name" bound as_pinned "up_${name}_gb_per_s" "pinned_up_${name}_gb_per_s" 45
        check "copies/down-$name" bound judge copies-rates "down_${name}_gb_per_s" 'w >= 40'
    done
    check copies/untouched-down-1gib bound judge copies-rates untouched_down_1gib_gb_per_s 'w >= 12'
    check copies/file-up-1gib bound judge copies-rates file_up_1gib_gb_per_s 'w >= 40'
    for name in up down; do # which are the driver's
        check "copies/pinned-$name" bound judge copies-rates "pinned_${name}_64mib_gb_per_s" 'w >= 0.99 * n'
    done
}

# Until the call is back.
call_checks() {
    local way mib times
    any_wanted copies/call-{up,down}-{2,4,16,64}mib || return 0
    : >"$OUT/copies-calls"
    measures copies/calls-measured in_turns copies-calls calls
    while read -r way mib times; do
        check "copies/call-$way-${mib}mib" bound judge copies-calls "call_${way}_${mib}mib_us" "n >= $times * w"
    done <<<'up 2 1.4
up 4 2.2
up 16 4
up 64 6
down 2 1.4
down 4 1.6
down 16 2.5
down 64 3'
}

# Uploads with no wait between them: the crew waits for its own, and for no work of the program's.
row_checks() {
    local row
    any_wanted copies/row-{{null,stream,apart,mixed,advised}-16mib,apart-{4,2}mib} || return 0
    : >"$OUT/copies-rows"
    measures copies/rows-measured in_turns copies-rows rows
    for row in {null,stream,apart,mixed,advised}-16mib apart-4mib; do
        check "copies/row-$row" bound judge copies-rows "row_${row//-/_}_gb_per_s" 'w >= 1.5 * n'
    done
    check copies/row-apart-2mib bound judge copies-rows row_apart_2mib_gb_per_s 'w >= n'
}

# within NAME ITERATIONS WORD...: what the driver's own calls take, and the same calls as the program finds them, within
# each process.
within() {
    local name=$1 iterations=$2 iteration TAG LIMIT_S=180
    shift 2
    for ((iteration = 1; iteration <= iterations; iteration++)); do
        TAG=$name.$iteration
        run_with "${CREW[@]}" -- "$BIN/host_copies" "$@" || { died with $?; return 1; }
        silent || return 1
        grep -qx 'hooked 1' "$OUT/$TAG.with.out" || { echo "the calls are not the library's"; return 1; }
        sed -n 's/^own //p' "$OUT/$TAG.with.out" >"$OUT/$TAG.native.out"
        sed -i '/^own /d; /^hooked /d' "$OUT/$TAG.with.out"
    done
    medians "$name" --paired "$OUT/$name".*.native.out -- "$OUT/$name".*.with.out || return 1
    tabulate "$name"
}

# What is too small to gain anything costs nothing more.
small_checks() {
    local way size
    any_wanted copies/small-{up,down}-{64kib,256kib,512kib,1mib} || return 0
    : >"$OUT/copies-small"
    measures copies/small-measured within copies-small 5 small
    for size in 64kib 256kib 512kib 1mib; do
        for way in up down; do
            check "copies/small-$way-$size" bound judge copies-small "call_${way}_${size}_us" 'w <= 1.01 * n'
        done
    done
}

# measure_first MIB WAY TIMES
measure_first() {
    : >"$OUT/copies-first-$1"
    OF=$2 ITERATIONS=$3 measures "copies/first-$1-measured" in_turns "copies-first-$1" first "$1"
}

# The first copy of a process bears the cost of whatever it needs.
first_copy_checks() {
    any_wanted copies/first-{16mib,1gib} || return 0
    # The same process takes 2.1 to 3.2 ms, by chance. Of the least of 15, three hosts said 0.99, 1.07 and 1.11 times as long
    # as natively; of the median 0.94, 0.99 and 1.11.
    measure_first 16 --median 15
    check copies/first-16mib bound judge copies-first-16 first_up_16mib_us 'w <= 1.12 * n'
    measure_first 1024 --least 5
    check copies/first-1gib bound judge copies-first-1024 first_up_1gib_us 'n >= 2 * w'
}

# Where there are no cores for a crew.
few_cores_checks() {
    local kind word size way
    any_wanted copies/{two-cores,busy}-{up,down}-{4mib,64mib} || return 0
    for kind in two-cores busy; do
        : >"$OUT/copies-$kind"
        measures "copies/$kind-measured" within "copies-$kind" "$SPEED_ITERATIONS" "$kind" both
        word=${kind//-/_}
        for size in 4mib 64mib; do
            for way in up down; do
                check "copies/$kind-$way-$size" bound judge "copies-$kind" "${word}_${way}_${size}_gb_per_s" 'w >= 0.99 * n'
            done
        done
    done
}

# whole WHAT: frameworks' loads and stores natively and with the crew in turn: the same sums; the quickest of each, of
# three in each of two processes, is no slower.
whole() {
    local what=$1 iteration TAG status LIMIT_S=120
    for ((iteration = 1; iteration <= 2; iteration++)); do
        TAG=copies-whole-$what.$iteration
        run_native -- python3 "$HERE/frameworks/host_path.py" "$what" "$OUT"
        status=$?
        ((status == STATUS_SKIP)) && return "$STATUS_SKIP"
        ((status == 0)) || { died native $status; return 1; }
        run_with "${CREW[@]}" -- python3 "$HERE/frameworks/host_path.py" "$what" "$OUT" || { died with $?; return 1; }
        silent || return 1
        LEAVE_OUT='[a-z_]*_s ' compare_output || return 1
    done
    medians "copies-whole-$what" --least "$OUT/copies-whole-$what".?.native.out -- \
        "$OUT/copies-whole-$what".?.with.out || return 1
    tabulate "copies-whole-$what"
    # What starting Python takes differs by a second from one process to the next.
    judge "copies-whole-$what" "${what//-/_}_s" 'w * 0.97 <= n'
}

# Minutes of it: in a quick run only where they are asked for.
whole_checks() {
    local what
    [[ -z $QUICK || $ONLY == *copies/whole* ]] || return 0
    for what in torch-load torch-mapped safetensors loader loader-pinned cupy jax; do
        check "copies/whole-$what" whole "$what"
    done
    rm -f "$OUT"/checkpoint.*
}

# hostile WHAT...: the program judges itself, and prints the same natively and with the crew.
hostile() {
    local status LIMIT_S
    LIMIT_S=$((${SECONDS_OF_IT:-60} + 120)) # of run_as
    run_native -- "$BIN/hostile_copies" "$@"
    status=$?
    ((status == 0)) || died native $status
    [[ $status != 0 && ($1 == exit || $1 == late) ]] && return "$STATUS_SKIP" # of what nobody promises
    ((status == 0)) || return 1
    run_with "${CREW[@]}" -- "$BIN/hostile_copies" "$@"
    status=$?
    tail -n1 "$OUT/$TAG.with.out"
    ((status == 0)) || { died with $status; return 1; }
    silent || return 1
    LEAVE_OUT=turns compare_output || return 1
    awk '/^turns/ { printf "%s%d turns", NR == FNR ? "natively " : ", with ", $2 }' \
        "$OUT/$TAG.native.out" "$OUT/$TAG.with.out"
}

# As long as a soak takes; COPIES_S=600 for the ten minutes that are asked of a new crew.
copies_background_checks() {
    local what most=$((8 << 20)) seconds=${COPIES_S:-$SOAK_S}
    SECONDS_OF_IT=$seconds background check copies/hostile hostile storm $((seconds * 10)) $((16 << 20))
    SECONDS_OF_IT=$seconds background check copies/hostile-small hostile storm $((SOAK_S * 10)) $((256 << 10))
    for what in signals forks; do
        background check "copies/hostile-$what" hostile "$what" 50 $most
    done
    for what in cancelled contexts exit gone shut cut late; do
        background check "copies/hostile-$what" hostile "$what" $most
    done
}

copies_checks() {
    rate_checks
    call_checks
    row_checks
    small_checks
    first_copy_checks
    few_cores_checks
    whole_checks
}
