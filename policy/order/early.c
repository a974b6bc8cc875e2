/* Which streams have had a launch in full since the last free: see early.h. A table of the streams
 * that had one lately. Who finds its row taken by another stream, or in use by another thread, has
 * its launch wait: that is always right. Rows of streams that are gone tell nothing wrong of others
 * of the same handle: nothing that came before the row was written can be on a newer stream. */
#include "policy/order/early.h"

#include "interpose/core/driver/driver.h"
#include "policy/order/capture.h"

#define N_ROWS 64u

_Atomic uint64_t ag_early_fences;

static struct {
    atomic_flag busy;
    struct ag_early_launch last;
} rows[N_ROWS];

static _Thread_local char own; /* its address names the thread */

/* Handles of streams are pointers. The legacy stream is one of each context, green ones included,
 * and the per-thread one is one of each thread and context. */
static struct ag_early_launch launch_of(CUstream stream, bool per_thread)
{
    struct ag_early_launch launch = {0};
    CUcontext current = NULL;

    (void)ag_cu.cuCtxGetCurrent(&current);
    launch.context = (uintptr_t)current;
    if (stream == CU_STREAM_PER_THREAD || (!stream && per_thread))
        launch.stream = (uintptr_t)&own;
    else
        launch.stream = stream ? (uintptr_t)stream : (uintptr_t)CU_STREAM_LEGACY;
    return launch;
}

static unsigned row_of_launch(const struct ag_early_launch *launch)
{
    return (unsigned)((launch->stream * 0x9e3779b97f4a7c15u) >> 32) % N_ROWS;
}

bool ag_early_must_wait(CUstream stream, bool per_thread, struct ag_early_launch *ret_launch)
{
    unsigned row;
    bool known = false;

    *ret_launch = launch_of(stream, per_thread);
    ret_launch->fences = atomic_load_explicit(&ag_early_fences, memory_order_seq_cst);
    row = row_of_launch(ret_launch);
    if (!atomic_flag_test_and_set_explicit(&rows[row].busy, memory_order_acquire)) {
        known = rows[row].last.stream == ret_launch->stream &&
                rows[row].last.context == ret_launch->context &&
                rows[row].last.fences == ret_launch->fences;
        atomic_flag_clear_explicit(&rows[row].busy, memory_order_release);
    }
    return !known && !ag_capture_takes(stream, per_thread);
}

void ag_early_waited(const struct ag_early_launch *launch)
{
    unsigned row = row_of_launch(launch);

    if (atomic_flag_test_and_set_explicit(&rows[row].busy, memory_order_acquire))
        return;
    rows[row].last = *launch;
    atomic_flag_clear_explicit(&rows[row].busy, memory_order_release);
}
