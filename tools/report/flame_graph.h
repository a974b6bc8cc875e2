/* flame_graph.h: stacks as a flame graph of the page, outermost function first, and as cells of a
 * table. What of a stack is drawn, the subject says. */
#ifndef TOOLS_FLAME_GRAPH_H
#define TOOLS_FLAME_GRAPH_H

#include <stdbool.h>

#include "interpose/core/base/text.h"
#include "interpose/core/report/holders/render_frames.h"
#include "tools/base/unit.h"
#include "tools/trace/frame_text.h"

#define FLAME_MEASURES 6u

struct flame_subject {
    const char *whole; /* the name of all stacks together */
    unsigned n_measures;
    const char *names[FLAME_MEASURES];
    enum unit units[FLAME_MEASURES];
    bool (*has)(const struct ag_held_stack *stack);
    uint64_t (*value_of)(const struct ag_held_stack *stack, unsigned measure);
    /* Below the whole, stacks of a group stand together. */
    unsigned (*group_of)(const struct ag_held_stack *stack);
    void (*name_group)(unsigned group, struct frame_text *ret);
};

struct flame {
    const struct flame_subject *subject;
    struct ag_holders_view view;
    struct ag_text *text;
};

/* Adds the graph; `text` is cut where memory runs out. */
void flame_add_graph(const struct flame *flame);

/* Adds the first rows of a table whose last columns are the measures, those with most of the first
 * measure first; before them the stack, and what `add_cells` adds. A note says how many more there
 * are. */
void flame_add_table(const struct flame *flame, const char *caption, const char *const *columns,
                     unsigned n_columns,
                     void (*add_cells)(struct ag_text *text, const struct flame *flame,
                                       const struct ag_held_stack *stack));
#endif
