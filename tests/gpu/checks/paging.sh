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
            pressure.moved_{in,out}_bytes pressure.in_place_bytes pressure.move_{wait,copy,map}_ns pressure.move_ns)"
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

# Nothing may run beside these: they need memory of the host, and measure.
paging_checks() {
    check paging/read same_paged read 'pressure.moves >= 1'
    check paging/read-and-write same_paged rw 'pressure.moves >= 1'
    check paging/hidden same_paged hidden 'pressure.moves >= 1'
    check paging/copies same_paged copies
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
}
