# The control API for Python. Each program judges itself, and says the last line of its output.

# control PROGRAM ARGS...: with the library only opened, and preloaded.
control() {
    local LIMIT_S=400 status way vars
    for way in opened with; do
        vars=(PYTHONPATH="$ROOT/tools/python:$HERE/frameworks" PYTHONWARNINGS=ignore)
        if [[ $way == opened ]]; then
            run_as "$TAG.opened" "${vars[@]}" ALLOGRAFT_LIBRARY="$LIB" -- python3 "$HERE/api/$1" "${@:2}"
        else
            run_with "${vars[@]}" -- python3 "$HERE/api/$1" "${@:2}"
        fi
        status=$?
        ((status == STATUS_SKIP)) && { echo "not possible here"; return "$STATUS_SKIP"; }
        ((status == 0)) || { died "$way" $status; return 1; }
        ! grep '^allograft' "$OUT/$TAG.$way.err" || return 1
        echo "$way: $(tail -n1 "$OUT/$TAG.$way.out");"
    done
}

control_checks() {
    check control/graphs control api_graphs.py
    check control/iterations control api_iterations.py losses
    check control/resets control api_iterations.py resets
    check control/offload control api_offload.py
    check control/ring control api_ring.py
    check control/readme control api_readme.py
    check control/compat-scripts control compat_scripts.py
    check control/compat-graphs control compat_graphs.py
    check control/compat-iterations control compat_iterations.py losses
    check control/compat-random control compat_iterations.py random
    check control/compat-failed control compat_iterations.py failed
}
