/* What an allocation and a free count: see allocations.h. */
#include "interpose/core/report/live/allocations.h"

#include "interpose/core/base/bits.h"
#include "interpose/core/report/live/live.h"

static unsigned row_of_device(int device)
{
    return device < 0 || (unsigned)device >= AG_STATS_DEVICES ? AG_STATS_DEVICES - 1
                                                              : (unsigned)device;
}

static unsigned size_class(uint64_t bytes)
{
    unsigned power = ag_log2((bytes - (bytes != 0)) | 256) - 8;

    return power < AG_SIZE_CLASSES ? power : AG_SIZE_CLASSES - 1;
}

/* `slot` has these `stats`; 0 also stands for any that is the calling thread's own. */
static inline void count_allocated(unsigned slot, struct ag_place_stats *stats, uint64_t bytes,
                                   uint64_t ticks)
{
    ag_stats_count(slot, &stats->allocs, 1);
    if (ticks)
        ag_stats_count(slot, &stats->alloc_ticks, ticks);
    ag_stats_count(slot, &stats->sizes[size_class(bytes)], 1);
}

static inline void count_freed(unsigned slot, struct ag_place_stats *stats, uint64_t bytes,
                               uint64_t ticks)
{
    ag_stats_count(slot, &stats->frees, 1);
    if (ticks)
        ag_stats_count(slot, &stats->free_ticks, ticks);
    ag_live_count_freed(slot, &stats->freed_bytes, bytes);
}

__attribute__((noinline)) static void allocated_first(int device, enum ag_placement place,
                                                      uint64_t bytes, uint64_t ticks)
{
    unsigned slot = ag_stats_find_own(), row = row_of_device(device);

    count_allocated(slot, &ag_stats.slots[slot].places[row][place], bytes, ticks);
    ag_live_add(slot, row, place, bytes);
}

__attribute__((noinline)) static void freed_first(int device, enum ag_placement place,
                                                  uint64_t bytes, uint64_t ticks)
{
    unsigned slot = ag_stats_find_own();

    count_freed(slot, &ag_stats.slots[slot].places[row_of_device(device)][place], bytes, ticks);
}

void ag_stats_allocated(int device, enum ag_placement place, uint64_t bytes, uint64_t ticks)
{
    struct ag_stats_slot *own = ag_slot_counters;
    unsigned row = row_of_device(device);

    if (!own) {
        allocated_first(device, place, bytes, ticks);
        return;
    }
    count_allocated(0, &own->places[row][place], bytes, ticks);
    ag_live_count(&own->places[row][place], row, place, bytes);
}

void ag_stats_freed(int device, enum ag_placement place, uint64_t bytes, uint64_t ticks)
{
    struct ag_stats_slot *own = ag_slot_counters;

    if (own)
        count_freed(0, &own->places[row_of_device(device)][place], bytes, ticks);
    else
        freed_first(device, place, bytes, ticks);
}

void ag_stats_moved(int device, enum ag_placement from, enum ag_placement to, uint64_t bytes)
{
    unsigned slot = ag_slot(), row = row_of_device(device);

    struct ag_place_stats *stats = ag_stats.slots[slot].places[row];

    ag_stats_count(slot, &stats[from].frees, 1);
    ag_live_subtract(slot, row, from, bytes);
    ag_stats_count(slot, &stats[to].allocs, 1);
    ag_stats_count(slot, &stats[to].sizes[size_class(bytes)], 1);
    ag_live_add(slot, row, to, bytes);
}

_Atomic uint64_t *ag_stats_given_peak(int device)
{
    return &ag_stats.given_peak[row_of_device(device)];
}

void ag_stats_failed(int device, enum ag_placement place)
{
    unsigned slot = ag_slot();

    ag_stats_count(slot, &ag_stats.slots[slot].places[row_of_device(device)][place].failed, 1);
}

uint64_t ag_stats_current(int device, enum ag_placement place)
{
    return ag_live_of(&ag_stats, row_of_device(device), place);
}
