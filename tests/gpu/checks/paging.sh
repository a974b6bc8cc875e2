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
    if any_wanted paging/{once,often}{,-measured}; then
        measures paging/once-measured paged_in_turn read 1
        check paging/once bound faster_than_spilled read 1 0.9
        measures paging/often-measured paged_in_turn rw 20
        check paging/often bound faster_than_spilled rw 20 3
    fi
    check paging/torch-train-8gib again torch_paged train 16 2048 8 319
    check paging/torch-infer-6gib again torch_paged infer 24 4096 6 157
    [[ -z $QUICK || $ONLY == *paging/torch* ]] || return 0
    check paging/torch-train-10gib again torch_paged train 16 2048 10 179
    check paging/torch-train-6gib again torch_paged train 16 2048 6 459
    check paging/torch-infer-8gib again torch_paged infer 24 4096 8 87
}
