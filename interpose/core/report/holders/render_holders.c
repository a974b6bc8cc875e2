/* Renders who holds memory: see render_holders.h. */
#include "interpose/core/report/holders/render_holders.h"

#include <stdio.h>
#include <string.h>

#include "interpose/core/base/relaxed.h"

#define SHOWN 10u /* stacks of a list for people */

const char *const ag_held_move_keys[AG_N_HELD_MOVES] = {"in_bytes", "out_bytes", "in_place_bytes"};
const char *const ag_held_names[AG_N_HELD_KINDS] = {"device", "pool", "managed", "host"};

typedef uint16_t rank;
_Static_assert(AG_HOLDERS_STACKS <= UINT16_MAX, "a rank is a row");

/* Relaxed: each value is shown by itself. */
static unsigned n_stacks(const struct ag_holders *holders)
{
    return atomic_load_explicit(&holders->n_stacks, memory_order_acquire);
}

/* What was never freed: it is live, or went with its context. */
#define NEVER_FREED AG_N_HELD_WHEN
/* What became of it, instead: all that moved, or was used on the host. */
#define MOVED (AG_N_HELD_WHEN + 1)

static uint64_t moved_bytes(const struct ag_held_stack *stack, enum ag_held_move what)
{
    return ag_relaxed(&stack->moved[what]);
}

static uint64_t held_bytes(const struct ag_held_stack *stack, enum ag_held_when when)
{
    if (when == NEVER_FREED)
        return held_bytes(stack, AG_HELD_LIVE) + held_bytes(stack, AG_HELD_ENDED);
    if (when == MOVED)
        return moved_bytes(stack, AG_HELD_CAME) + moved_bytes(stack, AG_HELD_WENT) +
               moved_bytes(stack, AG_HELD_IN_PLACE);
    return ag_relaxed(&stack->held[when].bytes);
}

/* Pieces move: nobody counts blocks of MOVED. */
static uint64_t blocks_of(const struct ag_held_stack *stack, enum ag_held_when when)
{
    if (when == MOVED)
        return 0;
    if (when == NEVER_FREED)
        return blocks_of(stack, AG_HELD_LIVE) + blocks_of(stack, AG_HELD_ENDED);
    return ag_relaxed(&stack->held[when].blocks);
}

static unsigned group_number(const struct ag_held_stack *stack)
{
    return ag_held_group((enum ag_held_kind)stack->kind, stack->device);
}

/* --- copies --- */

void ag_holders_copy(struct ag_holders *holders, unsigned group, enum ag_held_when when)
{
    unsigned n = n_stacks(holders);
    uint64_t sum = 0;

    for (unsigned i = 0; i < n; i++) {
        struct ag_held_stack *stack = &holders->stacks[i];
        uint64_t bytes;

        if (ag_held_is_wait(stack) || group_number(stack) != group)
            continue;
        bytes = held_bytes(stack, AG_HELD_LIVE);
        atomic_store_explicit(&stack->held[when].bytes, bytes, memory_order_relaxed);
        atomic_store_explicit(&stack->held[when].blocks,
                              ag_relaxed(&stack->held[AG_HELD_LIVE].blocks), memory_order_relaxed);
        sum += bytes;
    }
    if (when == AG_HELD_PEAK)
        atomic_store_explicit(&holders->groups[group].at_peak, sum, memory_order_relaxed);
}

void ag_holders_complete(struct ag_holders *holders)
{
    for (unsigned group = 0; group < AG_HELD_GROUPS; group++) {
        if (ag_relaxed(&holders->groups[group].live) > ag_relaxed(&holders->groups[group].at_peak))
            ag_holders_copy(holders, group, AG_HELD_PEAK);
    }
}

static bool is_sound_frame(const struct ag_holders *holders, uint64_t frame)
{
    if (frame & AG_FRAME_PYTHON)
        return (uint32_t)frame < atomic_load(&holders->n_text);
    return frame >> 48 < atomic_load(&holders->n_modules);
}

static bool is_sound_stack(const struct ag_holders *holders, const struct ag_held_stack *stack)
{
    uint32_t n = atomic_load(&holders->n_frames);

    if (stack->first > n || stack->n > n - stack->first || stack->n > 2 * AG_HOLDERS_MOST ||
        stack->kind > AG_HELD_WAIT || stack->call >= atomic_load(&holders->n_text))
        return false;
    if (ag_held_is_wait(stack) && (unsigned)stack->device >= AG_N_WAIT_KINDS)
        return false;
    for (uint32_t i = 0; i < stack->n; i++) {
        if (!is_sound_frame(holders, holders->frames[stack->first + i]))
            return false;
    }
    return true;
}

bool ag_holders_are_sound(const struct ag_holders *holders)
{
    uint32_t n_text = atomic_load(&holders->n_text), n_modules = atomic_load(&holders->n_modules);

    if (memcmp(holders->magic, AG_HOLDERS_MAGIC, sizeof(AG_HOLDERS_MAGIC)) != 0 ||
        holders->bytes != sizeof(*holders) || n_stacks(holders) > AG_HOLDERS_STACKS ||
        atomic_load(&holders->n_frames) > AG_HOLDERS_FRAMES || n_modules > AG_HOLDERS_MODULES ||
        n_text > AG_HOLDERS_TEXT || !n_text || holders->text[0] || holders->text[n_text - 1] ||
        holders->failure.kind >= AG_N_HELD_KINDS ||
        holders->failure.pool_used > holders->failure.pool_reserved)
        return false;
    for (unsigned i = 0; i < n_modules; i++) {
        if (holders->modules[i].path >= n_text || holders->modules[i].build_id >= n_text)
            return false;
    }
    for (unsigned i = 0; i < n_stacks(holders); i++) {
        if (!is_sound_stack(holders, &holders->stacks[i]))
            return false;
    }
    return true;
}

/* --- ranks --- */

static const struct ag_held_stack *holder_at(const struct ag_holders_view *view, rank row)
{
    return &view->holders->stacks[row];
}

/* Does row a stand above row b? Of equals the one that came first. */
static bool holds_more(const struct ag_holders_view *view, enum ag_held_when when, rank a, rank b)
{
    uint64_t x = held_bytes(holder_at(view, a), when), y = held_bytes(holder_at(view, b), when);

    if (x != y)
        return x > y;
    x = held_bytes(holder_at(view, a), AG_HELD_PEAK);
    y = held_bytes(holder_at(view, b), AG_HELD_PEAK);
    return x != y ? x > y : a < b;
}

/* Shell's sort: in place, without memory. */
static void sort_by_bytes(const struct ag_holders_view *view, enum ag_held_when when, rank *rows,
                          unsigned n)
{
    for (unsigned gap = n / 2; gap; gap /= 2) {
        for (unsigned i = gap; i < n; i++) {
            rank row = rows[i];
            unsigned at = i;

            for (; at >= gap && holds_more(view, when, row, rows[at - gap]); at -= gap)
                rows[at] = rows[at - gap];
            rows[at] = row;
        }
    }
}

#define ALL AG_HELD_GROUPS

/* The rows of the group (or ALL) that held anything then, most bytes first; how many. */
static unsigned rank_holders(const struct ag_holders_view *view, enum ag_held_when when,
                             unsigned group, rank rows[AG_HOLDERS_STACKS], struct ag_held *ret_sum)
{
    unsigned n = 0;

    *ret_sum = (struct ag_held){0, 0};
    for (unsigned i = 0; i < n_stacks(view->holders); i++) {
        const struct ag_held_stack *stack = &view->holders->stacks[i];

        if (ag_held_is_wait(stack) || !held_bytes(stack, when) ||
            (group != ALL && group != group_number(stack)))
            continue;
        rows[n++] = (rank)i;
        ret_sum->bytes += held_bytes(stack, when);
        ret_sum->blocks += blocks_of(stack, when);
    }
    sort_by_bytes(view, when, rows, n);
    return n;
}

/* --- text --- */

/* "3 blocks"; of samples with a ~. */
static const char *blocks_text(char *buffer, size_t size, const struct ag_holders *holders,
                               uint64_t blocks)
{
    unsigned long long n = (blocks + AG_HOLDERS_ONE / 2) / AG_HOLDERS_ONE;

    snprintf(buffer, size, "%s%llu %s", holders->sample_bytes ? "~" : "", n,
             n == 1 ? "block" : "blocks");
    return buffer;
}

static void text_more(struct ag_text *text, unsigned n)
{
    if (n > SHOWN)
        ag_text_add(text, "    ... and %u more, which the JSON report lists\n", n - SHOWN);
}

static void text_holder(struct ag_text *text, const struct ag_holders_view *view,
                        const struct ag_held_stack *stack, enum ag_held_when when)
{
    char bytes[32], blocks[48], device[32] = "";

    if (stack->kind == AG_HELD_DEVICE || stack->kind == AG_HELD_POOL)
        snprintf(device, sizeof(device), " %d", stack->device);
    ag_text_add(text, "    %s%s in %s, %s%s\n", view->holders->sample_bytes ? "~" : "",
                ag_text_size(bytes, sizeof(bytes), held_bytes(stack, when)),
                blocks_text(blocks, sizeof(blocks), view->holders, blocks_of(stack, when)),
                ag_held_names[stack->kind], device);
    ag_render_frames_text(text, view, stack);
}

/* "1.00 GiB to the device, 1.00 GiB to the host, 0 B used there" */
static void text_moved_bytes(struct ag_text *text, const struct ag_holders *holders,
                             const uint64_t bytes[AG_N_HELD_MOVES])
{
    const char *about = holders->sample_bytes ? "~" : "";
    char came[32], went[32], in_place[32];

    ag_text_add(text, "%s%s to the device, %s%s to the host, %s%s used there", about,
                ag_text_size(came, sizeof(came), bytes[AG_HELD_CAME]), about,
                ag_text_size(went, sizeof(went), bytes[AG_HELD_WENT]), about,
                ag_text_size(in_place, sizeof(in_place), bytes[AG_HELD_IN_PLACE]));
}

/* Adds what became of the stack's memory to the sums. */
static void add_moved(uint64_t sums[AG_N_HELD_MOVES], const struct ag_held_stack *stack)
{
    for (unsigned what = 0; what < AG_N_HELD_MOVES; what++)
        sums[what] += moved_bytes(stack, what);
}

/* Whose memory moved, or was used on the host (ALLOGRAFT_OOM=page). */
static void text_moved(struct ag_text *text, const struct ag_holders_view *view)
{
    uint64_t all[AG_N_HELD_MOVES] = {0};
    rank rows[AG_HOLDERS_STACKS];
    struct ag_held sum;
    unsigned n = rank_holders(view, MOVED, ALL, rows, &sum);

    if (!n)
        return;
    for (unsigned i = 0; i < n; i++)
        add_moved(all, holder_at(view, rows[i]));
    ag_text_add(text, "  whose memory moved: ");
    text_moved_bytes(text, view->holders, all);
    ag_text_add(text, ", from %u %s\n", n, n == 1 ? "stack" : "stacks");
    for (unsigned i = 0; i < n && i < SHOWN; i++) {
        uint64_t moved[AG_N_HELD_MOVES] = {0};

        add_moved(moved, holder_at(view, rows[i]));
        ag_text_add(text, "    ");
        text_moved_bytes(text, view->holders, moved);
        ag_text_add(text, ", device %d\n", holder_at(view, rows[i])->device);
        ag_render_frames_text(text, view, holder_at(view, rows[i]));
    }
    text_more(text, n);
}

/* A list with its title; nothing where nothing was held. */
static void text_list(struct ag_text *text, const struct ag_holders_view *view, const char *title,
                      enum ag_held_when when, unsigned group)
{
    rank rows[AG_HOLDERS_STACKS];
    char bytes[32], blocks[48];
    struct ag_held sum;
    unsigned n = rank_holders(view, when, group, rows, &sum);

    if (!n)
        return;
    ag_text_add(text, "  %s: %s in %s, from %u %s\n", title,
                ag_text_size(bytes, sizeof(bytes), sum.bytes),
                blocks_text(blocks, sizeof(blocks), view->holders, sum.blocks), n,
                n == 1 ? "stack" : "stacks");
    for (unsigned i = 0; i < n && i < SHOWN; i++)
        text_holder(text, view, holder_at(view, rows[i]), when);
    text_more(text, n);
}

static void text_peak(struct ag_text *text, const struct ag_holders_view *view, unsigned group)
{
    char title[64];

    if (group < AG_HELD_DEVICES)
        snprintf(title, sizeof(title), "who held most at the peak of device %u", group);
    else
        snprintf(title, sizeof(title), "who held most at the peak of %s memory",
                 group == AG_HELD_DEVICES ? "managed" : "pinned host");
    text_list(text, view, title, AG_HELD_PEAK, group);
}

/* The time that taking all stacks took, estimated by those that were timed; 0: none was. It is
 * rounded, so that the reader of a report, which says that each was timed, makes the same number of
 * it again. */
static uint64_t taking_ns(const struct ag_holders *holders)
{
    uint64_t timed = ag_relaxed(&holders->timed);

    return timed ? (uint64_t)((double)ag_relaxed(&holders->timed_ns) / (double)timed *
                                  (double)ag_relaxed(&holders->taken) +
                              0.5)
                 : 0;
}

static void text_cost(struct ag_text *text, const struct ag_holders *holders)
{
    uint64_t ns = taking_ns(holders);

    if (ns)
        ag_text_add(text, "  taking %llu stacks took about %.3g ms\n",
                    (unsigned long long)ag_relaxed(&holders->taken), (double)ns / 1e6);
}

static void text_lost(struct ag_text *text, const struct ag_holders *holders)
{
    unsigned long long lost = ag_relaxed(&holders->lost);

    if (lost)
        ag_text_add(text, "  %llu allocations have no stack: the table is full\n", lost);
    if (holders->sample_bytes)
        ag_text_add(text, "  stacks are of samples, one in %llu bytes: sums are estimates\n",
                    (unsigned long long)holders->sample_bytes);
}

void ag_render_failure_text(struct ag_text *text, const char *before,
                            const struct ag_holders *holders, ag_frame_names *names, void *namer)
{
    const struct ag_holders_view view = {.holders = holders, .names = names, .namer = namer};
    const struct ag_held_failure *last = &holders->failure;
    char bytes[32], free_bytes[32], total[32], cached[32], reserved[32], idle[32];
    unsigned long long n = ag_relaxed(&last->n);

    if (!n)
        return;
    ag_text_add(text, "%sout of memory: %llu %s failed, the last of %s of %s memory, device %d\n",
                before, n, n == 1 ? "allocation" : "allocations",
                ag_text_size(bytes, sizeof(bytes), last->bytes), ag_held_names[last->kind],
                last->device);
    ag_text_add(text, "    free on the device %s of %s, in freed blocks that Allograft caches %s\n",
                ag_text_size(free_bytes, sizeof(free_bytes), last->free_bytes),
                ag_text_size(total, sizeof(total), last->total_bytes),
                ag_text_size(cached, sizeof(cached), last->cached_bytes));
    if (last->pool_reserved)
        ag_text_add(text, "    Allograft's pool has %s, of which %s in pieces that nothing uses\n",
                    ag_text_size(reserved, sizeof(reserved), last->pool_reserved),
                    ag_text_size(idle, sizeof(idle), last->pool_reserved - last->pool_used));
    text_list(text, &view, "who held most then", AG_HELD_FAILED, ALL);
}

void ag_render_holders_text(struct ag_text *text, const struct ag_holders_view *view)
{
    if (!view || !view->holders || !view->holders->most_frames)
        return;
    if (view->is_running) {
        text_list(text, view, "memory held now", AG_HELD_LIVE, ALL);
        text_list(text, view, "memory not freed before its context ended", AG_HELD_ENDED, ALL);
    } else {
        text_list(text, view, "memory never freed", NEVER_FREED, ALL);
    }
    for (unsigned group = 0; group < AG_HELD_GROUPS; group++)
        text_peak(text, view, group);
    text_moved(text, view);
    ag_render_failure_text(text, "  ", view->holders, view->names, view->namer);
    text_lost(text, view->holders);
    text_cost(text, view->holders);
}

/* --- JSON --- */

static void emit_held(struct ag_emitter *json, const char *key, const struct ag_held *held)
{
    ag_emit_object(json, key);
    ag_emit_number(json, "bytes", ag_relaxed(&held->bytes));
    ag_emit_raw(json, "blocks", "%.8g", (double)ag_relaxed(&held->blocks) / AG_HOLDERS_ONE);
    ag_emit_end(json);
}

static const char *const when_keys[AG_N_HELD_WHEN] = {"live", "ever", "peak", "ended", "failed"};

static void emit_moved(struct ag_emitter *json, const struct ag_held_stack *stack)
{
    if (!held_bytes(stack, MOVED))
        return;
    ag_emit_object(json, "moved");
    for (unsigned what = 0; what < AG_N_HELD_MOVES; what++)
        ag_emit_number(json, ag_held_move_keys[what], moved_bytes(stack, what));
    ag_emit_end(json);
}

static void emit_holder(struct ag_emitter *json, const struct ag_holders_view *view,
                        const struct ag_held_stack *stack)
{
    ag_emit_line(json, 3);
    ag_emit_object(json, NULL);
    ag_emit_number(json, "number", (uint64_t)(stack - view->holders->stacks));
    ag_emit_string(json, "kind", ag_held_names[stack->kind]);
    if (stack->device >= 0)
        ag_emit_number(json, "device", (uint64_t)stack->device);
    for (unsigned when = 0; when < AG_N_HELD_WHEN; when++) {
        if (when <= AG_HELD_PEAK || held_bytes(stack, when))
            emit_held(json, when_keys[when], &stack->held[when]);
    }
    emit_moved(json, stack);
    ag_render_frames_json(json, view, stack);
    ag_emit_end(json);
}

static void emit_stacks(struct ag_emitter *json, const struct ag_holders_view *view)
{
    rank rows[AG_HOLDERS_STACKS];
    unsigned n = 0;

    for (unsigned i = 0; i < n_stacks(view->holders); i++) {
        if (!ag_held_is_wait(&view->holders->stacks[i]))
            rows[n++] = (rank)i;
    }
    sort_by_bytes(view, NEVER_FREED, rows, n);
    ag_emit_line(json, 2);
    ag_emit_array(json, "stacks");
    for (unsigned i = 0; i < n; i++)
        emit_holder(json, view, holder_at(view, rows[i]));
    ag_emit_end(json);
}

static void emit_peaks(struct ag_emitter *json, const struct ag_holders *holders)
{
    ag_emit_line(json, 2);
    ag_emit_array(json, "peaks");
    for (unsigned group = 0; group < AG_HELD_GROUPS; group++) {
        const struct ag_held_group *it = &holders->groups[group];

        if (!ag_relaxed(&it->most))
            continue;
        ag_emit_object(json, NULL);
        ag_emit_string(json, "memory",
                       group < AG_HELD_DEVICES    ? "device"
                       : group == AG_HELD_DEVICES ? "managed"
                                                  : "host");
        if (group < AG_HELD_DEVICES)
            ag_emit_number(json, "device", group);
        ag_emit_number(json, "live_bytes", ag_relaxed(&it->live));
        ag_emit_number(json, "most_bytes", ag_relaxed(&it->most));
        ag_emit_number(json, "peak_bytes", ag_relaxed(&it->at_peak));
        ag_emit_end(json);
    }
    ag_emit_end(json);
}

static void emit_failure(struct ag_emitter *json, const struct ag_held_failure *failure)
{
    if (!ag_relaxed(&failure->n))
        return;
    ag_emit_line(json, 2);
    ag_emit_object(json, "failure");
    ag_emit_number(json, "times", ag_relaxed(&failure->n));
    ag_emit_number(json, "bytes", failure->bytes);
    ag_emit_string(json, "kind", ag_held_names[failure->kind]);
    ag_emit_raw(json, "device", "%d", failure->device);
    ag_emit_number(json, "free_bytes", failure->free_bytes);
    ag_emit_number(json, "total_bytes", failure->total_bytes);
    ag_emit_number(json, "cached_bytes", failure->cached_bytes);
    ag_emit_number(json, "pool_reserved_bytes", failure->pool_reserved);
    ag_emit_number(json, "pool_used_bytes", failure->pool_used);
    ag_emit_end(json);
}

void ag_render_holders_json(struct ag_emitter *json, const struct ag_holders_view *view)
{
    if (!view || !view->holders || !view->holders->most_frames)
        return;
    ag_emit_line(json, 0);
    ag_emit_object(json, "holders");
    ag_emit_number(json, "most_frames", view->holders->most_frames);
    ag_emit_number(json, "sample_bytes", view->holders->sample_bytes);
    ag_emit_number(json, "without_stack", ag_relaxed(&view->holders->lost));
    ag_emit_number(json, "taken", ag_relaxed(&view->holders->taken));
    ag_emit_number(json, "taking_ns", taking_ns(view->holders));
    emit_peaks(json, view->holders);
    emit_failure(json, &view->holders->failure);
    ag_render_modules_json(json, view->holders);
    emit_stacks(json, view);
    ag_emit_end(json);
}
