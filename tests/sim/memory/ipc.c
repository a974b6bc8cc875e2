/* ipc.c: memory and events of another process.
 *
 * Memory travels as a place in the memory file of the exporter's card; the importer maps that file
 * and gives the bytes an address of its own. Native handles name the file through /proc, a pool's
 * file descriptor is the file itself. Events share a page with two counters. */
#include "tests/sim/sim_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x53494d49504331ull
#define PAGE  4096u

/* What is inside the opaque 64 bytes of all three kinds of handle. */
struct ticket {
    uint64_t magic;
    int32_t pid, fd, device, flags;
    uint64_t offset, size, id;
};

/* An import's mapping; kept in block->extra. */
struct mapping {
    void *at;
    size_t bytes;
    struct ticket of; /* native memory: what was opened, so that opening it again finds it */
    unsigned opens;
};

struct shared_event {
    uint64_t recorded, done;
};

/* ---- files ---- */

bool sim_memory_file(int fd, const char *pattern, int *ret_number)
{
    char link[64], target[128];
    ssize_t n;

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, target, sizeof(target) - 1);
    if (n <= 0)
        return false;
    target[n] = 0;
    const char *name = strchr(target, ':');
    return name && sscanf(name + 1, pattern, ret_number) == 1 && sim_device_ok(*ret_number);
}

/* Opens the file of a process's descriptor once more, with a position of its own. */
static int open_file_of(int pid, int fd)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

/* Gives memory of a card's file an address in this process. */
static struct sim_block *map(int fd, const struct ticket *ticket, CUcontext ctx)
{
    uint64_t from = ticket->offset / PAGE * PAGE;
    size_t bytes = (size_t)(ticket->offset - from) + ticket->size;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)from);
    uint64_t base = at == MAP_FAILED ? 0 : sim_arena_take(ticket->device, ticket->size, 512);
    struct mapping *mapping = calloc(1, sizeof(*mapping));

    if (!base || !mapping) {
        free(mapping);
        return NULL;
    }
    *mapping = (struct mapping){at, bytes, *ticket, 1};
    struct sim_block *block =
        sim_block_new(SIM_BLOCK_IMPORTED, base, ticket->size, ticket->device, ctx);
    block->bytes = (unsigned char *)at + (ticket->offset - from);
    block->extra = mapping;
    (void)snprintf(block->how_born, sizeof(block->how_born), "an import");
    return block;
}

struct sim_block *sim_import_file(int fd, CUcontext ctx, uint64_t offset, size_t size,
                                  const char *how)
{
    struct ticket ticket = {.device = ctx->device, .offset = offset, .size = size};
    struct sim_block *block = map(fd, &ticket, ctx);

    if (block)
        (void)snprintf(block->how_born, sizeof(block->how_born), "%s", how);
    return block;
}

void sim_import_gone(struct sim_block *block)
{
    struct mapping *mapping = block->extra;

    (void)munmap(mapping->at, mapping->bytes);
    free(mapping);
    block->extra = NULL;
    block->bytes = NULL;
    sim_arena_give(block->device, block->base, block->size);
}

void sim_import_close(struct sim_block *block)
{
    sim_block_bury(block, "the end of the import");
    sim_block_end(block, &sim_host_order);
    sim_import_gone(block);
}

static struct ticket ticket_of(const struct sim_block *block)
{
    struct ticket ticket = {.magic = MAGIC, .pid = getpid(), .device = block->device};

    ticket.fd = sim_arena_fd(block->device, block->base, &ticket.offset);
    ticket.size = block->size;
    ticket.id = block->id;
    return ticket;
}

/* ---- native memory ---- */

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr p)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    struct sim_block *block = sim_block_at(p);

    if (!handle || !block || block->kind != SIM_BLOCK_NATIVE)
        return CUDA_ERROR_INVALID_VALUE;
    block->exported = true;
    struct ticket ticket = ticket_of(block);
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &ticket, sizeof(ticket));
    return CUDA_SUCCESS;
}

/* A context, or an imported pool, has one mapping of an allocation, however often it is opened. */
static struct sim_block *opened_before(CUcontext ctx, CUmemoryPool pool,
                                       const struct ticket *ticket)
{
    for (struct sim_block *block = sim_block_next(0); block;
         block = sim_block_next(block->base + 1)) {
        const struct mapping *mapping = block->extra;
        if (block->kind == SIM_BLOCK_IMPORTED && block->ctx == ctx && block->pool == pool &&
            mapping && mapping->of.pid == ticket->pid && mapping->of.id == ticket->id &&
            mapping->of.magic == MAGIC)
            return block;
    }
    return NULL;
}

/* Two contexts of one device cannot have the same memory open. */
static bool opened_by_other(CUcontext ctx, const struct ticket *ticket)
{
    for (struct sim_block *block = sim_block_next(0); block;
         block = sim_block_next(block->base + 1)) {
        const struct mapping *mapping = block->extra;
        if (block->kind == SIM_BLOCK_IMPORTED && !block->pool && block->ctx && mapping &&
            block->ctx != ctx && block->ctx->device == ctx->device &&
            mapping->of.pid == ticket->pid && mapping->of.id == ticket->id &&
            mapping->of.magic == MAGIC)
            return true;
    }
    return false;
}

static CUresult open_memory(CUcontext ctx, CUdeviceptr *ret_p, const CUipcMemHandle *handle,
                            unsigned flags)
{
    struct ticket ticket;

    memcpy(&ticket, handle, sizeof(ticket));
    if (!ret_p || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    if (ticket.magic != MAGIC || !sim_device_ok(ticket.device))
        return CUDA_ERROR_INVALID_VALUE;
    if (ticket.pid == getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    struct sim_block *block = opened_before(ctx, NULL, &ticket);
    if (block) {
        ((struct mapping *)block->extra)->opens++;
        *ret_p = block->base;
        return CUDA_SUCCESS;
    }
    if (opened_by_other(ctx, &ticket))
        return CUDA_ERROR_INVALID_HANDLE;
    int fd = open_file_of(ticket.pid, ticket.fd);
    if (fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    block = map(fd, &ticket, ctx);
    (void)close(fd);
    if (!block)
        return CUDA_ERROR_MAP_FAILED;
    *ret_p = block->base;
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *p, CUipcMemHandle handle, unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return open_memory(call.ctx, p, &handle, flags);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *p, CUipcMemHandle handle, unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return open_memory(call.ctx, p, &handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr p)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    struct sim_block *block = sim_block_starting_at(p);

    if (!block || block->kind != SIM_BLOCK_IMPORTED || block->pool || block->freeable)
        return CUDA_ERROR_INVALID_VALUE;
    struct mapping *mapping = block->extra;
    if (mapping->opens > 1) {
        mapping->opens--;
        return CUDA_SUCCESS;
    }
    CUresult result = sim_context_drain(block->ctx);
    if (sim_block_starting_at(p) == block)
        sim_import_close(block);
    return result;
}

/* ---- pools ---- */

/* The card's file, whose position says which pool of which process it is. */
static int card_opened_for(CUmemoryPool pool, int card)
{
    int fd = open_file_of(getpid(), card);

    if (fd >= 0)
        (void)lseek(fd, (off_t)getpid() << 32 | sim_pool_number(pool), SEEK_SET);
    return fd;
}

CUresult cuMemPoolExportToShareableHandle(void *ret_fd, CUmemoryPool pool,
                                          CUmemAllocationHandleType type, unsigned long long flags)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    uint64_t offset;

    if (!ret_fd || flags || !sim_pool_ok(pool) ||
        type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !(sim_pool_handle_types(pool) & (unsigned)type))
        return CUDA_ERROR_INVALID_VALUE;
    *sim_pool_exported(pool) = true;
    *(int *)ret_fd = card_opened_for(pool, sim_arena_fd(sim_pool_device(pool), 0, &offset));
    return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *ret_pool, void *os_handle,
                                            CUmemAllocationHandleType type,
                                            unsigned long long flags)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    int fd = (int)(intptr_t)os_handle, device;
    CUmemPoolProps props = {0};
    int64_t of;

    if (!ret_pool || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !sim_memory_file(fd, "sim-card-%d", &device))
        return CUDA_ERROR_INVALID_VALUE;
    of = lseek(fd, 0, SEEK_CUR);
    *ret_pool = sim_pool_imported(of);
    if (*ret_pool)
        return CUDA_SUCCESS;
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.location.id = device;
    *ret_pool = sim_pool_new(device, &props);
    sim_pool_set_import(*ret_pool, fcntl(fd, F_DUPFD_CLOEXEC, 0), of);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr p)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    const struct sim_block *block = sim_block_starting_at(p);

    if (!data || !block || block->kind != SIM_BLOCK_POOL || !*sim_pool_exported(block->pool))
        return CUDA_ERROR_INVALID_VALUE;
    struct ticket ticket = ticket_of(block);
    memset(data, 0, sizeof(*data));
    memcpy(data, &ticket, sizeof(ticket));
    return CUDA_SUCCESS;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *ret_p, CUmemoryPool pool, CUmemPoolPtrExportData *data)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    struct ticket ticket;

    if (!ret_p || !data || !sim_pool_ok(pool) || sim_pool_import(pool) < 0)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&ticket, data, sizeof(ticket));
    if (ticket.magic != MAGIC || ticket.device != sim_pool_device(pool))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_block *block = opened_before(NULL, pool, &ticket);
    if (!block) /* else it is the same once more: the first free ends it */
        block = map(sim_pool_import(pool), &ticket, NULL);
    if (!block)
        return CUDA_ERROR_OUT_OF_MEMORY;
    block->pool = pool;
    *ret_p = block->base;
    return CUDA_SUCCESS;
}

/* ---- events ---- */

void *sim_shared_page(int fd)
{
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return page == MAP_FAILED ? NULL : page;
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!handle || !sim_handle_is(event, SIM_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!(event->flags & CU_EVENT_INTERPROCESS))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!event->shared) {
        event->shared_fd = memfd_create("sim-event-0", MFD_CLOEXEC);
        if (event->shared_fd < 0 || ftruncate(event->shared_fd, PAGE))
            return CUDA_ERROR_OUT_OF_MEMORY;
        event->shared = sim_shared_page(event->shared_fd);
        if (event->op)
            sim_event_share_record(event, event->op);
    }
    struct ticket ticket = {.magic = MAGIC, .pid = getpid(), .fd = event->shared_fd};
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &ticket, sizeof(ticket));
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent *ret_event, CUipcEventHandle handle)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    struct ticket ticket;

    memcpy(&ticket, &handle, sizeof(ticket));
    if (!ret_event || ticket.magic != MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    if (ticket.pid == getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    int fd = open_file_of(ticket.pid, ticket.fd);
    struct shared_event *shared = fd < 0 ? NULL : sim_shared_page(fd);
    if (!shared) {
        if (fd >= 0)
            (void)close(fd);
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUevent event = sim_handle_new(SIM_EVENT, sizeof(*event));
    event->ctx = call.ctx;
    event->ctx_id = call.ctx->id;
    event->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
    event->shared = shared;
    event->shared_fd = fd;
    *ret_event = event;
    return CUDA_SUCCESS;
}

void sim_event_share_record(CUevent event, struct sim_op *op)
{
    struct shared_event *shared = event->shared;

    op->shared_number = __atomic_add_fetch(&shared->recorded, 1, __ATOMIC_ACQ_REL);
    if (op->state == SIM_OP_DONE) {
        __atomic_store_n(&shared->done, op->shared_number, __ATOMIC_RELEASE);
        return;
    }
    /* A page of its own for the operation: the event may be destroyed before it runs. */
    op->shared_event = sim_shared_page(event->shared_fd);
}

void sim_event_share_done(struct sim_op *op)
{
    struct shared_event *shared = op->shared_event;
    uint64_t done = __atomic_load_n(&shared->done, __ATOMIC_ACQUIRE);

    if (done < op->shared_number)
        __atomic_store_n(&shared->done, op->shared_number, __ATOMIC_RELEASE);
    (void)munmap(shared, PAGE);
    op->shared_event = NULL;
}

uint64_t sim_event_share_pending(CUevent event)
{
    struct shared_event *shared = event->shared;
    uint64_t recorded = __atomic_load_n(&shared->recorded, __ATOMIC_ACQUIRE);

    return __atomic_load_n(&shared->done, __ATOMIC_ACQUIRE) < recorded ? recorded : 0;
}

bool sim_event_share_reached(void *page, uint64_t number)
{
    const struct shared_event *shared = page;

    return __atomic_load_n(&shared->done, __ATOMIC_ACQUIRE) >= number;
}

void *sim_event_share_page(CUevent event)
{
    return sim_shared_page(event->shared_fd);
}

void sim_event_share_finish(CUevent event)
{
    if (!event->shared)
        return;
    (void)munmap(event->shared, PAGE);
    (void)close(event->shared_fd);
}

/* ---- dma-buf ---- */

CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr p, size_t size,
                                       CUmemRangeHandleType type, unsigned long long flags)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    const struct sim_block *block = sim_block_at(p);

    (void)flags;
    if (!handle || !block || !size || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD ||
        block->kind == SIM_BLOCK_MANAGED)
        return CUDA_ERROR_INVALID_VALUE;
    if (block->kind == SIM_BLOCK_POOL && sim_pool_managed(block->pool)) {
        sim_violation(NULL, p, size, block,
                      "dma-buf export of managed-pool memory (the real driver "
                      "crashes)");
        (void)raise(SIGSEGV);
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}
