# Several GPUs, contexts beside the primary ones, and libraries that hand their memory to others.

two_gpus() {
    (($(nvidia-smi --list-gpus | wc -l) > 1)) || { echo "one GPU only"; return 1; }
}

on_two_gpus() {
    two_gpus || return $STATUS_SKIP
    "$@"
}

# What is on which device, with the devices in this order; the report's numbers are the program's.
visible() {
    local order=$1 n=0
    [[ $order == 0 || $order == GPU-* ]] || two_gpus || return $STATUS_SKIP
    same_output CUDA_VISIBLE_DEVICES="$order" -- "$BIN/devices" || return 1
    while ((n < $(grep -c '^device ' "$OUT/$TAG.native.out"))); do
        report "devices.$n.placements.native.alloc_bytes == $(((n + 1) * 10 << 20))" || return 1
        ((++n))
    done
    ((n > 0))
}

several_gpu_checks() {
    local order
    for order in 0 1 0,1 1,0; do
        background check "devices/visible-$order" visible "$order"
    done
    order=$(nvidia-smi --query-gpu=uuid --format=csv,noheader | tail -n1)
    background check devices/visible-uuid visible "$order"
    several devices/contexts -- "$BIN/contexts_two" "$BIN/driver_kernels.fatbin"
    several devices/green -- "$BIN/green" "$BIN/driver_kernels.fatbin"
    background check devices/peers-managed same_output ALLOGRAFT_POLICY=managed -- "$BIN/peers"
    background check devices/peers-reversed on_two_gpus same_output CUDA_VISIBLE_DEVICES=1,0 -- "$BIN/peers"
    # A barrier of an ordered free holds back what another device then waits for: docs/guarantees.md, Limits.
    LEAVE_OUT="work of device 0" background check devices/peers-ordered same_output \
        ALLOGRAFT_FREE=ordered -- "$BIN/peers"
    background check devices/peers-mixed same_output ALLOGRAFT_RULES='device=1:native' -- "$BIN/peers"
    background check devices/peers-mixed-managed same_output \
        ALLOGRAFT_RULES='device=0:managed; device=1:pool' -- "$BIN/peers"
}

# nccl MODE [CONDITION]... -- [VAR=VALUE]...: torch_nccl.py, with conditions on the report of rank 0.
nccl() {
    local mode=$1 conditions=() LIMIT_S=150
    shift
    while [[ $1 != -- ]]; do
        conditions+=("$1")
        shift
    done
    shift
    two_gpus || return $STATUS_SKIP
    same_output "$@" -- python3 "$HERE/frameworks/torch_nccl.py" "$mode" || return $?
    report "${conditions[@]}"
}

# By default NCCL's own memory comes from the driver, and a rule that names it can say otherwise. On
# two H200s of one host (driver 580.159) it computed the same with memory of the pool, which it hands to
# its peer by cudaIpcGetMemHandle. The default stays for what such a machine does not show: memory that is
# registered with network adapters.
nccl_checks() {
    local left=coverage.fallbacks.exporting_library
    background check nccl/default nccl processes "$left > 0" -- NCCL_CUMEM_ENABLE=0
    background check nccl/overridden nccl processes "$left == 0" -- NCCL_CUMEM_ENABLE=0 \
        ALLOGRAFT_RULES='from=libnccl*:pool'
    background check nccl/cumem nccl processes -- NCCL_CUMEM_ENABLE=1
    background check nccl/sync nccl processes -- ALLOGRAFT_FREE=sync
    background check nccl/managed nccl processes -- ALLOGRAFT_POLICY=managed
    background check nccl/uncached nccl processes -- PYTORCH_NO_CUDA_MEMORY_CACHING=1
    background check nccl/graph nccl graph -- NCCL_CUMEM_ENABLE=1
    background check nccl/graph-no-cumem nccl graph -- NCCL_CUMEM_ENABLE=0
    background check nccl/mixed nccl processes -- ALLOGRAFT_RULES='device=1:native'
    background check nccl/mixed-managed nccl processes -- ALLOGRAFT_RULES='device=1:managed'
    background check nccl/one-process nccl single --
}

# cuFile on redirected memory, and with its own memory from the pool too.
cufile_checks() {
    background check cufile/default same_output -- python3 "$HERE/frameworks/cufile.py"
    background check cufile/managed same_output ALLOGRAFT_POLICY=managed -- python3 "$HERE/frameworks/cufile.py"
    background check cufile/overridden same_output ALLOGRAFT_RULES='from=libcufile*:pool' -- \
        python3 "$HERE/frameworks/cufile.py"
}
