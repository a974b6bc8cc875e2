/* html_blocks.c: finds the largest blocks of a trace, and who allocated them: see html_blocks.h. */
#include "tools/trace/html_blocks.h"

#include <stdio.h>
#include <stdlib.h>

#include "tools/base/html.h"
#include "tools/trace/frame_text.h"
#include "tools/trace/site_names.h"

#define MOST 512u /* blocks: more would be lines, not areas */

struct drawn {
    uint64_t from_ns, to_ns, size, caller; /* to_ns UINT64_MAX: never */
    uint32_t stack;                        /* of the report, or TRACE_NO_STACK */
    uint16_t module, site, shown_stack;
};

/* A heap of the largest so far, whose first one is the smallest of them. */
struct largest {
    struct drawn blocks[MOST];
    size_t n;
    uint64_t of;
};

static void swap(struct drawn *a, struct drawn *b)
{
    struct drawn kept = *a;

    *a = *b;
    *b = kept;
}

static void sink(struct largest *largest)
{
    struct drawn *blocks = largest->blocks;

    for (size_t at = 0, child; (child = 2 * at + 1) < largest->n; at = child) {
        if (child + 1 < largest->n && blocks[child + 1].size < blocks[child].size)
            child++;
        if (blocks[at].size <= blocks[child].size)
            return;
        swap(&blocks[at], &blocks[child]);
    }
}

static void rise(struct largest *largest)
{
    struct drawn *blocks = largest->blocks;

    for (size_t at = largest->n - 1; at && blocks[at].size < blocks[(at - 1) / 2].size;
         at = (at - 1) / 2)
        swap(&blocks[at], &blocks[(at - 1) / 2]);
}

static void offer_block(struct largest *largest, const struct drawn *block)
{
    largest->of++;
    if (largest->n < MOST) {
        largest->blocks[largest->n++] = *block;
        rise(largest);
    } else if (block->size > largest->blocks[0].size) {
        largest->blocks[0] = *block;
        sink(largest);
    }
}

static void offer_freed(const struct trace_state *state, void *data)
{
    const struct trace_event *event = &state->event;

    if (state->known && event->kind != AG_TRACE_MOVED)
        offer_block(data, &(struct drawn){.from_ns = state->allocated_ns,
                                          .to_ns = event->began_ns,
                                          .size = state->size,
                                          .caller = state->caller,
                                          .stack = state->stack,
                                          .module = state->module});
}

static bool find_largest(const struct trace *trace, struct largest *largest)
{
    struct trace_block *left = NULL;
    bool good = trace_walk(trace, AG_TRACE_NO_DEVICE, offer_freed, largest);
    long n = good ? trace_left(trace, AG_TRACE_NO_DEVICE, &left) : -1;

    for (long i = 0; i < n; i++)
        offer_block(largest, &(struct drawn){.from_ns = left[i].allocated_ns,
                                             .to_ns = UINT64_MAX,
                                             .size = left[i].size,
                                             .caller = left[i].caller,
                                             .stack = left[i].stack,
                                             .module = left[i].module});
    free(left);
    return n >= 0;
}

static int by_begin(const void *a, const void *b)
{
    const struct drawn *x = a, *y = b;

    if (x->from_ns != y->from_ns)
        return x->from_ns < y->from_ns ? -1 : 1;
    return x->to_ns < y->to_ns ? -1 : x->to_ns > y->to_ns;
}

/* Numbers the sites; returns how many there are. */
static size_t find_sites(struct largest *largest, struct trace_site *sites)
{
    size_t n = 0;

    for (size_t i = 0; i < largest->n; i++) {
        struct drawn *block = &largest->blocks[i];
        size_t site = 0;

        while (site < n &&
               (sites[site].caller != block->caller || sites[site].module != block->module))
            site++;
        if (site == n)
            sites[n++] = (struct trace_site){.module = block->module, .caller = block->caller};
        block->site = (uint16_t)site;
    }
    return n;
}

/* Numbers the stacks that are to be shown; returns how many there are. Of others no block has one
 * any more: a report of another process knows them, but not by their call sites. */
static size_t find_stacks(struct largest *largest, const struct ag_holders_view *stacks,
                          uint32_t *ret_numbers)
{
    size_t n = 0;

    for (size_t i = 0; i < largest->n; i++) {
        struct drawn *block = &largest->blocks[i];
        size_t shown = 0;

        if (!stacks || block->stack == TRACE_NO_STACK ||
            !frames_have_site(stacks->holders, block->stack, block->caller)) {
            block->stack = TRACE_NO_STACK;
            continue;
        }
        while (shown < n && ret_numbers[shown] != block->stack)
            shown++;
        if (shown == n)
            ret_numbers[n++] = block->stack;
        block->shown_stack = (uint16_t)shown;
    }
    return n;
}

static void add_block_sites(struct ag_text *text, const struct trace *trace,
                            const struct trace_site *sites, const struct site_name *functions,
                            size_t n)
{
    char name[512], whole[sizeof(name) + SITE_NAME_BYTES + 2];

    ag_text_add(text, "{\"sites\":[");
    for (size_t i = 0; i < n; i++) {
        (void)trace_site_name(trace, sites[i].module, sites[i].caller, name, sizeof(name));
        snprintf(whole, sizeof(whole), "%s%s%.399s", name, *functions[i].text ? " " : "",
                 functions[i].text);
        ag_text_add(text, i ? "," : "");
        html_add_json(text, whole);
    }
    ag_text_add(text, "],");
}

static void add_block(struct ag_text *text, const struct drawn *block, bool first)
{
    ag_text_add(text, "%s[%llu.%09llu,", first ? "" : ",",
                (unsigned long long)(block->from_ns / 1000000000u),
                (unsigned long long)(block->from_ns % 1000000000u));
    if (block->to_ns == UINT64_MAX)
        ag_text_add(text, "null");
    else
        ag_text_add(text, "%llu.%09llu", (unsigned long long)(block->to_ns / 1000000000u),
                    (unsigned long long)(block->to_ns % 1000000000u));
    ag_text_add(text, ",%llu,%u", (unsigned long long)block->size, block->site);
    if (block->stack != TRACE_NO_STACK)
        ag_text_add(text, ",%u", block->shown_stack);
    ag_text_add(text, "]");
}

static void add_stacks(struct ag_text *text, struct largest *largest,
                       const struct ag_holders_view *stacks)
{
    uint32_t numbers[MOST];
    size_t n = find_stacks(largest, stacks, numbers);

    if (n)
        frames_add_stacks(text, stacks, numbers, n);
}

bool html_add_blocks(struct ag_text *text, const struct trace *trace,
                     const struct ag_holders_view *stacks)
{
    struct largest *largest = calloc(1, sizeof(*largest));
    struct trace_site *sites = calloc(MOST, sizeof(*sites));
    struct site_name *functions = calloc(MOST, sizeof(*functions));
    bool good = largest && sites && functions && find_largest(trace, largest);

    if (good) {
        size_t n = find_sites(largest, sites);

        site_names(trace, sites, n, functions);
        add_block_sites(text, trace, sites, functions, n);
        add_stacks(text, largest, stacks);
        qsort(largest->blocks, largest->n, sizeof(*largest->blocks), by_begin);
        ag_text_add(text, "\"of\":%llu,\n\"blocks\":[", (unsigned long long)largest->of);
        for (size_t i = 0; i < largest->n; i++)
            add_block(text, &largest->blocks[i], !i);
        ag_text_add(text, "]}");
    }
    free(functions);
    free(sites);
    free(largest);
    return good;
}
