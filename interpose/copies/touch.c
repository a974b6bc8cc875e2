/* A job of the crew that gets pages: see touch.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/copies/touch.h"

#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>

#include "interpose/copies/crew.h"
#include "interpose/copies/reach.h"
#include "interpose/core/base/advice.h"
#include "interpose/core/base/clock.h"
#include "interpose/core/base/threads/undisturbed.h"

#define PAGE_BYTES   ((size_t)4096)
#define STRIDE_BYTES (8 * AG_TOUCH_UNIT)
#define SLOW_NS      8000000u /* for a stride: twice what its small pages take one thread (H100) */

struct touching {
    struct ag_crew_job job; /* first: it is what the crew knows */
    char *memory;
    size_t bytes, piece_bytes;
};

/* Huge pages are not to be had, or not soon: memory is in pieces. Relaxed: one try more. */
static _Atomic bool has_no_huge;

/* The kernel makes a huge page of what is there of one, which must be something, and of nothing for
 * the rest. It does so whatever its settings say of shared memory. */
static void try_huge(char *memory, size_t bytes)
{
    uint64_t began = ag_clock_ns();
    bool is_there = true;

    for (size_t at = 0; at < bytes && is_there; at += AG_TOUCH_UNIT)
        is_there = ag_reach_get(memory + at, PAGE_BYTES, true);
    if (!is_there || madvise(memory, bytes, MADV_COLLAPSE) || ag_clock_ns() - began > SLOW_NS)
        atomic_store_explicit(&has_no_huge, true, memory_order_relaxed);
}

static bool get_piece(const struct ag_crew_job *job, uint32_t piece)
{
    const struct touching *it = (const struct touching *)job;
    size_t begin = piece * it->piece_bytes, left = it->bytes - begin;
    size_t bytes = left < it->piece_bytes ? left : it->piece_bytes;
    char *memory = it->memory + begin;

    for (size_t at = 0; at < bytes; at += STRIDE_BYTES) {
        if (!atomic_load_explicit(&has_no_huge, memory_order_relaxed))
            try_huge(memory + at, bytes - at < STRIDE_BYTES ? bytes - at : STRIDE_BYTES);
    }
    return ag_reach_get(memory, bytes, true);
}

static bool touch_claimed(char *memory, size_t bytes, size_t piece_bytes)
{
    uint32_t n = (uint32_t)((bytes + piece_bytes - 1) / piece_bytes);
    struct touching it = {
        .job = {.move = get_piece, .end = n, .ready = n},
        .bytes = bytes,
        .piece_bytes = piece_bytes,
    };
    bool touched = true;

    it.memory = memory;
    (void)ag_crew_open(&it.job, ag_crew_size_large());
    while (ag_crew_move_one(&it.job))
        ;
    ag_crew_close(&it.job);
    for (uint32_t i = 0; i < n; i++)
        touched = touched && ag_crew_piece_of(&it.job, i) == AG_CREW_MOVED;
    return touched;
}

/* No signal handler may jump out of it, and nobody may cancel it, with the crew claimed. */
bool ag_touch_pieces(void *memory, size_t bytes, size_t piece_bytes)
{
    struct ag_undisturbed before;
    bool touched = false;

    ag_undisturbed_begin(&before);
    if (ag_crew_claim()) {
        touched = ag_crew_size() > 1 && touch_claimed(memory, bytes, piece_bytes);
        ag_crew_release();
    }
    ag_undisturbed_end(&before);
    return touched;
}
