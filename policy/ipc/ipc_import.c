/* Opening memory that another process exported: see ipc.h.
 *
 * As natively, a handle that is opened twice gives the same address, which has to be closed twice,
 * and the memory stays mapped until then, whatever becomes of the other process. Natively each
 * context that opens it has an address of its own, which ends with that context. Memory of a pool
 * has one address, also where the pool is imported again, as an H200 answered: so openings are
 * counted for each context, and the memory stays until none is left. The other process' pool is
 * imported with its first block and released with its last; and so is each allocation, where
 * several blocks are pieces of one slab.
 *
 * Two threads may open and close the same memory at once. The first marks the entry COMING or GOING
 * and makes the driver calls without a lock; others wait until it has finished. */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "interpose/core/base/arena.h"
#include "interpose/core/base/hash.h"
#include "interpose/core/base/log.h"
#include "interpose/core/base/map.h"
#include "interpose/core/driver/driver.h"
#include "policy/contexts/context.h"
#include "policy/contexts/enter.h"
#include "policy/ipc/ipc.h"
#include "policy/ipc/ipc_lease.h"
#include "policy/ipc/ipc_socket.h"
#include "policy/ledger.h"
#include "policy/order/capture.h"
#include "policy/order/drain.h"
#include "policy/order/free.h"
#include "policy/order/host_wait.h"

enum state { COMING, OPEN, GOING };

/* A pool of another process; or, with the index AG_IPC_NO_POOL, what it has beside pools. */
struct foreign_pool {
    struct foreign_pool *next;
    struct ag_ipc_id process;
    uint32_t index; /* as the exporter counts */
    enum state state;
    unsigned users;
    CUmemoryPool pool;
    struct ag_ipc_leases leases; /* the exporter's: who has what of it open */
    int device;                  /* here; -1: none of this process' */
    _Atomic uint64_t asked;      /* bit i: device i was let in, or could not be */
};

/* An allocation of another process' driver, of a pool or not. */
struct foreign_range {
    struct foreign_range *next;
    struct foreign_pool *pool;
    uint64_t number; /* as the exporter counts */
    const struct ag_context *context;
    enum state state;
    unsigned users;
    CUdeviceptr address;
};

/* What a context has open of an import. */
struct opening {
    struct opening *next;
    struct ag_context *context;
    unsigned count; /* not closed */
};

/* A block in one. What is of a pool has one address, for all devices; what is not has one on each
 * device that opens it, and an import. */
struct import {
    struct import *next; /* of those that one pass closes */
    struct ag_ipc_handle handle;
    uint64_t key; /* in `by_handle` */
    enum state state;
    bool leased;
    struct opening *openings;   /* each of another device */
    struct ag_context *context; /* one of theirs, as the block's */
    struct ag_block *block;
    struct foreign_pool *pool;
    struct foreign_range *range;
};

static struct {
    struct ag_lock lock; /* guards all below, and the entries' state, users and openings */
    struct foreign_pool *pools;
    struct foreign_range *ranges;
    struct ag_map by_handle; /* key_on() */
    struct ag_map by_address;
} self = {.lock = AG_LOCK_INIT(AG_RANK_IPC)};

static struct ag_arena pool_arena = AG_ARENA_INIT(struct foreign_pool);
static struct ag_arena range_arena = AG_ARENA_INIT(struct foreign_range);
static struct ag_arena import_arena = AG_ARENA_INIT(struct import);
static struct ag_arena opening_arena = AG_ARENA_INIT(struct opening);

/* Another thread is at it, in the driver or waiting for the other process. */
static void wait_a_little(void)
{
    (void)poll(NULL, 0, 1);
}

static uint64_t key_on(const struct ag_ipc_handle *handle, const struct ag_device *device)
{
    uint64_t key;

    memcpy(&key, handle->token.bytes, sizeof(key));
    key = ag_hash_word(key, (uint64_t)device->ordinal);
    return key ? key : 1;
}

static bool same_handle(const struct ag_ipc_handle *a, const struct ag_ipc_handle *b)
{
    return a->number == b->number && ag_ipc_same_id(&a->process, &b->process) &&
           ag_ipc_same_id(&a->token, &b->token);
}

/* --- pools --- */

static bool has_uuid(int device, const uint8_t *uuid)
{
    CUuuid answered = {{0}};
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;

    if (ag_cu.cuDeviceGetUuid_v2)
        result = ag_cu.cuDeviceGetUuid_v2(&answered, device);
    else if (ag_cu.cuDeviceGetUuid)
        result = ag_cu.cuDeviceGetUuid(&answered, device);
    return result == CUDA_SUCCESS && !memcmp(answered.bytes, uuid, AG_IPC_ID_BYTES);
}

static int device_of_uuid(const uint8_t *uuid)
{
    int count = 0;

    if (ag_cu.cuDeviceGetCount(&count) != CUDA_SUCCESS)
        return -1;
    for (int i = 0; i < count; i++) {
        if (has_uuid(i, uuid))
            return i;
    }
    return -1;
}

static uint64_t bit_of(int device)
{
    return 1ull << (device & 63);
}

/* Lets `device` use the pool's memory. Without it kernels fault, and copies succeed doing nothing.
 */
static CUresult open_to(struct foreign_pool *pool, int device)
{
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    int can = 1;

    atomic_fetch_or(&pool->asked, bit_of(device));
    if (device == pool->device || pool->index == AG_IPC_NO_POOL)
        return CUDA_SUCCESS;
    if (pool->device >= 0)
        (void)ag_cu.cuDeviceCanAccessPeer(&can, device, pool->device);
    if (!can || !ag_cu.cuMemPoolSetAccess)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    return ag_cu.cuMemPoolSetAccess(pool->pool, &access, 1);
}

static void open_to_context(struct ag_context *context, void *pool)
{
    struct foreign_pool *opened = pool;

    if (!(atomic_load(&opened->asked) & bit_of(context->device->ordinal)))
        (void)open_to(opened, context->device->ordinal);
}

/* The entry of that pool with one more user; *ret_new: COMING, and the caller's to fill. NULL when
 * memory for the ledger runs out. */
static struct foreign_pool *use_pool(const struct ag_ipc_id *process, uint32_t index, bool *ret_new)
{
    struct foreign_pool *pool;

    for (;;) {
        ag_lock_take(&self.lock);
        for (pool = self.pools; pool; pool = pool->next) {
            if (pool->index == index && ag_ipc_same_id(&pool->process, process))
                break;
        }
        *ret_new = !pool;
        if (!pool && (pool = ag_arena_get(&pool_arena))) {
            pool->process = *process;
            pool->index = index;
            pool->leases.fd = -1;
            pool->next = self.pools;
            self.pools = pool;
        }
        if (!pool || *ret_new || pool->state == OPEN) {
            if (pool)
                pool->users++;
            ag_lock_release(&self.lock);
            return pool;
        }
        ag_lock_release(&self.lock);
        wait_a_little();
    }
}

static void unlink_pool(struct foreign_pool *pool)
{
    struct foreign_pool **link = &self.pools;

    while (*link && *link != pool)
        link = &(*link)->next;
    if (*link)
        *link = pool->next;
}

/* One user less; the last one lets the pool go. Until the driver has destroyed it nobody imports it
 * again: he would be given the one that goes (R927). */
static void leave_foreign_pool(struct foreign_pool *pool)
{
    bool last;

    ag_lock_take(&self.lock);
    last = --pool->users == 0;
    if (last)
        pool->state = GOING;
    ag_lock_release(&self.lock);
    if (!last)
        return;
    if (pool->pool && ag_cu.cuMemPoolDestroy)
        (void)ag_cu.cuMemPoolDestroy(pool->pool);
    ag_lock_take(&self.lock);
    unlink_pool(pool);
    ag_lock_release(&self.lock);
    ag_ipc_leases_close(&pool->leases);
    ag_arena_put(&pool_arena, pool);
}

static void take_lease(struct import *import)
{
    ag_lock_take(&self.lock);
    import->leased = true;
    ag_ipc_lease_take(&import->pool->leases, import->handle.number);
    ag_lock_release(&self.lock);
}

/* Has another device the same open? The lease is of the process. Called with the lock held. */
static bool is_leased_again(const struct import *import)
{
    const struct ag_device *device;
    bool is = false;

    for (unsigned i = 0; !is && (device = ag_device_met(i)); i++) {
        const struct import *other = ag_map_get(&self.by_handle, key_on(&import->handle, device));

        is = other && other->leased && same_handle(&other->handle, &import->handle);
    }
    return is;
}

/* The import is none any more: its lease ends, and its pool has one user less. */
static void leave_import(struct import *import)
{
    ag_lock_take(&self.lock);
    import->leased = false;
    if (!is_leased_again(import))
        ag_ipc_lease_drop(&import->pool->leases, import->handle.number);
    ag_lock_release(&self.lock);
    leave_foreign_pool(import->pool);
}

/* The driver's part of a pool's coming. */
static CUresult import_pool(struct foreign_pool *pool, const struct ag_ipc_reply *reply,
                            const int *fds)
{
    bool has_pool = pool->index != AG_IPC_NO_POOL;
    CUresult result = CUDA_SUCCESS;

    if (has_pool)
        result = ag_cu.cuMemPoolImportFromShareableHandle(
            &pool->pool, (void *)(intptr_t)fds[AG_IPC_POOL],
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result != CUDA_SUCCESS)
        pool->pool = NULL;
    pool->device = device_of_uuid(reply->uuid);
    pool->leases = ag_ipc_leases_open(fds[AG_IPC_LEASES]);
    if (result != CUDA_SUCCESS)
        return result; /* with its only user it goes, and whoever waits for it tries by himself */
    ag_lock_take(&self.lock);
    pool->state = OPEN;
    ag_lock_release(&self.lock);
    if (has_pool) /* contexts that come later: ag_ipc_context_entered() */
        ag_context_each(open_to_context, pool);
    return result;
}

/* --- opening --- */

static void say_why(int error, const struct ag_ipc_handle *handle)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    const char *why = error == -EACCES      ? "belongs to another user"
                      : error == -ETIMEDOUT ? "does not answer"
                      : error == -EPROTO    ? "gave an answer that is none"
                      : error == -EMFILE || error == -ENFILE
                          ? "cannot be asked, since this process has no file descriptors left"
                          : "cannot be reached: it has ended, or has a network "
                            "namespace of its own (another container)";

    ag_stats_add(AG_STAT_IPC_UNREACHABLE, 1);
    if (!atomic_flag_test_and_set(&said))
        ag_log_warn("cuIpcOpenMemHandle: process %u, whose pool memory this is, %s; set "
                    "ALLOGRAFT_POLICY=native there, or a rule that leaves such memory native",
                    (unsigned)handle->pid, why);
}

static bool is_known_import(CUdeviceptr address)
{
    bool taken;

    ag_lock_take(&self.lock);
    taken = ag_map_get(&self.by_address, address) != NULL;
    ag_lock_release(&self.lock);
    return taken;
}

/* --- allocations --- */

/* The entry of that allocation with one more user; *ret_new: COMING, and the caller's to fill. NULL
 * when memory for metadata runs out. */
static struct foreign_range *use_range(const struct import *import, uint64_t number, bool *ret_new)
{
    struct foreign_range *range;

    for (;;) {
        ag_lock_take(&self.lock);
        for (range = self.ranges; range; range = range->next) {
            if (range->pool == import->pool && range->number == number &&
                (import->pool->pool || range->context == import->context))
                break;
        }
        *ret_new = !range;
        if (!range && (range = ag_arena_get(&range_arena))) {
            range->pool = import->pool;
            range->number = number;
            range->context = import->context;
            range->next = self.ranges;
            self.ranges = range;
        }
        if (!range || *ret_new || range->state == OPEN) {
            if (range)
                range->users++;
            ag_lock_release(&self.lock);
            return range;
        }
        ag_lock_release(&self.lock);
        wait_a_little();
    }
}

static void drop_range(struct foreign_range *range)
{
    struct foreign_range **link = &self.ranges;

    ag_lock_take(&self.lock);
    while (*link && *link != range)
        link = &(*link)->next;
    if (*link)
        *link = range->next;
    ag_lock_release(&self.lock);
    ag_arena_put(&range_arena, range);
}

/* One user less: the driver gives it up with the last. Until it has, nobody asks it for the same
 * again, which it would not count. */
static CUresult leave_range(struct foreign_range *range)
{
    CUresult result = CUDA_SUCCESS;
    bool last;

    ag_lock_take(&self.lock);
    last = --range->users == 0;
    if (last)
        range->state = GOING;
    ag_lock_release(&self.lock);
    if (!last)
        return result;
    result = range->pool->pool ? ag_cu.cuMemFree_v2(range->address)
                               : ag_cu.cuIpcCloseMemHandle(range->address);
    drop_range(range);
    return result;
}

static CUresult open_native(CUdeviceptr *ret_address, const struct ag_ipc_reply *reply)
{
    CUipcMemHandle handle;

    memcpy(&handle, reply->pointer, sizeof(handle));
    return ag_cu.cuIpcOpenMemHandle_v2
               ? ag_cu.cuIpcOpenMemHandle_v2(ret_address, handle,
                                             CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
               : ag_cu.cuIpcOpenMemHandle(ret_address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

/* The driver's part of an allocation's coming. */
static CUresult open_range(struct foreign_range *range, const struct ag_ipc_reply *reply)
{
    CUmemPoolPtrExportData data;
    CUdeviceptr address = 0, base;
    CUresult result;
    size_t size;

    memcpy(&data, reply->pointer, sizeof(data));
    result = range->pool->pool ? ag_cu.cuMemPoolImportPointer(&address, range->pool->pool, &data)
                               : open_native(&address, reply);
    if (result != CUDA_SUCCESS) {
        drop_range(range); /* whoever waits for it tries by himself */
        return result;
    }
    /* All of it, since what the program did not open of it must not be there for it. */
    if (ag_cu.cuMemGetAddressRange_v2(&base, &size, address) == CUDA_SUCCESS)
        ag_ledger_note_memory(base, size);
    ag_lock_take(&self.lock);
    range->address = address;
    range->state = OPEN;
    ag_lock_release(&self.lock);
    return result;
}

/* The import's memory at an address of this process. */
static CUresult map_block(struct import *import, const struct ag_ipc_reply *reply)
{
    struct foreign_pool *pool = import->pool;
    CUresult result = open_to(pool, import->context->device->ordinal);
    enum ag_source source = pool->pool ? AG_SOURCE_POOL : AG_SOURCE_CACHED;
    struct foreign_range *range;
    CUdeviceptr address;
    bool new;

    range = result == CUDA_SUCCESS ? use_range(import, reply->range, &new) : NULL;
    if (!range)
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    if (new)
        result = open_range(range, reply);
    if (result != CUDA_SUCCESS)
        return result;
    /* The driver knows memory of a pool by its address: it may have been something else before,
     * which this process did not close. The two cannot be told apart by their address, and it is
     * not ours to give up. */
    address = range->address + reply->offset;
    if (is_known_import(address)) {
        if (new)
            drop_range(range);
        else
            (void)leave_range(range);
        return CUDA_ERROR_MAP_FAILED;
    }
    import->range = range;
    import->block = ag_ledger_enter(address, reply->size, import->context,
                                    (struct ag_mem_desc){.source = (uint8_t)source});
    if (!import->block) {
        (void)leave_range(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    ag_ledger_lend(import->block, reply->size);
    return CUDA_SUCCESS;
}

static CUresult map_with_pool(struct import *import, const struct ag_ipc_reply *reply,
                              const int *fds)
{
    CUresult result = CUDA_SUCCESS;
    bool new;

    import->pool = use_pool(&import->handle.process, reply->pool, &new);
    if (!import->pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (new)
        result = import_pool(import->pool, reply, fds);
    take_lease(import);
    if (result == CUDA_SUCCESS)
        result = map_block(import, reply);
    if (result != CUDA_SUCCESS)
        leave_import(import);
    return result;
}

/* The memory of an entry that is COMING. *ret_unknown: the exporter does not have it, or cannot be
 * asked. */
static CUresult bring_import(struct import *import, bool *ret_unknown)
{
    struct ag_ipc_request request = {.token = import->handle.token,
                                     .number = import->handle.number};
    CUstreamCaptureMode previous;
    struct ag_ipc_reply reply;
    CUresult result;
    int fds[AG_IPC_DESCRIPTORS], error;

    error = ag_ipc_ask(&import->handle.process, &request, &reply, fds);
    *ret_unknown = error || reply.status != AG_IPC_GIVEN;
    if (error)
        say_why(error, &import->handle);
    if (*ret_unknown)
        return CUDA_ERROR_INVALID_VALUE;
    previous = ag_capture_relax();
    result = map_with_pool(import, &reply, fds);
    ag_capture_restore(previous);
    for (unsigned i = 0; i < AG_IPC_DESCRIPTORS; i++)
        (void)close(fds[i]);
    if (result != CUDA_SUCCESS) {
        ag_stats_add(AG_STAT_IPC_NOT_IMPORTED, 1);
        ag_log_info("the driver did not import another process' pool memory: %s",
                    ag_driver_error_name(result));
    }
    return result;
}

enum found { FOUND_OPEN, FOUND_NEW, FOUND_OF_OTHER_CONTEXT, FOUND_NO_MEMORY };

/* The entry that an opening on the device has to do with, or NULL: of what is coming or going
 * elsewhere nobody knows yet whether it is of a pool. Called with the lock held. */
static struct import *find_import(const struct ag_ipc_handle *handle,
                                  const struct ag_device *device)
{
    struct import *import = ag_map_get(&self.by_handle, key_on(handle, device));
    const struct ag_device *other;

    for (unsigned i = 0; !import && (other = ag_device_met(i)); i++) {
        import = ag_map_get(&self.by_handle, key_on(handle, other));
        if (import && import->state == OPEN && !import->pool->pool)
            import = NULL;
    }
    return import;
}

/* The functions below are called with the lock held. False when memory for metadata runs out. */
static bool add_opening(struct import *import, struct ag_context *context)
{
    struct opening *opening = ag_arena_get(&opening_arena);

    if (!opening)
        return false;
    *opening = (struct opening){.next = import->openings, .context = context, .count = 1};
    import->openings = opening;
    return true;
}

static void remove_opening(struct import *import, struct opening *opening)
{
    struct opening **link = &import->openings;

    while (*link != opening)
        link = &(*link)->next;
    *link = opening->next;
    ag_arena_put(&opening_arena, opening);
}

/* A new entry, COMING; or NULL. */
static struct import *begin_import(const struct ag_ipc_handle *handle, struct ag_context *context)
{
    struct import *import = ag_arena_get(&import_arena);

    if (!import)
        return NULL;
    import->handle = *handle;
    import->key = key_on(handle, context->device);
    import->context = context;
    if (add_opening(import, context)) {
        if (ag_map_put(&self.by_handle, import->key, import))
            return import;
        remove_opening(import, import->openings);
    }
    ag_arena_put(&import_arena, import);
    return NULL;
}

/* Opens once more what is OPEN. Two contexts of one device cannot have the same memory open. */
static enum found open_again(struct import *import, const struct ag_ipc_handle *handle,
                             struct ag_context *context)
{
    struct opening *opening = import->openings;

    while (opening && opening->context->device != context->device)
        opening = opening->next;
    if (opening && opening->context != context)
        return FOUND_OF_OTHER_CONTEXT;
    if (!same_handle(&import->handle, handle))
        return FOUND_NO_MEMORY;
    if (opening)
        opening->count++;
    else if (!add_opening(import, context))
        return FOUND_NO_MEMORY;
    return FOUND_OPEN;
}

/* The entry of the handle: open, with one more opening counted; or new, and COMING. */
static enum found find_or_begin(const struct ag_ipc_handle *handle, struct ag_context *context,
                                struct import **ret)
{
    enum found found = FOUND_NO_MEMORY;
    bool busy;

    do {
        ag_lock_take(&self.lock);
        *ret = find_import(handle, context->device);
        busy = *ret && (*ret)->state != OPEN;
        if (!*ret && (*ret = begin_import(handle, context)))
            found = FOUND_NEW;
        else if (*ret && !busy)
            found = open_again(*ret, handle, context);
        ag_lock_release(&self.lock);
        if (busy)
            wait_a_little();
    } while (busy);
    return found;
}

/* The entry goes. Only when the driver has nothing of it any more: it would give who opens the
 * handle next the same address again, and not count. */
static void drop_entry(struct import *import)
{
    ag_lock_take(&self.lock);
    (void)ag_map_take(&self.by_handle, import->key);
    while (import->openings)
        remove_opening(import, import->openings);
    ag_lock_release(&self.lock);
    ag_arena_put(&import_arena, import);
}

/* Ends what find_or_begin() began. */
static CUresult came(struct import *import, CUresult result, CUdeviceptr *ret_address)
{
    bool entered = false;

    ag_lock_take(&self.lock);
    if (result == CUDA_SUCCESS)
        entered = ag_map_put(&self.by_address, import->block->address, import);
    if (entered) {
        import->state = OPEN;
        *ret_address = import->block->address;
    }
    ag_lock_release(&self.lock);
    if (entered)
        return result;
    if (result == CUDA_SUCCESS) { /* cannot be found again, so it cannot stay */
        ag_ledger_remove(import->block);
        (void)leave_range(import->range);
        leave_import(import);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    drop_entry(import);
    return result;
}

static CUresult open_foreign(CUdeviceptr *ret_address, const struct ag_ipc_handle *handle,
                             struct ag_context *context, bool *ret_unknown)
{
    struct import *import = NULL;
    CUresult result;

    switch (find_or_begin(handle, context, &import)) {
    case FOUND_OPEN:
        *ret_address = import->block->address;
        return CUDA_SUCCESS;
    case FOUND_OF_OTHER_CONTEXT:
        return CUDA_ERROR_INVALID_HANDLE;
    case FOUND_NO_MEMORY:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case FOUND_NEW:
        break;
    }
    result = bring_import(import, ret_unknown);
    return came(import, result, ret_address);
}

CUresult ag_ipc_open(CUdeviceptr *ret_address, const CUipcMemHandle *handle, unsigned flags,
                     ag_ipc_open_function *native)
{
    struct ag_ipc_handle named;
    struct ag_context *context;
    bool unknown = false;
    CUresult result;

    ag_drain_note_visible(AG_VISIBLE_SHARED);
    if (!ag_ipc_read_handle((const uint8_t *)handle->reserved, &named))
        return native(ret_address, *handle, flags);
    context = ag_context_current();
    if (!context || !ag_cu.cuMemPoolImportFromShareableHandle || !ag_cu.cuMemPoolImportPointer)
        return native(ret_address, *handle, flags);
    if (!ret_address || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    if (ag_ipc_listens_as(&named.process))
        return CUDA_ERROR_INVALID_CONTEXT;
    result = open_foreign(ret_address, &named, context, &unknown);
    if (unknown) /* the driver knows no such handle either, and says so in its words */
        return native(ret_address, *handle, flags);
    if (result == CUDA_SUCCESS)
        ag_stats_add(AG_STAT_IPC_OPENED, 1);
    return result;
}

/* --- closing --- */

/* All work of the context that may use the memory is over, as when natively the call has returned,
 * which is legal in a capture. */
static CUresult finish_work(struct ag_context *context)
{
    CUstreamCaptureMode previous = ag_capture_relax();
    CUdeviceptr probe = 0;
    bool aside;
    CUresult result = ag_free_order(context, &aside);

    if (result == CUDA_SUCCESS && aside && ag_cu.cuMemAlloc_v2(&probe, 1) == CUDA_SUCCESS)
        (void)ag_cu.cuMemFree_v2(probe); /* the driver's own free waits */
    ag_host_wait_complete(AG_STAT_WAITED_DESTROY);
    ag_capture_restore(previous);
    return result;
}

/* Gives up an import that is GOING; its address is out of the table, the driver may give it to
 * others. */
static void unmap(struct import *import)
{
    CUstreamCaptureMode previous = ag_capture_relax();
    CUresult result;

    ag_ledger_remove(import->block);
    result = leave_range(import->range);
    if (result != CUDA_SUCCESS)
        ag_log_debug("an import could not be released: %s", ag_driver_error_name(result));
    leave_import(import);
    ag_capture_restore(previous);
    drop_entry(import);
}

/* The functions below are called with the lock held. What that context has open of it, or NULL. */
static struct opening *opening_of(const struct import *import, const struct ag_context *context)
{
    struct opening *opening = import->openings;

    while (opening && opening->context != context)
        opening = opening->next;
    return opening;
}

/* A context has nothing open of it any more. True when no other has: then it is GOING, and the
 * caller's, who takes it out of the table. */
static bool leave_opening(struct import *import, struct opening *opening)
{
    const struct ag_context *context = opening->context;

    remove_opening(import, opening);
    if (!import->openings) {
        import->state = GOING;
        return true;
    }
    if (import->context == context) {
        import->context = import->openings->context;
        ag_ledger_hand_over(import->block, import->context);
    }
    return false;
}

enum closing { CLOSING_UNKNOWN, CLOSING_WAITS, CLOSING_LEFT, CLOSING_LAST };

/* One opening less: the current context's, or another's where that has none, for natively it is the
 * address that says whose. The last one of a context is closed once the work of that is over:
 * CLOSING_WAITS until *waited, which is set, is that context. CLOSING_LAST: *ret_import is the
 * caller's. */
static enum closing close_one(CUdeviceptr address, const struct ag_context *current,
                              struct ag_context **waited, struct import **ret_import)
{
    enum closing closing = CLOSING_LEFT;
    struct opening *opening = NULL;
    struct import *import;

    ag_lock_take(&self.lock);
    import = address ? ag_map_get(&self.by_address, address) : NULL;
    if (import && import->state == OPEN && !(opening = opening_of(import, current)))
        opening = import->openings;
    if (!opening) {
        closing = CLOSING_UNKNOWN;
    } else if (opening->count > 1) {
        opening->count--;
    } else if (opening->context != *waited) {
        *waited = opening->context;
        closing = CLOSING_WAITS;
    } else if (leave_opening(import, opening)) {
        (void)ag_map_take(&self.by_address, address);
        closing = CLOSING_LAST;
    }
    ag_lock_release(&self.lock);
    *ret_import = import;
    return closing;
}

CUresult ag_ipc_close(CUdeviceptr address)
{
    const struct ag_context *current = ag_context_current();
    struct ag_context *waited = NULL;
    enum closing closing;
    struct import *import;

    if (!current) /* the driver refuses a thread that has none (R936) */
        return ag_cu.cuIpcCloseMemHandle(address);
    while ((closing = close_one(address, current, &waited, &import)) == CLOSING_WAITS) {
        CUresult result = finish_work(waited);

        if (result != CUDA_SUCCESS) /* refused, and so still the program's */
            return result;
    }
    if (closing == CLOSING_UNKNOWN)
        return ag_cu.cuIpcCloseMemHandle(address);
    if (closing == CLOSING_LAST) {
        unmap(import);
        ag_stats_add(AG_STAT_IPC_CLOSED, 1);
    }
    return CUDA_SUCCESS;
}

bool ag_ipc_look_inside(CUdeviceptr address, CUdeviceptr *base, struct ag_block_seen *ret_copy)
{
    const struct foreign_range *range;
    CUdeviceptr begins = 0;

    ag_lock_take(&self.lock);
    for (range = self.ranges; range; range = range->next) {
        if (range->state == OPEN && range->address == *base)
            break;
    }
    for (size_t i = 0; range && i < self.by_address.capacity && !begins; i++) {
        const struct import *import = self.by_address.entries[i].value;

        if (import && address - import->block->address < import->block->size)
            begins = import->block->address;
    }
    ag_lock_release(&self.lock);
    if (!range)
        return false;
    if (begins && ag_ledger_look(begins, ret_copy))
        *base = begins;
    else
        *ret_copy = (struct ag_block_seen){.desc.source = AG_SOURCE_CACHED, .state = AG_BLOCK_KEPT};
    return true;
}

void ag_ipc_context_dying(const struct ag_context *context)
{
    struct import *all = NULL, *import;

    ag_lock_take(&self.lock);
    for (size_t i = 0; i < self.by_address.capacity; i++) {
        struct opening *opening = NULL;

        import = self.by_address.entries[i].value;
        if (self.by_address.entries[i].key && import->state == OPEN)
            opening = opening_of(import, context);
        if (!opening || !leave_opening(import, opening))
            continue;
        import->next = all;
        all = import;
    }
    for (import = all; import; import = import->next)
        (void)ag_map_take(&self.by_address, import->block->address);
    ag_lock_release(&self.lock);
    while (all) {
        import = all;
        all = import->next;
        unmap(import);
    }
}

/* A pool that is open to others, but not yet to `device`, with one more user. */
static struct foreign_pool *next_closed_to(int device)
{
    struct foreign_pool *pool;

    ag_lock_take(&self.lock);
    for (pool = self.pools; pool; pool = pool->next) {
        if (pool->state == OPEN && !(atomic_load(&pool->asked) & bit_of(device)))
            break;
    }
    if (pool)
        pool->users++;
    ag_lock_release(&self.lock);
    return pool;
}

void ag_ipc_context_entered(const struct ag_context *context)
{
    struct foreign_pool *pool;

    while ((pool = next_closed_to(context->device->ordinal))) {
        (void)open_to(pool, context->device->ordinal);
        leave_foreign_pool(pool);
    }
}

void ag_ipc_import_begin_child(void)
{
    ag_lock_init(&self.lock, AG_RANK_IPC); /* the thread that held it is the parent's */
    ag_arena_begin_child(&pool_arena);
    ag_arena_begin_child(&range_arena);
    ag_arena_begin_child(&import_arena);
    ag_arena_begin_child(&opening_arena);
    for (struct foreign_pool *pool = self.pools; pool; pool = pool->next)
        ag_ipc_leases_close(&pool->leases); /* what the parent has open it closes by itself */
    self.pools = NULL;
    self.ranges = NULL;
    ag_map_finish(&self.by_handle);
    ag_map_finish(&self.by_address);
}
