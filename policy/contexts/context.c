/* Tables of devices and contexts: see context.h. */
#include "policy/contexts/context.h"

#include <string.h>

#include "interpose/core/base/arena.h"
#include "interpose/core/base/log.h"
#include "interpose/core/base/threads/wait.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/report/stats.h"

/* A visitor is waited for in slices (wait.h), so also while it does not run. One that never comes
 * back, since it was cancelled there or its signal handler jumped out, holds one end up so long. */
#define VISIT_NS  10000000000u
#define ENDING_NS (2 * VISIT_NS) /* more than that, and what else is left to do */

static struct {
    /* Guards entries, freelist, primary references, the devices' list: who has it loads relaxed. */
    struct ag_lock lock;
    _Atomic(struct ag_context *) contexts[AG_MAX_CONTEXTS];
    struct ag_device devices[AG_MAX_DEVICES];
    _Atomic unsigned n_devices;
    _Atomic unsigned n_contexts;
    _Atomic unsigned n_entries;  /* those after them were never used */
    struct ag_context *freelist; /* memory of contexts that are gone, linked by ->next_free */
} table = {.lock = AG_LOCK_INIT(AG_RANK_CONTEXTS)};

_Atomic unsigned ag_context_generation;

/* Visits that the calling thread is in, one within the other. */
static _Thread_local unsigned n_visits;

static struct ag_arena context_arena = AG_ARENA_INIT(struct ag_context);

CUcontext ag_context_primary_handle(int device)
{
    CUcontext handle = NULL;

    if (ag_cu.cuDevicePrimaryCtxRetain(&handle, device) != CUDA_SUCCESS)
        return NULL;
    if (ag_cu.cuDevicePrimaryCtxRelease_v2)
        (void)ag_cu.cuDevicePrimaryCtxRelease_v2(device);
    else
        (void)ag_cu.cuDevicePrimaryCtxRelease(device);
    return handle;
}

struct ag_context *ag_context_find(CUcontext handle)
{
    for (unsigned i = 0; handle && i < AG_MAX_CONTEXTS; i++) {
        struct ag_context *context = atomic_load_explicit(&table.contexts[i], memory_order_acquire);

        if (context && atomic_load_explicit(&context->handle, memory_order_acquire) == handle)
            return context;
    }
    return NULL;
}

/* Relaxed: the handle, by which it is found, is written after it. */
bool ag_context_lives_since(CUcontext handle, unsigned generation)
{
    const struct ag_context *context = ag_context_find(handle);

    return context &&
           (int)(generation - atomic_load_explicit(&context->born, memory_order_relaxed)) >= 0;
}

/* --- devices --- */

/* Called with the table's lock held. */
static struct ag_device *find_device(int ordinal)
{
    unsigned n = atomic_load_explicit(&table.n_devices, memory_order_relaxed);

    for (unsigned i = 0; i < n; i++) {
        if (table.devices[i].ordinal == ordinal)
            return &table.devices[i];
    }
    return NULL;
}

struct ag_device *ag_device_find(int ordinal)
{
    struct ag_device *row;

    ag_lock_take(&table.lock);
    row = find_device(ordinal);
    ag_lock_release(&table.lock);
    return row;
}

struct ag_device *ag_device_add(const struct ag_device *fresh)
{
    struct ag_device *row;
    unsigned n;

    ag_lock_take(&table.lock);
    row = find_device(fresh->ordinal);
    n = atomic_load_explicit(&table.n_devices, memory_order_relaxed);
    if (!row && n < AG_MAX_DEVICES) {
        row = &table.devices[n];
        memcpy(row, fresh, sizeof(*fresh));
        ag_stats_device_met(fresh->ordinal, fresh->name, fresh->total_bytes);
        atomic_store_explicit(&table.n_devices, n + 1, memory_order_release);
    }
    ag_lock_release(&table.lock);
    return row;
}

/* --- memory --- */

/* Called with the table's lock held. */
static void recycle(struct ag_context *old)
{
    old->next_free = table.freelist;
    table.freelist = old;
}

void ag_context_recycle(struct ag_context *context)
{
    ag_lock_take(&table.lock);
    if (context->forgotten) /* and not by two threads that destroy it */
        recycle(context);
    context->forgotten = false;
    ag_lock_release(&table.lock);
}

/* Somebody may visit one for ever: a thread that was cancelled at it. */
static struct ag_context *take_recycled(void)
{
    struct ag_context **link = &table.freelist, *old;

    ag_lock_take(&table.lock);
    while ((old = *link) && atomic_load_explicit(&old->visitors, memory_order_seq_cst))
        link = &old->next_free;
    if (old)
        *link = old->next_free;
    ag_lock_release(&table.lock);
    return old;
}

/* Makes a row as good as new, but for the counters of its fences, which a late reader compares, and
 * for its handle, by which it is found: that comes last. Relaxed: the table's entry tells of it. */
static void clear(struct ag_context *old)
{
    (void)ag_cache_empty(&old->cache);
    ag_slabs_clear(&old->slabs);
    old->barrier.event = old->host_fence.event = old->alloc_event = NULL;
    old->alloc_stream = old->free_stream = NULL;
    atomic_store_explicit(&old->has_nonblocking_stream, false, memory_order_relaxed);
    atomic_store_explicit(&old->too_large, 0, memory_order_relaxed);
    atomic_store_explicit(&old->attached, 0, memory_order_relaxed);
    atomic_store_explicit(&old->resources_state, AG_ONCE_TO_DO, memory_order_relaxed);
    atomic_store_explicit(&old->leaving, false, memory_order_relaxed);
}

struct ag_context *ag_context_get_memory(void)
{
    struct ag_context *memory = take_recycled();

    if (memory) {
        clear(memory);
        return memory;
    }
    memory = ag_arena_get(&context_arena);
    if (memory) {
        ag_cache_init(&memory->cache);
        ag_slabs_init(&memory->slabs);
    }
    return memory;
}

/* Called with the table's lock held. */
static void add_reference(struct ag_context *primary)
{
    primary->device->primary = atomic_load_explicit(&primary->handle, memory_order_relaxed);
    primary->primary_references++;
}

struct ag_context *ag_context_insert(struct ag_context *fresh, CUcontext handle, bool retained)
{
    struct ag_context *found = NULL;
    unsigned hole = AG_MAX_CONTEXTS;

    ag_lock_take(&table.lock);
    for (unsigned i = 0; i < AG_MAX_CONTEXTS && !found; i++) {
        struct ag_context *context = atomic_load_explicit(&table.contexts[i], memory_order_relaxed);

        if (context && context->handle == handle)
            found = context;
        else if (!context && hole == AG_MAX_CONTEXTS)
            hole = i;
    }
    if (!found && hole < AG_MAX_CONTEXTS) {
        /* Relaxed: contexts leave the table under the lock. */
        atomic_store_explicit(&fresh->born,
                              atomic_load_explicit(&ag_context_generation, memory_order_relaxed),
                              memory_order_relaxed);
        atomic_store_explicit(&fresh->handle, handle, memory_order_release);
        if (hole >= atomic_load_explicit(&table.n_entries, memory_order_relaxed))
            atomic_store_explicit(&table.n_entries, hole + 1, memory_order_seq_cst);
        atomic_store_explicit(&table.contexts[hole], fresh, memory_order_release);
        atomic_fetch_add_explicit(&table.n_contexts, 1, memory_order_seq_cst);
        found = fresh;
    }
    if (found != fresh)
        recycle(fresh);
    else if (retained)
        add_reference(fresh);
    ag_lock_release(&table.lock);
    return found;
}

/* One reference more to what the table has, or NULL. False: the last one is being given back. */
static bool refer(CUcontext handle, struct ag_context **ret_context)
{
    struct ag_context *context;
    bool can;

    ag_lock_take(&table.lock);
    context = ag_context_find(handle);
    can = !context || !context->unreferenced;
    if (context && can)
        add_reference(context);
    ag_lock_release(&table.lock);
    *ret_context = context;
    return can;
}

struct ag_context *ag_context_find_referred(CUcontext handle)
{
    uint64_t left = ENDING_NS;
    struct ag_wait wait = {0};
    struct ag_context *context;

    while (!refer(handle, &context) && ag_wait_pause_within(&wait, &left))
        ;
    return context;
}

void ag_context_changed(void)
{
    atomic_fetch_add_explicit(&ag_context_generation, 1, memory_order_release);
}

/* The live primary context of `device`; with the table's lock held. */
static struct ag_context *find_primary(int device)
{
    for (unsigned i = 0; i < AG_MAX_CONTEXTS; i++) {
        struct ag_context *context = atomic_load_explicit(&table.contexts[i], memory_order_relaxed);

        if (context && context->primary_references && context->device->ordinal == device)
            return context;
    }
    return NULL;
}

struct ag_context *ag_context_primary_leaving(int device, bool all)
{
    struct ag_context *context;

    ag_lock_take(&table.lock);
    context = find_primary(device);
    if (context && context->primary_references > 1 && !all) {
        context->primary_references--;
        context = NULL;
    }
    if (context)
        context->unreferenced = true;
    ag_lock_release(&table.lock);
    return context;
}

void ag_context_primary_kept(int device)
{
    struct ag_context *context;

    ag_lock_take(&table.lock);
    context = find_primary(device);
    if (context)
        context->primary_references++;
    ag_lock_release(&table.lock);
}

void ag_context_ending(struct ag_context *context)
{
    uint64_t left = VISIT_NS;
    struct ag_wait wait = {0};

    /* Who does not visit it any more sees that it is ending. */
    atomic_fetch_add_explicit(&context->device->n_returning, 1, memory_order_seq_cst);
    atomic_store_explicit(&context->leaving, true, memory_order_seq_cst);
    /* What they wait for is done: the context's work was waited for before. */
    while (atomic_load_explicit(&context->visitors, memory_order_seq_cst) &&
           ag_wait_pause_within(&wait, &left))
        ;
}

void ag_context_ended(struct ag_context *context)
{
    atomic_fetch_sub_explicit(&context->device->n_returning, 1, memory_order_seq_cst);
}

bool ag_device_wait_returned(const struct ag_device *device, bool evicted, uint64_t timeout_ns)
{
    struct ag_wait wait = {0};

    if (n_visits) /* which the context that ends waits for */
        return true;
    while (ag_device_is_returning(device, evicted)) {
        if (!ag_wait_pause_within(&wait, &timeout_ns))
            return false;
    }
    return true;
}

void ag_context_forget(struct ag_context *context)
{
    ag_lock_take(&table.lock);
    for (unsigned i = 0; i < AG_MAX_CONTEXTS; i++) {
        if (atomic_load_explicit(&table.contexts[i], memory_order_relaxed) != context)
            continue;
        atomic_store_explicit(&table.contexts[i], NULL, memory_order_seq_cst);
        context->forgotten = true;
        atomic_fetch_sub_explicit(&table.n_contexts, 1, memory_order_seq_cst);
        atomic_fetch_add_explicit(&ag_context_generation, 1, memory_order_release);
    }
    ag_lock_release(&table.lock);
}

void ag_context_begin_child(void)
{
    ag_lock_init(&table.lock, AG_RANK_CONTEXTS); /* the thread that held it is the parent's */
    ag_arena_begin_child(&context_arena);
    table.freelist = NULL;
    for (unsigned i = 0; i < AG_MAX_CONTEXTS; i++)
        atomic_store_explicit(&table.contexts[i], NULL, memory_order_relaxed);
    atomic_store_explicit(&table.n_contexts, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&ag_context_generation, 1, memory_order_release);
}

/* It counts as visited before it is looked whether it is still there, and says that it leaves
 * before it looks whether anybody visits it: one of the two sees the other. */
bool ag_context_begin_visit(struct ag_context *context)
{
    atomic_fetch_add_explicit(&context->visitors, 1, memory_order_seq_cst);
    if (!atomic_load_explicit(&context->leaving, memory_order_seq_cst)) {
        n_visits++;
        return true;
    }
    atomic_fetch_sub_explicit(&context->visitors, 1, memory_order_seq_cst);
    return false;
}

void ag_context_end_visit(struct ag_context *context)
{
    n_visits--;
    atomic_fetch_sub_explicit(&context->visitors, 1, memory_order_seq_cst);
}

static void visit_at(unsigned i, void (*visit)(struct ag_context *context, void *data), void *data)
{
    struct ag_context *context = atomic_load_explicit(&table.contexts[i], memory_order_seq_cst);

    if (!context || !ag_context_begin_visit(context))
        return;
    if (atomic_load_explicit(&table.contexts[i], memory_order_seq_cst) == context)
        visit(context, data);
    ag_context_end_visit(context);
}

void ag_context_each(void (*visit)(struct ag_context *context, void *data), void *data)
{
    for (unsigned i = 0; i < AG_MAX_CONTEXTS; i++)
        visit_at(i, visit, data);
}

bool ag_context_any(bool (*is)(struct ag_context *context))
{
    unsigned n = atomic_load_explicit(&table.n_entries, memory_order_seq_cst);

    for (unsigned i = 0; i < n; i++) {
        struct ag_context *context = atomic_load_explicit(&table.contexts[i], memory_order_acquire);

        if (context && is(context))
            return true;
    }
    return false;
}

unsigned ag_context_count(void)
{
    return atomic_load_explicit(&table.n_contexts, memory_order_seq_cst);
}

struct ag_device *ag_device_met(unsigned i)
{
    return i < atomic_load_explicit(&table.n_devices, memory_order_acquire) ? &table.devices[i]
                                                                            : NULL;
}

/* Bytes of the slabs whose pieces are all in the cache. */
static uint64_t whole_slabs(struct ag_context *context)
{
    ag_cache_count_pieces(&context->cache);
    return ag_slabs_whole_bytes(&context->slabs);
}

struct cached {
    struct ag_device *device;
    bool slabs_counted;
    uint64_t bytes;
};

static void add_cached(struct ag_context *context, void *data)
{
    struct cached *cached = data;

    uint64_t pieces, bytes = ag_cache_block_bytes(&context->cache, &pieces);

    if (context->device != cached->device)
        return;
    cached->bytes += bytes;
    if (cached->slabs_counted)
        cached->bytes += whole_slabs(context);
    else if (pieces)
        cached->bytes += ag_slabs_bytes(&context->slabs);
}

uint64_t ag_device_cached(struct ag_device *device)
{
    struct cached cached = {.device = device};

    ag_context_each(add_cached, &cached);
    return cached.bytes;
}

uint64_t ag_device_cached_now(struct ag_device *device)
{
    struct cached cached = {.device = device, .slabs_counted = true};

    ag_context_each(add_cached, &cached);
    return cached.bytes;
}

struct room {
    struct ag_device *device;
    uint64_t bytes, small;
};

static void add_room(struct ag_context *context, void *data)
{
    struct room *room = data;
    uint64_t small;

    if (context->device != room->device)
        return;
    room->bytes += ag_cache_room(&context->cache, &small) + whole_slabs(context);
    room->small += small;
}

static uint64_t whole_pages(uint64_t bytes)
{
    return (bytes + AG_NATIVE_PAGE - 1) / AG_NATIVE_PAGE * AG_NATIVE_PAGE;
}

uint64_t ag_device_cached_room(struct ag_device *device)
{
    struct room room = {.device = device};
    uint64_t taken;

    ag_context_each(add_room, &room);
    taken = atomic_load_explicit(&device->small_native, memory_order_relaxed);
    if (taken > room.small) /* as long as one of them is in use, its page is */
        return room.bytes + whole_pages(taken) - whole_pages(taken - room.small);
    return room.bytes + whole_pages(taken);
}

CUresult ag_context_make_current(struct ag_context *context, bool *ret_pushed)
{
    CUcontext current = NULL;
    CUresult result;

    *ret_pushed = false;
    result = ag_cu.cuCtxGetCurrent(&current);
    if (result != CUDA_SUCCESS || current == context->handle)
        return result;
    result = ag_cu.cuCtxPushCurrent_v2(context->handle);
    *ret_pushed = result == CUDA_SUCCESS;
    return result;
}

void ag_context_restore(bool pushed)
{
    CUcontext popped;

    /* The program must not be left in a context that it did not make current. */
    if (pushed && ag_cu.cuCtxPopCurrent_v2(&popped) != CUDA_SUCCESS)
        (void)ag_cu.cuCtxPopCurrent_v2(&popped);
}

static void drop_event(CUevent *event)
{
    if (*event)
        (void)ag_cu.cuEventDestroy_v2(*event);
    *event = NULL;
}

static void drop_resources(struct ag_context *context)
{
    drop_event(&context->barrier.event);
    drop_event(&context->host_fence.event);
    drop_event(&context->alloc_event);
    if (context->alloc_stream)
        (void)ag_cu.cuStreamDestroy_v2(context->alloc_stream);
    context->alloc_stream = NULL;
}

/* The context is current. */
static CUresult make_resources(struct ag_context *context)
{
    CUresult result = ag_cu.cuEventCreate(&context->barrier.event, CU_EVENT_DISABLE_TIMING);

    if (result == CUDA_SUCCESS)
        result = ag_cu.cuEventCreate(&context->host_fence.event, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        result = ag_cu.cuEventCreate(&context->alloc_event, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        result = ag_cu.cuStreamCreate(&context->alloc_stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS)
        result = ag_cu.cuStreamCreate(&context->free_stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS)
        return result;
    drop_resources(context);
    return result;
}

CUresult ag_context_make_resources(struct ag_context *context)
{
    CUresult result;
    bool pushed;

    if (!ag_once_begin(&context->resources_state))
        return CUDA_SUCCESS;
    result = ag_context_make_current(context, &pushed);
    if (result == CUDA_SUCCESS)
        result = make_resources(context);
    ag_context_restore(pushed);
    ag_once_end(&context->resources_state, result == CUDA_SUCCESS ? AG_ONCE_DONE : AG_ONCE_TO_DO);
    return result;
}

bool ag_error_is_sticky(CUresult result)
{
    return (result >= CUDA_ERROR_ILLEGAL_ADDRESS && result <= CUDA_ERROR_LAUNCH_FAILED) ||
           result == CUDA_ERROR_ECC_UNCORRECTABLE || result == CUDA_ERROR_DEINITIALIZED;
}

CUresult ag_context_sticky_error_here(struct ag_context *context)
{
    bool has_stream = ag_once_is_done(&context->resources_state);
    CUstreamCaptureStatus status;
    CUresult result = CUDA_SUCCESS;

    if (ag_cu.cuStreamIsCapturing)
        result = ag_cu.cuStreamIsCapturing(has_stream ? context->free_stream : CU_STREAM_LEGACY,
                                           &status);
    return ag_error_is_sticky(result) ? result : CUDA_SUCCESS;
}
