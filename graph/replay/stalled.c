/* Withheld work that nothing follows: see stalled.h.
 *
 * Withholding reads no clock. Each withheld operation changes the stream's `sequence`, each start
 * of withholding its `epoch`. The watchdog looks twice in the time allowed. Work goes out of a
 * stream whose sequence has not changed since the last look, or whose epoch is the same for the
 * eighth time. */
#include "graph/replay/stalled.h"

#include "graph/replay/segment.h"
#include "graph/stream.h"
#include "graph/tuning.h"
#include "interpose/core/report/stats.h"
#include "policy/contexts/context.h"

static struct look {
    uint32_t sequence, epoch, same_epoch;
} looks[AG_MAX_STREAMS];

static void release_stalled(struct ag_stream *stream, uint32_t epoch)
{
    bool pushed = false;

    if (!ag_stream_own_within(stream, 0)) /* its owner is at work */
        return;
    if (stream->segment.mode == AG_SEGMENT_HOLDING &&
        atomic_load_explicit(&stream->epoch, memory_order_relaxed) == epoch &&
        ag_context_make_current(stream->id.context, &pushed) == CUDA_SUCCESS) {
        ag_segment_note_flush(stream, AG_FLUSH_WATCHDOG);
        ag_stats_add(AG_STAT_REPLAY_WATCHDOG, 1);
        /* The segment goes on, one by one; only the program or the history end it. */
        ag_segment_submit(stream);
        ag_context_restore(pushed);
    }
    ag_stream_disown(stream);
}

/* Relaxed: a guess, until the stream is owned; then the owner before has released its `epoch`. */
static void look_at_stream(struct ag_stream *stream, void *data)
{
    struct look *last = &looks[atomic_load_explicit(&stream->id.number, memory_order_relaxed)];
    uint32_t sequence = atomic_load_explicit(&stream->sequence, memory_order_relaxed);
    uint32_t epoch = atomic_load_explicit(&stream->epoch, memory_order_relaxed);
    bool *any = data;

    /* After the watchdog has said that it sleeps: see ag_stream_each_open(). */
    if (!atomic_load_explicit(&stream->holding, memory_order_seq_cst))
        return;
    *any = true;
    last->same_epoch = last->epoch == epoch ? last->same_epoch + 1 : 0;
    if (last->same_epoch &&
        (last->sequence == sequence || last->same_epoch >= AG_WATCHDOG_EPOCH_LOOKS))
        release_stalled(stream, epoch);
    last->sequence = sequence;
    last->epoch = epoch;
}

bool ag_stalled_submit(void)
{
    bool any = false;

    ag_stream_each_open(look_at_stream, &any);
    return any;
}
