/* Exporting memory of our pools to other processes: see ipc.h.
 *
 * The thread that makes the hooked call prepares all that another process may ask for: the
 * descriptor of the pool, once, and the export data of each block. The listener's thread only
 * looks it up and makes no driver call. A handle is valid until the program frees the memory,
 * and the same memory always has the same handle (programs look handles up by their bytes). */
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interpose/core/base/arena.h"
#include "interpose/core/base/log.h"
#include "interpose/core/base/map.h"
#include "interpose/core/driver/driver.h"
#include "policy/answers/lookup.h"
#include "policy/backends/backend.h"
#include "policy/churn.h"
#include "policy/contexts/context.h"
#include "policy/guard/guard.h"
#include "policy/ipc/ipc.h"
#include "policy/ipc/ipc_lease.h"
#include "policy/ipc/ipc_socket.h"
#include "policy/ledger.h"
#include "policy/order/capture.h"
#include "policy/order/drain.h"
#include "policy/order/host_wait.h"
#include "policy/order/private_stream.h"
#include "policy/slab.h"

/* One of our pools, by its place in the table. */
struct shared_pool {
    struct ag_device *device;
    int fd;
    struct stat identity; /* of fd: a program may close it, and give the number to a file */
    uint8_t uuid[AG_IPC_ID_BYTES];
};

struct offer {
    uint64_t number;
    struct ag_ipc_id token;
    unsigned pool; /* place in the table; AG_IPC_NO_POOL */
    uint64_t size, range, offset;
    uint8_t pointer[AG_IPC_POINTER_BYTES];
};

struct orphan {
    struct orphan *next;
    CUdeviceptr address;
    uint64_t number;
};

enum listening { NOT_YET, LISTENING, REFUSED };

static struct {
    struct ag_lock lock; /* guards all below; no driver call under it */
    enum listening listening;
    struct ag_ipc_id process;
    unsigned n_pools;
    struct shared_pool pools[AG_MAX_DEVICES];
    struct ag_map offers; /* by number */
    struct ag_ipc_leases leases;
    struct ag_block *held;  /* freed while another process had them open; linked by ->next */
    struct orphan *orphans; /* the same, of contexts that are gone */
} self = {.lock = AG_LOCK_INIT(AG_RANK_IPC)};

static struct ag_arena arena = AG_ARENA_INIT(struct offer);
static struct ag_arena orphan_arena = AG_ARENA_INIT(struct orphan);
_Atomic unsigned ag_ipc_n_orphans;
static _Atomic uint64_t last_number;

_Static_assert(sizeof(CUmemPoolPtrExportData) == AG_IPC_POINTER_BYTES, "what the driver exports");
_Static_assert(sizeof(CUipcMemHandle) == AG_IPC_HANDLE_BYTES, "what the program carries over");

/* --- on the listener's thread --- */

static bool is_still_the_pools(const struct shared_pool *pool)
{
    struct stat now;

    return !fstat(pool->fd, &now) && now.st_ino == pool->identity.st_ino &&
           now.st_dev == pool->identity.st_dev && now.st_rdev == pool->identity.st_rdev;
}

static void answer_request(const struct ag_ipc_request *request, struct ag_ipc_reply *ret_reply,
                           int *ret_fds)
{
    const struct shared_pool *pool = NULL;
    const struct offer *offer;

    ag_lock_take(&self.lock);
    offer = request->number ? ag_map_get(&self.offers, request->number) : NULL;
    if (offer && offer->pool != AG_IPC_NO_POOL)
        pool = &self.pools[offer->pool];
    if (offer && ag_ipc_same_id(&offer->token, &request->token) &&
        (!pool || is_still_the_pools(pool)) && ag_ipc_leases_there(&self.leases)) {
        ret_reply->status = AG_IPC_GIVEN;
        ret_reply->pool = offer->pool;
        ret_reply->size = offer->size;
        ret_reply->range = offer->range;
        ret_reply->offset = offer->offset;
        if (pool)
            memcpy(ret_reply->uuid, pool->uuid, AG_IPC_ID_BYTES);
        memcpy(ret_reply->pointer, offer->pointer, AG_IPC_POINTER_BYTES);
        /* There are always two; without a pool, twice the same. */
        ret_fds[AG_IPC_POOL] = pool ? pool->fd : self.leases.fd;
        ret_fds[AG_IPC_LEASES] = self.leases.fd;
    }
    ag_lock_release(&self.lock);
    ag_stats_add(ret_reply->status == AG_IPC_GIVEN ? AG_STAT_IPC_SERVED : AG_STAT_IPC_UNKNOWN, 1);
}

static void count_refusal(enum ag_ipc_refusal why)
{
    static const enum ag_stat rows[AG_IPC_N_REFUSALS] = {
        [AG_IPC_OTHER_USER] = AG_STAT_IPC_OTHER_USER,
        [AG_IPC_MALFORMED] = AG_STAT_IPC_MALFORMED,
        [AG_IPC_TOO_SLOW] = AG_STAT_IPC_TOO_SLOW,
    };

    ag_stats_add(rows[why], 1);
}

/* --- in the hooked call --- */

static bool start_listening(void)
{
    static const struct ag_ipc_service service = {.answer = answer_request,
                                                  .refused = count_refusal};
    bool listening;
    int error;

    ag_lock_take(&self.lock);
    if (self.listening == NOT_YET) {
        self.leases = ag_ipc_leases_make();
        error = self.leases.fd >= 0 && ag_ipc_random(&self.process)
                    ? ag_ipc_listen(&self.process, &service)
                    : -1;
        self.listening = error ? REFUSED : LISTENING;
    }
    listening = self.listening == LISTENING;
    ag_lock_release(&self.lock);
    return listening;
}

/* The place of `device` in the table; -1 when its pool has not been exported. */
static int find_pool(const struct ag_device *device)
{
    int found = -1;

    ag_lock_take(&self.lock);
    for (unsigned i = 0; i < self.n_pools && found < 0; i++) {
        if (self.pools[i].device == device && is_still_the_pools(&self.pools[i]))
            found = (int)i;
    }
    ag_lock_release(&self.lock);
    return found;
}

static void ask_uuid(const struct ag_device *device, uint8_t *uuid)
{
    CUuuid answered = {{0}};

    if (ag_cu.cuDeviceGetUuid_v2)
        (void)ag_cu.cuDeviceGetUuid_v2(&answered, device->ordinal);
    else if (ag_cu.cuDeviceGetUuid)
        (void)ag_cu.cuDeviceGetUuid(&answered, device->ordinal);
    memcpy(uuid, answered.bytes, AG_IPC_ID_BYTES);
}

/* Puts the pool's descriptor into the table; its place, or -1. */
static int enter_pool(struct ag_device *device)
{
    struct shared_pool pool = {.device = device, .fd = -1};
    int place = -1;

    if (ag_cu.cuMemPoolExportToShareableHandle(
            &pool.fd, device->pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS)
        return -1;
    pool.fd = ag_ipc_out_of_the_way(pool.fd);
    ask_uuid(device, pool.uuid);
    ag_lock_take(&self.lock);
    if (!fstat(pool.fd, &pool.identity) && self.n_pools < AG_MAX_DEVICES) {
        place = (int)self.n_pools++;
        self.pools[place] = pool;
    }
    ag_lock_release(&self.lock);
    if (place < 0)
        (void)close(pool.fd);
    return place;
}

static void forget_offer(uint64_t number)
{
    struct offer *offer;

    ag_lock_take(&self.lock);
    offer = ag_map_take(&self.offers, number);
    ag_lock_release(&self.lock);
    if (offer)
        ag_arena_put(&arena, offer);
}

static bool remember_offer(const struct offer *fresh)
{
    struct offer *offer = ag_arena_get(&arena);
    bool entered;

    if (!offer)
        return false;
    *offer = *fresh;
    ag_lock_take(&self.lock);
    entered = ag_map_put(&self.offers, offer->number, offer);
    ag_lock_release(&self.lock);
    if (!entered)
        ag_arena_put(&arena, offer);
    return entered;
}

/* What the importer needs of the pool that the allocation at `base` is of. */
static bool export_from_pool(struct ag_device *device, CUdeviceptr base, struct offer *offer)
{
    CUmemPoolPtrExportData data;
    int place = find_pool(device);

    if (place < 0)
        place = enter_pool(device);
    if (place < 0 || ag_cu.cuMemPoolExportPointer(&data, base) != CUDA_SUCCESS)
        return false;
    offer->pool = (unsigned)place;
    memcpy(offer->pointer, &data, sizeof(data));
    return true;
}

/* The driver's handle of a native slab, which does not tell where in it a piece is. */
static bool export_natively(CUdeviceptr base, struct offer *offer)
{
    CUipcMemHandle handle;

    if (ag_cu.cuIpcGetMemHandle(&handle, base) != CUDA_SUCCESS)
        return false;
    offer->pool = AG_IPC_NO_POOL;
    memcpy(offer->pointer, &handle, sizeof(handle));
    return true;
}

/* Exports the live block at block->address; its number, or 0. Captures are relaxed. */
static uint64_t export_block(const struct ag_block_seen *block)
{
    struct offer fresh = {.size = block->requested};
    CUdeviceptr base = block->slab ? ag_slab_whole(block->slab)->address : block->address;
    uint64_t number;

    if (!ag_ipc_random(&fresh.token) ||
        !(block->desc.source == AG_SOURCE_POOL
              ? export_from_pool(block->context->device, base, &fresh)
              : export_natively(base, &fresh)))
        return 0;
    fresh.number = atomic_fetch_add_explicit(&last_number, 1, memory_order_relaxed) + 1;
    /* Slabs and offers are numbered apart. */
    fresh.range = block->slab ? ag_slab_number(block->slab) << 1 | 1 : fresh.number << 1;
    fresh.offset = block->address - base;
    if (!remember_offer(&fresh))
        return 0;
    number = ag_ledger_note_export(block->address, fresh.number);
    if (number != fresh.number) /* another thread was first, or it was freed */
        forget_offer(fresh.number);
    return number;
}

/* Writes the handle of the export; false when it is gone. */
static bool write_handle(CUipcMemHandle *handle, uint64_t number)
{
    struct ag_ipc_handle named = {.number = number, .pid = (uint32_t)getpid()};
    const struct offer *offer;

    ag_lock_take(&self.lock);
    named.process = self.process;
    offer = ag_map_get(&self.offers, number);
    if (offer)
        named.token = offer->token;
    ag_lock_release(&self.lock);
    if (offer)
        ag_ipc_write_handle((uint8_t *)handle->reserved, &named);
    return offer != NULL;
}

/* Work of ours on the memory is over, as it is when natively the allocation has returned. */
static void finish_work_on(const struct ag_block_seen *block)
{
    ag_host_wait_complete(AG_STAT_WAITED_VISIBLE);
    (void)ag_private_stream_wait(block->context, UINT64_MAX);
}

static bool can_export(const struct ag_block_seen *block)
{
    if (block->desc.source == AG_SOURCE_CACHED)
        return start_listening();
    return block->desc.source == AG_SOURCE_POOL && ag_cu.cuMemPoolExportToShareableHandle &&
           ag_cu.cuMemPoolExportPointer && start_listening();
}

static bool hand_out_handle(CUipcMemHandle *handle, const struct ag_block_seen *block)
{
    CUstreamCaptureMode previous;
    uint64_t number = block->export_number;

    if (!can_export(block))
        return false;
    finish_work_on(block);
    if (!number) {
        previous = ag_capture_relax();
        number = export_block(block);
        ag_capture_restore(previous);
    }
    return number && write_handle(handle, number);
}

static void say_not_exported(struct ag_mem_desc desc)
{
    bool pooled = desc.source == AG_SOURCE_POOL, movable = desc.source == AG_SOURCE_MOVABLE;

    if (!ag_stats_counter(AG_STAT_FALLBACK_NO_IPC))
        ag_log_warn("cuIpcGetMemHandle: %s memory cannot be given to another process%s; set %s, "
                    "or a rule that leaves such memory native",
                    pooled    ? "this pool's"
                    : movable ? "movable"
                              : "managed",
                    pooled ? " here" : "",
                    movable ? "ALLOGRAFT_OOM=spill" : "ALLOGRAFT_POLICY=native");
    ag_stats_add(AG_STAT_FALLBACK_NO_IPC, 1);
}

CUresult ag_ipc_get(CUipcMemHandle *handle, CUdeviceptr address)
{
    struct ag_block_seen block;
    bool ours = handle && ag_lookup_redirected(address, &block);

    ag_drain_note_visible(AG_VISIBLE_SHARED);
    if (ours && block.slab)
        ag_churn_note_shared();
    else
        ag_lookup_note_exported(address);
    ag_guard_note_shared();
    if (!ours)
        return ag_cu.cuIpcGetMemHandle(handle, ag_lookup_known(address));
    if (block.guarded && ag_guard_shifts()) {
        ag_stats_add(AG_STAT_FALLBACK_NO_IPC, 1);
        return CUDA_ERROR_INVALID_VALUE; /* the other process would get what lies before it */
    }
    if (!block.slab &&
        (block.desc.source == AG_SOURCE_CACHED || block.desc.source == AG_SOURCE_NATIVE))
        return ag_cu.cuIpcGetMemHandle(handle, address);
    if (!hand_out_handle(handle, &block)) {
        say_not_exported(block.desc);
        return ag_cu.cuIpcGetMemHandle(handle, address);
    }
    if (!ag_stats_counter(AG_STAT_IPC_EXPORTED))
        ag_log_info("memory of our pool is given to another process, which needs Allograft too");
    ag_stats_add(AG_STAT_IPC_EXPORTED, 1);
    return CUDA_SUCCESS;
}

/* Relaxed: what the number stands for is looked up under the lock. */
bool ag_ipc_freed(struct ag_block *block)
{
    struct ag_block_rare *rare = ag_block_rare(block);
    uint64_t number =
        rare ? atomic_exchange_explicit(&rare->export_number, 0, memory_order_relaxed) : 0;

    ag_ipc_number_freed(number);
    return number != 0;
}

void ag_ipc_number_freed(uint64_t number)
{
    if (number)
        forget_offer(number);
}

/* --- freed here, open there --- */

static void hold(struct ag_block *blocks)
{
    while (blocks) {
        struct ag_block *block = blocks;

        blocks = block->next;
        ag_lock_take(&self.lock);
        block->next = self.held;
        self.held = block;
        ag_lock_release(&self.lock);
    }
}

static bool is_open_elsewhere(const struct ag_block *block)
{
    uint64_t number = ag_block_export_number(block);
    bool leased = false;

    if (!number)
        return false;
    ag_lock_take(&self.lock);
    leased = ag_ipc_leased(&self.leases, number);
    ag_lock_release(&self.lock);
    return leased;
}

bool ag_ipc_orphan(const struct ag_block *block)
{
    const struct ag_slab *slab = ag_block_slab(block);
    struct orphan *orphan = is_open_elsewhere(block) ? ag_arena_get(&orphan_arena) : NULL;

    if (!orphan)
        return false;
    orphan->address = slab ? ag_slab_whole(slab)->address : block->address;
    orphan->number = ag_block_export_number(block);
    ag_lock_take(&self.lock);
    orphan->next = self.orphans;
    self.orphans = orphan;
    ag_lock_release(&self.lock);
    atomic_fetch_add_explicit(&ag_ipc_n_orphans, 1, memory_order_relaxed);
    return true;
}

/* Is memory at `address` open elsewhere? A slab is if any of its pieces is. Called with the lock
 * held. */
static bool has_orphan(CUdeviceptr address)
{
    const struct orphan *orphan = self.orphans;

    while (orphan && orphan->address != address)
        orphan = orphan->next;
    return orphan != NULL;
}

/* One that nobody has open any more; *ret_last: nor anything else of the same allocation. */
static struct orphan *take_orphan(bool *ret_last)
{
    struct orphan *orphan;

    ag_lock_take(&self.lock);
    for (struct orphan **link = &self.orphans; (orphan = *link); link = &orphan->next) {
        if (ag_ipc_leased(&self.leases, orphan->number))
            continue;
        *link = orphan->next;
        *ret_last = !has_orphan(orphan->address);
        break;
    }
    ag_lock_release(&self.lock);
    return orphan;
}

bool ag_ipc_is_orphan(CUdeviceptr address)
{
    bool is;

    if (!atomic_load_explicit(&ag_ipc_n_orphans, memory_order_relaxed))
        return false;
    ag_lock_take(&self.lock);
    is = has_orphan(address);
    ag_lock_release(&self.lock);
    return is;
}

/* Frees the orphans that nobody has open any more. */
static void free_orphans(void)
{
    struct orphan *orphan;
    CUstreamCaptureMode previous;
    bool last;

    previous = ag_capture_relax();
    while ((orphan = take_orphan(&last))) {
        if (last)
            (void)ag_cu.cuMemFree_v2(orphan->address);
        ag_arena_put(&orphan_arena, orphan);
        atomic_fetch_sub_explicit(&ag_ipc_n_orphans, 1, memory_order_relaxed);
    }
    ag_capture_restore(previous);
}

enum ag_ipc_sharing ag_ipc_hold_shared(struct ag_block *block)
{
    uint64_t number = ag_block_export_number(block);

    if (atomic_load_explicit(&ag_ipc_n_orphans, memory_order_relaxed))
        free_orphans();
    if (!number)
        return AG_IPC_NOT_SHARED;
    ag_ipc_give_back(block->context, UINT64_MAX);
    forget_offer(number); /* from here on nobody else gets it */
    if (!is_open_elsewhere(block)) {
        atomic_store_explicit(&ag_block_rare(block)->export_number, 0, memory_order_relaxed);
        return AG_IPC_SHARED;
    }
    block->next = NULL;
    hold(block);
    ag_stats_add(AG_STAT_IPC_HELD, 1);
    return AG_IPC_OPEN_ELSEWHERE;
}

/* Takes blocks of `context` off the list: those that nobody has open, or with `all` every one. */
static struct ag_block *take_held(const struct ag_context *context, bool all)
{
    struct ag_block *out = NULL;

    ag_lock_take(&self.lock);
    for (struct ag_block **link = &self.held; *link;) {
        struct ag_block *block = *link;

        if (block->context != context ||
            (!all && ag_ipc_leased(&self.leases, ag_block_export_number(block)))) {
            link = &block->next;
            continue;
        }
        *link = block->next;
        block->next = out;
        out = block;
    }
    ag_lock_release(&self.lock);
    return out;
}

void ag_ipc_give_back(struct ag_context *context, uint64_t timeout_ns)
{
    hold(ag_backend_release(context, take_held(context, false), timeout_ns));
}

void ag_ipc_forget_held(const struct ag_context *context)
{
    (void)take_held(context, true);
}

void ag_ipc_export_begin_child(void)
{
    ag_lock_init(&self.lock, AG_RANK_IPC); /* the thread that held it is the parent's */
    ag_arena_begin_child(&arena);
    ag_arena_begin_child(&orphan_arena);
    ag_ipc_listen_begin_child();
    for (unsigned i = 0; i < self.n_pools; i++) {
        if (is_still_the_pools(&self.pools[i]))
            (void)close(self.pools[i].fd);
    }
    if (self.listening == LISTENING)
        ag_ipc_leases_close(&self.leases);
    self.n_pools = 0;
    self.held = NULL;
    self.orphans = NULL;
    atomic_store(&ag_ipc_n_orphans, 0);
    self.listening = NOT_YET;
    ag_map_finish(&self.offers);
}
