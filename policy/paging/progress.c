/* Events that tell whether the device goes on: see progress.h. */
#include "policy/paging/progress.h"

#include <stdatomic.h>
#include <stdint.h>

#include "interpose/core/base/clock.h"
#include "interpose/core/driver/driver.h"
#include "policy/contexts/context.h"
#include "policy/paging/moment.h"

#define EVENTS   256u
#define EVERY_NS 200000u  /* two of them are so far apart, but for launches that may take long */
#define FULL_NS  5000000u /* and so far where the device has come past none */

static struct {
    struct ag_paging_moment moment;
    _Atomic uint64_t next_ns; /* relaxed: an event more or less is none of work's */
    unsigned n_made, n_recorded;
    struct {
        CUevent event;
        bool recorded; /* and the device has not been seen to have come past it */
    } rows[EVENTS];
} self = {.moment = AG_PAGING_MOMENT_INIT};

/* --- in a moment --- */

static void forget_lost(void)
{
    if (ag_paging_moment_lost_events(&self.moment))
        self.n_made = self.n_recorded = 0;
}

/* An event whose context has failed counts as well, so that nobody waits for it. */
static bool forget_reached(void)
{
    unsigned before = self.n_recorded;

    for (unsigned i = 0; i < self.n_made && self.n_recorded; i++) {
        if (!self.rows[i].recorded ||
            ag_cu.cuEventQuery(self.rows[i].event) == CUDA_ERROR_NOT_READY)
            continue;
        self.rows[i].recorded = false;
        self.n_recorded--;
    }
    return self.n_recorded != before;
}

/* A row whose event is not recorded; EVENTS: there is none. */
static unsigned find_mark(void)
{
    for (unsigned i = 0; i < self.n_made; i++)
        if (!self.rows[i].recorded)
            return i;
    if (self.n_made == EVENTS ||
        ag_cu.cuEventCreate(&self.rows[self.n_made].event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return EVENTS;
    self.rows[self.n_made].recorded = false;
    return self.n_made++;
}

/* False: all events are recorded, and the device has come past none. */
static bool record_there(const struct ag_context *context)
{
    unsigned i;

    if (self.n_recorded == EVENTS && !forget_reached())
        return false;
    i = find_mark();
    if (i < EVENTS && ag_cu.cuCtxRecordEvent(context->handle, self.rows[i].event) == CUDA_SUCCESS) {
        self.rows[i].recorded = true;
        self.n_recorded++;
    }
    return true;
}

/* --- for all --- */

void ag_progress_mark(const struct ag_context *context, bool is_slow)
{
    uint64_t now = ag_clock_ns(), next = atomic_load_explicit(&self.next_ns, memory_order_relaxed);

    if (!context->device->has_fences || (now < next && (!is_slow || next - now > EVERY_NS)) ||
        !ag_paging_moment_begin(&self.moment))
        return;
    forget_lost();
    next = now + (record_there(context) ? EVERY_NS : FULL_NS);
    atomic_store_explicit(&self.next_ns, next, memory_order_relaxed);
    ag_paging_moment_end(&self.moment);
}

bool ag_progress_made(void)
{
    bool made;

    if (!ag_paging_moment_begin(&self.moment))
        return false;
    forget_lost();
    made = forget_reached();
    ag_paging_moment_end(&self.moment);
    return made;
}

void ag_progress_begin_child(void)
{
    ag_paging_moment_begin_child(&self.moment);
    self.n_made = self.n_recorded = 0;
}
