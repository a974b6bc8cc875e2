/* vmm.c: virtual memory management: addresses, physical memory, and mapping one to the other. */
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

/* Physical memory: a memory file, so that it can be handed to another process. */
struct physical {
    unsigned refs; /* the handle's, and one for each mapping */
    int fd, device;
    size_t size;
    unsigned char *bytes;
    CUmemAllocationProp prop;
    bool imported;
};

struct reservation {
    CUdeviceptr base;
    size_t size;
    struct reservation *next;
};

static struct reservation *reservations;

static struct physical *physical_of(CUmemGenericAllocationHandle handle)
{
    void *p = (void *)(uintptr_t)handle;

    return sim_handle_is(p, SIM_PHYSICAL) ? p : NULL;
}

static void unref(struct physical *physical)
{
    if (--physical->refs)
        return;
    (void)munmap(physical->bytes, physical->size);
    (void)close(physical->fd);
    if (!physical->imported)
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

static bool reserved(CUdeviceptr p, size_t size)
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

static bool prop_ok(const CUmemAllocationProp *prop)
{
    return prop && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
           prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && sim_device_ok(prop->location.id);
}

static struct physical *physical_new(int fd, size_t size)
{
    struct physical *physical = sim_handle_new(SIM_PHYSICAL, sizeof(*physical));

    physical->bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (physical->bytes == MAP_FAILED) {
        sim_handle_free(physical);
        return NULL;
    }
    physical->refs = 1;
    physical->fd = fd;
    physical->size = size;
    return physical;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *ret_handle, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    char name[32];

    if (!ret_handle || !size || size % GRANULARITY || flags || !prop_ok(prop))
        return CUDA_ERROR_INVALID_VALUE;
    if ((unsigned)prop->requestedHandleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    int device = prop->location.id;
    if (!sim_card_claim(device, size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    (void)snprintf(name, sizeof(name), "sim-physical-%d", device);
    int fd = memfd_create(name, MFD_CLOEXEC);
    struct physical *physical =
        fd >= 0 && ftruncate(fd, (off_t)size) == 0 ? physical_new(fd, size) : NULL;
    if (!physical) {
        sim_card_give(device, size);
        if (fd >= 0)
            (void)close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    physical->device = device;
    physical->prop = *prop;
    *ret_handle = (uintptr_t)physical;
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    struct physical *physical = physical_of(handle);

    if (!physical)
        return CUDA_ERROR_INVALID_VALUE;
    unref(physical);
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
    ((struct physical *)block->extra)->refs++;
    *handle = (uintptr_t)block->extra;
    return CUDA_SUCCESS;
}

/* ---- mapping ---- */

CUresult cuMemMap(CUdeviceptr p, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    struct physical *physical = physical_of(handle);

    if (!physical || flags || !size || p % GRANULARITY || size % GRANULARITY ||
        offset % GRANULARITY || offset > physical->size || size > physical->size - offset)
        return CUDA_ERROR_INVALID_VALUE;
    if (!reserved(p, size) || sim_block_overlapping(p, size))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_block *block = sim_block_new(SIM_BLOCK_MAPPED, p, size, physical->device, NULL);
    block->bytes = physical->bytes + offset;
    block->extra = physical;
    physical->refs++;
    (void)snprintf(block->how_born, sizeof(block->how_born), "cuMemMap");
    return CUDA_SUCCESS;
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

/* What is not mapped may be unmapped too. */
CUresult cuMemUnmap(CUdeviceptr p, size_t size)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!size || !reserved(p, size))
        return CUDA_ERROR_INVALID_VALUE;
    for (;;) {
        struct sim_block *block = sim_block_overlapping(p, size);
        if (!block)
            return CUDA_SUCCESS;
        if (block->base < p || block->size > size - (block->base - p))
            return CUDA_ERROR_INVALID_VALUE;
        struct physical *physical = block->extra;
        sim_block_bury(block, "cuMemUnmap");
        sim_block_end(block, &sim_host_order);
        block->bytes = NULL;
        unref(physical);
    }
}

CUresult cuMemSetAccess(CUdeviceptr p, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!desc || !count || !whole_mappings(p, size))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            !sim_device_ok(desc[i].location.id))
            return CUDA_ERROR_INVALID_DEVICE;
    for (CUdeviceptr at = p; at - p < size;) {
        struct sim_block *block = sim_block_starting_at(at);
        for (size_t i = 0; i < count; i++) {
            unsigned bit = 1u << desc[i].location.id;
            block->access_mask &= ~bit;
            block->read_only_mask &= ~bit;
            if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
                block->access_mask |= bit;
            if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ)
                block->read_only_mask |= bit;
        }
        at += block->size;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr p)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    const struct sim_block *block = sim_block_at(p);

    if (!flags || !location || !block || block->kind != SIM_BLOCK_MAPPED ||
        location->type != CU_MEM_LOCATION_TYPE_DEVICE || !sim_device_ok(location->id))
        return CUDA_ERROR_INVALID_VALUE;
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
    int fd = (int)(intptr_t)os_handle, device;
    struct stat stat;

    if (!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !sim_memory_file(fd, "sim-physical-%d", &device) || fstat(fd, &stat))
        return CUDA_ERROR_INVALID_VALUE;
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    struct physical *physical = physical_new(own, (size_t)stat.st_size);
    if (!physical) {
        (void)close(own);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    physical->device = device;
    physical->imported = true;
    physical->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    physical->prop.requestedHandleTypes = type;
    physical->prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    physical->prop.location.id = device;
    *handle = (uintptr_t)physical;
    return CUDA_SUCCESS;
}
