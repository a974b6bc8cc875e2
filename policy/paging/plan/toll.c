/* Times kernels that use memory on the host: see toll.h.
 *
 * One launch is timed at a time: an event before it, and one after it, which is recorded when the
 * next work of that stream comes while the kernel still runs. Whatever the driver refuses, there is
 * no measurement then. */
#include "policy/paging/plan/toll.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "interpose/core/base/hash.h"
#include "interpose/core/driver/driver.h"
#include "policy/contexts/context.h"
#include "policy/paging/moment.h"
#include "policy/paging/plan/prices.h"
#include "policy/paging/ranges.h"

#define FUNCTIONS   1024u             /* of two that share a place, the later one has it */
#define TIMED       3u                /* launches of each; the quickest counts */
#define LEAST_BYTES ((size_t)4 << 20) /* what takes less may take longer for another reason */
#define MOST        5000u

struct toll {
    uint64_t function;
    unsigned price, timed;
};

static struct toll tolls[FUNCTIONS]; /* under the lock of the ranges */

/* The launch that is timed. */
enum stage { NONE, RUNS, ENDS }; /* it may run; the event after it is recorded */
static struct {
    struct ag_moment moment;
    _Atomic int stage;   /* an enum stage; changed by whoever has the moment */
    unsigned generation; /* of contexts, when the events were made */
    bool has_events;
    CUevent before, after;
    CUstream stream;
    uint64_t function;
    size_t bytes;
} self = {.moment = AG_MOMENT_INIT};

/* --- prices --- */

static struct toll *place_of(uint64_t function)
{
    return &tolls[ag_hash_entry(function, FUNCTIONS)];
}

unsigned ag_toll_of(uint64_t function)
{
    const struct toll *toll = place_of(function);

    return function && toll->function == function && toll->timed ? toll->price : 100;
}

static bool is_wanted(uint64_t function)
{
    const struct toll *toll = place_of(function);
    bool wanted;

    (void)ag_ranges_lock();
    wanted = toll->function != function || toll->timed < TIMED;
    ag_ranges_unlock();
    return wanted;
}

static void note_price(uint64_t function, uint64_t ns, size_t bytes)
{
    uint64_t crossing = ag_prices_crossing_ns(bytes), price = 100 * ns / (crossing ? crossing : 1);
    struct toll *toll = place_of(function);

    price = price < 100 ? 100 : price < MOST ? price : MOST;
    (void)ag_ranges_lock();
    if (toll->function != function)
        *toll = (struct toll){.function = function, .price = MOST};
    if (price < toll->price)
        toll->price = (unsigned)price;
    toll->timed++;
    ag_ranges_unlock();
}

/* --- one launch; by whoever has the moment --- */

/* Once a context has ended, its events are gone, and their names may be those of the program's. */
static bool has_events(void)
{
    unsigned generation = atomic_load_explicit(&ag_context_generation, memory_order_acquire);

    if (self.has_events && self.generation == generation)
        return true;
    self.has_events = false;
    self.stage = NONE;
    self.generation = generation;
    if (!ag_cu.cuEventElapsedTime || ag_cu.cuEventCreate(&self.before, 0) != CUDA_SUCCESS)
        return false;
    self.has_events = ag_cu.cuEventCreate(&self.after, 0) == CUDA_SUCCESS;
    if (!self.has_events)
        (void)ag_cu.cuEventDestroy_v2(self.before);
    return self.has_events;
}

static void look_whether_ended(void)
{
    CUresult result = ag_cu.cuEventQuery(self.after);
    float ms;

    if (result == CUDA_ERROR_NOT_READY)
        return;
    self.stage = NONE;
    if (result == CUDA_SUCCESS &&
        ag_cu.cuEventElapsedTime(&ms, self.before, self.after) == CUDA_SUCCESS && ms > 0)
        note_price(self.function, (uint64_t)((double)ms * 1e6), self.bytes);
}

/* Where the kernel has ended already, nobody knows when. */
static void end_timing(CUstream stream)
{
    bool runs = ag_cu.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;

    self.stage = runs && ag_cu.cuEventRecord(self.after, stream) == CUDA_SUCCESS ? ENDS : NONE;
}

static void go_on(CUstream stream)
{
    if (self.stage == ENDS)
        look_whether_ended();
    else if (self.stage == RUNS && self.stream == stream)
        end_timing(stream);
}

static void begin_timing(CUstream stream, uint64_t function, size_t bytes)
{
    if (ag_cu.cuEventRecord(self.before, stream) != CUDA_SUCCESS)
        return;
    self.stage = RUNS;
    self.stream = stream;
    self.function = function;
    self.bytes = bytes;
}

void ag_toll_go_on(CUstream stream)
{
    /* Relaxed: a launch that sees it late is not timed, or ends one later. */
    if (atomic_load_explicit(&self.stage, memory_order_relaxed) == NONE ||
        !ag_moment_begin(&self.moment))
        return;
    if (has_events())
        go_on(stream);
    ag_moment_end(&self.moment);
}

void ag_toll_before(CUstream stream, uint64_t function, size_t bytes)
{
    if (bytes < LEAST_BYTES || !ag_moment_begin(&self.moment))
        return;
    if (has_events() && self.stage == NONE && is_wanted(function))
        begin_timing(stream, function, bytes);
    ag_moment_end(&self.moment);
}

void ag_toll_begin_child(void)
{
    self.has_events = false;
    ag_moment_begin_child(&self.moment);
}
