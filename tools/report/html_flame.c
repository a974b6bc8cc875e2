/* html_flame.c: see html_flame.h. */
#include "tools/report/html_flame.h"

#include <stdio.h>
#include <string.h>

#include "interpose/core/report/waits/render_waits.h"
#include "tools/base/html.h"
#include "tools/report/flame_graph.h"

static void begin_note(struct ag_text *text, const struct process *process)
{
    const struct ag_stats_head *head = &process->stats->head;

    ag_text_add(text, "<p class=\"note\">");
    html_add_process(text, head->program, head->rank, head->pid, head->host);
}

static bool any(const struct ag_holders *holders, bool (*has)(const struct ag_held_stack *stack))
{
    uint32_t i = 0;

    while (i < holders->n_stacks && !has(&holders->stacks[i]))
        i++;
    return i < holders->n_stacks;
}

/* ---- memory -------------------------------------------------------------------------------- */

enum measure { AT_PEAK, NEVER_FREED, ALLOCATED, MOVED, N_MEASURES = MOVED + AG_N_HELD_MOVES };
_Static_assert(N_MEASURES <= FLAME_MEASURES, "there is room");

static bool holds_memory(const struct ag_held_stack *stack)
{
    return !ag_held_is_wait(stack);
}

static uint64_t measured_bytes(const struct ag_held_stack *stack, unsigned measure)
{
    const struct ag_held *held = stack->held;

    switch (measure) {
    case AT_PEAK:
        return held[AG_HELD_PEAK].bytes;
    case NEVER_FREED:
        return held[AG_HELD_LIVE].bytes + held[AG_HELD_ENDED].bytes;
    case ALLOCATED:
        return held[AG_HELD_EVER].bytes;
    default:
        return stack->moved[measure - MOVED];
    }
}

static bool was_moved(const struct ag_held_stack *stack)
{
    return stack->moved[AG_HELD_CAME] || stack->moved[AG_HELD_WENT] ||
           stack->moved[AG_HELD_IN_PLACE];
}

static unsigned memory_number(const struct ag_held_stack *stack)
{
    return ag_held_group((enum ag_held_kind)stack->kind, stack->device);
}

static void name_memory(unsigned group, struct frame_text *ret)
{
    ret->place[0] = '\0';
    if (group < AG_HELD_DEVICES)
        snprintf(ret->name, sizeof(ret->name), "memory of device %u", group);
    else
        snprintf(ret->name, sizeof(ret->name), "%s memory",
                 group == AG_HELD_DEVICES ? "managed" : "pinned host");
}

static void add_memory_cell(struct ag_text *text, const struct flame *flame,
                            const struct ag_held_stack *stack)
{
    struct frame_text group;

    (void)flame;
    name_memory(memory_number(stack), &group);
    ag_text_add(text, "<td data-label=\"memory\">%s%s</td>",
                stack->kind == AG_HELD_POOL ? "pools, " : "", group.name);
}

static void add_memory_note(struct ag_text *text, const struct process *process)
{
    char size[32];

    begin_note(text, process);
    ag_text_add(text, ". The peak of each device, of managed and of pinned memory is its own.");
    if (process->holders->sample_bytes)
        ag_text_add(
            text, " Stacks are of samples, one in %s: sizes are estimates.",
            unit_text(size, sizeof(size), UNIT_BYTES, (double)process->holders->sample_bytes));
    if (process->holders->lost)
        ag_text_add(text, " %llu allocations have no stack, since the table was full.",
                    (unsigned long long)process->holders->lost);
    ag_text_add(text, "</p>\n");
}

static void begin_flame_card(const struct flame *flame, const struct process *process,
                             unsigned place, const char *heading)
{
    const struct ag_stats_head *head = &process->stats->head;

    html_fold_begin(flame->text, place, heading, head->rank, head->pid);
}

static void add_memory_flame(const struct flame *base, const struct process *process,
                             unsigned place)
{
    static const char *const columns[] = {"allocated by", "memory"};
    const struct flame_subject subject = {
        .whole = "all memory",
        .n_measures = any(process->holders, was_moved) ? N_MEASURES : MOVED,
        .names = {"at the peak", base->view.is_running ? "held now" : "never freed", "allocated",
                  "moved to the device", "moved to the host", "used on the host"},
        .units = {UNIT_BYTES, UNIT_BYTES, UNIT_BYTES, UNIT_BYTES, UNIT_BYTES, UNIT_BYTES},
        .has = holds_memory,
        .value_of = measured_bytes,
        .group_of = memory_number,
        .name_group = name_memory,
    };
    const struct flame flame = {&subject, base->view, base->text};

    begin_flame_card(&flame, process, place, "Who held memory");
    add_memory_note(flame.text, process);
    flame_add_graph(&flame);
    flame_add_table(&flame, "Stacks, those that held most at the peak first", columns, 2,
                    add_memory_cell);
    html_fold_end(flame.text);
}

/* ---- waits --------------------------------------------------------------------------------- */

enum waited { WAITED, TIMES, LONGEST, N_WAITED };

/* The longest wait of several stacks is no sum: it is in the table alone. */
#define N_DRAWN 2u

static bool waits(const struct ag_held_stack *stack)
{
    return ag_held_is_wait(stack) && stack->waited.times;
}

static uint64_t waited_of(const struct ag_held_stack *stack, unsigned measure)
{
    switch (measure) {
    case WAITED:
        return stack->waited.ns;
    case TIMES:
        return stack->waited.times;
    default:
        return stack->waited.longest_ns;
    }
}

static unsigned wait_kind(const struct ag_held_stack *stack)
{
    return (unsigned)stack->device;
}

static void name_kind(unsigned kind, struct frame_text *ret)
{
    static const char *const names[AG_N_WAIT_KINDS] = {
        [AG_WAIT_SYNC] = "synchronisation",
        [AG_WAIT_COPY] = "blocking copy",
        [AG_WAIT_ASYNC_COPY] = "asynchronous copy",
        [AG_WAIT_FILL] = "memset",
        [AG_WAIT_FREE] = "free",
        [AG_WAIT_CODE] = "loading and unloading code",
    };

    ret->place[0] = '\0';
    snprintf(ret->name, sizeof(ret->name), "%s", names[kind]);
}

static void add_call_cell(struct ag_text *text, const struct flame *flame,
                          const struct ag_held_stack *stack)
{
    ag_text_add(text, "<td data-label=\"call\">");
    html_add(text, flame->view.holders->text + stack->call);
    ag_text_add(text, "</td>");
}

static void add_waits_note(struct ag_text *text, const struct process *process)
{
    struct ag_waited_short few = ag_waits_short(process->holders);
    char time[32], bound[32];

    begin_note(text, process);
    ag_text_add(
        text,
        ". Times are those within calls that can wait. %llu call%s took less than %s each, %s "
        "together",
        (unsigned long long)few.times, few.times == 1 ? "" : "s",
        unit_text(bound, sizeof(bound), UNIT_NS, (double)process->holders->wait_bound_ns),
        unit_text(time, sizeof(time), UNIT_NS, (double)few.ns));
    if (process->holders->waits_lost.times)
        ag_text_add(
            text, "; %llu waits of %s have no stack, since the table was full",
            (unsigned long long)process->holders->waits_lost.times,
            unit_text(time, sizeof(time), UNIT_NS, (double)process->holders->waits_lost.ns));
    ag_text_add(text, ".</p>\n");
}

static void add_waits(const struct flame *base, const struct process *process, unsigned place)
{
    static const char *const columns[] = {"waited in", "call"};
    struct flame_subject subject = {
        .whole = "all waits",
        .n_measures = N_DRAWN,
        .names = {"time waited", "waits", "longest"},
        .units = {UNIT_NS, UNIT_COUNT, UNIT_NS},
        .has = waits,
        .value_of = waited_of,
        .group_of = wait_kind,
        .name_group = name_kind,
    };
    const struct flame flame = {&subject, base->view, base->text};

    begin_flame_card(&flame, process, place, "Who waited for the device");
    add_waits_note(flame.text, process);
    flame_add_graph(&flame);
    subject.n_measures = N_WAITED;
    flame_add_table(&flame, "Stacks, those that waited longest first", columns, 2, add_call_cell);
    html_fold_end(flame.text);
}

/* ---- both ---------------------------------------------------------------------------------- */

bool html_has_flames(const struct process *process)
{
    return process->holders &&
           (any(process->holders, holds_memory) || any(process->holders, waits));
}

bool html_add_flames(struct ag_text *text, const struct process *process,
                     const struct ag_holders_view *view, unsigned place)
{
    const struct flame flame = {.view = *view, .text = text};

    if (!html_has_flames(process))
        return false;
    if (any(process->holders, holds_memory))
        add_memory_flame(&flame, process, place);
    if (any(process->holders, waits))
        add_waits(&flame, process, place);
    return true;
}
