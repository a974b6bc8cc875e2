# Rules meet what they name under CUDA's own runtime, inside the program and as a library.

# ruled CONDITION... -- [VAR=VALUE]... -- COMMAND...: the native output, and the report's conditions.
ruled() {
    local conditions=() status
    while [[ $1 != -- ]]; do
        conditions+=("$1")
        shift
    done
    shift
    run_native "$@"
    status=$?
    ((status == 0)) || { died native $status; return 1; }
    run_with "$@"
    status=$?
    ((status == 0)) || { died with $status; return 1; }
    compare_output || return 1
    silent || return 1
    report "${conditions[@]}" || return 1
    echo "$(report rules.0.hits) of the first rule, $(report rules.1.hits) of the second"
}

# A file of settings does what the variables do.
ruled_by_file() {
    printf 'POLICY = native\nRULES = size<1KiB:pool\nRULES = thread=nobody:managed\n' >"$OUT/$TAG.conf"
    ruled 'rules.0.hits > 0' 'rules.1.hits == 0' 'devices.0.placements.native.allocs > 0' \
        'devices.0.placements.pool.allocs > 0' -- ALLOGRAFT_CONFIG="$OUT/$TAG.conf" -- "$BIN/plain_static"
}

# failing RULE KIND=LETTERS...: what fails under the rule; kinds that are not named do not, and natively none does.
failing() {
    local rule=$1 kind letters status
    shift
    run_native -- "$BIN/fails"
    status=$?
    ((status == 0)) || { died native $status; return 1; }
    run_with ALLOGRAFT_RULES="$rule" -- "$BIN/fails"
    status=$?
    ((status == 0)) || { died with $status; return 1; }
    silent || return 1
    grep -qv ': \.\.\.\.\.\.$' "$OUT/$TAG.native.out" && { echo "natively: $(cat "$OUT/$TAG.native.out")"; return 1; }
    cp "$OUT/$TAG.native.out" "$OUT/$TAG.wanted"
    for kind; do
        letters=${kind#*=}
        sed -i "s/^${kind%%=*}: .*/${kind%%=*}: $letters/" "$OUT/$TAG.wanted"
    done
    diff "$OUT/$TAG.wanted" "$OUT/$TAG.with.out" || return 1
    report 'rules.0.failed > 0' || return 1
    echo "$(report rules.0.failed) of $(report rules.0.held) calls failed"
}

rules_checks() {
    check rules/size ruled 'rules.0.hits > 0' 'rules.1.hits > 0' \
        'devices.0.placements.native.allocs > 0' 'devices.0.placements.pool.allocs > 0' -- \
        ALLOGRAFT_RULES='size<1KiB:native; *:pool' -- "$BIN/plain_static"
    check rules/number ruled 'rules.0.hits == 100' 'devices.0.placements.native.allocs == 100' -- \
        ALLOGRAFT_RULES='nth=1..100:native; *:pool' -- "$BIN/plain_static"
    check rules/managed ruled 'rules.0.hits > 0' 'devices.0.placements.managed.allocs > 0' -- \
        ALLOGRAFT_RULES='size>=64KiB:managed,prefer=host,access=device; *:pool' -- "$BIN/plain_static"
    # The runtime inside the program: the program is the caller. As a library: that is.
    check rules/from-static ruled 'rules.0.hits > 0' 'rules.1.hits == 0' 'coverage.redirected == 0' -- \
        ALLOGRAFT_RULES='from=plain_static:native; from=libcudart*:pool' -- "$BIN/plain_static"
    check rules/from-shared ruled 'rules.0.hits == 0' 'rules.1.hits > 0' 'coverage.redirected > 0' -- \
        ALLOGRAFT_RULES='from=plain_shared:native; from=libcudart*:pool' -- "$BIN/plain_shared"
    check rules/file ruled_by_file
    check rules/fail failing '*:fail' device=FFFFFF pitch=FFFFFF async=FFFFFF managed=FFFFFF
    check rules/fail-every failing '*:fail,every=4' device=...F.. pitch=.F...F async=...F.. managed=.F...F
    check rules/fail-others failing 'call=host|pool|graph:fail,after=2' host=..FFFF register=FFFFFF pool=FFFFFF \
        graph=FFFFFF
}
