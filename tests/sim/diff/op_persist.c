/* op_persist.c: a random program runs a kernel that goes on only when later work of another stream,
 * or of the host, has set a word.
 *
 * Natively that ends as long as nothing lets one stream wait for the other: the legacy stream and a
 * blocking one are no such pair. What was freed before the kernel began is over by then, so nothing
 * that frees order may cover the kernel. */
#include "diff.h"

#define MOST_TEMPORARIES 3

struct pair {
    unsigned context, held, other; /* the kernel is on `held`; `other` sets the word */
    struct buffer *word;
};

static bool is_independent(const struct world *w, unsigned a, unsigned b)
{
    enum stream_kind one = w->streams[a].kind, two = w->streams[b].kind;

    return a != b && (one == STREAM_NONBLOCKING || two == STREAM_NONBLOCKING ||
                      (one != STREAM_LEGACY && two != STREAM_LEGACY));
}

/* A stream of the context; independent of `of` unless that is MAX_STREAMS. */
static unsigned pick_stream(struct world *w, unsigned context, unsigned of)
{
    unsigned n = 0, found = MAX_STREAMS;

    for (unsigned i = w->first_stream; i < w->first_stream + w->n_streams; i++)
        if (w->streams[i].alive && w->streams[i].context == context && !w->streams[i].capturing &&
            (of == MAX_STREAMS || is_independent(w, of, i)) && draw(w, ++n) == 0)
            found = i;
    return found;
}

static bool pick_pair(struct world *w, struct pair *pair)
{
    pair->context = w->current;
    if (!w->contexts[pair->context].alive)
        return false;
    pair->held = pick_stream(w, pair->context, MAX_STREAMS);
    pair->other = pick_stream(w, pair->context, pair->held);
    return pair->held != MAX_STREAMS && pair->other != MAX_STREAMS;
}

static unsigned one_of_both(struct world *w, const struct pair *pair)
{
    return draw(w, 2) ? pair->held : pair->other;
}

/* A kernel of which nobody but the end of the process knows. */
static void work_on(struct world *w, unsigned stream)
{
    struct clock stamp;

    if (did(w, launch_mark(w, stream, MAX_THREADS * MAX_MARKS - 1), "work on s%u", stream))
        stream_submit(w, stream, &stamp);
}

/* ---- before the kernel ---- */

/* Memory that is used on a stream and freed: the free waits for all that came before. False: there
 * was no room for any. */
static bool use_and_free(struct world *w, const struct pair *pair)
{
    CUdeviceptr p[MOST_TEMPORARIES];
    unsigned n = 1 + draw(w, MOST_TEMPORARIES), n_taken = 0;
    bool freed = false;
    size_t bytes = 512u << draw(w, 8);
    struct clock stamp;

    use_context(w, pair->context);
    for (; n_taken < n; n_taken++) {
        unsigned stream = chance(w, 70) ? pair->held : one_of_both(w, pair);

        if (!did(w, ROOM_OR_HOST(w, pair->context, bytes, cu.cuMemAlloc_v2(&p[n_taken], bytes)),
                 "temporary of %zu", bytes))
            break;
        if (did(w, launch_fill(w, stream, p[n_taken], bytes, n_taken), "use it on s%u", stream))
            stream_submit(w, stream, &stamp);
    }
    while (n_taken--) {
        if (!did(w, cu.cuMemFree_v2(p[n_taken]), "free it"))
            continue;
        freed = true;
        host_knows_context(w, pair->context);
        if (n_taken && chance(w, 30))
            work_on(w, one_of_both(w, pair));
    }
    return freed;
}

/* The word is 0 before the kernel and before what sets it. */
static bool clear_word(struct world *w, struct pair *pair)
{
    struct buffer *word = buffer_new(w, BUFFER_NATIVE, pair->context, 16);
    unsigned stream = one_of_both(w, pair);
    struct clock stamp;

    if (!word || !did(w, ROOM_OR_HOST(w, pair->context, 16, cu.cuMemAlloc_v2(&word->p, 16)),
                      "alloc word b%u", word->id))
        return false;
    word->live = true;
    w->bytes_live += word->bytes;
    pair->word = word;
    if (!did(w, cu.cuMemsetD32Async(word->p, 0, 4, stream_handle(w, stream)), "clear b%u s%u",
             word->id, stream))
        return false;
    stream_submit(w, stream, &stamp);
    buffer_used(w, word, stream, &stamp, true);
    return true;
}

/* ---- while it runs: nothing that waits for it natively ---- */

static void record_behind(struct world *w, unsigned stream)
{
    CUevent event;
    struct clock stamp;

    use_context(w, w->streams[stream].context);
    if (!did(w, cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate"))
        return;
    if (did(w, cu.cuEventRecord(event, stream_handle(w, stream)), "record behind the kernel"))
        stream_submit(w, stream, &stamp);
    (void)did(w, cu.cuEventQuery(event), "query of that");
    (void)did(w, cu.cuEventDestroy_v2(event), "cuEventDestroy");
}

/* From now on a stream that is made only now has the other part. */
static void make_other(struct world *w, struct pair *pair)
{
    CUstream handle = NULL;

    if (w->op < w->traits->nonblocking_at || w->n_streams == w->max_streams)
        return;
    use_context(w, pair->context);
    if (did(w, cu.cuStreamCreate(&handle, CU_STREAM_NON_BLOCKING), "cuStreamCreate s%u c%u",
            w->first_stream + w->n_streams, pair->context))
        pair->other = stream_new(w, pair->context, STREAM_NONBLOCKING, handle);
}

static void meanwhile(struct world *w, const struct pair *pair)
{
    struct buffer *buffer;

    if (w->traits->pageable && chance(w, 40)) {
        /* Behind the kernel, too: a copy of pageable memory to the device waits for nothing (R429).
         */
        bool up = chance(w, 65);
        (void)host_copy_beside(w, up && chance(w, 60) ? pair->held : pair->other, up, pair->word);
        return;
    }
    switch (draw(w, 5)) {
    case 0:
        w->next_stream = pair->other;
        w->n_next = 1;
        (void)op_alloc(w);
        w->n_next = 0;
        break;
    case 1:
        record_behind(w, pair->held);
        break;
    case 2:
        buffer = buffer_pick(w, pair->other, false, true, NULL);
        if (buffer && !host_side(buffer))
            (void)read_back(w, buffer, pair->other, true);
        break;
    case 3:
        work_on(w, pair->held);
        break;
    default:
        work_on(w, pair->other);
        break;
    }
}

static bool is_default(const struct world *w, unsigned stream)
{
    const struct context *context = &w->contexts[w->streams[stream].context];

    return stream == (w->traits->per_thread ? context->per_thread : context->legacy);
}

static void set_word(struct world *w, const struct pair *pair)
{
    static const uint32_t one[4] = {1, 1, 1, 1};
    CUstream handle = stream_handle(w, pair->other);
    CUdeviceptr p = pair->word->p;
    struct clock stamp;
    CUresult result;

    if (is_default(w, pair->other) && chance(w, 50))
        result = cu.cuMemcpyHtoD_v2(p, one, sizeof(one));
    else if (chance(w, 30))
        result = cu.cuMemcpyHtoDAsync_v2(p, one, sizeof(one), handle);
    else if (chance(w, 50))
        result = cu.cuStreamWriteValue32_v2(handle, p, 1, 0);
    else
        result = cu.cuMemsetD32Async(p, 1, 4, handle);
    if (!did(w, result, "set b%u s%u", pair->word->id, pair->other))
        return;
    stream_submit(w, pair->other, &stamp);
    pair->word->wrote.at[pair->other] = stamp.at[pair->other];
}

static void wait_for_it(struct world *w, const struct pair *pair)
{
    struct clock pending;

    stream_pending(w, pair->held, &pending);
    if (did(w, cu.cuStreamSynchronize(stream_handle(w, pair->held)), "cuStreamSynchronize s%u",
            pair->held))
        host_knows(w, &pending);
}

bool op_persist(struct world *w)
{
    struct pair pair;
    struct clock stamp;

    if (w->capture.open || !pick_pair(w, &pair) || !clear_word(w, &pair) || !use_and_free(w, &pair))
        return false;
    while (chance(w, 40))
        work_on(w, one_of_both(w, &pair));
    if (!did(w, launch_spin(w, pair.held, pair.word->p), "persist b%u s%u other s%u", pair.word->id,
             pair.held, pair.other))
        return true;
    stream_submit(w, pair.held, &stamp);
    buffer_used(w, pair.word, pair.held, &stamp, false);
    if (chance(w, 30) && w->traits->late)
        make_other(w, &pair);
    /* More copies than anybody has slots for them. */
    for (unsigned n = draw(w, w->traits->pageable && chance(w, 30) ? 16 : 4); n; n--)
        meanwhile(w, &pair);
    set_word(w, &pair);
    if (chance(w, 70))
        wait_for_it(w, &pair);
    return true;
}
