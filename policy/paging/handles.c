/* Making, keeping and giving back physical memory: see handles.h. */
#include "policy/paging/handles.h"

#include <stdatomic.h>

#include "interpose/core/base/arena.h"
#include "interpose/core/base/threads/lock.h"
#include "interpose/core/driver/driver.h"
#include "policy/budget.h"
#include "policy/contexts/context.h"
#include "policy/paging/vmm.h"
#include "policy/pinned/host_room.h"

#define LEFT_PART    64u /* of the card, or of the limit, is left for small blocks and the driver */
#define DEVICE_PART  32u /* of what the program may have of a device is kept of it at most */
#define HOST_PERCENT 90u /* of what the host has left may be taken */
#define SCARCE_PART  5u  /* of a device is left where its memory is scarce */
#define MOST_PLACES  256u

static struct {
    struct ag_lock lock;    /* guards all below; no driver call under it */
    struct ag_handle *kept; /* put last first */
    /* Handles whose memory is gone, and whose alias is reserved still, for others of that size. To
     * map memory where none was before takes the driver 0.6 ms; where some was, next to nothing. */
    struct ag_handle *places;
    unsigned n_places;
    _Atomic uint64_t device_bytes[AG_MAX_DEVICES], host_bytes[AG_MAX_DEVICES];
    _Atomic bool is_scarce[AG_MAX_DEVICES]; /* relaxed: a hint; under no lock */
} self = {.lock = AG_LOCK_INIT(AG_RANK_HANDLES)};

static struct ag_arena arena = AG_ARENA_INIT(struct ag_handle);

/* Bytes that are kept of that kind: changed under the lock, read by anybody, relaxed. */
static _Atomic uint64_t *bytes_kept_of(const struct ag_device *device, bool on_device)
{
    unsigned row = (unsigned)device->ordinal % AG_MAX_DEVICES;

    return on_device ? &self.device_bytes[row] : &self.host_bytes[row];
}

uint64_t ag_handles_kept(const struct ag_device *device)
{
    return atomic_load_explicit(bytes_kept_of(device, true), memory_order_relaxed);
}

uint64_t ag_handles_kept_on_host(const struct ag_device *device)
{
    return atomic_load_explicit(bytes_kept_of(device, false), memory_order_relaxed);
}

/* --- how much is left --- */

static _Atomic bool *scarce_row(const struct ag_device *device)
{
    return &self.is_scarce[(unsigned)device->ordinal % AG_MAX_DEVICES];
}

bool ag_handles_are_scarce(const struct ag_device *device)
{
    return atomic_load_explicit(scarce_row(device), memory_order_relaxed);
}

static void note_left(const struct ag_device *device, uint64_t free_bytes)
{
    uint64_t taken = atomic_load_explicit(&device->taken, memory_order_relaxed);
    uint64_t size = ag_budget_size(device);

    atomic_store_explicit(scarce_row(device),
                          taken > size - size / SCARCE_PART ||
                              free_bytes < device->total_bytes / SCARCE_PART,
                          memory_order_relaxed);
}

static void note_given_back(const struct ag_device *device)
{
    if (atomic_load_explicit(&device->taken, memory_order_relaxed) < ag_budget_size(device) / 2)
        atomic_store_explicit(scarce_row(device), false, memory_order_relaxed);
}

/* --- what is kept --- */

/* Keeps the alias that nothing is mapped to any more. */
static void put_place(struct ag_handle *handle)
{
    bool keeps;

    ag_lock_take(&self.lock);
    keeps = self.n_places < MOST_PLACES;
    if (keeps) {
        handle->next = self.places;
        self.places = handle;
        self.n_places++;
    }
    ag_lock_release(&self.lock);
    if (keeps)
        return;
    (void)ag_cu.cuMemAddressFree(handle->alias, handle->size);
    ag_arena_put(&arena, handle);
}

static CUresult get_place(size_t size, CUdeviceptr *ret_alias)
{
    struct ag_handle **link, *place;

    ag_lock_take(&self.lock);
    for (link = &self.places; (place = *link) && place->size != size; link = &place->next)
        ;
    if (place) {
        *link = place->next;
        self.n_places--;
    }
    ag_lock_release(&self.lock);
    if (!place)
        return ag_cu.cuMemAddressReserve(ret_alias, size, 0, 0, 0);
    *ret_alias = place->alias;
    ag_arena_put(&arena, place);
    return CUDA_SUCCESS;
}

/* Takes out one of that size, or with size 0 any. */
static struct ag_handle *take_kept_handle(const struct ag_device *device, size_t size,
                                          bool on_device)
{
    struct ag_handle **link, *handle;

    ag_lock_take(&self.lock);
    for (link = &self.kept; (handle = *link); link = &handle->next)
        if (handle->device == device && handle->on_device == on_device &&
            (!size || handle->size == size))
            break;
    if (handle) {
        *link = handle->next;
        atomic_fetch_sub_explicit(bytes_kept_of(device, on_device), handle->size,
                                  memory_order_relaxed);
    }
    ag_lock_release(&self.lock);
    return handle;
}

/* The memory is the driver's again, unless it is mapped somewhere: then it is lost, and counted. */
static void release_handle(struct ag_handle *handle)
{
    bool unmapped = !handle->alias || ag_cu.cuMemUnmap(handle->alias, handle->size) == CUDA_SUCCESS;
    bool gone = ag_cu.cuMemRelease(handle->memory) == CUDA_SUCCESS && unmapped;

    if (gone && handle->on_device) {
        ag_budget_give(handle->device, handle->size);
        note_given_back(handle->device);
    }
    if (handle->alias && unmapped)
        put_place(handle);
    else
        ag_arena_put(&arena, handle);
}

/* Memory of the host takes long to make: all that the device could change places with is kept. Of
 * the device one is kept in any case: what an exchange leaves free is no room for others. */
static bool is_to_keep(const struct ag_handle *handle, uint64_t kept)
{
    uint64_t most = ag_budget_size(handle->device) / (handle->on_device ? DEVICE_PART : 1);

    return kept + handle->size <= most || (handle->on_device && !kept);
}

void ag_handle_put(struct ag_handle *handle)
{
    _Atomic uint64_t *bytes = bytes_kept_of(handle->device, handle->on_device);
    bool keeps;

    ag_lock_take(&self.lock);
    keeps = is_to_keep(handle, atomic_load_explicit(bytes, memory_order_relaxed));
    if (keeps) {
        handle->next = self.kept;
        self.kept = handle;
        atomic_fetch_add_explicit(bytes, handle->size, memory_order_relaxed);
    }
    ag_lock_release(&self.lock);
    if (!keeps)
        release_handle(handle);
}

/* How large it was; 0: none is kept. */
static size_t give_kept_back(const struct ag_device *device, bool on_device)
{
    struct ag_handle *handle = take_kept_handle(device, 0, on_device);
    size_t bytes = handle ? handle->size : 0;

    if (handle)
        release_handle(handle);
    return bytes;
}

static bool give_back_kind(const struct ag_device *device, bool on_device)
{
    bool any = false;

    while (give_kept_back(device, on_device))
        any = true;
    return any;
}

size_t ag_handle_give_one_back(struct ag_device *device)
{
    return give_kept_back(device, false);
}

bool ag_handles_give_back(struct ag_device *device, bool all)
{
    bool any = give_back_kind(device, true);

    return (all && give_back_kind(device, false)) || any;
}

/* --- what is new --- */

/* Bytes of the device that stay free: natively they would serve small blocks, and the driver. */
static uint64_t left_bytes(const struct ag_device *device)
{
    return ag_budget_size(device) / LEFT_PART;
}

static bool has_device_room(struct ag_device *device, size_t size)
{
    uint64_t all = size + left_bytes(device);

    if (!ag_budget_take(device, all))
        return false;
    ag_budget_give(device, all);
    return true;
}

/* More than the host has would not fail but end processes. */
static uint64_t host_room(void)
{
    struct ag_host_room room;

    ag_host_room_read("", &room);
    return room.available_bytes / 100 * HOST_PERCENT;
}

bool ag_handles_may_get(struct ag_device *device, size_t size, bool anywhere)
{
    uint64_t kept = ag_handles_kept(device), left;

    if (!anywhere)
        return has_device_room(device, size > kept ? size - kept : 0);
    left = ag_budget_left_now(device);
    if (left > device->total_bytes)
        left = device->total_bytes;
    return size <= host_room() + left + kept + ag_handles_kept_on_host(device);
}

/* Another process may have the card, too. */
static bool has_card_room(const struct ag_device *device, size_t size)
{
    size_t free_bytes = 0, total;
    bool is_known = ag_cu.cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS;

    note_left(device, is_known ? free_bytes : UINT64_MAX);
    return !is_known || free_bytes >= size + device->total_bytes / LEFT_PART;
}

bool ag_handles_has_room(struct ag_device *device, size_t size)
{
    return has_device_room(device, size) && has_card_room(device, size);
}

static bool take_device_room(struct ag_device *device, size_t size)
{
    uint64_t left = left_bytes(device);

    if (!ag_budget_take(device, size + left))
        return false;
    ag_budget_give(device, left);
    if (has_card_room(device, size))
        return true;
    ag_budget_give(device, size);
    return false;
}

static CUresult create_memory(struct ag_handle *handle)
{
    CUmemAllocationProp properties =
        handle->on_device ? ag_vmm_on_device(handle->device) : ag_vmm_on_host(handle->device);

    return ag_cu.cuMemCreate(&handle->memory, handle->size, &properties, 0);
}

static _Atomic bool any_on_host; /* relaxed: who frees or launches what lies there knows of it */

bool ag_handles_any_on_host(void)
{
    return atomic_load_explicit(&any_on_host, memory_order_relaxed);
}

static struct ag_handle *make_handle(struct ag_device *device, size_t size, bool on_device)
{
    struct ag_handle *handle;

    if (on_device ? !take_device_room(device, size) : size > host_room())
        return NULL;
    handle = ag_arena_get(&arena);
    if (handle) {
        *handle = (struct ag_handle){.size = size, .device = device, .on_device = on_device};
        if (create_memory(handle) == CUDA_SUCCESS) {
            if (!on_device)
                atomic_store_explicit(&any_on_host, true, memory_order_relaxed);
            return handle;
        }
        ag_arena_put(&arena, handle);
    }
    if (on_device)
        ag_budget_give(device, size);
    return NULL;
}

struct ag_handle *ag_handle_get(struct ag_device *device, size_t size, bool on_device)
{
    struct ag_handle *handle = take_kept_handle(device, size, on_device);

    if (!handle)
        handle = make_handle(device, size, on_device);
    /* What is kept of other sizes may be in the way. */
    while (!handle && give_kept_back(device, on_device))
        handle = make_handle(device, size, on_device);
    return handle;
}

bool ag_handle_make_ahead(struct ag_device *device, size_t size)
{
    struct ag_handle *handle = make_handle(device, size, false);

    if (handle)
        ag_handle_put(handle);
    return handle != NULL;
}

CUresult ag_handle_map_alias(struct ag_handle *handle)
{
    CUdeviceptr alias;
    CUresult result;

    if (handle->alias)
        return CUDA_SUCCESS;
    result = get_place(handle->size, &alias);
    if (result != CUDA_SUCCESS)
        return result;
    result = ag_cu.cuMemMap(alias, handle->size, 0, handle->memory, 0);
    if (result == CUDA_SUCCESS) {
        result = ag_vmm_open(handle->device, alias, handle->size);
        if (result == CUDA_SUCCESS) {
            handle->alias = alias;
            return result;
        }
        (void)ag_cu.cuMemUnmap(alias, handle->size);
    }
    (void)ag_cu.cuMemAddressFree(alias, handle->size);
    return result;
}

void ag_handles_begin_child(void)
{
    ag_lock_init(&self.lock, AG_RANK_HANDLES);
    ag_arena_begin_child(&arena);
    self.kept = self.places = NULL;
    self.n_places = 0;
    atomic_store(&any_on_host, false);
    for (unsigned i = 0; i < AG_MAX_DEVICES; i++) {
        atomic_store(&self.device_bytes[i], 0);
        atomic_store(&self.host_bytes[i], 0);
    }
}
