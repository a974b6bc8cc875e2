/* Maps, places and registers the pages of large blocks: see made.h.
 *
 * They are shared, as the driver's own may be: a child that is forked finds them where they were,
 * and the device goes on using the pages that the parent has. Such memory is a file to the kernel,
 * and threads that add pages to one wait for each other: so a large block is several. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "policy/pinned/made.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "interpose/core/base/text.h"
#include "interpose/core/base/threads/lock.h"
#include "interpose/core/driver/driver.h"
#include "policy/contexts/context.h"
#include "policy/order/capture.h"
#include "policy/pinned/blocks.h"
#include "policy/pinned/host_room.h"

#define LEAST_BYTES ((size_t)16 << 20) /* below that, the driver takes some milliseconds */
#define UNIT        ((size_t)2 << 20)
#define MOST_PIECES 16u
#define LEAST_FILE  LEAST_BYTES /* a process may have some 65,000 mappings */
#define NODES       "/sys/devices/system/node/online"
#define PREFER_NODE 1  /* MPOL_PREFERRED */
#define N_HOWS      5u /* that blocks are made in: plain, portable or not, mapped or not */
#define N_LIKES     (N_HOWS * AG_MAX_CONTEXTS)

static ag_pinned_touch *touch;
static _Atomic bool is_refused; /* by the driver: it is not asked again; relaxed */

void ag_pinned_made_configure(ag_pinned_touch *how)
{
    touch = how;
}

/* --- pages --- */

/* The driver would say so where memory is short; touching it would have somebody killed. */
static bool has_room(size_t bytes)
{
    struct ag_host_room room;

    ag_host_room_read("", &room);
    return bytes <= room.available_bytes / 2;
}

/* On machines of several nodes the driver's pages come from where the calling thread runs, unless
 * it has a policy. False: they cannot be placed so. */
static bool place(void *memory, size_t bytes)
{
    unsigned long nodes;
    unsigned processor, node;
    char online[64];
    int policy;

    ag_text_read_file(NODES, online, sizeof(online));
    if (!strpbrk(online, ",-"))
        return true;
    if (syscall(SYS_get_mempolicy, &policy, NULL, 0ul, NULL, 0ul) || policy ||
        syscall(SYS_getcpu, &processor, &node, NULL) || node >= 8 * sizeof(nodes) - 1)
        return false;
    nodes = 1ul << node;
    return !syscall(SYS_mbind, memory, bytes, PREFER_NODE, &nodes, 8 * sizeof(nodes), 0u);
}

static bool map_files(char *memory, size_t bytes, size_t file_bytes)
{
    for (size_t at = 0; at < bytes; at += file_bytes) {
        size_t length = bytes - at < file_bytes ? bytes - at : file_bytes;

        if (mmap(memory + at, length, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
            return false;
        (void)madvise(memory + at, length, MADV_HUGEPAGE); /* if the kernel has them for files */
    }
    return true;
}

/* An address for `bytes`, a multiple of UNIT, that huge pages can have. */
static char *reserve(size_t bytes)
{
    char *around =
        mmap(NULL, bytes + UNIT, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t before;

    if (around == MAP_FAILED)
        return NULL;
    before = -(uintptr_t)around % UNIT;
    if (before)
        (void)munmap(around, before);
    (void)munmap(around + before + bytes, UNIT - before);
    return around + before;
}

static size_t mapped_bytes(size_t bytes)
{
    return (bytes + UNIT - 1) / UNIT * UNIT;
}

/* The piece of `bytes`, a multiple of UNIT, that a thread touches at a time. */
static size_t piece_for(size_t bytes)
{
    return mapped_bytes((bytes + MOST_PIECES - 1) / MOST_PIECES);
}

static char *get_memory(size_t bytes)
{
    size_t mapped = mapped_bytes(bytes), piece = piece_for(mapped);
    char *memory = reserve(mapped);

    if (!memory)
        return NULL;
    if (map_files(memory, mapped, piece < LEAST_FILE ? LEAST_FILE : piece) &&
        place(memory, mapped) && touch(memory, mapped, piece))
        return memory;
    (void)munmap(memory, mapped);
    return NULL;
}

/* --- blocks --- */

static bool can_register(const struct ag_context *context)
{
    int can = 0;

    return !context->device->is_integrated && !context->device->uses_host_pages &&
           ag_cu.cuMemHostRegister_v2 && ag_cu.cuMemHostUnregister &&
           ag_cu.cuDeviceGetAttribute(&can,
                                      CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
                                      context->device->ordinal) == CUDA_SUCCESS &&
           can;
}

bool ag_pinned_made_may(size_t bytes)
{
    return touch && bytes >= LEAST_BYTES && bytes <= SIZE_MAX / 2 &&
           !atomic_load_explicit(&is_refused, memory_order_relaxed);
}

void *ag_pinned_made_get(const struct ag_context *context, size_t bytes)
{
    char *memory;

    if (!ag_pinned_made_may(bytes) || !has_room(bytes) || !can_register(context))
        return NULL;
    memory = get_memory(bytes);
    if (!memory)
        return NULL;
    /* What the driver allocates is every context's and every device's. */
    if (ag_cu.cuMemHostRegister_v2(memory, bytes,
                                   CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP) ==
        CUDA_SUCCESS)
        return memory;
    atomic_store_explicit(&is_refused, true, memory_order_relaxed);
    (void)munmap(memory, mapped_bytes(bytes));
    return NULL;
}

CUresult ag_pinned_made_free(void *memory, size_t bytes)
{
    CUresult result = ag_cu.cuMemHostUnregister(memory);

    if (result == CUDA_SUCCESS)
        (void)munmap(memory, mapped_bytes(bytes));
    return result;
}

/* --- what the driver allocated --- */

static struct {
    struct ag_lock lock; /* guards the rest */
    struct like {
        const struct ag_context *context; /* NULL: none */
        unsigned how;
        CUdeviceptr address;
    } likes[N_LIKES];
} table = {.lock = AG_LOCK_INIT(AG_RANK_PINNED)};

static CUdeviceptr look_up(const struct ag_context *context, unsigned how)
{
    CUdeviceptr address = 0;

    ag_lock_take(&table.lock);
    for (unsigned i = 0; i < N_LIKES && !address; i++) {
        if (table.likes[i].context == context && table.likes[i].how == how)
            address = table.likes[i].address;
    }
    ag_lock_release(&table.lock);
    return address;
}

/* Where another thread was first, the memory stays allocated until the context ends. */
static void enter_like(const struct ag_context *context, unsigned how, CUdeviceptr address)
{
    ag_lock_take(&table.lock);
    for (unsigned i = 0; i < N_LIKES; i++) {
        if (table.likes[i].context)
            continue;
        table.likes[i] = (struct like){context, how, address};
        break;
    }
    ag_lock_release(&table.lock);
}

/* It ends with the context in which it was made. */
static CUdeviceptr allocate(struct ag_context *context, unsigned how)
{
    CUstreamCaptureMode previous = ag_capture_relax();
    void *pages = NULL;
    bool pushed;
    CUresult result = ag_context_make_current(context, &pushed);

    if (result == CUDA_SUCCESS)
        result = how == AG_PINNED_PLAIN
                     ? ag_cu.cuMemAllocHost_v2(&pages, 2 * AG_PINNED_LIKE_BYTES)
                     : ag_cu.cuMemHostAlloc(&pages, 2 * AG_PINNED_LIKE_BYTES, how);
    ag_context_restore(pushed);
    ag_capture_restore(previous);
    if (result != CUDA_SUCCESS)
        return 0;
    enter_like(context, how, (uintptr_t)pages);
    return (uintptr_t)pages;
}

CUdeviceptr ag_pinned_made_like(struct ag_context *context, unsigned how, size_t offset)
{
    CUdeviceptr address = look_up(context, how);

    if (!address)
        address = allocate(context, how);
    if (!address)
        return 0;
    return address + (offset < AG_PINNED_LIKE_BYTES ? offset : AG_PINNED_LIKE_BYTES);
}

void ag_pinned_made_context_dying(const struct ag_context *context)
{
    ag_lock_take(&table.lock);
    for (unsigned i = 0; i < N_LIKES; i++) {
        if (table.likes[i].context == context)
            table.likes[i] = (struct like){0};
    }
    ag_lock_release(&table.lock);
}

void ag_pinned_made_begin_child(void)
{
    ag_lock_init(&table.lock, AG_RANK_PINNED);
    memset(table.likes, 0, sizeof(table.likes));
}
