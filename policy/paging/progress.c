/* Events that tell whether the device goes on: see progress.h. */
#include "policy/paging/progress.h"

#include <stdatomic.h>
#include <stdint.h>

#include "interpose/core/base/clock.h"
#include "interpose/core/driver/driver.h"
#include "policy/contexts/context.h"
#include "policy/paging/moment.h"

#define EVENTS   64u     /* a bit for each */
#define EVERY_NS 200000u /* two of them are so far apart at least */

static struct {
    struct ag_moment moment;
    _Atomic uint64_t next_ns; /* relaxed: an event more or less is none of work's */
    unsigned generation;      /* of contexts, when the events were made */
    unsigned n_made;
    uint64_t recorded; /* bits of those that the device had not come past */
    CUevent events[EVENTS];
} self = {.moment = AG_MOMENT_INIT};

/* --- in a moment --- */

/* Once a context has ended, its events are gone, and their names may be those of the program's. */
static void forget_old(void)
{
    unsigned generation = atomic_load_explicit(&ag_context_generation, memory_order_acquire);

    if (self.generation == generation)
        return;
    self.generation = generation;
    self.n_made = 0;
    self.recorded = 0;
}

/* An event whose context has failed counts as well, so that nobody waits for it. */
static bool forget_reached(void)
{
    uint64_t before = self.recorded;

    for (unsigned i = 0; i < self.n_made; i++)
        if (self.recorded >> i & 1 && ag_cu.cuEventQuery(self.events[i]) != CUDA_ERROR_NOT_READY)
            self.recorded &= ~(UINT64_C(1) << i);
    return self.recorded != before;
}

/* An event that is not recorded; EVENTS: there is none. */
static unsigned find_event(void)
{
    for (unsigned i = 0; i < self.n_made; i++)
        if (!(self.recorded >> i & 1))
            return i;
    if (self.n_made == EVENTS ||
        ag_cu.cuEventCreate(&self.events[self.n_made], CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return EVENTS;
    return self.n_made++;
}

static void record_there(CUstream stream)
{
    unsigned i;

    if (!~self.recorded)
        (void)forget_reached();
    i = find_event();
    if (i < EVENTS && ag_cu.cuEventRecord(self.events[i], stream) == CUDA_SUCCESS)
        self.recorded |= UINT64_C(1) << i;
}

/* --- for all --- */

void ag_progress_mark(CUstream stream)
{
    uint64_t now = ag_clock_ns();

    if (now < atomic_load_explicit(&self.next_ns, memory_order_relaxed) ||
        !ag_moment_begin(&self.moment))
        return;
    atomic_store_explicit(&self.next_ns, now + EVERY_NS, memory_order_relaxed);
    forget_old();
    record_there(stream);
    ag_moment_end(&self.moment);
}

bool ag_progress_made(void)
{
    bool made;

    if (!ag_moment_begin(&self.moment))
        return false;
    forget_old();
    made = forget_reached();
    ag_moment_end(&self.moment);
    return made;
}

void ag_progress_begin_child(void)
{
    ag_moment_begin_child(&self.moment);
    self.n_made = 0;
    self.recorded = 0;
}
