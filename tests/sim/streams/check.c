/* check.c: may this operation touch these bytes now? Reports when it may not. */
#include "tests/sim/sim_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXIT_STATUS 86

static unsigned n_violations;
static char last_report[1024];

void sim_violation(const struct sim_op *op, uint64_t address, size_t bytes,
                   const struct sim_block *block, const char *what)
{
    char life[512] = "no memory is known at this address", who[160] = "the host";

    n_violations++;
    if (block)
        sim_block_describe(block, life, sizeof(life));
    if (op)
        (void)snprintf(who, sizeof(who), "%s (op %llu, stream %llu, device %d)",
                       sim_work_name(&op->work), (unsigned long long)op->id,
                       (unsigned long long)op->stream_id, op->device);
    (void)snprintf(last_report, sizeof(last_report),
                   "sim: violation: %s\nsim:   by %s\nsim:   at 0x%llx, %zu bytes\n"
                   "sim:   %s\nsim:   SIM_SEED=%llu\n",
                   what, who, (unsigned long long)address, bytes, life,
                   (unsigned long long)sim_settings()->seed);
    (void)fputs(last_report, stderr);
    (void)fflush(stderr);
    if (sim_settings()->on_violation == SIM_VIOLATION_ABORT)
        abort();
    if (sim_settings()->on_violation == SIM_VIOLATION_EXIT)
        (void)syscall(SYS_exit_group, EXIT_STATUS); /* nobody's _exit: a driver knows of none */
}

unsigned sim_violations(void)
{
    return n_violations;
}

const char *sim_last_violation(void)
{
    return last_report;
}

/* A device fault is for ever: every later call fails, in the process's other contexts too. */
static void fault(struct sim_op *op)
{
    op->ctx->fault = CUDA_ERROR_ILLEGAL_ADDRESS;
    for (CUcontext ctx = sim_contexts(); ctx; ctx = ctx->next)
        ctx->fault = CUDA_ERROR_ILLEGAL_ADDRESS;
}

static bool covers(const struct sim_block *block, uint64_t address)
{
    return address >= block->base && address - block->base < block->size;
}

static bool born_before(const struct sim_block *block, const struct sim_op *op)
{
    if (block->born_async)
        return block->born && sim_order_covers(&op->order, block->born_at);
    return op->id > block->born_after;
}

/* May a kernel use what the host has there? SIM_ATTRIBUTES says so of the devices; R930 is about
 * one that cannot. */
static bool host_has(uint64_t address, size_t bytes)
{
    unsigned char ends[2];
    int value = 0;
    struct iovec local = {ends, 2}, remote[2] = {
                                        {(void *)(uintptr_t)address, 1},
                                        {(void *)(uintptr_t)(address + bytes - 1), 1},
                                    };

    return !sim_arena_has(address, NULL) &&
           sim_settings_attribute(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, &value) && value &&
           process_vm_readv(getpid(), &local, 1, remote, 2, 0) == 2;
}

/* The block whose life the operation belongs to: the newest one at the address that was allocated
 * before the operation, in stream order. *ret_unborn: one that was not. */
static struct sim_block *find(const struct sim_op *op, uint64_t address,
                              struct sim_block **ret_unborn)
{
    struct sim_block *block = sim_block_at(address);

    *ret_unborn = NULL;
    if (block && born_before(block, op))
        return block;
    *ret_unborn = block;
    for (block = sim_zombies(); block; block = block->next_zombie) {
        if (!covers(block, address))
            continue;
        if (born_before(block, op))
            return block;
        if (!*ret_unborn)
            *ret_unborn = block;
    }
    return NULL;
}

/* Contexts of one device reach each other's memory; other devices need to be let in. */
static bool foreign(const struct sim_op *op, const struct sim_block *block)
{
    switch (block->kind) {
    case SIM_BLOCK_NATIVE:
    case SIM_BLOCK_IMPORTED:
    case SIM_BLOCK_POOL:
    case SIM_BLOCK_GRAPH:
        if (op->device == block->device)
            return false;
        if (block->pool)
            return !sim_pool_open_to(block->pool, op->device);
        /* Memory opened in a context is open to it, whichever device it lies on. */
        return !block->ctx || (block->ctx != op->ctx && !sim_peers_open(op->ctx, block->ctx));
    case SIM_BLOCK_MAPPED:
        return !(block->access_mask >> op->device & 1);
    default:
        return false;
    }
}

static void remember(struct sim_block *block, const struct sim_op *op)
{
    struct sim_access access = {op->stamp, op->id, op->stream_id};

    for (unsigned i = 0; i < block->n_accesses; i++) {
        if (block->accesses[i].stamp.slot != op->stamp.slot)
            continue;
        if (block->accesses[i].stamp.seq < op->stamp.seq)
            block->accesses[i] = access;
        return;
    }
    block->accesses = realloc(block->accesses, (block->n_accesses + 1) * sizeof(*block->accesses));
    if (!block->accesses)
        abort();
    block->accesses[block->n_accesses++] = access;
}

/* What is wrong with the access, or NULL. */
static const char *verdict(const struct sim_op *op, const struct sim_block *block, uint64_t address,
                           size_t bytes, bool write)
{
    bool freed = block->has_dead_at && sim_order_covers(&op->order, block->dead_at);

    if (freed || block->dead)
        return freed ? "use of memory freed before in stream order"
                     : "use of memory that a free, not ordered behind this use, has taken";
    if (bytes > block->size - (address - block->base))
        return "access beyond the end of the memory";
    if (write && block->read_only_mask >> op->device & 1)
        return "write to read-only memory";
    return NULL;
}

/* Checks what there is of one block. */
static unsigned char *check_block(struct sim_op *op, struct sim_block *block, uint64_t address,
                                  size_t bytes, bool write, bool kernel)
{
    const char *wrong = verdict(op, block, address, bytes, write);

    if (wrong) {
        sim_violation(op, address, bytes, block, wrong);
        if (block->kind == SIM_BLOCK_MAPPED || sim_is_reserved(address, 1))
            fault(op);
        return NULL;
    }
    if ((kernel || block->kind == SIM_BLOCK_MAPPED) && foreign(op, block)) {
        sim_violation(op, address, bytes, block,
                      block->kind == SIM_BLOCK_MAPPED
                          ? "use of mapped memory without access"
                          : "a kernel uses memory of another device without access");
        fault(op);
        return NULL;
    }
    remember(block, op);
    struct sim_residency *residency = sim_residency_of(block);
    if (residency && op->work.kind != SIM_WORK_PREFETCH)
        sim_residency_touch(residency, address, bytes, op->device, write);
    if (kernel && block->kind == SIM_BLOCK_MAPPED && block->device == CU_DEVICE_CPU)
        sim_cross_bus(bytes);
    return block->bytes + (address - block->base);
}

static void check_failed(struct sim_op *op, uint64_t address, size_t bytes,
                         const struct sim_block *unborn)
{
    sim_violation(op, address, bytes, unborn,
                  unborn                         ? "use of memory not yet allocated in stream order"
                  : sim_arena_has(address, NULL) ? "use of a device address without memory"
                                                 : "use of pageable host memory");
    if (!unborn || unborn->kind == SIM_BLOCK_MAPPED)
        fault(op);
}

/* Mappings that stand one behind the other are used as one memory. */
unsigned char *sim_check(struct sim_op *op, uint64_t address, size_t bytes, bool write, bool kernel)
{
    static unsigned char nothing[1];
    unsigned char *first = bytes ? NULL : nothing;

    while (bytes) {
        struct sim_block *unborn, *block = find(op, address, &unborn);
        if (!block && !unborn && !first && kernel && host_has(address, bytes))
            return (void *)(uintptr_t)address;
        if (!block || (first && block->kind != SIM_BLOCK_MAPPED)) {
            check_failed(op, address, bytes, unborn);
            return NULL;
        }
        size_t rest = block->size - (address - block->base);
        size_t part = block->kind == SIM_BLOCK_MAPPED ? SIM_MIN(bytes, rest) : bytes;
        unsigned char *at = check_block(op, block, address, part, write, kernel);
        if (!at)
            return NULL;
        first = first ? first : at;
        address += part;
        bytes -= part;
    }
    return first;
}

static unsigned char *check_kernel(CUdeviceptr p, size_t bytes, bool write)
{
    if (!sim_running) {
        fprintf(stderr, "sim: sim_kernel_access outside of a kernel\n");
        abort();
    }
    return sim_check(sim_running, p, bytes, write, true);
}

void *sim_kernel_access(CUdeviceptr p, size_t bytes, bool write)
{
    unsigned char *at = check_kernel(p, bytes, write);

    if (at && write)
        sim_arena_gather(p, at, bytes);
    return at;
}

void *sim_kernel_touch(CUdeviceptr p, size_t bytes)
{
    return check_kernel(p, bytes, true);
}

void sim_kernel_spend(unsigned long long ns)
{
    sim_advance_clock(ns);
}
