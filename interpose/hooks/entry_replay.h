/* What hooks ask that only graph replay needs: while it is off they are jumps to the driver.
 *
 * Programs that are linked with the driver call our symbols whether streams are replayed or not. So
 * each of these hooks is a load, a comparison and a jump while nothing is replayed. The work is in
 * a function of its own, replayed_<symbol>(), or the compiler would save registers in the one that
 * everybody calls. made/kinds.c.in has their C. */
#ifndef AG_ENTRY_REPLAY_H
#define AG_ENTRY_REPLAY_H

#include "graph/replayer.h"
#include "interpose/core/driver/driver.h"
#include "interpose/hooks/entry.h"
#include "interpose/hooks/entry_waits.h"
#include "policy/waiting/places.h"
#include "policy/waiting/sleep.h"

static inline bool ag_entry_passes(void)
{
    return (atomic_load_explicit(&ag_entry_replay, memory_order_acquire) & AG_REPLAY_PASSED) != 0;
}

/* May a call that can wait pass? Not if it is timed, or may sleep. */
static inline bool ag_entry_passes_untimed(void)
{
    return atomic_load_explicit(&ag_entry_replay, memory_order_acquire) == AG_REPLAY_PASSED;
}

static inline bool ag_entry_times(void)
{
    return (atomic_load_explicit(&ag_entry_replay, memory_order_acquire) &
            (AG_REPLAY_TIMED | AG_REPLAY_SLEEPS)) != 0 &&
           !ag_entry_inside();
}

static inline bool ag_entry_sleeps(void)
{
    return (atomic_load_explicit(&ag_entry_replay, memory_order_acquire) & AG_REPLAY_SLEEPS) != 0;
}

/* Called after the driver's own call of an operation that was not withheld. */
static inline CUresult ag_entry_submitted(struct ag_stream *state, CUresult result)
{
    if (AG_UNLIKELY(result != CUDA_SUCCESS && state))
        ag_replay_refused(state);
    return result;
}

/* Where a wait of the program's is, for what is learnt of it: see places.h. */
#define AG_PLACE_HERE(hook) \
    ag_place_of(hook, __builtin_return_address(0), __builtin_frame_address(0))

/* For calls whose stream nobody knows: as the handle that means another stream in each thread. */
#define AG_SOMEWHERE CU_STREAM_PER_THREAD

#endif
