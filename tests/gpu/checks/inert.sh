# Programs without CUDA do not notice the library.

# unchanged COMMAND...: same output, same status, nothing said.
unchanged() {
    local status native_status file
    run_native -- "$@"
    native_status=$?
    run_as "$TAG.with" LD_PRELOAD="$LIB" -- "$@"
    status=$?
    ((status == native_status)) || { echo "ended with $status, not $native_status"; return 1; }
    for file in out err; do
        cmp -s "$OUT/$TAG.native.$file" "$OUT/$TAG.with.$file" ||
            { echo "$file differs: $(head -n1 "$OUT/$TAG.with.$file")"; return 1; }
    done
    echo "$(wc -c <"$OUT/$TAG.with.out") bytes of output equal"
}

inert_checks() {
    check inert/true unchanged /bin/true
    check inert/false unchanged /bin/false
    check inert/bash unchanged bash -c 'echo hello; ls / | wc -l; (exit 3); echo $?; echo oh >&2'
    check inert/python unchanged python3 -c 'import threading, subprocess
print(sum(range(1000)), subprocess.run(["echo", "child"], capture_output=True).stdout)'
    check inert/startup timeout 60 "$BIN/startup" "$LIB" 50
}
