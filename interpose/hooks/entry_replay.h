/* What the hooks share that only graph replay needs: while it is off they are jumps.
 *
 * Programs that are linked with the driver come to our symbols in any case. So each of them is a
 * load, a comparison and a jump while nothing is replayed; the rest stands in a function of its
 * own, or the compiler would save registers in the one that everybody calls. */
#ifndef AG_ENTRY_REPLAY_H
#define AG_ENTRY_REPLAY_H

#include "graph/replayer.h"
#include "interpose/driver/driver.h"
#include "interpose/hooks/entry.h"

static inline bool ag_entry_passes(void)
{
    return atomic_load_explicit(&ag_entry_replay, memory_order_acquire) == AG_REPLAY_PASSED;
}

/* After the driver's own call of an operation that was not withheld. */
static inline CUresult ag_entry_submitted(struct ag_stream *state, CUresult result)
{
    if (AG_UNLIKELY(result != CUDA_SUCCESS && state))
        ag_replay_refused(state);
    return result;
}

#define AG_JUMPS(symbol, parameters, ...)            \
    AG_ENTRY CUresult symbol parameters              \
    {                                                \
        __typeof__(&symbol) way = ag_cu.symbol;      \
                                                     \
        if (AG_UNLIKELY(!ag_entry_passes() || !way)) \
            way = replayed_##symbol;                 \
        return way(__VA_ARGS__);                     \
    }

/* An operation on `stream`. record: an expression that gives the `state` back, true when the
 * operation was withheld (ag_replay_take, ag_replay_pass). */
#define AG_RECORDED(symbol, stream, per_thread, record, parameters, ...)             \
    static __attribute__((noinline)) CUresult replayed_##symbol parameters           \
    {                                                                                \
        struct ag_stream *state;                                                     \
                                                                                     \
        AG_ENTER(symbol, __VA_ARGS__);                                               \
        state = ag_replay_enter(stream, per_thread);                                 \
        if (state && (record))                                                       \
            return ag_entry_leave(CUDA_SUCCESS);                                     \
        return ag_entry_leave(ag_entry_submitted(state, ag_cu.symbol(__VA_ARGS__))); \
    }                                                                                \
    AG_JUMPS(symbol, parameters, __VA_ARGS__)

/* A call that is nothing to record: `flush` lets go what has to be with the driver before it. */
#define AG_FLUSHES(symbol, flush, parameters, ...)                         \
    static __attribute__((noinline)) CUresult replayed_##symbol parameters \
    {                                                                      \
        AG_ENTER(symbol, __VA_ARGS__);                                     \
        flush;                                                             \
        return ag_entry_leave(ag_cu.symbol(__VA_ARGS__));                  \
    }                                                                      \
    AG_JUMPS(symbol, parameters, __VA_ARGS__)

/* As AG_FLUSHES; the host waits, so errors of what was let go earlier are told. The hook is left
 * before: a signal handler may jump out of a wait. */
#define AG_WAITS(symbol, flush, parameters, ...)                           \
    static __attribute__((noinline)) CUresult replayed_##symbol parameters \
    {                                                                      \
        AG_ENTER(symbol, __VA_ARGS__);                                     \
        flush;                                                             \
        (void)ag_entry_leave(CUDA_SUCCESS);                                \
        return ag_replay_late(ag_cu.symbol(__VA_ARGS__));                  \
    }                                                                      \
    AG_JUMPS(symbol, parameters, __VA_ARGS__)

#endif
