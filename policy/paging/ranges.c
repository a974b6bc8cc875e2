/* Making, finding and taking down ranges: see ranges.h. */
#include "policy/paging/ranges.h"

#include "interpose/core/base/arena.h"
#include "interpose/core/base/log.h"
#include "interpose/core/base/pages.h"
#include "interpose/core/base/threads/lock.h"
#include "interpose/core/base/threads/wait.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/report/stats.h"
#include "policy/contexts/context.h"
#include "policy/paging/ahead.h"
#include "policy/paging/vmm.h"

static struct {
    enum ag_oom oom;
    size_t piece_bytes;
    _Atomic size_t largest_piece; /* of all that there were; relaxed: it only grows */
    const char *why_still;
    struct ag_lock lock; /* guards all below; no driver call under it */
    struct ag_movable *first;
    struct ag_spans spans; /* changed under the lock */
    bool held;             /* no range goes */
} self = {.lock = AG_LOCK_INIT(AG_RANK_RANGES)};

static struct ag_arena arena = AG_ARENA_INIT(struct ag_movable);

void ag_ranges_configure(enum ag_oom oom, uint64_t piece_bytes)
{
    self.oom = oom;
    self.piece_bytes = piece_bytes;
}

void ag_ranges_stay(const char *why)
{
    self.why_still = why;
}

size_t ag_ranges_largest_piece(void)
{
    return atomic_load_explicit(&self.largest_piece, memory_order_relaxed);
}

bool ag_ranges_wanted(void)
{
    return self.oom == AG_OOM_PAGE && ag_vmm_has_functions();
}

/* --- the table --- */

static struct ag_movable *movable_of_span(struct ag_span *span)
{
    return span ? (struct ag_movable *)((char *)span - offsetof(struct ag_movable, span)) : NULL;
}

static bool enter_movable(struct ag_movable *range)
{
    bool entered;

    ag_lock_take(&self.lock);
    if (range->pieces[0].size > ag_ranges_largest_piece())
        atomic_store_explicit(&self.largest_piece, range->pieces[0].size, memory_order_relaxed);
    entered = ag_spans_add(&self.spans, &range->span, range->address, range->size);
    if (entered) {
        range->next = self.first;
        range->previous = NULL;
        if (self.first)
            self.first->previous = range;
        self.first = range;
    }
    ag_lock_release(&self.lock);
    return entered;
}

/* Called with the lock held. */
static void take_movable_out(struct ag_movable *range)
{
    ag_spans_remove(&self.spans, &range->span);
    if (range->previous)
        range->previous->next = range->next;
    else
        self.first = range->next;
    if (range->next)
        range->next->previous = range->previous;
}

struct ag_movable *ag_ranges_lock(void)
{
    ag_lock_take(&self.lock);
    return self.first;
}

void ag_ranges_unlock(void)
{
    ag_lock_release(&self.lock);
}

struct ag_movable *ag_range_at(CUdeviceptr address)
{
    return movable_of_span(ag_spans_find(&self.spans, address));
}

bool ag_range_may_hold(CUdeviceptr address)
{
    return ag_spans_find(&self.spans, address) != NULL;
}

void ag_ranges_hold(bool held)
{
    ag_lock_take(&self.lock);
    self.held = held;
    ag_lock_release(&self.lock);
}

/* Called with the lock held, which is released while pieces move. */
static void wait_until_free_to_go(void)
{
    struct ag_wait wait = {0};

    while (self.held) {
        ag_lock_release(&self.lock);
        ag_wait_pause(&wait);
        ag_lock_take(&self.lock);
    }
}

static uint64_t bytes_on_host(const struct ag_movable *range)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < range->n_pieces; i++)
        if (!range->pieces[i].handle->on_device)
            bytes += range->pieces[i].size;
    return bytes;
}

void ag_range_pin(CUdeviceptr address)
{
    struct ag_movable *range;
    uint64_t stays = 0;

    ag_lock_take(&self.lock);
    wait_until_free_to_go();
    range = ag_range_at(address);
    if (range && !range->pinned) {
        range->pinned = true;
        stays = bytes_on_host(range);
    }
    ag_lock_release(&self.lock);
    if (stays)
        ag_stats_add(AG_STAT_PAGE_STAYS, stays);
}

/* --- pools --- */

_Atomic bool ag_range_any_of_pool; /* relaxed: see ranges.h; what it is about is under the lock */

static void set_pool(CUdeviceptr address, bool is_of_pool, CUmemoryPool pool)
{
    struct ag_movable *range;

    ag_lock_take(&self.lock);
    range = ag_range_at(address);
    if (range) {
        range->is_of_pool = is_of_pool;
        range->pool = pool;
    }
    ag_lock_release(&self.lock);
}

void ag_range_begin_pool(CUdeviceptr address, CUmemoryPool pool)
{
    atomic_store_explicit(&ag_range_any_of_pool, true, memory_order_relaxed);
    set_pool(address, true, pool);
}

void ag_range_end_pool_now(CUdeviceptr address)
{
    set_pool(address, false, NULL);
}

bool ag_range_pool(CUdeviceptr address, CUmemoryPool *ret_pool)
{
    const struct ag_movable *range;
    bool is_of_pool;

    ag_lock_take(&self.lock);
    range = ag_range_at(address);
    is_of_pool = range && range->is_of_pool;
    *ret_pool = is_of_pool ? range->pool : NULL;
    ag_lock_release(&self.lock);
    return is_of_pool;
}

/* --- what goes --- */

static struct ag_movable *take_range(CUdeviceptr address)
{
    struct ag_movable *range;

    ag_lock_take(&self.lock);
    wait_until_free_to_go();
    range = ag_range_at(address);
    if (range && range->address == address)
        take_movable_out(range);
    else
        range = NULL;
    ag_lock_release(&self.lock);
    return range;
}

CUdeviceptr ag_range_base(CUdeviceptr address)
{
    const struct ag_movable *range;
    CUdeviceptr base = 0;

    if (!ag_range_may_hold(address))
        return 0;
    ag_lock_take(&self.lock); /* it may go */
    range = ag_range_at(address);
    if (range)
        base = range->address;
    ag_lock_release(&self.lock);
    return base;
}

bool ag_range_holds(const struct ag_context *context, CUdeviceptr address, size_t bytes)
{
    const struct ag_movable *range;
    bool holds;

    if (!ag_range_may_hold(address))
        return false;
    ag_lock_take(&self.lock); /* likewise */
    range = ag_range_at(address);
    holds = range && !range->pinned && range->context == context &&
            bytes <= range->size - (address - range->address);
    ag_lock_release(&self.lock);
    return holds;
}

/* --- memory --- */

static size_t bytes_of_pieces(const struct ag_movable *range)
{
    return range->n_pieces * sizeof(range->pieces[0]);
}

static void drop_movable(struct ag_movable *range)
{
    if (range->pieces)
        ag_pages_free(range->pieces, bytes_of_pieces(range));
    ag_arena_put(&arena, range);
}

static size_t rounded_to_pages(size_t bytes, size_t page)
{
    return (bytes + page - 1) / page * page;
}

/* A range of pieces that are mapped to nothing yet; NULL without memory. */
static struct ag_movable *plan_range(struct ag_context *context, size_t size, size_t page)
{
    struct ag_movable *range = ag_arena_get(&arena);
    size_t piece = rounded_to_pages(self.piece_bytes, page);

    if (!range)
        return NULL;
    *range = (struct ag_movable){.size = size, .context = context};
    range->n_pieces = (unsigned)((size + piece - 1) / piece);
    range->pieces = ag_pages_get(bytes_of_pieces(range));
    if (!range->pieces) {
        drop_movable(range);
        return NULL;
    }
    for (unsigned i = 0; i < range->n_pieces; i++) {
        range->pieces[i].offset = i * piece;
        range->pieces[i].size = size - i * piece < piece ? size - i * piece : piece;
    }
    return range;
}

static void put_handles(struct ag_movable *range)
{
    for (unsigned i = 0; i < range->n_pieces; i++)
        if (range->pieces[i].handle)
            ag_handle_put(range->pieces[i].handle);
}

/* A program that silently became slower would be worse off than one that got an error. */
static void note_on_host(const struct ag_device *device)
{
    const char *why = self.why_still;

    if (!ag_stats_counter(AG_STAT_PAGE_ON_HOST))
        ag_log_warn("device %d has no room for all memory of the program: from now on some of it "
                    "lies on the host, and %s%s (ALLOGRAFT_OOM=page)",
                    device->ordinal,
                    why ? "is read over the bus: it stays there, since "
                        : "is read over the bus or moves",
                    why ? why : "");
    ag_stats_add(AG_STAT_PAGE_ON_HOST, 1);
}

static bool get_handles(struct ag_movable *range, bool anywhere)
{
    struct ag_device *device = range->context->device;
    bool on_device = true, any_on_host = false;

    for (unsigned i = 0; i < range->n_pieces; i++) {
        struct ag_piece *piece = &range->pieces[i];

        if (on_device)
            piece->handle = ag_handle_get(device, piece->size, true);
        on_device = piece->handle || !anywhere; /* once is enough: there is no room */
        if (!piece->handle && anywhere)
            piece->handle = ag_handle_get(device, piece->size, false);
        if (!piece->handle)
            return false;
        any_on_host |= !piece->handle->on_device;
    }
    if (any_on_host)
        note_on_host(device);
    return true;
}

static CUresult map_pieces(struct ag_movable *range)
{
    CUresult result = CUDA_SUCCESS;

    for (unsigned i = 0; i < range->n_pieces && result == CUDA_SUCCESS; i++) {
        const struct ag_piece *piece = &range->pieces[i];

        result = ag_cu.cuMemMap(range->address + piece->offset, piece->size, 0,
                                piece->handle->memory, 0);
    }
    if (result == CUDA_SUCCESS)
        result = ag_vmm_open(range->context->device, range->address, range->size);
    if (result == CUDA_SUCCESS)
        result = ag_vmm_open_to_peers(range->context->device, range->address, range->size);
    return result;
}

/* Reserves addresses and maps memory there; nothing is left of that on failure. */
static CUresult build_range(struct ag_movable *range)
{
    CUresult result = ag_cu.cuMemAddressReserve(&range->address, range->size, 0, 0, 0);

    if (result != CUDA_SUCCESS)
        return result;
    result = map_pieces(range);
    if (result == CUDA_SUCCESS && enter_movable(range))
        return CUDA_SUCCESS;
    (void)ag_cu.cuMemUnmap(range->address, range->size);
    (void)ag_cu.cuMemAddressFree(range->address, range->size);
    return CUDA_ERROR_NOT_SUPPORTED;
}

static size_t page_of(const struct ag_device *device)
{
    CUmemAllocationProp properties = ag_vmm_on_device(device);
    size_t page = 0;

    if (ag_cu.cuMemGetAllocationGranularity(&page, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) !=
        CUDA_SUCCESS)
        return 0;
    return page;
}

CUresult ag_range_allocate(struct ag_context *context, size_t bytes, bool anywhere,
                           CUdeviceptr *ret_address)
{
    size_t page = page_of(context->device);
    struct ag_movable *range;
    CUresult result = ag_context_init_resources(context);

    if (!page)
        return CUDA_ERROR_NOT_SUPPORTED;
    /* The driver asks nothing about the context for pages, but for other memory it does. */
    if (result == CUDA_SUCCESS)
        result = ag_context_sticky_error(context);
    if (result != CUDA_SUCCESS)
        return result;
    if (bytes > SIZE_MAX / 2 ||
        !ag_handles_may_get(context->device, rounded_to_pages(bytes, page), anywhere))
        return CUDA_ERROR_OUT_OF_MEMORY;
    range = plan_range(context, rounded_to_pages(bytes, page), page);
    if (!range)
        return CUDA_ERROR_NOT_SUPPORTED;
    result = get_handles(range, anywhere) ? build_range(range) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        *ret_address = range->address;
        ag_ahead_look(context->device, rounded_to_pages(self.piece_bytes, page));
        return result;
    }
    put_handles(range);
    drop_movable(range);
    return result;
}

/* What is still mapped is nobody's any more, and lost, unless it went with the driver: the CUDA
 * runtime gives its context back after that has ended. */
static void note_lost(const struct ag_movable *range, CUresult why)
{
    if (why == CUDA_ERROR_DEINITIALIZED)
        return;
    ag_stats_add(AG_STAT_PAGE_LOST, 1);
    ag_log_warn("the driver does not unmap %zu bytes (error %d): they are lost", range->size,
                (int)why);
}

CUresult ag_range_free(CUdeviceptr address)
{
    struct ag_movable *range = take_range(address);
    CUresult result;

    if (!range)
        return CUDA_ERROR_INVALID_VALUE;
    result = ag_cu.cuMemUnmap(range->address, range->size);
    if (result == CUDA_SUCCESS) {
        (void)ag_cu.cuMemAddressFree(range->address, range->size);
        put_handles(range);
    } else {
        note_lost(range, result);
    }
    drop_movable(range);
    return CUDA_SUCCESS;
}

void ag_ranges_begin_child(void)
{
    ag_lock_init(&self.lock, AG_RANK_RANGES);
    ag_arena_begin_child(&arena);
    self.first = NULL;
    self.spans = (struct ag_spans){0};
    self.held = false;
}
