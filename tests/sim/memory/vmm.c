/* vmm.c: virtual memory management: addresses, physical memory, and mapping one to the other.
 *
 * All reservations lie in the range of addresses of device 0, whose bytes lie at a constant
 * distance (arena.c). What is mapped takes the place of the bytes there: mappings side by side are
 * side by side there too, and one memory that is mapped twice has the same bytes at both places. */
#include "tests/sim/sim_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define GRANULARITY ((size_t)2 << 20)
#define DEVICE_FILE "sim-physical-%d"
#define HOST_FILE   "sim-host-physical-%d" /* of the first node */

/* Physical memory: a memory file, so that it can be handed to another process. */
struct physical {
    unsigned handles, mappings; /* what keeps it; who released it has no handle of it any more */
    int fd, device;             /* CU_DEVICE_CPU: it is the host's */
    unsigned long long id;
    size_t size;
    CUmemAllocationProp prop;
    bool imported;
};

struct reservation {
    CUdeviceptr base;
    size_t size;
    struct reservation *next;
};

static struct reservation *reservations;

/* Also what was released, as long as it is mapped. */
static struct physical *alive(CUmemGenericAllocationHandle handle)
{
    struct physical *p = (void *)(uintptr_t)handle;

    return sim_handle_is(p, SIM_PHYSICAL) ? p : NULL;
}

static struct physical *physical_of(CUmemGenericAllocationHandle handle)
{
    struct physical *p = alive(handle);

    return p && p->handles ? p : NULL;
}

static void end_unless_kept(struct physical *physical)
{
    if (physical->handles || physical->mappings)
        return;
    (void)close(physical->fd);
    if (!physical->imported && physical->device != CU_DEVICE_CPU)
        sim_card_give(physical->device, physical->size);
    sim_handle_free(physical);
}

/* ---- addresses ---- */

CUresult cuMemAddressReserve(CUdeviceptr *ret_p, size_t size, size_t align, CUdeviceptr hint,
                             unsigned long long flags)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!ret_p || !size || size % GRANULARITY || align & (align - 1) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t base = hint && hint % GRANULARITY == 0 && sim_arena_has(hint, NULL) &&
                            sim_arena_take_at(0, hint, size)
                        ? hint
                        : sim_arena_take(0, size, SIM_MAX(align, GRANULARITY));
    if (!base)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct reservation *reservation = calloc(1, sizeof(*reservation));
    if (!reservation)
        abort();
    *reservation = (struct reservation){base, size, reservations};
    reservations = reservation;
    *ret_p = base;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr p, size_t size)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    struct reservation **link = &reservations;

    while (*link && ((*link)->base != p || (*link)->size != size))
        link = &(*link)->next;
    if (!*link || sim_block_overlapping(p, size))
        return CUDA_ERROR_INVALID_VALUE;
    struct reservation *gone = *link;
    *link = gone->next;
    sim_arena_give(0, p, size);
    free(gone);
    return CUDA_SUCCESS;
}

bool sim_is_reserved(CUdeviceptr p, size_t size)
{
    for (const struct reservation *r = reservations; r; r = r->next)
        if (p >= r->base && size <= r->size && p - r->base <= r->size - size)
            return true;
    return false;
}

/* The reservation around an address: the range that the driver tells of mapped memory. */
void sim_reservation_of(CUdeviceptr p, CUdeviceptr *ret_base, size_t *ret_size)
{
    for (const struct reservation *r = reservations; r; r = r->next) {
        if (p < r->base || p - r->base >= r->size)
            continue;
        *ret_base = r->base;
        *ret_size = r->size;
    }
}

/* ---- physical memory ---- */

static bool is_host(const CUmemLocation *location)
{
    return location->type == CU_MEM_LOCATION_TYPE_HOST ||
           (location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA && location->id == 0);
}

static bool is_device(const CUmemLocation *location)
{
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE && sim_device_ok(location->id);
}

static bool prop_ok(const CUmemAllocationProp *prop)
{
    return prop && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
           (is_device(&prop->location) || is_host(&prop->location));
}

static struct physical *physical_new(int fd, size_t size, const CUmemAllocationProp *prop)
{
    struct physical *physical = sim_handle_new(SIM_PHYSICAL, sizeof(*physical));

    physical->handles = 1;
    physical->id = sim_memory_id();
    physical->fd = fd;
    physical->size = size;
    physical->prop = *prop;
    physical->device = is_host(&prop->location) ? CU_DEVICE_CPU : prop->location.id;
    return physical;
}

static int new_file(int device, size_t size)
{
    char name[32];

    if (device == CU_DEVICE_CPU)
        (void)snprintf(name, sizeof(name), HOST_FILE, 0);
    else
        (void)snprintf(name, sizeof(name), DEVICE_FILE, device);
    int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)size)) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *ret_handle, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!ret_handle || !size || size % GRANULARITY || flags || !prop_ok(prop))
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->location.type == CU_MEM_LOCATION_TYPE_HOST && prop->requestedHandleTypes)
        return CUDA_ERROR_INVALID_VALUE;
    if ((unsigned)prop->requestedHandleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    int device = is_host(&prop->location) ? CU_DEVICE_CPU : prop->location.id;
    if (device != CU_DEVICE_CPU && !sim_card_claim(device, size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    int fd = new_file(device, size);
    if (fd < 0) {
        if (device != CU_DEVICE_CPU)
            sim_card_give(device, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret_handle = (uintptr_t)physical_new(fd, size, prop);
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    struct physical *physical = physical_of(handle);

    if (!physical)
        return CUDA_ERROR_INVALID_VALUE;
    physical->handles--;
    end_unless_kept(physical);
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!granularity || !prop_ok(prop) || (unsigned)option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
        return CUDA_ERROR_INVALID_VALUE;
    *granularity = GRANULARITY;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                CUmemGenericAllocationHandle handle)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    const struct physical *physical = physical_of(handle);

    if (!prop || !physical)
        return CUDA_ERROR_INVALID_VALUE;
    *prop = physical->prop;
    return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    const struct sim_block *block = sim_block_at((uintptr_t)address);

    if (!handle || !block || block->kind != SIM_BLOCK_MAPPED)
        return CUDA_ERROR_INVALID_VALUE;
    ((struct physical *)block->extra)->handles++;
    *handle = (uintptr_t)block->extra;
    return CUDA_SUCCESS;
}

/* ---- mapping ---- */

bool sim_mapped_open_to_host(const struct sim_block *block)
{
    return block->device == CU_DEVICE_CPU && block->host_protection != PROT_NONE;
}

unsigned long long sim_mapped_memory_id(const struct sim_block *block)
{
    return ((const struct physical *)block->extra)->id;
}

int sim_mapped_fd(const struct sim_block *block, uint64_t address, uint64_t *ret_offset)
{
    *ret_offset = block->file_offset + (address - block->base);
    return ((const struct physical *)block->extra)->fd;
}

CUresult cuMemMap(CUdeviceptr p, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    struct physical *physical = alive(handle); /* (R1348) */

    if (!physical || flags || !size || p % GRANULARITY || size % GRANULARITY ||
        offset % GRANULARITY || offset > physical->size || size > physical->size - offset)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_is_reserved(p, size) || sim_block_overlapping(p, size))
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_arena_show(p, size, physical->fd, offset))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_block *block = sim_block_new(SIM_BLOCK_MAPPED, p, size, physical->device, NULL);
    block->bytes = sim_arena_bytes(0, p);
    block->extra = physical;
    block->file_offset = offset;
    physical->mappings++;
    (void)snprintf(block->how_born, sizeof(block->how_born), "cuMemMap");
    return CUDA_SUCCESS;
}

bool sim_block_holds(const struct sim_block *block, CUdeviceptr p, size_t bytes)
{
    size_t rest = block->size - (p - block->base);

    while (bytes > rest && block->kind == SIM_BLOCK_MAPPED) {
        block = sim_block_starting_at(block->base + block->size);
        if (!block || block->kind != SIM_BLOCK_MAPPED)
            return false;
        rest += block->size;
    }
    return bytes <= rest;
}

bool sim_mapped_open_to(const struct sim_block *block, CUdeviceptr p, size_t bytes, int device,
                        bool to_write)
{
    while (block && block->kind == SIM_BLOCK_MAPPED && block->base < p + bytes) {
        if (!(block->access_mask >> device & 1) ||
            (to_write && block->read_only_mask >> device & 1))
            return false;
        block = sim_block_starting_at(block->base + block->size);
    }
    return true;
}

/* Mappings from the first to the last byte of the range, none of them only in part. */
static bool whole_mappings(CUdeviceptr p, size_t size)
{
    CUdeviceptr at = p;

    while (at - p < size) {
        const struct sim_block *block = sim_block_starting_at(at);
        if (!block || block->kind != SIM_BLOCK_MAPPED || block->size > size - (at - p))
            return false;
        at += block->size;
    }
    return size != 0;
}

/* The mapping goes, whatever may still use it: that is for its user to know. Work that used it and
 * that nobody has seen done is reported here, work that is still to use it when it does. */
static void unmap(struct sim_block *block)
{
    struct physical *physical = block->extra;

    sim_block_bury(block, "cuMemUnmap");
    sim_block_end(block, &sim_host_order);
    sim_arena_hide(block->base, block->size);
    physical->mappings--;
    end_unless_kept(physical);
}

/* What is not mapped may be unmapped too, and what lies beyond the reservation (R1224). */
CUresult cuMemUnmap(CUdeviceptr p, size_t size)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    struct sim_block *block = sim_block_overlapping(p, size);

    if (!size || !sim_is_reserved(p, 1))
        return CUDA_ERROR_INVALID_VALUE;
    for (; block && block->base < p + size; block = sim_block_next(block->base + 1))
        if (block->kind != SIM_BLOCK_MAPPED || block->base < p ||
            block->size > size - (block->base - p))
            return CUDA_ERROR_INVALID_VALUE;
    while ((block = sim_block_overlapping(p, size)))
        unmap(block);
    return CUDA_SUCCESS;
}

static void set_device_access(struct sim_block *block, int device, CUmemAccess_flags flags)
{
    const unsigned bit = 1u << device;

    block->access_mask &= ~bit;
    block->read_only_mask &= ~bit;
    if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
        block->access_mask |= bit;
    if (flags == CU_MEM_ACCESS_FLAGS_PROT_READ)
        block->read_only_mask |= bit;
}

static int protection_of(CUmemAccess_flags flags)
{
    return flags == CU_MEM_ACCESS_FLAGS_PROT_NONE   ? PROT_NONE
           : flags == CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ
                                                    : PROT_READ | PROT_WRITE;
}

static void set_access(struct sim_block *block, const CUmemAccessDesc *desc)
{
    const struct physical *physical = block->extra;

    if (is_device(&desc->location)) {
        set_device_access(block, desc->location.id, desc->flags);
        return;
    }
    block->host_protection = protection_of(desc->flags);
    sim_arena_show_host(block->base, block->size, physical->fd, block->file_offset,
                        block->host_protection);
}

/* The host is let in to what is its own. */
static bool lets_host_in(CUdeviceptr p, size_t size)
{
    for (CUdeviceptr at = p; at - p < size;) {
        const struct sim_block *block = sim_block_starting_at(at);
        if (block->device != CU_DEVICE_CPU)
            return false;
        at += block->size;
    }
    return true;
}

CUresult cuMemSetAccess(CUdeviceptr p, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!desc || !count || !whole_mappings(p, size))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (!is_device(&desc[i].location) && !is_host(&desc[i].location))
            return CUDA_ERROR_INVALID_VALUE;
        if (is_host(&desc[i].location) && !lets_host_in(p, size))
            return CUDA_ERROR_NOT_SUPPORTED;
    }
    for (CUdeviceptr at = p; at - p < size;) {
        struct sim_block *block = sim_block_starting_at(at);
        for (size_t i = 0; i < count; i++)
            set_access(block, &desc[i]);
        at += block->size;
    }
    return CUDA_SUCCESS;
}

static CUmemAccess_flags host_access(const struct sim_block *block)
{
    return block->host_protection == PROT_NONE   ? CU_MEM_ACCESS_FLAGS_PROT_NONE
           : block->host_protection == PROT_READ ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                 : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr p)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    const struct sim_block *block = sim_block_at(p);

    if (!flags || !location || !block || block->kind != SIM_BLOCK_MAPPED ||
        (!is_device(location) && !is_host(location)))
        return CUDA_ERROR_INVALID_VALUE;
    if (is_host(location)) {
        *flags = host_access(block);
        return CUDA_SUCCESS;
    }
    unsigned device = (unsigned)location->id;
    *flags = !(block->access_mask >> device & 1)   ? CU_MEM_ACCESS_FLAGS_PROT_NONE
             : block->read_only_mask >> device & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                   : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
}

/* ---- sharing ---- */

CUresult cuMemExportToShareableHandle(void *ret_fd, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    const struct physical *physical = physical_of(handle);

    if (!ret_fd || !physical || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !((unsigned)physical->prop.requestedHandleTypes & (unsigned)type))
        return CUDA_ERROR_INVALID_VALUE;
    *(int *)ret_fd = fcntl(physical->fd, F_DUPFD_CLOEXEC, 0);
    return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *os_handle,
                                        CUmemAllocationHandleType type)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = type};
    int fd = (int)(intptr_t)os_handle;
    struct stat stat;

    if (!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fstat(fd, &stat))
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_memory_file(fd, DEVICE_FILE, &prop.location.id))
        prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    else if (sim_memory_file(fd, HOST_FILE, &prop.location.id))
        prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    else
        return CUDA_ERROR_INVALID_VALUE;
    struct physical *physical =
        physical_new(fcntl(fd, F_DUPFD_CLOEXEC, 0), (size_t)stat.st_size, &prop);
    physical->imported = true;
    *handle = (uintptr_t)physical;
    return CUDA_SUCCESS;
}
