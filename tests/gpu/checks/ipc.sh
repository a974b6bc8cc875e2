# Memory between processes: the same lives and answers as natively, on the same device and on another one.

# Every process of the run has a report of its own: at least one has opened memory of our pools.
ipc_was_ours() {
    local opened
    opened=$(cat "$OUT/$TAG".with.*.json | python3 -c 'import json, sys
text, opened, end = sys.stdin.read(), 0, json.JSONDecoder()
while text := text.lstrip():
    report, n = end.raw_decode(text)
    opened, text = opened + report["ipc"]["opened"], text[n:]
print(opened)')
    echo "$opened opened"
    ((opened > 0))
}

same_lives() {
    same_output "$@" || return
    ipc_was_ours
}

# Host and guest placed differently: handles of each are what they are, whoever opens them.
mixed_lives() {
    same_output "$@" || return
    ipc_was_ours && { echo "native memory went through us"; return 1; }
    return 0
}

ipc_checks() {
    # shellcheck disable=SC2034  # read by run_as
    local LIMIT_S=150
    background check ipc/same-device same_lives ALLOGRAFT_POLICY=pool -- "$BIN/ipc" 0
    background check ipc/same-device-sync same_lives ALLOGRAFT_POLICY=pool ALLOGRAFT_FREE=sync -- "$BIN/ipc" 0
    background check ipc/same-device-uncached same_lives ALLOGRAFT_POLICY=pool ALLOGRAFT_CACHE=0 -- "$BIN/ipc" 0
    background check ipc/native mixed_lives ALLOGRAFT_POLICY=native -- "$BIN/ipc" 0
    # By default there is no pool before the first handle, and none is made after it; pieces of slabs have our handles.
    background check ipc/auto same_output -- "$BIN/ipc" 0
    background check ipc/auto-other-device same_output -- "$BIN/ipc" 1
    background check ipc/auto-no-slabs mixed_lives ALLOGRAFT_SLAB=0 -- "$BIN/ipc" 0
    background check ipc/other-device same_lives ALLOGRAFT_POLICY=pool -- "$BIN/ipc" 1
    # With what the line says, handles are the driver's.
    background check ipc/page-native mixed_lives ALLOGRAFT_OOM=page ALLOGRAFT_RULES='*:native' -- "$BIN/ipc" 0
    background check ipc/page-spill same_output ALLOGRAFT_OOM=spill -- "$BIN/ipc" 0
    background check ipc/page-refused ipc_of_movable
    background check ipc/too-late ipc_too_late
    background check ipc/torch same_lives ALLOGRAFT_POLICY=pool -- python3 "$HERE/frameworks/torch_share.py" 0
    background check ipc/torch-auto mixed_lives -- python3 "$HERE/frameworks/torch_share.py" 0
    background check ipc/torch-other-device same_lives ALLOGRAFT_POLICY=pool -- python3 "$HERE/frameworks/torch_share.py" 1
}

# Memory that can move has no handle: the driver's error, and one line that says what to do.
ipc_of_movable() {
    run_with ALLOGRAFT_OOM=page -- "$BIN/ipc" 0 host_dies_early && { echo "it has a handle"; return 1; }
    grep -m1 -o 'movable memory cannot be given to another process; set ALLOGRAFT_OOM=spill' "$OUT/$TAG.with.err"
}

# The handle of a process that has ended: the driver's error, and one line that says what to do.
ipc_too_late() {
    run_native -- "$BIN/ipc" 0 host_dies_early || { died native $?; return 1; }
    run_with ALLOGRAFT_POLICY=pool -- "$BIN/ipc" 0 host_dies_early || { died with $?; return 1; }
    compare_output || return 1
    grep -m1 -o 'set ALLOGRAFT_POLICY=native' "$OUT/$TAG.with.err"
}
