# The control API for Python. Each program judges itself, and says the last line of its output.

# control_way WAY PROGRAM ARGS...: with the library only opened, or preloaded (with).
control_way() {
    local LIMIT_S=400 status way=$1
    local vars=(PYTHONPATH="$ROOT/tools/python:$HERE/frameworks" PYTHONWARNINGS=ignore "${CONTROL_VARS[@]}")
    if [[ $way == opened ]]; then
        run_as "$TAG.opened" "${vars[@]}" ALLOGRAFT_LIBRARY="$LIB" -- python3 "$HERE/api/$2" "${@:3}"
    else
        run_with "${vars[@]}" -- python3 "$HERE/api/$2" "${@:3}"
    fi
    status=$?
    ((status == STATUS_SKIP)) && { echo "not possible here"; return "$STATUS_SKIP"; }
    ((status == 0)) || { died "$way" $status; return 1; }
    ! grep '^allograft' "$OUT/$TAG.$way.err" || return 1
    echo "$way: $(tail -n1 "$OUT/$TAG.$way.out");"
}

# control PROGRAM ARGS...: one way after the other.
control() {
    control_way opened "$@" && control_way with "$@"
}

# Both at once, where what is measured is far from its bound.
control_at_once() {
    local opened with
    control_way opened "$@" >"$OUT/$TAG.opened.verdict" &
    control_way with "$@"
    with=$?
    wait $!
    opened=$?
    cat "$OUT/$TAG.opened.verdict"
    ((with == STATUS_SKIP && opened == STATUS_SKIP)) && return "$STATUS_SKIP"
    ((with == 0 && opened == 0))
}

# The same with a limit, which an opened library does not know.
control_limited() {
    local CONTROL_VARS=(ALLOGRAFT_LIMIT=1GiB)
    control "$@"
}

# The same where cudaMalloc gives managed memory, with the library preloaded.
control_managed() {
    local CONTROL_VARS=(ALLOGRAFT_POLICY=managed)
    control "$@"
}

# These measure nothing.
control_background_checks() {
    local CONTROL_VARS=()
    background check control/compat-unified control_limited compat_unified.py # the longest first
    background check control/offload control api_offload.py
    background check control/advice control_managed api_advice.py
    background check control/readme control api_readme.py
    background check control/compat-scripts control compat_scripts.py
    background check control/compat-random control compat_iterations.py random
    background check control/compat-failed control compat_iterations.py failed
}

# These measure time, or how much memory is free.
control_checks() {
    local CONTROL_VARS=()
    check control/graphs control api_graphs.py
    check control/iterations control_at_once api_iterations.py losses
    check control/resets control api_iterations.py resets
    check control/ring control api_ring.py
    check control/compat-transfer control compat_transfer.py
    check control/compat-graphs control compat_graphs.py
    check control/compat-iterations control_at_once compat_iterations.py losses
}
