/* Rings of pinned slots: see slots.h.
 *
 * The memory is ours, and registered: that takes a third of the time of memory that the driver
 * makes (H100, 1 GiB: 110 ms against 363), and it stays where it is when a context ends, with
 * which the driver's own would go. A copy that is under way then reads memory that is there. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/copies/slots.h"

#include <sys/mman.h>

#include "interpose/copies/reach.h"
#include "interpose/core/base/clock.h"
#include "interpose/core/base/threads/wait.h"
#include "interpose/core/driver/driver.h"
#include "policy/contexts/context.h"

#define PAGES_BYTES ((size_t)2 << 20) /* that are touched at a time: a huge page */
#define NEXT_NS     2000000u          /* what a batch takes to cross the bus, many times over */
#define LEAST_LOOKS 256u              /* the thread may not have run meanwhile */

static struct ag_slots rings[AG_MAX_CONTEXTS];

struct ag_slots *ag_slots_find(const struct ag_context *context)
{
    for (unsigned i = 0; i < AG_MAX_CONTEXTS; i++) {
        if (rings[i].context == context)
            return &rings[i];
    }
    return NULL;
}

/* --- making one --- */

/* A job of the crew: each piece gets some pages of a ring. */
struct first_touch {
    struct ag_crew_job job;
    const unsigned char *memory;
};

static bool touch_piece(const struct ag_crew_job *job, uint32_t piece)
{
    const struct first_touch *touch = (const struct first_touch *)(const void *)job;

    (void)ag_reach_get(touch->memory + piece * PAGES_BYTES, PAGES_BYTES, true);
    return true;
}

static void touch_pages(const unsigned char *memory, uint32_t n)
{
    struct first_touch touch = {.job = {.move = touch_piece, .end = AG_SLOTS_BYTES / PAGES_BYTES},
                                .memory = memory};

    ag_crew_open(&touch.job, n);
    ag_crew_ready(&touch.job, touch.job.end);
    while (ag_crew_move_one(&touch.job))
        ;
    ag_crew_close(&touch.job);
}

static unsigned char *map_memory(uint32_t n)
{
    void *memory =
        mmap(NULL, AG_SLOTS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        return NULL;
    (void)madvise(memory, AG_SLOTS_BYTES, MADV_HUGEPAGE);
    (void)madvise(memory, AG_SLOTS_BYTES, MADV_DONTFORK); /* a fork would copy what is pinned */
    touch_pages(memory, n);
    return memory;
}

static void unmap_memory(struct ag_slots *ring)
{
    (void)munmap(ring->memory, AG_SLOTS_BYTES);
    ring->memory = NULL;
}

static bool make_events(struct ag_slots *ring)
{
    unsigned made = 0;

    while (made < AG_CREW_SLOTS &&
           ag_cu.cuEventCreate(&ring->done[made], CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS)
        made++;
    if (made == AG_CREW_SLOTS)
        return true;
    while (made)
        (void)ag_cu.cuEventDestroy_v2(ring->done[--made]);
    return false;
}

static bool pin(struct ag_slots *ring)
{
    if (ag_cu.cuMemHostRegister_v2(ring->memory, AG_SLOTS_BYTES, 0) != CUDA_SUCCESS)
        return false;
    if (make_events(ring))
        return true;
    (void)ag_cu.cuMemHostUnregister(ring->memory);
    return false;
}

struct ag_slots *ag_slots_make(const struct ag_context *context, uint32_t n)
{
    struct ag_slots *ring = ag_slots_find(NULL);
    bool is_new;

    if (!ring || !ag_cu.cuMemHostRegister_v2 || !ag_cu.cuMemHostUnregister)
        return NULL;
    is_new = !ring->memory;
    if (is_new)
        ring->memory = map_memory(n);
    if (!ring->memory)
        return NULL;
    if (!pin(ring)) {
        if (is_new) /* else a copy of a context that has ended may still use it */
            unmap_memory(ring);
        return NULL;
    }
    ring->used = ring->finished = ring->batches = ring->n = 0;
    ring->stream = NULL;
    ring->is_broken = false;
    ring->context = context;
    return ring;
}

/* --- using it --- */

uint32_t ag_slots_most(size_t slot_bytes)
{
    size_t most = AG_SLOTS_BYTES / slot_bytes;

    return most < AG_CREW_SLOTS ? (uint32_t)most : AG_CREW_SLOTS;
}

/* A copy that needs not all slots gets those after the last one's. Where that was from a device,
 * processors still have its lines, and the device would have to take them away from each. */
void ag_slots_cut(struct ag_slots *slots, size_t slot_bytes, uint32_t pieces)
{
    uint32_t n = ag_slots_most(slot_bytes);
    size_t begin = slots->begin + slots->n * slots->slot_bytes;

    if (pieces > n || begin + pieces * slot_bytes > AG_SLOTS_BYTES)
        begin = 0;
    slots->begin = begin;
    slots->shift = (slots->shift + slots->used) % AG_CREW_SLOTS;
    slots->slot_bytes = slot_bytes;
    slots->n = pieces < n ? pieces : n;
    slots->used = slots->finished = slots->batches = 0;
}

CUresult ag_slots_submitted(struct ag_slots *slots, uint32_t n, CUstream stream)
{
    uint32_t first = slots->used;

    slots->used += n;
    slots->ends[first % slots->n] = slots->used;
    slots->last = first;
    slots->batches++;
    return ag_cu.cuEventRecord(ag_slots_event(slots, first), stream);
}

CUresult ag_slots_look(struct ag_slots *slots)
{
    CUresult result = CUDA_SUCCESS;

    while (slots->finished < slots->used && result == CUDA_SUCCESS) {
        result = ag_cu.cuEventQuery(ag_slots_event(slots, slots->finished));
        if (result == CUDA_SUCCESS) {
            slots->finished = slots->ends[slots->finished % slots->n];
            slots->batches--;
        }
    }
    return result;
}

bool ag_slots_wait(struct ag_slots *slots)
{
    uint64_t until = ag_clock_after(NEXT_NS);
    uint32_t seen = slots->finished;
    struct ag_wait wait = {0};
    unsigned looks = 0;
    CUresult result;

    while ((result = ag_slots_look(slots)) == CUDA_ERROR_NOT_READY) {
        if (slots->finished != seen) {
            seen = slots->finished;
            until = ag_clock_after(NEXT_NS);
            looks = 0;
        }
        if (!ag_wait_for_device_until(&wait, until) && looks >= LEAST_LOOKS)
            return false;
        looks++;
    }
    return result == CUDA_SUCCESS;
}

void ag_slots_context_gone(const struct ag_context *context)
{
    struct ag_slots *ring = ag_slots_find(context);

    if (ring)
        ring->context = NULL;
}

bool ag_slots_any(void)
{
    for (unsigned i = 0; i < AG_MAX_CONTEXTS; i++) {
        if (rings[i].memory)
            return true;
    }
    return false;
}
