/* Renders who waited: see render_waits.h. */
#include "interpose/core/report/waits/render_waits.h"

#include <stdio.h>

#include "interpose/core/base/relaxed.h"

#define SHOWN 5u /* stacks, for people */

const char *const ag_wait_names[AG_N_WAIT_KINDS] = {"sync",   "copy", "async_copy",
                                                    "memset", "free", "code"};

typedef uint16_t rank;
_Static_assert(AG_HOLDERS_STACKS <= UINT16_MAX, "a rank is a row");

/* Relaxed: each value is shown by itself. */
static bool is_asked_for(const struct ag_holders_view *view)
{
    return view && view->holders && view->holders->wait_bound_ns;
}

struct ag_waited_short ag_waits_short(const struct ag_holders *holders)
{
    struct ag_waited_short sum = {0, 0};

    for (unsigned i = 0; i < AG_SLOTS; i++) {
        sum.times += ag_relaxed(&holders->short_waits[i].times);
        sum.ns += ag_relaxed(&holders->short_waits[i].ns);
    }
    return sum;
}

/* --- ranks --- */

static const struct ag_waited *waits_at(const struct ag_holders_view *view, rank row)
{
    return &view->holders->stacks[row].waited;
}

static bool waited_longer(const struct ag_holders_view *view, rank a, rank b)
{
    uint64_t x = ag_relaxed(&waits_at(view, a)->ns), y = ag_relaxed(&waits_at(view, b)->ns);

    return x != y ? x > y : a < b;
}

/* Shell's sort: in place, without memory. */
static void sort_by_wait(const struct ag_holders_view *view, rank *rows, unsigned n)
{
    for (unsigned gap = n / 2; gap; gap /= 2) {
        for (unsigned i = gap; i < n; i++) {
            rank row = rows[i];
            unsigned at = i;

            for (; at >= gap && waited_longer(view, row, rows[at - gap]); at -= gap)
                rows[at] = rows[at - gap];
            rows[at] = row;
        }
    }
}

struct sums {
    uint64_t times, ns, of_kind[AG_N_WAIT_KINDS];
};

/* The rows that waited, most time first; how many. A row may be there before its first wait. */
static unsigned rank_waits(const struct ag_holders_view *view, rank rows[AG_HOLDERS_STACKS],
                           struct sums *ret_sums)
{
    unsigned all = atomic_load_explicit(&view->holders->n_stacks, memory_order_acquire), n = 0;

    *ret_sums = (struct sums){.times = 0};
    for (unsigned i = 0; i < all; i++) {
        const struct ag_held_stack *stack = &view->holders->stacks[i];

        if (!ag_held_is_wait(stack) || !ag_relaxed(&stack->waited.times))
            continue;
        rows[n++] = (rank)i;
        ret_sums->times += ag_relaxed(&stack->waited.times);
        ret_sums->ns += ag_relaxed(&stack->waited.ns);
        ret_sums->of_kind[stack->device] += ag_relaxed(&stack->waited.ns);
    }
    sort_by_wait(view, rows, n);
    return n;
}

/* --- text --- */

static const char *times_text(char *buffer, size_t size, uint64_t times)
{
    snprintf(buffer, size, "%llu %s", (unsigned long long)times, times == 1 ? "wait" : "waits");
    return buffer;
}

static void text_kinds(struct ag_text *text, const struct sums *sums)
{
    const char *before = " (";
    char time[32];

    for (unsigned kind = 0; kind < AG_N_WAIT_KINDS; kind++) {
        if (!sums->of_kind[kind])
            continue;
        ag_text_add(text, "%s%s %s", before, ag_wait_names[kind],
                    ag_text_duration(time, sizeof(time), (double)sums->of_kind[kind]));
        before = ", ";
    }
    ag_text_add(text, *before == ',' ? ")\n" : "\n");
}

static void text_wait(struct ag_text *text, const struct ag_holders_view *view,
                      const struct ag_held_stack *stack)
{
    uint64_t waits = ag_relaxed(&stack->waited.times);
    char time[32], longest[32], times[48];

    ag_text_add(text, "    %s in %s, %s%s%s\n",
                ag_text_duration(time, sizeof(time), (double)ag_relaxed(&stack->waited.ns)),
                view->holders->text + stack->call, times_text(times, sizeof(times), waits),
                waits > 1 ? ", the longest " : "",
                waits > 1 ? ag_text_duration(longest, sizeof(longest),
                                             (double)ag_relaxed(&stack->waited.longest_ns))
                          : "");
    ag_render_frames_text(text, view, stack);
}

static void text_others(struct ag_text *text, const struct ag_holders *holders)
{
    struct ag_waited_short few = ag_waits_short(holders);
    char time[32], bound[32];

    if (few.times)
        ag_text_add(text, "    %s in %llu call%s that took less than %s each\n",
                    ag_text_duration(time, sizeof(time), (double)few.ns),
                    (unsigned long long)few.times, few.times == 1 ? "" : "s",
                    ag_text_duration(bound, sizeof(bound), (double)holders->wait_bound_ns));
    if (ag_relaxed(&holders->waits_lost.times))
        ag_text_add(
            text, "    %s in %llu waits without a stack: the table is full\n",
            ag_text_duration(time, sizeof(time), (double)ag_relaxed(&holders->waits_lost.ns)),
            (unsigned long long)ag_relaxed(&holders->waits_lost.times));
}

void ag_render_waits_text(struct ag_text *text, const struct ag_holders_view *view)
{
    rank rows[AG_HOLDERS_STACKS];
    char time[32], times[48];
    struct sums sums;
    unsigned n;

    if (!is_asked_for(view))
        return;
    n = rank_waits(view, rows, &sums);
    ag_text_add(text, "  who waited for the device: %s in %s, from %u %s",
                ag_text_duration(time, sizeof(time), (double)sums.ns),
                times_text(times, sizeof(times), sums.times), n, n == 1 ? "stack" : "stacks");
    text_kinds(text, &sums);
    for (unsigned i = 0; i < n && i < SHOWN; i++)
        text_wait(text, view, &view->holders->stacks[rows[i]]);
    if (n > SHOWN)
        ag_text_add(text, "    ... and %u more, which the JSON report lists\n", n - SHOWN);
    text_others(text, view->holders);
}

/* --- JSON --- */

static void emit_wait(struct ag_emitter *json, const struct ag_holders_view *view,
                      const struct ag_held_stack *stack)
{
    ag_emit_line(json, 3);
    ag_emit_object(json, NULL);
    ag_emit_string(json, "call", view->holders->text + stack->call);
    ag_emit_string(json, "kind", ag_wait_names[stack->device]);
    ag_emit_number(json, "times", ag_relaxed(&stack->waited.times));
    ag_emit_number(json, "ns", ag_relaxed(&stack->waited.ns));
    ag_emit_number(json, "longest_ns", ag_relaxed(&stack->waited.longest_ns));
    ag_render_frames_json(json, view, stack);
    ag_emit_end(json);
}

static void emit_sum(struct ag_emitter *json, const char *key, uint64_t times, uint64_t ns)
{
    ag_emit_object(json, key);
    ag_emit_number(json, "times", times);
    ag_emit_number(json, "ns", ns);
    ag_emit_end(json);
}

void ag_render_waits_json(struct ag_emitter *json, const struct ag_holders_view *view)
{
    rank rows[AG_HOLDERS_STACKS];
    struct ag_waited_short few;
    struct sums sums;
    unsigned n;

    if (!is_asked_for(view))
        return;
    n = rank_waits(view, rows, &sums);
    few = ag_waits_short(view->holders);
    ag_emit_line(json, 0);
    ag_emit_object(json, "waits");
    ag_emit_number(json, "bound_ns", view->holders->wait_bound_ns);
    emit_sum(json, "shorter", few.times, few.ns);
    emit_sum(json, "without_stack", ag_relaxed(&view->holders->waits_lost.times),
             ag_relaxed(&view->holders->waits_lost.ns));
    ag_render_modules_json(json, view->holders);
    ag_emit_line(json, 2);
    ag_emit_array(json, "stacks");
    for (unsigned i = 0; i < n; i++)
        emit_wait(json, view, &view->holders->stacks[rows[i]]);
    ag_emit_end(json);
    ag_emit_end(json);
}
