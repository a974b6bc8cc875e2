/* program.c: the life of one random program: what its seed decides, its operations, its end. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "diff.h"
#include "sim.h"

#define N_STREAMS 512 /* of Allograft's: AG_MAX_STREAMS of graph/stream.h */

/* ---- what the seed decides ---- */

static bool host_looks(uint64_t seed)
{
    return seed % 5 >= 2;
}

bool traits_device_only(uint64_t seed)
{
    struct traits traits;

    traits_of(seed, 1, false, &traits);
    return !traits.visible && !traits.captures;
}

bool traits_wait_by_host_free(uint64_t seed)
{
    struct traits traits;

    traits_of(seed, 1, false, &traits);
    /* What goes beside a held kernel is known to be over by no other wait. */
    return (traits.pins && seed % 2) || traits.holds;
}

/* DIFF_WITHOUT names kinds, with commas: what is compared is not made for them. */
static bool is_wanted(const char *kind)
{
    const char *without = getenv("DIFF_WITHOUT");

    return !without || !strstr(without, kind);
}

void traits_of(uint64_t seed, unsigned n_threads, bool ipc, struct traits *ret_traits)
{
    static struct world dice; /* of which the one number is used: not 200 KiB of stack */
    struct traits *t = ret_traits;
    static const unsigned lengths[] = {40, 80, 140, 220};

    dice.random = hash_of(&seed, sizeof(seed));
    memset(t, 0, sizeof(*t));
    t->seed = seed;
    t->n_threads = n_threads;
    t->ipc = ipc;
    t->lookup = (enum lookup)draw(&dice, N_LOOKUPS);
    t->per_thread = chance(&dice, 35);
    t->n_ops = lengths[draw(&dice, 4)];
    t->visible = host_looks(seed);
    t->visible_at = chance(&dice, 60) ? 0 : draw(&dice, t->n_ops);
    t->nonblocking_at = chance(&dice, 40)   ? 0
                        : chance(&dice, 40) ? t->n_ops
                                            : draw(&dice, t->n_ops);
    t->second_context = chance(&dice, 20) && n_threads == 1;
    t->second_device = chance(&dice, 20);
    t->peers = t->second_device && chance(&dice, 50);
    if (n_threads > 1)
        t->second_device = t->peers = false;
    t->captures = chance(&dice, 50);
    t->resets = chance(&dice, 20) && n_threads == 1;
    t->ends = is_wanted("ends");
    t->pools = chance(&dice, 40);
    t->holds = chance(&dice, 15) && n_threads == 1;
    t->ending = draw(&dice, N_ENDINGS);
    t->hungry = chance(&dice, 30);
    t->faults = chance(&dice, 5) && n_threads == 1 && !ipc;
    t->greens = chance(&dice, 15) && n_threads == 1;
    t->forks = chance(&dice, 20) && n_threads == 1;
    t->persists = chance(&dice, 30) && n_threads == 1;
    t->late = is_wanted("late");
    t->narrow = chance(&dice, 40);
    t->divided = chance(&dice, 60) && n_threads > 1;
    t->maps = seed % 10 == 8 && !ipc;
    if (t->maps) /* a context that begins anew has its first limit */
        t->resets = t->greens = false;
    /* Last: programs without these are the same as without such kinds. */
    t->boxes = chance(&dice, 30) && is_wanted("boxes");
    t->shares = chance(&dice, 20) && is_wanted("shares");
    t->batches = chance(&dice, 20) && is_wanted("batches");
    t->idles = chance(&dice, 20) && n_threads == 1 && is_wanted("idles");
    t->replaced = chance(&dice, 60) && n_threads > 1;
    t->relay = chance(&dice, 75) && t->divided && t->replaced;
    if (t->relay) /* or each free would wait */
        t->visible = false;
    t->deep = chance(&dice, 20) && n_threads == 1 && is_wanted("deep");
    if (t->deep) /* what such keep is not known */
        t->pools = false;
    t->pins = chance(&dice, 40) && t->visible && n_threads == 1 && is_wanted("pins");
}

void traits_with_iterations(struct traits *traits)
{
    traits->iterations = true;
    traits->persists = traits->narrow = traits->divided = traits->relay = false;
    traits->n_ops = 12 + traits->n_ops / 8;
    traits->polls = traits->seed % 7 == 0;
    /* In half of them there are more streams than Allograft has streams, or nearly so many. */
    if (traits->seed % 2)
        traits->n_bystanders = N_STREAMS - 8 + (unsigned)(traits->seed / 2 % 15);
    if (traits->visible)
        traits->visible_at = 0;
}

void traits_with_pageable(struct traits *traits)
{
    traits->pageable = true;
}

void traits_with_large(struct traits *traits)
{
    traits->large = traits->hungry = true;
}

void traits_with_graphs(struct traits *traits)
{
    traits->graphs = true;
    traits->recopies = is_wanted("recopies");
    traits->by_nodes = traits->visible && traits->seed % 3 == 1;
    if (traits->by_nodes) /* what shows the host work otherwise */
        traits->pins = traits->batches = traits->shares = traits->ipc = false;
}

void traits_with_pools(struct traits *traits)
{
    traits->places = traits->pools = true;
    traits->deep = false;
}

void traits_with_arrays(struct traits *traits)
{
    traits->arrays = true;
    traits->resets = traits->ends = traits->greens = false; /* arrays would be gone with them */
}

/* ---- operations ---- */

static const struct {
    bool (*run)(struct world *);
    unsigned weight;
} operations[] = {
    {op_kernel, 26},        {op_copy, 10},        {op_memset, 6},        {op_upload, 5},
    {op_read_back, 8},      {op_mark, 4},         {op_alloc, 12},        {op_free, 14},
    {op_alloc_async, 4},    {op_free_async, 4},   {op_alloc_visible, 5}, {op_free_visible, 1},
    {op_host_read, 9},      {op_host_write, 2},   {op_host_function, 5}, {op_stream_create, 4},
    {op_stream_destroy, 2}, {op_event_create, 2}, {op_event_destroy, 1}, {op_event_record, 5},
    {op_event_wait, 4},     {op_event_ask, 6},    {op_stream_ask, 6},    {op_synchronize, 1},
    {op_hold, 3},           {op_spin, 4},         {op_capture_begin, 3}, {op_graph_launch, 5},
    {op_graph_destroy, 1},  {op_context, 2},      {op_push, 2},          {op_ask_pointer, 5},
    {op_ask_memory, 1},     {op_mistake, 2},      {op_ipc, 6},           {op_fork, 5},
    {op_peers, 4},          {op_green, 5},        {op_copy_across, 8},
};

/* Right after a free: what relies on it having waited. */
static const struct {
    bool (*run)(struct world *);
    unsigned weight;
} leaning[] = {
    {op_kernel, 30},    {op_copy, 12},        {op_read_back, 6},     {op_host_read, 25},
    {op_stream_ask, 9}, {op_event_ask, 9},    {op_alloc, 14},        {op_memset, 3},
    {op_free, 3},       {op_graph_launch, 4}, {op_stream_create, 2},
};

/* Of a thread that submits nothing. */
static const struct {
    bool (*run)(struct world *);
    unsigned weight;
} freeing[] = {{op_alloc, 50}, {op_free, 45}, {op_ask_pointer, 4}, {op_ask_memory, 1}};

#define DRAW_FROM(w, table)                                               \
    do {                                                                  \
        unsigned total = 0, at = 0, pick;                                 \
        for (unsigned i = 0; i < sizeof(table) / sizeof((table)[0]); i++) \
            total += (table)[i].weight;                                   \
        pick = draw(w, total);                                            \
        while (pick >= (table)[at].weight)                                \
            pick -= (table)[at++].weight;                                 \
        if ((table)[at].run(w))                                           \
            return;                                                       \
    } while (0)

void one_operation(struct world *w)
{
    w->op++;
    if (w->traits->hungry && chance(w, 12) && op_alloc(w))
        return;
    if (w->traits->maps && !w->submits_nothing && chance(w, 15) && op_map_any(w))
        return;
    if (w->traits->boxes && !w->submits_nothing && !w->capture.open && chance(w, 8) && op_box(w))
        return;
    if (w->traits->pageable && !w->submits_nothing && chance(w, 25) && op_host_copy(w))
        return;
    if (w->traits->large && !w->submits_nothing && chance(w, 15) && op_follow(w))
        return;
    if (w->traits->graphs && !w->submits_nothing && !w->capture.open && chance(w, 25) &&
        op_graph_by_hand(w))
        return;
    if (w->traits->places && !w->submits_nothing && !w->capture.open && chance(w, 15) && op_pool(w))
        return;
    if (w->traits->arrays && !w->submits_nothing && !w->capture.open && chance(w, 25) &&
        op_array(w))
        return;
    if (w->traits->shares && !w->submits_nothing && !w->capture.open && chance(w, 6) && op_share(w))
        return;
    if (w->traits->batches && !w->submits_nothing && !w->capture.open && chance(w, 16) &&
        (chance(w, 30) ? op_batch(w) : op_batch_and_free(w)))
        return;
    if (w->traits->idles && chance(w, 4) && op_idle(w))
        return;
    if (w->traits->deep && !w->capture.open && chance(w, 8) && op_deep(w))
        return;
    if (w->traits->pins && may_look(w) && chance(w, 12) && op_pin(w))
        return;
    /* An answer tells nothing here, but to give it Allograft places a fence. */
    if (w->traits->relay && w->submits_nothing && chance(w, w->lean ? 40 : 5)) {
        if (op_stream_ask(w))
            return;
    }
    for (unsigned tries = 0; tries < 12; tries++) {
        if (w->capture.open) {
            if (op_in_capture(w))
                return;
        } else if (w->submits_nothing) {
            DRAW_FROM(w, freeing);
        } else if (w->lean && chance(w, 80)) {
            DRAW_FROM(w, leaning);
        } else {
            DRAW_FROM(w, operations);
        }
    }
}

static void run_operations(struct world *w, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        if (w->traits->persists && chance(w, 8))
            (void)op_persist(w);
        if (!w->traits->iterations || w->capture.open || !chance(w, 14))
            one_operation(w);
        else if (!chance(w, w->traits->polls ? 45 : 0) || !op_poll(w))
            (void)op_iterations(w);
        w->lean -= w->lean > 0;
    }
    while (w->capture.open)
        (void)op_capture_end(w);
}

/* ---- beginning ---- */

static void make_pools(struct world *w)
{
    for (int device = 0; device < (w->traits->second_device ? 2 : 1); device++) {
        CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
        CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = !device},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        cuuint64_t keep = draw(w, 2) ? UINT64_MAX : 0;

        (void)did(w, cu.cuMemPoolCreate(&w->pools[device], &props), "cuMemPoolCreate %d", device);
        (void)did(
            w, cu.cuMemPoolSetAttribute(w->pools[device], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep),
            "cuMemPoolSetAttribute");
        if (w->traits->second_device)
            (void)did(w, cu.cuMemPoolSetAccess(w->pools[device], &access, 1), "cuMemPoolSetAccess");
    }
}

static void open_peers(struct world *w)
{
    for (unsigned from = 0; from < 2; from++) {
        use_context(w, from);
        w->peer_open[from] = did(w, cu.cuCtxEnablePeerAccess(w->contexts[!from].handle, 0),
                                 "peer c%u c%u", from, !from);
    }
}

/* What has a stream by then keeps it; other streams, the legacy one if it was not used yet, find
 * none. */
static void make_bystanders(struct world *w)
{
    CUresult result = CUDA_SUCCESS;
    CUstream handle;

    use_context(w, 0);
    for (unsigned i = 0; i < w->traits->n_bystanders && !result; i++)
        result = cu.cuStreamCreate(&handle, CU_STREAM_DEFAULT);
    (void)did(w, result, "%u bystanders", w->traits->n_bystanders);
}

static void begin(struct world *w)
{
    if (!did(w, cu.cuInit(0), "cuInit"))
        exit(97);
    context_open(w, w->n_contexts++, 0, true);
    if (w->traits->second_device)
        context_open(w, w->n_contexts++, 1, true);
    if (w->traits->peers)
        open_peers(w);
    if (w->traits->pools)
        make_pools(w);
    for (unsigned i = 0; i < 3; i++)
        (void)op_stream_create(w);
    make_bystanders(w);
}

/* ---- the end ---- */

/* Host threads' own metadata are over: what they had submitted is known to their marks. */
static void due_marks(struct world *w, struct outcome *outcome)
{
    for (unsigned i = 0; i < w->n_marks; i++) {
        if (!clock_covers(&w->host, &w->marks[i].stamp))
            continue;
        outcome->due[w->marks[i].index] = 1;
        outcome->n_marks_due++;
    }
}

static void look_at_all(struct world *w)
{
    for (unsigned i = 0; i < MAX_BUFFERS; i++) {
        struct buffer *buffer = &w->buffers[i];
        unsigned owner = buffer->context;

        if (!buffer->live || !buffer->filled || !clock_covers(&w->host, &buffer->wrote))
            continue;
        if (host_alone(buffer)) {
            say(w, "last look b%u: %016llx", buffer->id,
                (unsigned long long)hash_of(buffer->host, buffer->extent));
            continue;
        }
        for (unsigned c = 0; c < w->n_contexts && !w->contexts[owner].alive; c++)
            if (w->contexts[c].alive && w->contexts[c].device == w->contexts[owner].device)
                owner = c;
        if (w->contexts[owner].alive)
            (void)read_back(w, buffer, w->contexts[owner].legacy, true);
    }
}

static void free_all(struct world *w)
{
    for (unsigned i = 0; i < MAX_GRAPHS; i++)
        (void)op_graph_destroy(w);
    follow_end(w);
    array_end(w);
    for (unsigned i = 0; i < MAX_BUFFERS; i++) {
        struct buffer *buffer = &w->buffers[i];

        if (!buffer->live)
            continue;
        if (buffer->shared)
            ipc_close(w);
        use_context(w, w->contexts[buffer->context].alive ? buffer->context : 0);
        if (buffer->kind == BUFFER_MAPPED) {
            unmap_buffer(w, buffer);
            continue;
        }
        if (buffer->kind == BUFFER_PINNED)
            (void)did(w, cu.cuMemFreeHost(buffer->host), "cuMemFreeHost b%u", buffer->id);
        else if (buffer->kind == BUFFER_REGISTERED)
            (void)did(w, cu.cuMemHostUnregister(buffer->host), "cuMemHostUnregister b%u",
                      buffer->id);
        else if (!host_alone(buffer) && buffer->kind != BUFFER_GLOBAL)
            (void)did(w, cu.cuMemFree_v2(buffer->p), "cuMemFree b%u", buffer->id);
        buffer_gone(w, buffer);
    }
    for (int device = 0; device < 2 && w->thread == 0; device++)
        if (w->pools[device])
            (void)did(w, cu.cuMemPoolDestroy(w->pools[device]), "cuMemPoolDestroy %d", device);
}

static void wait_for_all(struct world *w)
{
    for (unsigned i = 0; i < w->n_contexts; i++) {
        if (!w->contexts[i].alive)
            continue;
        use_context(w, i);
        if (did(w, cu.cuCtxSynchronize(), "cuCtxSynchronize c%u", i))
            host_knows_context(w, i);
    }
}

/* After a reset of every device nothing may be left of what anybody allocated. */
static void reset_all(struct world *w)
{
    for (unsigned i = 0; i < w->n_contexts; i++) {
        struct context *context = &w->contexts[i];
        if (context->alive && !context->primary)
            (void)did(w, cu.cuCtxDestroy_v2(context->handle), "cuCtxDestroy c%u", i);
        else if (context->alive)
            (void)did(w, cu.cuDevicePrimaryCtxReset_v2(context->device), "reset %d",
                      context->device);
        context->alive = false;
    }
    if (w->freed_open) /* what another process had open may be kept for it */
        return;
    for (int device = 0; device < (w->traits->second_device ? 2 : 1); device++)
        say(w, "still in use on device %d: %zu", device, sim_bytes_in_use(device));
}

/* ---- several host threads ---- */

static struct {
    struct world *worlds[MAX_THREADS];
    pthread_barrier_t meeting;
    unsigned n;
} threads;

/* Threads that only free rely on what others did before a meeting, and those on their frees. */
static unsigned n_phases(const struct traits *traits)
{
    return traits->relay ? 4 : traits->replaced ? 6 : traits->divided ? 12 : 4;
}

/* Some of the one's buffers become the other's, which knows what was done with them. */
static void hand_over(struct world *from, struct world *to, unsigned first)
{
    for (unsigned b = first; b < MAX_BUFFERS; b += 3) {
        struct buffer *buffer = &from->buffers[b], *place = NULL;

        if (!buffer->live || buffer_in_graph(from, buffer))
            continue;
        for (unsigned p = 0; p < MAX_BUFFERS; p++)
            if (!to->buffers[p].live)
                place = &to->buffers[p];
        if (!place)
            continue;
        *place = *buffer;
        to->bytes_live += buffer->bytes;
        buffer_gone(from, buffer);
    }
}

/* While no other thread is there: what each had submitted becomes known to all, and each hands some
 * buffers to the next one. */
static void exchange(void)
{
    struct clock all = {0}, host = {0};

    for (unsigned i = 0; i < threads.n; i++) {
        clock_join(&all, &threads.worlds[i]->contexts[0].all);
        clock_join(&host, &threads.worlds[i]->host);
    }
    for (unsigned i = 0; i < threads.n; i++) {
        threads.worlds[i]->contexts[0].foreign = all;
        threads.worlds[i]->host = host;
    }
    for (unsigned i = 0; i < threads.n; i++)
        hand_over(threads.worlds[i], threads.worlds[(i + 1) % threads.n], i % 2);
}

static void *thread_main(void *data)
{
    struct world *w = data;
    unsigned n = n_phases(w->traits);

    if (w->thread)
        (void)cu.cuCtxSetCurrent(w->contexts[0].handle);
    for (unsigned phase = 0; phase < n; phase++) {
        run_operations(w, w->traits->n_ops / n);
        if (pthread_barrier_wait(&threads.meeting) == PTHREAD_BARRIER_SERIAL_THREAD)
            exchange();
        (void)pthread_barrier_wait(&threads.meeting);
    }
    return NULL;
}

/* ---- threads that end, and others that go on for them ---- */

/* Perhaps at the address of what the thread before it had used last, and on another stream. */
static struct buffer *first_words(struct world *w)
{
    bool fits = w->last_bytes && w->bytes_live + w->last_bytes <= MOST_BYTES;
    struct buffer *buffer = fits ? buffer_new(w, BUFFER_NATIVE, 0, w->last_bytes) : NULL;

    w->last_bytes = 0;
    w->last_id = 0;
    if (!buffer ||
        !did(w, ROOM_OR_HOST(w, 0, buffer->bytes, cu.cuMemAlloc_v2(&buffer->p, buffer->bytes)),
             "alloc b%u again", buffer->id))
        return NULL;
    buffer->live = true;
    w->bytes_live += buffer->bytes;
    for (unsigned tries = 0; tries < 8; tries++) {
        w->n_next = 0;
        w->next_stream = w->main_stream = stream_pick(w);
        if (w->next_stream != w->last_stream)
            break;
    }
    w->n_next = 1;
    return fill_new(w, buffer) && buffer->filled ? buffer : NULL;
}

static void last_words(struct world *w)
{
    unsigned stream = stream_pick(w);
    struct buffer *buffer =
        stream == MAX_STREAMS ? NULL : buffer_pick(w, stream, true, false, NULL);

    if (!buffer || buffer->kind != BUFFER_NATIVE || buffer_in_graph(w, buffer))
        return;
    sim_be_late(); /* so that others are in the middle of something when the thread has ended */
    if (!did(w, launch_fill(w, stream, buffer->p, buffer->extent, w->op), "at last b%u s%u",
             buffer->id, stream))
        return;
    used_both(w, stream, buffer, NULL);
    w->last_id = buffer->id;
    w->last_stream = stream;
}

/* Of those that only free, so many that they are there when others end. */
static unsigned operations_of_life(const struct world *w)
{
    unsigned n = w->traits->n_ops / n_phases(w->traits);

    if (!w->traits->relay)
        return 1 + n / 2;
    return w->submits_nothing ? 70 : 1 + n / 6;
}

static void *life_main(void *data)
{
    struct world *w = data;
    struct buffer *first;
    unsigned id;

    (void)cu.cuCtxSetCurrent(w->contexts[0].handle);
    first = w->submits_nothing ? NULL : first_words(w);
    id = first ? first->id : 0;
    if (first)
        wait_for_stream(w, first->last_stream);
    run_operations(w, operations_of_life(w));
    if (first)
        wait_for_stream(w, w->last_stream); /* of the thread before it */
    if (first && first->live && first->id == id && w->streams[first->last_stream].alive)
        (void)read_back(w, first, first->last_stream, true);
    for (unsigned i = 0; i < 3 && !w->submits_nothing; i++) {
        w->is_ending = i == 2;
        last_words(w);
    }
    w->is_ending = true;
    return NULL;
}

/* Frees, and a question before which Allograft places a fence, while the other thread submits its
 * last. */
static void free_while_it_ends(struct world *w, struct world *first)
{
    CUdeviceptr p;

    while (!w->is_ending)
        (void)usleep(20);
    use_context(first, 0);
    for (unsigned i = 0; i < 3; i++) {
        if (!did(first, ROOM_OR_HOST(first, 0, 512, cu.cuMemAlloc_v2(&p, 512)), "while it ends"))
            continue;
        (void)did(first, cu.cuMemFree_v2(p), "free that");
        host_knows_context(first, 0);
        (void)cu.cuStreamQuery(CU_STREAM_PER_THREAD);
    }
}

/* By the first thread, which has waited for the other one to end. */
static void free_what_it_left(struct world *w, struct world *first)
{
    for (unsigned i = 0; i < MAX_BUFFERS && w->last_id; i++) {
        struct buffer *buffer = &w->buffers[i];

        if (!buffer->live || buffer->id != w->last_id || buffer->kind != BUFFER_NATIVE)
            continue;
        w->last_id = 0;
        if (!did(first, cu.cuMemFree_v2(buffer->p), "free b%u, which a thread left", buffer->id))
            return;
        w->last_bytes = buffer->bytes;
        buffer_gone(w, buffer);
        host_knows_context(first, 0);
    }
}

/* The next thread has a stream of its own; where there is no number left for it, it uses none. */
static void renew_own_stream(struct world *w)
{
    unsigned old = w->contexts[0].per_thread, new;

    if (!w->streams[old].seq)
        return;
    w->streams[old].alive = false;
    new = stream_new(w, 0, STREAM_PER_THREAD, CU_STREAM_PER_THREAD);
    if (new == MAX_STREAMS)
        return;
    w->contexts[0].per_thread = new;
    w->main_stream = w->main_stream == old ? new : w->main_stream;
}

/* It knows all that the first one knows. */
static void begin_life(pthread_t *id, struct world *w, struct world *first)
{
    renew_own_stream(w);
    w->is_ending = false;
    host_knows(w, &first->host);
    clock_join(&w->contexts[0].foreign, &first->contexts[0].all);
    clock_join(&w->contexts[0].foreign, &first->contexts[0].foreign);
    if (pthread_create(id, NULL, life_main, w))
        abort();
}

static void end_life(pthread_t id, struct world *w, struct world *first)
{
    if (first->traits->relay && !w->submits_nothing)
        free_while_it_ends(w, first);
    (void)pthread_join(id, NULL);
    host_knows(first, &w->host);
    clock_join(&first->contexts[0].foreign, &w->contexts[0].all);
    clock_join(&first->contexts[0].foreign, &w->contexts[0].foreign);
}

/* The first thread goes on meanwhile. It takes over what threads leave that end, and uses or frees
 * it at once. */
static void run_lives(struct world *first)
{
    unsigned n = n_phases(first->traits), n_turns = first->traits->relay ? 8 : 3;
    unsigned part = first->traits->relay ? 10 : first->traits->n_ops / n / n_turns + 1;
    pthread_t ids[MAX_THREADS];

    for (unsigned phase = 0; phase < n; phase++) {
        for (unsigned i = 1; i < threads.n; i++)
            begin_life(&ids[i], threads.worlds[i], first);
        for (unsigned turn = 0; turn < n_turns; turn++) {
            unsigned i = first->traits->relay && chance(first, 70) ? threads.n - 1
                                                                   : 1 + draw(first, threads.n - 1);

            run_operations(first, part);
            end_life(ids[i], threads.worlds[i], first);
            if (chance(first, 70))
                free_what_it_left(threads.worlds[i], first);
            hand_over(threads.worlds[i], first, turn);
            begin_life(&ids[i], threads.worlds[i], first);
        }
        for (unsigned i = 1; i < threads.n; i++)
            end_life(ids[i], threads.worlds[i], first);
        exchange();
    }
}

static struct world *world_new(const struct traits *traits, unsigned thread, char *logs)
{
    struct world *w = calloc(1, sizeof(*w));

    if (!w)
        abort();
    w->traits = traits;
    w->thread = thread;
    w->random = hash_of((uint64_t[]){traits->seed, thread}, 16);
    w->next_id = thread * 10000;
    w->log = logs + thread * LOG_CAPACITY;
    w->log_capacity = LOG_CAPACITY;
    w->max_streams = MAX_STREAMS / (traits->n_threads > 1 ? MAX_THREADS : 1);
    w->first_stream = thread * w->max_streams;
    w->main_stream = w->first_stream + traits->per_thread; /* the default one: see context_open() */
    w->current = MAX_CONTEXTS;
    w->submits_nothing =
        traits->relay ? thread != traits->n_threads - 1 : traits->divided && thread % 2;
    return w;
}

/* All submit to it, in whatever order; each orders its own work by it. */
static void share(struct world *w, CUstream handle)
{
    unsigned stream = stream_new(w, 0, STREAM_NONBLOCKING, handle);

    w->streams[stream].shared = true;
}

static void run_threads(struct world *first, const struct traits *traits, char *logs)
{
    pthread_t ids[MAX_THREADS];

    CUstream both = NULL;

    threads.n = traits->n_threads;
    threads.worlds[0] = first;
    if ((traits->iterations || traits->divided) &&
        did(first, cu.cuStreamCreate(&both, CU_STREAM_NON_BLOCKING), "for all"))
        share(first, both);
    (void)pthread_barrier_init(&threads.meeting, NULL, threads.n);
    for (unsigned i = 1; i < threads.n; i++) {
        struct world *w = threads.worlds[i] = world_new(traits, i, logs);
        w->contexts[0] = first->contexts[0];
        memset(&w->contexts[0].all, 0, sizeof(w->contexts[0].all));
        memset(&w->contexts[0].blocking, 0, sizeof(w->contexts[0].blocking));
        w->n_contexts = 1;
        w->current = 0;
        w->pools[0] = first->pools[0];
        w->contexts[0].legacy = stream_new(w, 0, STREAM_LEGACY, CU_STREAM_LEGACY);
        w->contexts[0].per_thread = stream_new(w, 0, STREAM_PER_THREAD, CU_STREAM_PER_THREAD);
        if (both)
            share(w, both);
    }
    if (traits->replaced) {
        run_lives(first);
        return;
    }
    for (unsigned i = 1; i < threads.n; i++)
        if (pthread_create(&ids[i], NULL, thread_main, threads.worlds[i]))
            abort();
    (void)thread_main(first);
    for (unsigned i = 1; i < threads.n; i++)
        (void)pthread_join(ids[i], NULL);
}

/* ---- all of it ---- */

/* The other threads are gone: this one gives back what all had. */
static void give_all_back(struct world *w)
{
    wait_for_all(w);
    for (unsigned i = 0; i < threads.n; i++) {
        struct world *other = threads.worlds[i];
        host_knows(other, &w->host);
        host_knows_context(other, 0);
        look_at_all(other);
    }
    for (unsigned i = threads.n; i--;)
        free_all(threads.worlds[i]);
}

static void end(struct world *w, struct outcome *outcome)
{
    w->op++;
    if (w->traits->faults) {
        process_fault(w);
        say(w, "violations %u", sim_violations());
        return;
    }
    /* What a program may have waited for last is a free. */
    if (w->traits->ending >= END_EXIT && chance(w, 50)) {
        (void)op_mark(w);
        (void)op_mark(w);
        (void)op_free(w);
    }
    if (w->traits->ending == END_CLEAN || w->traits->ending == END_RESET) {
        give_all_back(w);
        outcome->clean = 1;
        if (w->traits->ending == END_RESET)
            reset_all(w);
    }
    say(w, "violations %u", sim_violations());
}

static void finish_logs(struct outcome *outcome)
{
    for (unsigned i = 0; i < threads.n; i++) {
        outcome->log_part[i] = (uint32_t)threads.worlds[i]->log_bytes;
        outcome->n_ops += threads.worlds[i]->op;
    }
    outcome->finished = 1;
}

void program_run(const struct traits *traits, struct outcome *outcome, char *logs)
{
    struct world *w = world_new(traits, 0, logs);

    kernels_register(outcome->marks);
    room_start(outcome->refused, outcome->again);
    if (traits->ipc)
        ipc_start(traits->second_device ? 2 : 1);
    lookups_open(traits->lookup, traits->per_thread);
    begin(w);
    threads.n = 1;
    threads.worlds[0] = w;
    if (traits->n_threads > 1) {
        run_threads(w, traits, logs);
        for (unsigned i = 1; i < threads.n; i++)
            due_marks(threads.worlds[i], outcome);
    } else {
        run_operations(w, traits->n_ops);
    }
    end(w, outcome);
    due_marks(w, outcome);
    finish_logs(outcome);
    if (traits->ending == END_QUICK_EXIT)
        _exit(0);
    if (traits->ending == END_EXEC)
        process_exec();
    exit(0);
}
