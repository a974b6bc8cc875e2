# Memory that lies on the device or the host, piece by piece (ALLOGRAFT_OOM=page): 4 GiB of work under a limit of 2 GiB
# computes the same bytes, and how long that takes, natively, with what is spilled, and with pieces that move.

PAGE=(ALLOGRAFT_LIMIT=2GiB ALLOGRAFT_OOM=page ALLOGRAFT_LOG=error)

# same_paged WHAT CONDITION...: the same text, some of it on the host.
same_paged() {
    local what=$1
    shift
    LIMIT_S=180 same_output "${PAGE[@]}" -- "$BIN/paging" bytes "$what" || return $?
    report 'pressure.movable_on_host >= 1' 'pressure.movable_lost == 0' "$@"
}

# What never waits natively does not wait here: it would for ever.
held_paged() {
    LIMIT_S=60 same_output "${PAGE[@]}" -- "$BIN/paging" held || return $?
    report 'pressure.movable_on_host >= 1'
}

# A piece of the host takes the driver 6 to 11 ms to make, during which it makes no other: an allocation waits for one that
# is made ahead, not for several. (20 ms in the longest case where the next one began at once, 7 since; H200.)
beside_ahead() {
    LIMIT_S=60 run_with ALLOGRAFT_LIMIT=8GiB ALLOGRAFT_OOM=page ALLOGRAFT_LOG=error -- "$BIN/paging" longest ||
        { died with $?; return 1; }
    cat "$OUT/$TAG.with.out"
    report 'pressure.ahead_bytes >= 1' || return 1
    awk '{ exit !($2 <= 15) }' "$OUT/$TAG.with.out"
}

# paged_in_turn WHAT K: natively, then with pieces that move; and again with what is spilled.
paged_in_turn() {
    local what=$1 k=$2 way iteration TAG
    for way in page spill; do
        for ((iteration = 1; iteration <= 3; iteration++)); do
            TAG=paging-$what-$k-$way.$iteration
            LIMIT_S=120 run_native -- "$BIN/paging" time "$what" "$k" || { died native $?; return 1; }
            LIMIT_S=120 run_with ALLOGRAFT_LIMIT=2GiB ALLOGRAFT_OOM="$way" ALLOGRAFT_LOG=error -- \
                "$BIN/paging" time "$what" "$k" || { died with $?; return 1; }
        done
        [[ $way != page ]] || echo "of the last run: $(report pressure.moves pressure.move_batches \
            pressure.moved_{in,out}_bytes pressure.in_place_bytes pressure.ahead_bytes \
            pressure.move_{wait,copy,map}_ns pressure.move_ns)"
        medians "paging-$what-$k-$way" "$OUT/paging-$what-$k-$way".?.native.out -- \
            "$OUT/paging-$what-$k-$way".?.with.out || return 1
        tabulate "paging-$what-$k-$way"
        echo "$way: $(cut -d' ' -f2-3 "$OUT/paging-$what-$k-$way" | tr '\n' ' ')"
    done
}

# faster_than_spilled WHAT K TIMES
faster_than_spilled() {
    local name="$1_$2_pass_ms" page spill
    page=$(awk -v name="$name" '$1 == name { print $3 }' "$OUT/paging-$1-$2-page")
    spill=$(awk -v name="$name" '$1 == name { print $3 }' "$OUT/paging-$1-$2-spill")
    echo "page $page ms, spill $spill ms, wanted at most 1/$3 of that"
    awk -v page="$page" -v spill="$spill" -v times="$3" 'BEGIN { exit !(page * times <= spill) }'
}

# paging_curve: a pass over 4 GiB, each block read and written five times, under limits that are further and further below.
paging_curve() {
    local mib way TAG native=$OUT/paging-curve.native.out with=$OUT/paging-curve.with.out pass='s/^rw_5_pass_ms //p'
    : >"$native"
    : >"$with"
    for mib in 3584 3072 2560 2048 1536 1024; do
        for way in page spill; do
            TAG=paging-curve-$way-$mib
            LIMIT_S=60 run_native -- "$BIN/paging" time rw 5 || { died native $?; return 1; }
            LIMIT_S=120 run_with ALLOGRAFT_LIMIT="${mib}MiB" ALLOGRAFT_OOM="$way" ALLOGRAFT_LOG=error -- \
                "$BIN/paging" time rw 5 || { died with $?; return 1; }
            echo "${way}_under_${mib}mib_pass_ms $(sed -n "$pass" "$OUT/$TAG.native.out")" >>"$native"
            echo "${way}_under_${mib}mib_pass_ms $(sed -n "$pass" "$OUT/$TAG.with.out")" >>"$with"
        done
    done
    medians paging-curve "$native" -- "$with" || return 1
    tabulate paging-curve
    # At no size is page slower than what it could replace.
    awk '{ split($1, word, "_"); ms[word[1], word[3]] = $3; sizes[word[3]] }
        END { for (size in sizes) { p = ms["page", size]; s = ms["spill", size]
            printf "%s: page %s, spill %s ms; ", size, p, s; bad += !(p && p <= 1.02 * s) } exit bad > 0 }' "$OUT/paging-curve"
}

# torch_paged WHAT LAYERS WIDTH GIB MS: PyTorch under a limit of so many GiB has the same losses. Its later steps take so
# much longer than natively at most, in the median; the first five, learning included, three times as long as they do on
# average.
torch_paged() {
    local what=$1 gib=$4 more=$5 native=$OUT/paging.torch-$1.native.out status TAG=$TAG
    local program=(python3 "$HERE/frameworks/torch_over.py" "$what" "$2" "$3")
    if [[ ! -s $native ]]; then
        LIMIT_S=120 run_as "paging.torch-$what.native" -- "${program[@]}" 12
        status=$?
        if ((status != 0)); then
            rm -f "$native"
            ((status == STATUS_SKIP)) && { echo "PyTorch is not installed"; return $STATUS_SKIP; }
            echo "the native run ended with $status"
            return 1
        fi
    fi
    cp "$native" "$OUT/$TAG.native.out"
    LIMIT_S=180 run_with ALLOGRAFT_LIMIT="${gib}GiB" ALLOGRAFT_OOM=page ALLOGRAFT_LOG=error -- "${program[@]}" 12 ||
        { died with $?; return 1; }
    LEAVE_OUT="ms" compare_output || return 1
    report 'pressure.movable_on_host >= 1' 'pressure.movable_lost == 0' || return 1
    python3 -IS "$HERE/steps.py" "$native" "$OUT/$TAG.with.out" "$more" || return 1
}

# ordered_paged WORD MIB PROGRAM...: a program whose memory comes by cudaMallocAsync or from its device's pool has
# the same output, without lines of that word, when a rule lets that memory move.
ordered_paged() {
    local word=$1 mib=$2 status
    shift 2
    LIMIT_S=120 run_native -- "$@"
    status=$?
    ((status == STATUS_SKIP)) && { echo "the framework is not installed"; return $STATUS_SKIP; }
    ((status == 0)) || { died native $status; return 1; }
    LIMIT_S=180 run_with "${PAGE[@]}" ALLOGRAFT_LIMIT="${mib}MiB" ALLOGRAFT_RULES='*:async=page' -- "$@" ||
        { died with $?; return 1; }
    LEAVE_OUT=$word compare_output || return 1
    report 'async.paged >= 1' 'pressure.moves >= 1' 'pressure.movable_lost == 0'
}

# wandered SEED: a random program, or one time in twelve PyTorch, prints what it printed natively, alone, in the output
# of NATIVE. How often its memory moved goes to MOVES.
wandered() {
    local seed=$1 program=("$BIN/shared" wander "$1" 300 3000) limits=(4GiB 512MiB 1GiB 1536MiB 2GiB) settings n
    ((seed % 12 == 0)) && [[ $WITH_TORCH ]] && program=(python3 "$HERE/frameworks/torch_over.py" train 4 1024 8)
    settings=(ALLOGRAFT_LIMIT="${limits[RANDOM % ${#limits[@]}]}" ALLOGRAFT_OOM=page ALLOGRAFT_LOG=error)
    if [[ ! $FILLER ]]; then
        LIMIT_S=120 run_native -- "${program[@]}" || { died native $?; return 1; }
        return 0
    fi
    LIMIT_S=180 run_with "${settings[@]}" -- "${program[@]}" || { died with $?; echo "${settings[*]}"; return 1; }
    cp "$NATIVE.out" "$OUT/$TAG.native.out"
    LEAVE_OUT="ms" compare_output || { echo "${settings[*]}"; return 1; }
    report 'pressure.movable_lost == 0' || return 1
    n=$(report pressure.moves)
    MOVES=$((MOVES + n))
    rm -f "$(report_path)" "$OUT/$TAG".with.*
}

# wandered_until END FIRST STEP: of the programs each STEP-th, until END or until one has failed here or elsewhere, which
# leaves a file. How many ran and how often their memory moved goes to a file, too.
wandered_until() {
    local end=$1 first=$2 step=$3 base=$TAG n seed MOVES=0 TAG NATIVE
    for ((n = 0; SECONDS < end; n++)); do
        [[ -e $OUT/$base.failed ]] && break
        seed=$(((first + n * step) % n_seeds + 1))
        TAG=$base.$first.$seed NATIVE=$OUT/$base.$seed.native
        wandered "$seed" || { echo "seed $seed, run $n of program $first"; : >"$OUT/$base.failed"; break; }
    done
    echo "$n $MOVES" >"$OUT/$base.$first.runs"
}

# Random programs under limits that change from run to run, beside a process that fills the card and empties it. As long as
# a soak takes; PAGING_S=1800 for the half an hour that is asked of a new plan, of PAGING_PROGRAMS programs at a time.
shared_card() {
    local seconds=${PAGING_S:-$SOAK_S} at_once=${PAGING_PROGRAMS:-1} seed n n_seeds base=$TAG moves filler
    local programs=() FILLER="" WITH_TORCH=""
    n_seeds=$((seconds / 4 < 48 ? (seconds + 3) / 4 : 48))
    python3 -c 'import torch' 2>/dev/null && WITH_TORCH=1
    rm -f "$OUT/$base".failed "$OUT/$base".*.runs
    for ((seed = 1; seed <= n_seeds; seed++)); do
        TAG=$base.$seed
        wandered "$seed" || return 1
    done
    TAG=$base
    exec {FILLER}> >(exec "$BIN/shared" fill 1 $((1024 + 1024 * at_once)) 4096 >"$OUT/$base.filler.out" 2>&1)
    filler=$!
    for ((n = 0; n < at_once; n++)); do
        wandered_until $((SECONDS + seconds)) "$n" "$at_once" &
        programs+=($!)
    done
    wait "${programs[@]}"
    exec {FILLER}>&-
    wait "$filler"
    [[ -e $OUT/$base.failed ]] && return 1
    read -r n moves < <(awk '{ n += $1; moves += $2 } END { print n, moves }' "$OUT/$base".*.runs)
    echo "$n runs of $n_seeds programs, $at_once at a time, moved $moves pieces, beside $(tail -n1 "$OUT/$base.filler.out")"
    rm -f "$OUT/$base".*.native.*
    ((moves > 0)) && grep -q ' changes$' "$OUT/$base.filler.out"
}

# Nothing may run beside these: they need memory of the host, and measure.
paging_checks() {
    check paging/read same_paged read 'pressure.moves >= 1'
    check paging/read-and-write same_paged rw 'pressure.moves >= 1'
    check paging/hidden same_paged hidden 'pressure.moves >= 1'
    check paging/copies same_paged copies
    check paging/fills same_paged fills 'pressure.moves >= 1'
    check paging/graphs same_paged graphs
    check paging/threads same_paged threads
    check paging/fork same_paged fork
    check paging/frees same_paged frees
    check paging/held held_paged
    check paging/beside-ahead beside_ahead
    check paging/torch-ordered ordered_paged 'ms\|peak' 512 env PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync \
        python3 "$HERE/frameworks/torch_over.py" train 4 1024 8
    check paging/jax-ordered ordered_paged stepping 2500 env XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async \
        python3 "$ROOT/tests/apps/python/jax_training.py" 12 4096 0
    check paging/shared-card shared_card
    if any_wanted paging/{once,often}{,-measured}; then
        measures paging/once-measured paged_in_turn read 1
        check paging/once bound faster_than_spilled read 1 0.9
        measures paging/often-measured paged_in_turn rw 20
        check paging/often bound faster_than_spilled rw 20 3
    fi
    [[ $QUICK && $ONLY != *paging/curve* ]] || check paging/curve again paging_curve
    check paging/torch-train-8gib again torch_paged train 16 2048 8 319
    check paging/torch-infer-6gib again torch_paged infer 24 4096 6 157
    [[ -z $QUICK || $ONLY == *paging/torch* ]] || return 0
    check paging/torch-train-10gib again torch_paged train 16 2048 10 179
    check paging/torch-train-6gib again torch_paged train 16 2048 6 459
    check paging/torch-infer-8gib again torch_paged infer 24 4096 8 87
    # Many parameters in one kernel: the states are used once in a step, and need not come.
    check paging/torch-train-fused-10gib again torch_paged train-fused 16 2048 10 119
    check paging/torch-train-fused-8gib again torch_paged train-fused 16 2048 8 259
    check paging/torch-train-fused-6gib again torch_paged train-fused 16 2048 6 399
    check paging/torch-train-foreach-8gib again torch_paged train-foreach 16 2048 8 259
}
