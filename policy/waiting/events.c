/* The table of events to wait for: see events.h.
 *
 * An event that may be gone with its context is left to the driver, which has what is left of it
 * back with the context: a handle of a context that is gone must not be asked about. Of a context
 * that has lived on since the event was made, it has not gone. */
#include "policy/waiting/events.h"

#include <string.h>

#include "interpose/core/base/slot.h"
#include "interpose/core/driver/driver.h"
#include "policy/contexts/context.h"

#define ROWS     256u
#define PER_SLOT (ROWS / AG_SLOTS)

static struct ag_sleep_event rows[ROWS];

/* Is it an event of that context by now? With the row taken. */
static bool make_ready(struct ag_sleep_event *row, CUcontext context, unsigned generation)
{
    if (row->event &&
        (row->generation == generation || ag_context_lives_since(row->context, row->generation)))
        return row->context == context;
    row->event = NULL;
    if (ag_cu.cuEventCreate(&row->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        row->event = NULL;
        return false;
    }
    row->context = context;
    row->generation = generation;
    return true;
}

struct ag_sleep_event *ag_sleep_event_take(CUcontext context, unsigned generation)
{
    unsigned first = ag_slot() * PER_SLOT;

    for (unsigned i = 0; i < ROWS; i++) {
        struct ag_sleep_event *row = &rows[(first + i) % ROWS];

        if (atomic_exchange_explicit(&row->taken, true, memory_order_acquire))
            continue;
        if (make_ready(row, context, generation))
            return row;
        ag_sleep_event_give_back(row);
    }
    return NULL;
}

void ag_sleep_event_give_back(struct ag_sleep_event *own)
{
    atomic_store_explicit(&own->taken, false, memory_order_release);
}

void ag_sleep_begin_child(void)
{
    memset(rows, 0, sizeof(rows));
}
