/* room.c: programs on a card that is full: which of their calls found no room.
 *
 * Where memory runs out depends on what lies between the program and the driver. So such a run is
 * not compared with any other, but with a second run that has room for all: there the calls that
 * were refused the first time fail without being made. All else must be the same, and a refusal
 * must have had a reason. */
#include <stdlib.h>

#include "diff.h"

static struct {
    volatile unsigned char *refused; /* by thread and number of the call */
    bool again, spills;
    size_t bytes; /* what there is; 0: not known */
    size_t card;  /* likewise, for launches */
} self;

static size_t number_of(const char *name)
{
    const char *text = getenv(name);

    return text ? strtoull(text, NULL, 10) : 0;
}

void room_start(volatile unsigned char *refused, bool again)
{
    self.refused = refused;
    self.again = again;
    self.spills = getenv("DIFF_SPILL") != NULL;
    self.bytes = number_of("DIFF_ROOM");
    self.card = number_of("DIFF_CARD");
}

static volatile unsigned char *next(struct world *w)
{
    if (w->n_asked == MAX_ASKED)
        abort();
    return &self.refused[w->thread * MAX_ASKED + w->n_asked++];
}

bool room_refused(struct world *w)
{
    if (!self.again)
        return false;
    return *next(w);
}

static size_t live_bytes(const struct world *w, int device, bool all)
{
    size_t sum = 0;

    for (unsigned i = 0; i < MAX_BUFFERS; i++) {
        const struct buffer *buffer = &w->buffers[i];
        bool of_card = buffer->kind == BUFFER_NATIVE || buffer->kind == BUFFER_PITCH ||
                       (all && (buffer->kind == BUFFER_ASYNC || buffer->kind == BUFFER_POOL ||
                                buffer->kind == BUFFER_MANAGED || buffer->kind == BUFFER_MAPPED));
        if (buffer->live && of_card && w->contexts[buffer->context].device == device)
            sum += buffer->bytes;
    }
    return sum;
}

CUresult room_asked(struct world *w, CUresult result, unsigned context, size_t bytes, bool spills)
{
    int device = w->contexts[context].device;

    if (self.again)
        return result;
    *next(w) = result == CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_ERROR_OUT_OF_MEMORY && spills && self.spills)
        say(w, "%zu bytes refused that could have been spilled", bytes);
    if (!self.bytes || w->traits->n_threads > 1)
        return result;
    if (result == CUDA_ERROR_OUT_OF_MEMORY && live_bytes(w, device, true) + bytes <= self.bytes / 2)
        say(w, "%zu bytes refused though %zu of %zu were in use", bytes,
            live_bytes(w, device, true), self.bytes);
    if (result == CUDA_SUCCESS && live_bytes(w, device, false) > self.bytes)
        say(w, "%zu bytes given out of %zu", live_bytes(w, device, false), self.bytes);
    return result;
}

/* Whole chunks of the card for each: the smallest may hold a slab of ours. */
#define CHUNK ((size_t)2 << 20)

static size_t most_in_use(const struct world *w, int device)
{
    size_t sum = 0;

    for (unsigned i = 0; i < MAX_BUFFERS; i++) {
        const struct buffer *buffer = &w->buffers[i];

        if (buffer->live && w->contexts[buffer->context].device == device)
            sum += (buffer->bytes + CHUNK - 1) / CHUNK * CHUNK;
    }
    for (unsigned i = 0; i < w->n_contexts; i++)
        if (w->contexts[i].alive && w->contexts[i].device == device)
            sum += w->contexts[i].local_bytes;
    return sum;
}

CUresult room_launched(struct world *w, CUresult result, unsigned context, size_t more)
{
    size_t in_use = most_in_use(w, w->contexts[context].device);

    if (self.again)
        return result;
    *next(w) = result == CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_ERROR_OUT_OF_MEMORY && !w->uses_pools && in_use + more <= self.card / 4 * 3)
        say(w, "a launch with %zu bytes refused though %zu of %zu were in use", more, in_use,
            self.card);
    return result;
}
