# How a GPU check is run: a program with and without the library, its report, one line of verdict.
# Sourced by run.sh, which sets LIB (the library), BIN (built programs), OUT (where all output
# goes), HERE (this folder), ONLY (which checks are wanted).

STATUS_SKIP=77

# check NAME FUNCTION ARGS...
# Runs the function, whose standard output are the figures and whose status is the verdict
# (0 ok, 77 skip, else fail), and prints one line. May run in the background.
check() {
    local name=$1 figures status word start=$SECONDS
    shift
    wanted "$name" || return 0
    TAG=${name//\//.}
    figures=$("$@" 2>"$OUT/$TAG.log")
    status=$?
    figures=$(tr '\n' ' ' <<<"$figures" | sed 's/  */ /g; s/ $//')
    case $status in
        0) word=ok ;;
        "$STATUS_SKIP") word=skip ;;
        *) word=FAIL ;;
    esac
    printf '%s %s: %s\n' "$word" "$name" "$figures" | tee -a "$OUT/verdicts"
    printf '%s %s\n' "$((SECONDS - start))" "$name" >>"$OUT/durations"
}

# wanted NAME: was this check asked for, and has no verdict yet?
wanted() {
    # shellcheck disable=SC2053  # ONLY is a pattern
    [[ $1 == *$ONLY* && " $DONE " != *" $1 "* ]]
}

DONE=""
[[ ${RESUME:-} ]] && DONE=$(sed 's/^[^ ]* \([^:]*\):.*/\1/' "$OUT/verdicts" | tr '\n' ' ')

# measures NAME FUNCTION ARGS...: check NAME, whatever was asked for: other checks, one of which has no verdict yet, judge
# what it measures. In a run that is resumed it may have a verdict.
measures() {
    grep -v "^[^ ]* $1:" "$OUT/verdicts" >"$OUT/verdicts.kept"
    mv "$OUT/verdicts.kept" "$OUT/verdicts"
    MEASURED=("$@") MEASURED_OF=${OF:-} MEASURED_ITERATIONS=${ITERATIONS:-}
    DONE=" $DONE "
    DONE=${DONE/ $1 / } ONLY="" check "$@"
}
MEASURED=()

# What a busy host disturbs comes out too slow, and hardly ever too fast. So where a bound is missed, what it is about is
# measured once more, unless ONCE, and that counts: what is slower itself misses it again.

# bound FUNCTION ARGS...: judges what `measures` last measured.
bound() {
    "$@" && return
    [[ ${ONCE:-} ]] && return 1
    grep -qxF "${MEASURED[0]}" "$OUT/measured_again" 2>/dev/null && return 1
    echo "${MEASURED[0]}" >>"$OUT/measured_again"
    OF=$MEASURED_OF ITERATIONS=$MEASURED_ITERATIONS measures "${MEASURED[@]}" >&2 # the standard output of a check are its figures
    echo "measured again:"
    "$@"
}

# again FUNCTION ARGS...: the function measures, and judges that itself.
again() {
    local status
    "$@" && return
    status=$?
    ((status == STATUS_SKIP)) && return $STATUS_SKIP
    [[ ${ONCE:-} ]] && return $status
    echo "measured again:"
    "$@"
}

# any_wanted NAME...: was one of these checks asked for?
any_wanted() {
    local name
    for name in "$@"; do
        wanted "$name" && return 0
    done
    return 1
}

# background COMMAND...: like COMMAND, but at most MAX_JOBS of them at once.
MAX_JOBS=12
background() {
    while (($(jobs -rp | wc -l) > MAX_JOBS)); do
        sleep 0.1
    done
    SHARES_NATIVE=1 "$@" &
    BACKGROUND+=($!)
}

BACKGROUND=()
wait_for_background() {
    ((${#BACKGROUND[@]} == 0)) || wait "${BACKGROUND[@]}"
    BACKGROUND=()
}

# table NAME COLUMN...: begins a table of those at the end; its first column are the names of its rows.
table() {
    figure "[$1]" "${@:2}"
}

# figure NAME CELL...: a row of the last table. results.py reads them: a cell is a number, or one and its unit.
figure() {
    local IFS=$'\t'
    printf '%s\n' "$*" >>"$OUT/figures"
}

# medians FILE [OPTION]... NATIVE... -- WITH...: what medians.py makes of these goes to OUT/FILE; what it was made of is
# kept beside it, for results.py.
medians() {
    python3 -IS "$HERE/medians.py" --keep "$OUT/$1.values" "${@:2}" >"$OUT/$1"
}

# tabulate FILE: medians as a table.
tabulate() {
    local name native with ratio
    table "$1" native with times
    while read -r name native with ratio; do
        figure "$name" "$native" "$with" "${ratio}x"
    done <"$OUT/$1"
}

# run_as TAG [VAR=VALUE]... -- COMMAND...
# Runs the command with the variables; output in OUT/TAG.out and .err, its process id in .pid.
# Frameworks get a compile cache of their own each time: every run shall compile. Python says where it was if it crashes.
run_as() {
    local tag=$1 vars=(TRITON_CACHE_DIR="$OUT/$1.triton" CUPY_CACHE_DIR="$OUT/$1.cupy" PYTHONFAULTHANDLER=1)
    shift
    while [[ $1 != -- ]]; do
        vars+=("$1")
        shift
    done
    shift
    # Neither timeout nor sh may be preloaded: the variables are set by the last exec.
    # shellcheck disable=SC2016
    timeout -k 10 "${LIMIT_S:-60}" \
        sh -c 'echo $$ >"$0"; exec env "$@"' "$OUT/$tag.pid" "${vars[@]}" "$@" \
        >"$OUT/$tag.out" 2>"$OUT/$tag.err" </dev/null
}

# run_native [VAR=VALUE]... -- COMMAND...
run_native() {
    run_as "$TAG.native" "$@"
}

# run_native_for_all [VAR=VALUE]... -- COMMAND...: the same for all checks of one command that run in the background, where
# nothing is measured: to a native run the settings of Allograft are nothing. A run that failed is not kept.
run_native_for_all() {
    local vars=() key kept lock status
    if [[ ! ${SHARES_NATIVE:-} ]]; then
        run_native "$@"
        return
    fi
    while [[ $1 != -- ]]; do
        [[ $1 == ALLOGRAFT_* ]] || vars+=("$1")
        shift
    done
    key=$(printf '%s\n' "${vars[@]}" "$@" | md5sum)
    kept=native.${key%% *}
    exec {lock}>"$OUT/$kept.lock"
    flock "$lock"
    if [[ ! -f $OUT/$kept.done ]]; then
        run_as "$kept" "${vars[@]}" "$@" {lock}>&-
        status=$?
        ((status == 0)) && : >"$OUT/$kept.done"
    fi
    cp "$OUT/$kept.out" "$OUT/$TAG.native.out"
    cp "$OUT/$kept.err" "$OUT/$TAG.native.err"
    exec {lock}>&-
    return "${status:-0}"
}

# run_with [VAR=VALUE]... -- COMMAND...: the same under the library, which leaves a report.
run_with() {
    run_as "$TAG.with" LD_PRELOAD="$LIB" ALLOGRAFT_STATS="$OUT/$TAG.with.%p.json" "$@"
}

# The report of the last run_with.
report_path() {
    echo "$OUT/$TAG.with.$(cat "$OUT/$TAG.with.pid").json"
}

# report WORDS...: fields and conditions, see report.py.
report() {
    python3 -IS "$HERE/report.py" "$(report_path)" "$@"
}

# The library says nothing unless something is wrong.
silent() {
    if grep -qi allograft "$OUT/$TAG.with.err"; then
        echo "it said: $(grep -i -m1 allograft "$OUT/$TAG.with.err")"
        return 1
    fi
}

# died WHICH STATUS: says how a run ended that should have gone well.
died() {
    if [[ $2 == 124 || $2 == 137 ]]; then
        echo "$1 run took longer than ${LIMIT_S:-60} s"
    else
        echo "$1 run ended with $2: $(tail -n1 "$OUT/$TAG.$1.out") $(tail -n1 "$OUT/$TAG.$1.err")"
    fi
}

# same_output [VAR=VALUE]... -- COMMAND...
# Same output and status with and without; allocations redirected, unless POLICY or a rule leaves all to the driver.
# Lines that start with LEAVE_OUT (a pattern) are not compared.
same_output() {
    local status native_status redirected=">"
    [[ " $* " == *" ALLOGRAFT_POLICY=native "* || " $* " == *" ALLOGRAFT_RULES=*:native "* ]] && redirected="=="
    run_native_for_all "$@"
    native_status=$?
    ((native_status == STATUS_SKIP)) && { echo "not possible here"; return $STATUS_SKIP; }
    ((native_status == 0)) || { died native $native_status; return 1; }
    run_with "$@"
    status=$?
    ((status == 0)) || { died with $status; return 1; }
    compare_output || return 1
    silent || return 1
    report "coverage.redirected $redirected 0" "coverage.intercepted == 1" || return 1
    echo "$(wc -l <"$OUT/$TAG.native.out") lines equal, $(report coverage.redirected) redirected"
}

compare_output() {
    local side
    for side in native with; do
        grep -v "^${LEAVE_OUT:-no such line}" "$OUT/$TAG.$side.out" >"$OUT/$TAG.$side.compared"
    done
    [[ -s $OUT/$TAG.native.compared ]] || { echo "no output to compare"; return 1; }
    cmp -s "$OUT/$TAG.native.compared" "$OUT/$TAG.with.compared" && return 0
    echo "differs:" "$(diff "$OUT/$TAG.native.compared" "$OUT/$TAG.with.compared" | sed -n 2,5p)"
    return 1
}

# holds CONDITION... -- [VAR=VALUE]... -- COMMAND...
# The program judges itself: it must succeed natively (else the test is wrong) and with the
# library, and the report must fulfil the conditions.
holds() {
    local conditions=() status
    while [[ $1 != -- ]]; do
        conditions+=("$1")
        shift
    done
    shift
    run_native_for_all "$@"
    status=$?
    ((status == 0)) || { died native $status; return 1; }
    run_with "$@"
    status=$?
    tail -n1 "$OUT/$TAG.with.out"
    ((status == 0)) || { died with $status; return 1; }
    silent || return 1
    report "${conditions[@]}" || return 1
    ways
}

# How the frees went, for the line of a check.
ways() {
    local n names=(watched nothing_submitted null_stream context_fence set_aside drained native) i=0 text=
    for n in $(report "${names[@]/#/frees.}"); do
        ((n == 0)) || text+=", $n ${names[i]}"
        ((++i))
    done
    echo "(frees: ${text#, })"
}

# found_out COMMAND...: a deliberately wrong program, run natively, must be seen to be wrong.
found_out() {
    run_native -- "$@"
    local status=$?
    tail -n1 "$OUT/$TAG.native.out"
    ((status != 0)) || { echo "the test does not see it"; return 1; }
    ((status == 1)) || { died native $status; return 1; }
}
