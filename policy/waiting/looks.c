/* Looks at an event, and sleeps in between: see looks.h.
 *
 * A thread looks in a capture mode that forbids nothing, and does not sleep in it: a signal handler
 * that jumps out of a wait mostly does so from its sleep, where nothing is to be given back. */
#include "policy/waiting/looks.h"

#include "interpose/core/base/clock.h"
#include "interpose/core/base/threads/wait.h"
#include "interpose/core/driver/driver.h"
#include "policy/order/fence.h"
#include "policy/waiting/places.h"

/* Awake at first: where nothing is foreseen for longer than a timer is late, so that a wait of that
 * length is not twice as long; otherwise for as long as a device that is done needs to say so. */
#define FIRST_LOOK_NS 50000u
#define SHORT_LOOK_NS 5000u
/* From what is foreseen on: for a part of it, and no longer than the second. */
#define LOOK_PART    16u
#define MOST_LOOK_NS 120000u
/* Less than two looks take: the event had been reached before the first one. */
#define AT_ONCE_NS 2000u

#define FIRST_SLEEP_NS 250000u
#define LEAST_SLEEP_NS 120000u
#define MOST_SLEEP_NS  200000u
#define SLEEP_PART     12u
#define LONG_PART      512u /* of waits in which that is longer than MOST_SLEEP_NS */

static uint64_t between(uint64_t least, uint64_t ns, uint64_t most)
{
    return ns < least ? least : ns > most ? most : ns;
}

uint64_t ag_looks_next(uint64_t foreseen_ns, uint64_t elapsed_ns)
{
    uint64_t asleep = elapsed_ns / LONG_PART, next;

    if (elapsed_ns >= foreseen_ns) {
        uint64_t part = between(LEAST_SLEEP_NS, elapsed_ns / SLEEP_PART, MOST_SLEEP_NS);

        return elapsed_ns + (asleep > part ? asleep : part);
    }
    asleep = 3 * elapsed_ns;
    next = elapsed_ns + (asleep > FIRST_SLEEP_NS ? asleep : FIRST_SLEEP_NS);
    return next >= foreseen_ns / 4 * 3 ? foreseen_ns : next;
}

static uint64_t elapsed(const struct ag_looks *looks)
{
    return ag_clock_ns() - looks->began_ns;
}

/* Asleep from `from_ns` on, the thread has found the event reached by its next look. */
static void learn_from(const struct ag_looks *looks, uint64_t from_ns, uint64_t looked_from_ns)
{
    uint64_t now = elapsed(looks), looked_ns = now - looked_from_ns;

    if (from_ns >= looks->foreseen_ns)
        ag_place_lasted(looks->place, now);
    else if (looked_from_ns < looks->foreseen_ns)
        ag_place_early(looks->place, from_ns);
    else if (looked_ns < AT_ONCE_NS)
        ag_place_missed(looks->place);
    else
        ag_place_met(looks->place, looked_ns);
}

/* The first look has found it reached. */
static void learn_at_once(const struct ag_looks *looks)
{
    if (looks->foreseen_ns)
        ag_place_early(looks->place, 0);
    else
        ag_place_forget(looks->place);
}

CUresult ag_looks_wait(const struct ag_looks *looks, CUevent event)
{
    uint64_t foreseen = looks->foreseen_ns, from, woke;
    uint64_t look = between(0, foreseen / LOOK_PART, MOST_LOOK_NS);
    CUresult result = ag_fence_poll(event, foreseen ? SHORT_LOOK_NS : FIRST_LOOK_NS);

    if (result == CUDA_SUCCESS)
        learn_at_once(looks);
    while (result == CUDA_ERROR_NOT_READY) {
        from = elapsed(looks);
        if (looks->gives_up && from >= foreseen)
            break;
        ag_wait_asleep(ag_looks_next(foreseen, from) - from);
        woke = elapsed(looks);
        result = ag_fence_poll(event, from < foreseen && woke >= foreseen ? look : 0);
        if (result == CUDA_SUCCESS)
            learn_from(looks, from, woke);
    }
    return result;
}
