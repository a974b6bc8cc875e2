# Deaths, children and loaders: as natively, and what was counted is there.

# killed_counted WAY SIGNAL: ends by the signal as natively, and `allograft report` has the counts.
killed_counted() {
    local status counters=$OUT/$TAG.counters
    rm -rf "$counters" && mkdir -p "$counters"
    run_native -- "$BIN/life" "$1"
    (($? == 128 + $2)) || { echo "natively it did not end by signal $2"; return 1; }
    run_with ALLOGRAFT_COUNTERS="$counters" -- "$BIN/life" "$1"
    status=$?
    ((status == 128 + $2)) || { died with $status; return 1; }
    compare_output || return 1
    [[ ! -e $(report_path) ]] || { echo "a killed process wrote a report"; return 1; }
    "$BUILD/allograft" report --json "$counters"/*.counters >"$(report_path)" 2>>"$OUT/$TAG.with.err" ||
        { echo "no report: $(tail -n1 "$OUT/$TAG.with.err")"; return 1; }
    report 'process.ended_by == killed' 'coverage.redirected == 5' \
        'devices.0.placements.native.allocs == 5' 'devices.0.placements.native.frees == 3' \
        'devices.0.placements.native.current_blocks == 2' || return 1
    "$BUILD/allograft" report --clean "$counters" >"$OUT/$TAG.text" || return 1
    [[ -z $(ls "$counters") ]] || { echo "not cleaned"; return 1; }
    head -n1 "$OUT/$TAG.text"
}

# same_life WAY: the same output and status, and nothing left behind.
same_life() {
    local counters=$OUT/$TAG.counters
    rm -rf "$counters" && mkdir -p "$counters"
    same_output ALLOGRAFT_COUNTERS="$counters" -- "$BIN/life" "$@" || return 1
    [[ -z $(ls "$counters") ]] || { echo "counters left behind"; return 1; }
}

# The daemon alone has a report, the processes that became it have none.
daemon() {
    local reports
    run_native -- "$BIN/life" daemon || { died native $?; return 1; }
    run_with -- "$BIN/life" daemon || { died with $?; return 1; }
    compare_output || return 1
    reports=("$OUT/$TAG.with."*.json)
    [[ ${#reports[@]} == 1 && -e ${reports[0]} ]] || { echo "${#reports[@]} reports"; return 1; }
    python3 -IS "$HERE/report.py" "${reports[0]}" 'coverage.redirected == 2' || return 1
    echo "one report, 2 redirected"
}

# An error that stays: every call says it, nothing hangs, the report is written.
broken() {
    same_life broken || return 1
    grep -qx 'synchronise: 700' "$OUT/$TAG.native.out" || { echo "natively it was not broken"; return 1; }
    report 'process.ended_by == exit'
}

# launched [VAR=VALUE]...: the report names what was launched before an error that stays, the latest first.
launched() {
    run_native -- "$BIN/life" launched || { died native $?; return 1; }
    run_with "$@" -- "$BIN/life" launched || { died with $?; return 1; }
    compare_output || return 1
    grep -qx 'synchronise: 700' "$OUT/$TAG.native.out" || { echo "natively it was not broken"; return 1; }
    report 'first_error.code == 700' 'first_error.launched.0.name == _Z13write_nowherePj' \
        'first_error.launched.1.kind == graph' 'first_error.launched.2.name == _Z9by_driverPj' \
        'first_error.launched.3.name == _Z10by_runtimePj' 'first_error.launched.3.stream == 0x0'
}

# named_or_caught [AUDIT]: a library bound past us is named in the report; with the audit it is caught.
named_or_caught() {
    local audit=()
    [[ $# == 0 ]] || audit=(LD_AUDIT="$BUILD/liballograft-audit.so")
    run_native -- "$BIN/life" deep "$BIN/libdeep.so" || { died native $?; return 1; }
    run_with "${audit[@]}" -- "$BIN/life" deep "$BIN/libdeep.so" || { died with $?; return 1; }
    compare_output || return 1
    if (($#)); then
        silent || return 1
        report 'coverage.redirected == 4' || return 1
        echo "caught, $(report coverage.redirected) redirected"
    else
        grep -q 'libdeep.so reaches the driver past' "$OUT/$TAG.with.err" ||
            grep -q 'libdeep.so reaches' "$(report_path)" || { echo "not named"; return 1; }
        echo "named"
    fi
}

# nobody_named COMMAND...: no library of an ordinary program is taken for one that goes past us.
nobody_named() {
    if [[ $1 == python3 ]]; then
        python3 -c 'import torch' 2>/dev/null || { echo "not installed"; return $STATUS_SKIP; }
    fi
    LIMIT_S=120 run_with -- "$@" || { died with $?; return 1; }
    grep -o '"bypassing":\[[^]]*\]' "$(report_path)"
    grep -q '"bypassing":\[\]' "$(report_path)" || return 1
    # PyTorch is linked with cuFile, which counts where its kernel module is loaded.
    grep -o '"unseen":\[[^]]*\]' "$(report_path)"
    grep -q '"unseen":\[\("libcufile[^"]*"\)\?\]' "$(report_path)"
}

# scopes PROGRAM LIBRARY HOW [VAR=VALUE]...: who finds which function of the driver, and at which address. Left out is what
# docs/guarantees.md leaves out.
scopes() {
    local program=$1 library=$2 how=$3 LEAVE_OUT='\(library by default: .*\|.*: all of one address: .*\)'
    shift 3
    run_native -- "$BIN/$program" "$BIN/$library" "$how" || { died native $?; return 1; }
    run_with "$@" -- "$BIN/$program" "$BIN/$library" "$how" || { died with $?; return 1; }
    compare_output || return 1
    echo "$(wc -l <"$OUT/$TAG.native.out") lines, $(grep -c ': [01]$' "$OUT/$TAG.native.out") of them about addresses"
}

# unseen LIBRARY: with a library of the driver's that submits work by itself, the report names it.
unseen() {
    ldconfig -p 2>/dev/null | grep -q "$1" || { echo "not installed"; return $STATUS_SKIP; }
    run_native LD_PRELOAD="$1" -- "$BIN/plain_static" || { died native $?; return 1; }
    run_with LD_PRELOAD="$LIB:$1" -- "$BIN/plain_static" || { died with $?; return 1; }
    compare_output || return 1
    grep -o '"unseen":\[[^]]*\]' "$(report_path)"
    grep -q "\"unseen\":\[[^]]*\"$1\"" "$(report_path)"
}

# Frameworks under the audit: the same bytes.
audited_framework() {
    python3 -c 'import torch' 2>/dev/null || { echo "not installed"; return $STATUS_SKIP; }
    LIMIT_S=200 same_output LD_AUDIT="$BUILD/liballograft-audit.so" -- python3 "$HERE/frameworks/torch_train.py"
}

# ends_as_natively STATUS ARGS...: ends with that status natively, and in time with the library.
ends_as_natively() {
    local wanted=$1 graph status LIMIT_S=15
    shift
    run_native -- "$BIN/ends" "$@"
    status=$?
    ((status == wanted)) || { died native $status; return 1; }
    for graph in off all; do
        run_with ALLOGRAFT_GRAPH=$graph -- "$BIN/ends" "$@"
        status=$?
        ((status == wanted)) || { echo "GRAPH=$graph:"; died with $status; return 1; }
    done
}

# interrupted WAY: a handler ends the process while its thread is anywhere in the driver.
interrupted() {
    local i
    for ((i = 1; i <= 12; i++)); do
        ends_as_natively 7 "$1" $((300000 + i * 7919)) || return 1
    done
    echo "$((2 * i - 2)) ends"
}

life_checks() {
    background check life/killed killed_counted kill 9
    background check life/terminated killed_counted terminate 15
    background check life/aborted killed_counted abort 6
    background check life/broken broken
    background check life/broken-launched launched
    background check life/broken-launched-replay launched ALLOGRAFT_GRAPH=all
    background check life/broken-launched-native launched ALLOGRAFT_POLICY=native ALLOGRAFT_ON_ERROR=report
    local way
    for way in _exit exit exec sigterm; do
        background check "life/endless-$way" ends_as_natively 5 endless-device "$way"
        background check "life/endless-pinned-$way" ends_as_natively 5 endless "$way"
    done
    background check life/interrupted-alloc interrupted alloc
    background check life/interrupted-async interrupted async
    background check life/fork-asks same_life fork_asks
    background check life/fork-exec same_life fork_exec
    background check life/daemon daemon
    background check life/plug-in same_life plug_in
    background check life/deepbind named_or_caught
    background check life/deepbind-audited named_or_caught audited
    background check life/nobody-static nobody_named "$BIN/plain_static"
    background check life/nobody-shared nobody_named "$BIN/plain_shared"
    background check life/nobody-torch nobody_named python3 "$HERE/frameworks/torch_train.py"
    background check life/audit-torch audited_framework
    for way in none local global; do
        background check "life/scopes-$way" scopes scope_opened libscope_linked.so "$way"
        background check "life/scopes-off-$way" scopes scope_opened libscope_opened.so "$way" ALLOGRAFT_DISABLE=1
    done
    background check life/scopes-linked scopes scope_linked libscope_opened.so local
    background check life/scopes-off-linked scopes scope_linked libscope_opened.so local ALLOGRAFT_DISABLE=1
    background check life/unseen-decode unseen libnvcuvid.so.1
    background check life/unseen-encode unseen libnvidia-encode.so.1
    background check life/unseen-optix unseen libnvoptix.so.1
}
