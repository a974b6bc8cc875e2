/* Hooks that only graph replay needs: while it is off they are jumps to the driver.
 *
 * Programs that are linked with the driver call our symbols whether streams are replayed or not. So
 * each of these hooks is a load, a comparison and a jump while nothing is replayed. The work is in
 * a function of its own, replayed_<symbol>(), or the compiler would save registers in the one that
 * everybody calls. */
#ifndef AG_ENTRY_REPLAY_H
#define AG_ENTRY_REPLAY_H

#include "graph/replayer.h"
#include "interpose/core/driver/driver.h"
#include "interpose/hooks/entry.h"
#include "interpose/hooks/entry_waits.h"

static inline bool ag_entry_passes(void)
{
    return (atomic_load_explicit(&ag_entry_replay, memory_order_acquire) & AG_REPLAY_PASSED) != 0;
}

/* The same of a call that may wait, unless it is timed. */
static inline bool ag_entry_passes_untimed(void)
{
    return atomic_load_explicit(&ag_entry_replay, memory_order_acquire) == AG_REPLAY_PASSED;
}

static inline bool ag_entry_times(void)
{
    return (atomic_load_explicit(&ag_entry_replay, memory_order_acquire) & AG_REPLAY_TIMED) != 0 &&
           !ag_entry_inside();
}

/* After the driver's own call of an operation that was not withheld. */
static inline CUresult ag_entry_submitted(struct ag_stream *state, CUresult result)
{
    if (AG_UNLIKELY(result != CUDA_SUCCESS && state))
        ag_replay_refused(state);
    return result;
}

/* A hook whose work is `body`, a block that returns. While nothing is replayed it jumps to the
 * driver's own; to `instead` where it `may_jump` not. `...`: the names of the parameters. */
#define AG_JUMPING(symbol, may_jump, instead, parameters, body, ...)                            \
    static __attribute__((noinline)) CUresult replayed_##symbol parameters                      \
    {                                                                                           \
        AG_ENTER(symbol, __VA_ARGS__);                                                          \
        body                                                                                    \
    }                                                                                           \
    AG_JUMPS(AG_ENTRY CUresult symbol parameters, symbol, may_jump, instead, ag_entry_passes(), \
             replayed_##symbol, __VA_ARGS__)

#define AG_JUMPS(function, symbol, may_jump, instead, passes, otherwise, ...) \
    function                                                                  \
    {                                                                         \
        __typeof__(&symbol) way = ag_cu.symbol;                               \
                                                                              \
        if (AG_UNLIKELY(!(may_jump)))                                         \
            way = instead;                                                    \
        if (AG_UNLIKELY(!(passes) || !ag_cu.symbol))                          \
            way = otherwise;                                                  \
        return way(__VA_ARGS__);                                              \
    }

/* The same for a call that may wait, which is timed where that is asked for: around all that it
 * does without. `kind`: of enum ag_wait_kind. */
#define AG_JUMPING_TIMED(kind, symbol, may_jump, instead, parameters, body, ...)            \
    static __attribute__((noinline)) CUresult replayed_##symbol parameters                  \
    {                                                                                       \
        AG_ENTER(symbol, __VA_ARGS__);                                                      \
        body                                                                                \
    }                                                                                       \
    AG_JUMPS(static inline CUresult untimed_##symbol parameters, symbol, may_jump, instead, \
             ag_entry_passes(), replayed_##symbol, __VA_ARGS__)                             \
    static __attribute__((noinline)) CUresult timed_##symbol parameters                     \
    {                                                                                       \
        struct ag_entry_wait timed = {ag_waiting_begin(), kind, #symbol};                   \
        CUresult result = untimed_##symbol(__VA_ARGS__);                                    \
                                                                                            \
        ag_entry_wait_end(&timed);                                                          \
        if (AG_UNLIKELY(result != CUDA_SUCCESS))                                            \
            ag_entry_failed(result, #symbol);                                               \
        return result;                                                                      \
    }                                                                                       \
    AG_JUMPS(AG_ENTRY CUresult symbol parameters, symbol, may_jump, instead,                \
             ag_entry_passes_untimed(), AG_ASIDE(timed_##symbol, replayed_##symbol), __VA_ARGS__)

/* Where such a call goes that does not pass. */
#define AG_ASIDE(timed, replayed) (ag_entry_times() ? (timed) : (replayed))

#define AG_REPLAYED(symbol, parameters, body, ...) \
    AG_JUMPING(symbol, true, replayed_##symbol, parameters, body, __VA_ARGS__)

/* The same for work on `stream`: without replay, a fence that is due is placed first (entry.h). */
#define AG_SUBMITTED(symbol, stream, per_thread, parameters, body, ...)            \
    AG_WATCHED(symbol, stream, per_thread, parameters, __VA_ARGS__)                \
    AG_JUMPING(                                                                    \
        symbol, ag_watch_passes(stream, per_thread), watched_##symbol, parameters, \
        {                                                                          \
            ag_watch_work(stream, per_thread);                                     \
            body                                                                   \
        },                                                                         \
        __VA_ARGS__)

#define AG_SUBMITTED_TIMED(kind, symbol, stream, per_thread, parameters, body, ...)      \
    AG_WATCHED(symbol, stream, per_thread, parameters, __VA_ARGS__)                      \
    AG_JUMPING_TIMED(                                                                    \
        kind, symbol, ag_watch_passes(stream, per_thread), watched_##symbol, parameters, \
        {                                                                                \
            ag_watch_work(stream, per_thread);                                           \
            body                                                                         \
        },                                                                               \
        __VA_ARGS__)

#define AG_WATCHED(symbol, stream, per_thread, parameters, ...)           \
    static __attribute__((noinline)) CUresult watched_##symbol parameters \
    {                                                                     \
        ag_entry_submits(stream, per_thread);                             \
        return ag_cu.symbol(__VA_ARGS__);                                 \
    }

/* For calls whose stream nobody knows: as the handle that means another stream in each thread. */
#define AG_SOMEWHERE CU_STREAM_PER_THREAD

/* An operation on `stream`. kind: of its wait; record: an expression that says what the operation
 * is, of the stream's `state`; true when the operation was withheld (ag_replay_take,
 * ag_replay_pass). */
#define AG_RECORDED(kind, symbol, stream, per_thread, record, parameters, ...)           \
    AG_SUBMITTED_TIMED(                                                                  \
        kind, symbol, stream, per_thread, parameters,                                    \
        {                                                                                \
            struct ag_stream *state = ag_replay_enter(stream, per_thread);               \
            if (state && (record))                                                       \
                return ag_entry_leave(CUDA_SUCCESS);                                     \
            return ag_entry_leave(ag_entry_submitted(state, ag_cu.symbol(__VA_ARGS__))); \
        },                                                                               \
        __VA_ARGS__)

/* A call that is not recorded: `flush` submits what the driver must have before it. */
#define AG_FLUSHES(symbol, flush, parameters, ...)            \
    AG_REPLAYED(                                              \
        symbol, parameters,                                   \
        {                                                     \
            flush;                                            \
            return ag_entry_leave(ag_cu.symbol(__VA_ARGS__)); \
        },                                                    \
        __VA_ARGS__)

/* As AG_FLUSHES, for work on `stream` that is not recorded. */
#define AG_FLUSHES_WORK(symbol, stream, per_thread, flush, parameters, ...) \
    AG_SUBMITTED(                                                           \
        symbol, stream, per_thread, parameters,                             \
        {                                                                   \
            flush;                                                          \
            return ag_entry_leave(ag_cu.symbol(__VA_ARGS__));               \
        },                                                                  \
        __VA_ARGS__)

/* As AG_FLUSHES, for a call in which the host waits: it returns errors of work that was submitted
 * late. The hook is left before the wait, since a signal handler may jump out of that. */
#define AG_WAITS(symbol, flush, parameters, ...)                   \
    AG_JUMPING_TIMED(                                              \
        AG_WAIT_SYNC, symbol, true, replayed_##symbol, parameters, \
        {                                                          \
            flush;                                                 \
            (void)ag_entry_leave(CUDA_SUCCESS);                    \
            return ag_replay_late(ag_cu.symbol(__VA_ARGS__));      \
        },                                                         \
        __VA_ARGS__)

/* The same for a call that has work done, on `stream`, before it returns. */
#define AG_WAITS_FOR_WORK(kind, symbol, stream, per_thread, flush, parameters, ...) \
    AG_SUBMITTED_TIMED(                                                             \
        kind, symbol, stream, per_thread, parameters,                               \
        {                                                                           \
            flush;                                                                  \
            (void)ag_entry_leave(CUDA_SUCCESS);                                     \
            return ag_replay_late(ag_cu.symbol(__VA_ARGS__));                       \
        },                                                                          \
        __VA_ARGS__)

#endif
