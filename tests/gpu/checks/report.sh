# The report counts exactly, goes where it is told, and each process has its own.

# exact PLACEMENT [VAR=VALUE]...
exact() {
    local place=devices.0.placements.$1
    run_with "${@:2}" -- "$BIN/counted" || { died with $?; return 1; }
    report 'coverage.redirected == 7' \
        'coverage.hooks.cuMemAlloc_v2 == 7' 'coverage.hooks.cuMemFree_v2 == 5' \
        'coverage.intercepted == 1' 'coverage.redirecting == 1' 'coverage.lookups.exported > 0' \
        'process.program == counted' 'process.ended_by == exit' \
        "$place.allocs == 7" "$place.frees == 5" \
        "$place.alloc_bytes == 71369731" \
        "$place.peak_bytes == 71369731" \
        "$place.current_bytes == 67108865" \
        "$place.current_blocks == 2" \
        "$place.failed == 0" 'frees.drained == 0' || return 1
    (($(histogram_sum "$1") == 7)) || { echo "histogram: $(histogram_sum "$1"), wanted 7"; return 1; }
    echo "7 allocations, 5 frees, every byte"
}

histogram_sum() {
    python3 -IS -c 'import json, sys
placement = json.load(open(sys.argv[1]))["devices"][0]["placements"][sys.argv[2]]
print(sum(bin["count"] for bin in placement["size_histogram"]))' "$(report_path)" "$1"
}

on_stderr() {
    run_as "$TAG.with" LD_PRELOAD="$LIB" -- "$BIN/counted" || { died with $?; return 1; }
    grep -qi allograft "$OUT/$TAG.with.err" || { echo "no report on stderr"; return 1; }
    grep -qx '7 taken, 5 freed' "$OUT/$TAG.with.out" || { echo "stdout changed"; return 1; }
    echo "$(wc -l <"$OUT/$TAG.with.err") lines on stderr"
}

switched_off() {
    run_as "$TAG.with" LD_PRELOAD="$LIB" ALLOGRAFT_STATS=off -- "$BIN/counted" ||
        { died with $?; return 1; }
    [[ ! -s $OUT/$TAG.with.err ]] || { echo "said: $(head -n1 "$OUT/$TAG.with.err")"; return 1; }
    echo "nothing said"
}

# CUDA used past every lookup path: one line says so, and nothing changes; switched off, nothing is said.
bypassed() {
    run_as "$TAG.with" LD_PRELOAD="$LIB" -- "$BIN/bypass" || { died with $?; return 1; }
    (($(wc -l <"$OUT/$TAG.with.err") == 1)) && grep -q 'none of its calls' "$OUT/$TAG.with.err" ||
        { echo "stderr: $(head -n2 "$OUT/$TAG.with.err")"; return 1; }
    [[ $(cat "$OUT/$TAG.with.out") == devices ]] || { echo "stdout changed"; return 1; }
    head -n1 "$OUT/$TAG.with.err"
    run_as "$TAG.off" LD_PRELOAD="$LIB" ALLOGRAFT_STATS=off -- "$BIN/bypass" &&
        [[ ! -s $OUT/$TAG.off.err ]] || { echo "said although switched off"; return 1; }
}

# A bad value: one line that names it, and the run goes on as if the library were not there.
bad_value() {
    run_with ALLOGRAFT_POLICY=swimming -- "$BIN/counted" || { died with $?; return 1; }
    local n
    n=$(grep -c 'ALLOGRAFT_POLICY.*swimming' "$OUT/$TAG.with.err")
    ((n == 1)) || { echo "$n lines about the bad value"; return 1; }
    if [[ -e $(report_path) ]]; then
        report 'coverage.redirected == 0' || return 1
    fi
    head -n1 "$OUT/$TAG.with.err"
}

# forked_before: child and parent both use CUDA, and their reports do not mix.
forked_before() {
    run_native -- "$BIN/forked" before || { died native $?; return 1; }
    run_with -- "$BIN/forked" before || { died with $?; return 1; }
    compare_output || return 1
    local all=("$OUT/$TAG.with."*.json)
    ((${#all[@]} == 2)) || { echo "${#all[@]} reports, wanted 2"; return 1; }
    local child=${all[0]}
    [[ $child == "$(report_path)" ]] && child=${all[1]}
    report 'coverage.redirected == 3' || return 1
    python3 -IS "$HERE/report.py" "$child" 'coverage.redirected == 5' || return 1
    echo "parent 3, child 5"
}

# forked_after: a child that uses no CUDA leaves the parent's report alone.
forked_after() {
    run_native -- "$BIN/forked" after || { died native $?; return 1; }
    run_with -- "$BIN/forked" after || { died with $?; return 1; }
    compare_output || return 1
    report 'coverage.redirected == 3' "process.pid == $(cat "$OUT/$TAG.with.pid")" || return 1
    echo "parent 3"
}

# names_lines: can the command of this build read reports, and name lines of stacks?
names_lines() {
    python3 -IS - "$BUILD/meson-info/intro-dependencies.json" <<'EOF'
import json, sys
missing = {"jansson", "libdw"} - {found["name"] for found in json.load(open(sys.argv[1]))}
if missing:
    sys.exit(print("the command was built without", " and ".join(sorted(missing))) or 1)
EOF
}

# named: the report of the last run_with, with the names that the command finds.
named() {
    "$BUILD/allograft" report --json "$(report_path)" >"$OUT/$TAG.named.json" 2>"$OUT/$TAG.named.err" ||
        { echo "no names: $(head -n1 "$OUT/$TAG.named.err")"; return 1; }
}

# holders [VAR=VALUE]...: every leak is named with file and line, and the holder of most at the peak.
holders() {
    names_lines || return "$STATUS_SKIP"
    run_with ALLOGRAFT_STACKS=16 "$@" -- "$BIN/holders" "$BIN/libholders_plugin.so" || { died with $?; return 1; }
    silent && named || return 1
    python3 -IS "$HERE/memory/holders.py" "$OUT/$TAG.named.json" "$HERE/memory/holders.cu"
}

holders_torch() {
    local status script=$HERE/frameworks/torch_holders.py
    names_lines || return "$STATUS_SKIP"
    LIMIT_S=300 run_native -- python3 "$script"
    status=$?
    ((status == STATUS_SKIP)) && { echo "no torch here"; return $STATUS_SKIP; }
    ((status == 0)) || { died native $status; return 1; }
    LIMIT_S=300 run_with ALLOGRAFT_STACKS=32 -- python3 "$script" || { died with $?; return 1; }
    compare_output && silent && named || return 1
    python3 -IS "$script" "$OUT/$TAG.named.json"
}

# waits [VAR=VALUE]...: each call that waited for a kernel is named, with at least the kernel's time.
waits() {
    names_lines || return "$STATUS_SKIP"
    run_native -- "$BIN/waits" || { died native $?; return 1; }
    run_with ALLOGRAFT_WAITS=1 "$@" -- "$BIN/waits" || { died with $?; return 1; }
    compare_output && silent && named || return 1
    python3 -IS "$HERE/process/waits.py" "$OUT/$TAG.named.json" "$OUT/$TAG.with.err" "$HERE/process/waits.cu"
}

# own_graphs_bytes KEY NAME: the report's bytes of that key are within a tenth of those that the program printed.
own_graphs_bytes() {
    local bytes
    bytes=$(awk -v name="$2" '$1 == name { print $2 }' "$OUT/$TAG.with.out")
    [[ $bytes ]] || { echo "the program says nothing of $2"; return 1; }
    report "own_graphs.devices.0.$1 >= $((bytes - bytes / 10))" "own_graphs.devices.0.$1 <= $((bytes + bytes / 10))"
}

# own_graphs [VAR=VALUE]...: what the program's graphs take, as the program itself sees it. Free memory is the device's,
# so nothing else may run on it meanwhile.
own_graphs() {
    run_with "$@" -- "$BIN/own_graphs" kernels || { died with $?; return 1; }
    report 'own_graphs.instantiated == 16' 'own_graphs.live == 8' 'own_graphs.live_peak == 16' \
        'own_graphs.failed == 0' || return 1
    own_graphs_bytes instantiation_bytes instantiated && own_graphs_bytes first_launch_bytes launched || return 1
    awk '{ sum += $2 } END { print sum " bytes for 16 graphs of 1000 kernels"; exit !(sum > 0) }' "$OUT/$TAG.with.out"
}

own_graphs_nodes() {
    local key
    run_with "$@" -- "$BIN/own_graphs" nodes || { died with $?; return 1; }
    for key in used_bytes used_high_bytes reserved_bytes reserved_high_bytes; do
        own_graphs_bytes "$key" "$key" || return 1
    done
    report 'own_graphs.devices.0.used_bytes > 33554431' 'own_graphs.devices.0.reserved_high_bytes > 83886079' || return 1
    echo "as the driver says"
}

own_graphs_checks() {
    check report/own-graphs own_graphs
    check report/own-graphs-replay own_graphs ALLOGRAFT_GRAPH=all
    check report/own-graphs-nodes own_graphs_nodes
}

# setting_cost WHAT SETTING PROGRAM TIMES BOUND: the us that the setting adds to what the program does so many times, the
# library preloaded both ways.
setting_cost() {
    local without with
    run_native LD_PRELOAD="$LIB" ALLOGRAFT_STATS=off -- "$BIN/$3" time "$4" || { died native $?; return 1; }
    run_with "$2" -- "$BIN/$3" time "$4" || { died with $?; return 1; }
    read -r without _ <"$OUT/$TAG.native.out"
    read -r with _ <"$OUT/$TAG.with.out"
    echo "$1 takes $without us, $with us with $2"
    awk -v a="$without" -v b="$with" -v bound="$5" 'BEGIN { exit !(b - a <= bound) }'
}

# What the stacks of a training took, of the time of its steps. Two trainings differ by far more: see torch_children.py.
stacks_training() {
    local status ms
    LIMIT_S=120 run_with ALLOGRAFT_STACKS=16 -- python3 "$HERE/frameworks/torch_replay.py" gpt2_train
    status=$?
    ((status == STATUS_SKIP)) && { echo "no torch here"; return "$STATUS_SKIP"; }
    ((status == 0)) || { died with $status; return 1; }
    ms=$(awk '$1 == "step_ms_gpt2_train" { printf "%d", 150 * $2 }' "$OUT/$TAG.with.out")
    echo "$(report holders.taken) stacks took $(report holders.taking_ns) ns, 150 steps $ms ms"
    report 'holders.taking_ns > 0' "holders.taking_ns <= $((ms * 10000))"
}

holders_cost_checks() {
    check report/stacks-training stacks_training
    check report/holders-cost again setting_cost "a pair" ALLOGRAFT_STACKS=16 holders 20000 2
    # Two readings of the clock: 0.29 us on an H200 whose host reads one in 29 ns.
    check report/waits-cost again setting_cost "synchronising an idle stream" ALLOGRAFT_WAITS=1 waits 200000 0.4
}

report_checks() {
    background check report/exact exact native
    background check report/exact-pool exact pool ALLOGRAFT_POLICY=pool
    background check report/holders holders
    background check report/holders-pool holders ALLOGRAFT_POLICY=pool
    background check report/holders-torch holders_torch
    background check report/waits waits
    background check report/waits-native waits ALLOGRAFT_POLICY=native
    background check report/waits-replay waits ALLOGRAFT_GRAPH=all
    background check report/stderr on_stderr
    background check report/off switched_off
    background check report/bad-value bad_value
    background check report/bypassed bypassed
    background check fork/before forked_before
    background check fork/after forked_after
}
