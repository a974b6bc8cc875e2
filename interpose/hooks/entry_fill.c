/* Hooks of memsets, where ALLOGRAFT_GRAPH replays streams. All are recorded
 * (graph/copies.c), those without a stream too: they do not block either as long as they set
 * device memory. */
#include "graph/copies.h"
#include "interpose/hooks/entry_replay.h"
#include "interpose/hooks/movable/aside.h"
#include "policy/paging/ranges.h"
#include "policy/paging/use.h"

static bool record_line(struct ag_stream *state, bool blocking, CUdeviceptr to, unsigned width,
                        uint32_t value, size_t count)
{
    const struct ag_fill fill = {.to = to,
                                 .columns = count,
                                 .rows = 1,
                                 .width = width,
                                 .value = value,
                                 .is_line = true,
                                 .is_blocking = blocking};

    return ag_copies_fill(state, &fill);
}

static bool record_rows(struct ag_stream *state, bool blocking, CUdeviceptr to, size_t pitch,
                        unsigned width, uint32_t value, size_t columns, size_t rows)
{
    const struct ag_fill fill = {.to = to,
                                 .pitch = pitch,
                                 .columns = columns,
                                 .rows = rows,
                                 .width = width,
                                 .value = value,
                                 .is_blocking = blocking};

    return ag_copies_fill(state, &fill);
}

/* A fill uses memory as a kernel does. */
static void use_line(CUdeviceptr to, size_t width, size_t count)
{
    if (ag_latch_is_on())
        ag_use_before_copy(to, to, width * count);
}

/* One of rows, where that is most of what lies between the first and the last. */
static void use_rows(CUdeviceptr to, size_t pitch, size_t width, size_t columns, size_t rows)
{
    if (rows && columns * width >= pitch / 2)
        use_line(to, 1, (rows - 1) * pitch + columns * width);
}

/* Asks for the same on the default stream, by `fill`, where that is due (aside.h). */
#define filled_aside(ret_result, to, fill, value, count, per_thread)                               \
    (ag_aside_is_due(to, to, per_thread) &&                                                        \
     (*(ret_result) = ag_aside_wait((fill)(to, value, count, ag_aside_stream(per_thread)), to, to, \
                                    per_thread),                                                   \
      true))
#define rows_filled_aside(ret_result, to, fill, pitch, value, columns, rows, per_thread)          \
    (ag_aside_is_due(to, to, per_thread) &&                                                       \
     (*(ret_result) =                                                                             \
          ag_aside_wait((fill)(to, pitch, value, columns, rows, ag_aside_stream(per_thread)), to, \
                        to, per_thread),                                                          \
      true))

#include "interpose/hooks/made/fills.h"
