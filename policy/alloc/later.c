/* The blocks that wait for streams, first come, first looked at: see later.h. */
#include "policy/alloc/later.h"

#include <sched.h>
#include <string.h>

#include "interpose/core/driver/driver.h"
#include "interpose/core/report/stats.h"
#include "policy/alloc/freed.h"
#include "policy/alloc/hand_over.h"
#include "policy/alloc/notes.h"
#include "policy/contexts/enter.h"
#include "policy/paging/moment.h"

#define MOST  1024u
#define FEW   8u   /* are looked at, where not all are */
#define TRIES 100u /* of who finds the moment taken */

struct waiting {
    struct ag_block *block;
    CUstream stream; /* may be another one's name by now; not NULL */
    CUevent event;   /* after all that may use the block */
};

static struct {
    struct ag_paging_moment moment; /* whoever has it changes what follows */
    unsigned n;
    struct waiting at[MOST];
} self = {.moment = AG_PAGING_MOMENT_INIT};

static bool begin(void)
{
    for (unsigned i = 0; i < TRIES; i++) {
        if (ag_paging_moment_begin(&self.moment))
            return true;
        if (ag_capture_is_open())
            return false;
        (void)sched_yield();
    }
    return false;
}

/* In the moment. */
static struct ag_block *remove_at(unsigned i)
{
    struct ag_block *block = self.at[i].block;

    (void)ag_cu.cuEventDestroy_v2(self.at[i].event);
    self.n--;
    memmove(&self.at[i], &self.at[i + 1], (self.n - i) * sizeof(self.at[0]));
    return block;
}

/* --- a free --- */

bool ag_later_keep(struct ag_block *block, CUstream stream)
{
    struct waiting one = {.block = block, .stream = stream ? stream : CU_STREAM_LEGACY};
    bool kept = false;

    if (!begin())
        return false;
    if (self.n < MOST && ag_cu.cuEventCreate(&one.event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) {
        kept = ag_cu.cuEventRecord(one.event, one.stream) == CUDA_SUCCESS;
        if (kept) {
            ag_freed_movable(block); /* before another thread may have it */
            self.at[self.n++] = one;
        } else {
            (void)ag_cu.cuEventDestroy_v2(one.event);
        }
    }
    ag_paging_moment_end(&self.moment);
    return kept;
}

/* --- an allocation --- */

/* An eighth of it is left over at most. */
static bool fits(const struct ag_block *block, size_t bytes)
{
    size_t whole = (bytes + AG_NATIVE_PAGE - 1) & ~(size_t)(AG_NATIVE_PAGE - 1);

    return block->size >= whole && block->size - whole <= whole / 8;
}

/* In the moment: the last one, which was used last. The wait costs nothing if it still is the same
 * stream. */
static struct ag_block *take_of_stream(const struct ag_context *context, size_t bytes,
                                       CUstream stream)
{
    for (unsigned i = self.n; i-- > 0;) {
        const struct waiting *one = &self.at[i];

        if (one->stream == stream && one->block->context == context && fits(one->block, bytes))
            return ag_cu.cuStreamWaitEvent(stream, one->event, 0) == CUDA_SUCCESS ? remove_at(i)
                                                                                  : NULL;
    }
    return NULL;
}

bool ag_later_take(CUdeviceptr *ret_address, size_t bytes, CUstream stream, const void *caller)
{
    const struct ag_context *context = ag_context_current();
    struct ag_block *block;

    ag_timing_begin();
    if (!context || !begin())
        return false;
    block = take_of_stream(context, bytes, stream);
    ag_paging_moment_end(&self.moment);
    if (!block)
        return false;
    *ret_address = block->address;
    ag_stats_add(AG_STAT_CACHE_HIT, 1);
    ag_stats_add(AG_STAT_REDIRECTED, 1);
    ag_note_allocated(block, bytes, caller);
    ag_hand_over(block, bytes);
    return true;
}

/* --- those that are done --- */

/* In the moment: the blocks, linked by ->next. */
static struct ag_block *remove_done(unsigned n_looks)
{
    struct ag_block *done = NULL, *block;

    for (unsigned i = 0; i < self.n && n_looks; n_looks--) {
        if (ag_cu.cuEventQuery(self.at[i].event) != CUDA_SUCCESS) {
            i++;
            continue;
        }
        block = remove_at(i);
        block->next = done;
        done = block;
    }
    return done;
}

void ag_later_collect(bool all)
{
    struct ag_block *done, *block;

    if (!begin())
        return;
    done = remove_done(all ? MOST : FEW);
    ag_paging_moment_end(&self.moment);
    while (done) {
        block = done;
        done = block->next;
        ag_freed_unguarded(block);
    }
}

void ag_later_forget(const struct ag_context *context)
{
    unsigned kept = 0;

    ag_paging_moment_lock(&self.moment);
    for (unsigned i = 0; i < self.n; i++)
        if (self.at[i].block->context != context)
            self.at[kept++] = self.at[i];
    self.n = kept;
    ag_paging_moment_unlock(&self.moment);
}

void ag_later_begin_child(void)
{
    self.n = 0;
    ag_paging_moment_begin_child(&self.moment);
}
