/* Hooks of memsets, where ALLOGRAFT_GRAPH replays streams. All are recorded
 * (graph/copies.c), those without a stream too: they do not block either as long as they set
 * device memory. */
#include "graph/copies.h"
#include "interpose/hooks/entry_replay.h"

static bool take_line(struct ag_stream *state, bool blocking, CUdeviceptr to, unsigned width,
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

static bool take_rows(struct ag_stream *state, bool blocking, CUdeviceptr to, size_t pitch,
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

#define LINE(symbol, per_thread, type)                                                         \
    AG_RECORDED(AG_WAIT_FILL, symbol, stream, per_thread,                                      \
                take_line(state, false, to, sizeof(type), value, count),                       \
                (CUdeviceptr to, type value, size_t count, CUstream stream), to, value, count, \
                stream)
#define LINE_BLOCKING(symbol, per_thread, type)                         \
    AG_RECORDED(AG_WAIT_FILL, symbol, NULL, per_thread,                 \
                take_line(state, true, to, sizeof(type), value, count), \
                (CUdeviceptr to, type value, size_t count), to, value, count)
#define ROWS(symbol, per_thread, type)                                                            \
    AG_RECORDED(                                                                                  \
        AG_WAIT_FILL, symbol, stream, per_thread,                                                 \
        take_rows(state, false, to, pitch, sizeof(type), value, columns, rows),                   \
        (CUdeviceptr to, size_t pitch, type value, size_t columns, size_t rows, CUstream stream), \
        to, pitch, value, columns, rows, stream)
#define ROWS_BLOCKING(symbol, per_thread, type)                                              \
    AG_RECORDED(AG_WAIT_FILL, symbol, NULL, per_thread,                                      \
                take_rows(state, true, to, pitch, sizeof(type), value, columns, rows),       \
                (CUdeviceptr to, size_t pitch, type value, size_t columns, size_t rows), to, \
                pitch, value, columns, rows)

LINE(cuMemsetD8Async, false, unsigned char)
LINE(cuMemsetD8Async_ptsz, true, unsigned char)
LINE(cuMemsetD16Async, false, unsigned short)
LINE(cuMemsetD16Async_ptsz, true, unsigned short)
LINE(cuMemsetD32Async, false, unsigned int)
LINE(cuMemsetD32Async_ptsz, true, unsigned int)
ROWS(cuMemsetD2D8Async, false, unsigned char)
ROWS(cuMemsetD2D8Async_ptsz, true, unsigned char)
ROWS(cuMemsetD2D16Async, false, unsigned short)
ROWS(cuMemsetD2D16Async_ptsz, true, unsigned short)
ROWS(cuMemsetD2D32Async, false, unsigned int)
ROWS(cuMemsetD2D32Async_ptsz, true, unsigned int)
LINE_BLOCKING(cuMemsetD8_v2, false, unsigned char)
LINE_BLOCKING(cuMemsetD8_v2_ptds, true, unsigned char)
LINE_BLOCKING(cuMemsetD16_v2, false, unsigned short)
LINE_BLOCKING(cuMemsetD16_v2_ptds, true, unsigned short)
LINE_BLOCKING(cuMemsetD32_v2, false, unsigned int)
LINE_BLOCKING(cuMemsetD32_v2_ptds, true, unsigned int)
ROWS_BLOCKING(cuMemsetD2D8_v2, false, unsigned char)
ROWS_BLOCKING(cuMemsetD2D8_v2_ptds, true, unsigned char)
ROWS_BLOCKING(cuMemsetD2D16_v2, false, unsigned short)
ROWS_BLOCKING(cuMemsetD2D16_v2_ptds, true, unsigned short)
ROWS_BLOCKING(cuMemsetD2D32_v2, false, unsigned int)
ROWS_BLOCKING(cuMemsetD2D32_v2_ptds, true, unsigned int)
