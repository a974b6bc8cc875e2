/* thin.c: thins memory over time: see thin.h. */
#include "tools/trace/thin.h"

#include <stdlib.h>
#include <string.h>

/* Which states of a part are kept; after these the ones with most of each placement. */
enum kept { FIRST, LAST, LEAST, MOST, MOST_OF_PLACE, N_KEPT = MOST_OF_PLACE + AG_TRACE_N_PLACES };

struct thinning {
    struct thin_point (*parts)[N_KEPT];
    size_t n_parts;
    uint64_t begin_ns, length_ns, order;
};

static size_t thinning_part(const struct thinning *thinning, uint64_t ns)
{
    double share = thinning->length_ns && ns > thinning->begin_ns
                       ? (double)(ns - thinning->begin_ns) / (double)thinning->length_ns
                       : 0;

    return share < 1 ? (size_t)(share * (double)thinning->n_parts) : thinning->n_parts - 1;
}

static void thin_event(const struct trace_state *state, void *data)
{
    const struct trace_event *event = &state->event;
    bool is_alloc = event->kind == AG_TRACE_ALLOC || event->kind == AG_TRACE_ALLOC_ASYNC;
    struct thin_point point = {.total = state->total, .is_kept = true};
    struct thinning *thinning = data;
    struct thin_point *part;

    if (event->kind > AG_TRACE_MOVED || event->kind == AG_TRACE_FAILED)
        return;
    point.ns = event->began_ns + (is_alloc ? event->duration_ns : 0);
    point.order = thinning->order++;
    memcpy(point.level, state->level, sizeof(point.level));
    part = thinning->parts[thinning_part(thinning, point.ns)];
    if (!part[FIRST].is_kept)
        part[FIRST] = point;
    part[LAST] = point;
    if (!part[LEAST].is_kept || point.total < part[LEAST].total)
        part[LEAST] = point;
    if (!part[MOST].is_kept || point.total > part[MOST].total)
        part[MOST] = point;
    for (unsigned place = 0; place < AG_TRACE_N_PLACES; place++) {
        if (point.level[place] > part[MOST_OF_PLACE + place].level[place])
            part[MOST_OF_PLACE + place] = point;
    }
}

/* What is not kept comes last. */
static int by_order(const void *a, const void *b)
{
    const struct thin_point *x = a, *y = b;

    if (x->is_kept != y->is_kept)
        return x->is_kept ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* Moves the states that are kept to the front, in order and once each. */
static long gather(struct thin_point *points, size_t n)
{
    size_t kept = 0;

    qsort(points, n, sizeof(*points), by_order);
    for (size_t i = 0; i < n && points[i].is_kept; i++) {
        if (!kept || points[kept - 1].order != points[i].order)
            points[kept++] = points[i];
    }
    return (long)kept;
}

long thin_memory(const struct trace *trace, size_t n_parts, struct thin_point **ret_points)
{
    const struct trace_info *info = trace_info(trace);
    struct thinning thinning = {.n_parts = n_parts, .begin_ns = info->opened_ns};

    if (info->last_ns > info->opened_ns)
        thinning.length_ns = info->last_ns - info->opened_ns;
    thinning.parts = calloc(n_parts, sizeof(*thinning.parts));
    if (!thinning.parts || !trace_walk(trace, AG_TRACE_NO_DEVICE, thin_event, &thinning)) {
        free(thinning.parts);
        return -1;
    }
    *ret_points = thinning.parts[0];
    return gather(*ret_points, n_parts * N_KEPT);
}
