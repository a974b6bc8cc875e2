/* flame_graph.c: stacks as a tree, outermost function first, and as a table: see flame_graph.h. */
#include "tools/report/flame_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/base/html.h"
#include "tools/base/list.h"

#define SMALLEST_PART 4000u /* of the whole: smaller parts of the graph are left out */
#define SHOWN         20u   /* stacks of the table */

/* In the place of a frame: the function that waited, by where in the texts it stands. No module has
 * such a number. */
#define FRAME_CALL (1ull << 62)

static bool is_call(uint64_t frame)
{
    return frame >> 62 == 1;
}

/* A frame below the same frames. Nodes name each other by their number, 0 for none. */
struct node {
    uint64_t frame; /* of the first level: 1 + the group */
    uint64_t values[FLAME_MEASURES];
    uint32_t child, next;
};

struct tree {
    struct node *nodes; /* the first one is the root */
    size_t n, capacity;
    bool failed; /* memory ran out */
};

/* ---- the tree ------------------------------------------------------------------------------ */

static uint32_t add_tree_node(struct tree *tree, uint64_t frame)
{
    void *nodes = list_grow(tree->nodes, tree->n, &tree->capacity, sizeof(*tree->nodes));

    if (!nodes) {
        tree->failed = true;
        return 0;
    }
    tree->nodes = nodes;
    tree->nodes[tree->n] = (struct node){.frame = frame};
    return (uint32_t)tree->n++;
}

/* Texts of Python may stand several times in what was read back. */
static bool is_same_frame(const struct ag_holders *holders, uint64_t a, uint64_t b)
{
    bool are_calls = is_call(a) && is_call(b);
    const char *x, *y;

    if (a == b || !(are_calls || a & b & AG_FRAME_PYTHON)) /* else the low half is of a text */
        return a == b;
    x = holders->text + (uint32_t)a;
    y = holders->text + (uint32_t)b;
    if (are_calls)
        return !strcmp(x, y);
    return ag_frame_line(a) == ag_frame_line(b) && !strcmp(x, y) &&
           !strcmp(x + strlen(x) + 1, y + strlen(y) + 1);
}

/* The child of that frame, which is added if there is none. */
static uint32_t child_of(struct tree *tree, const struct ag_holders *holders, uint32_t parent,
                         uint64_t frame)
{
    uint32_t child = tree->nodes[parent].child, added;

    for (; child; child = tree->nodes[child].next) {
        if (is_same_frame(holders, tree->nodes[child].frame, frame))
            return child;
    }
    added = add_tree_node(tree, frame);
    if (added) {
        tree->nodes[added].next = tree->nodes[parent].child;
        tree->nodes[parent].child = added;
    }
    return added;
}

static void count_in_node(struct tree *tree, const struct flame_subject *subject, uint32_t node,
                          const struct ag_held_stack *stack)
{
    for (unsigned measure = 0; measure < subject->n_measures; measure++)
        tree->nodes[node].values[measure] += subject->value_of(stack, measure);
}

static void add_to_tree(struct tree *tree, const struct flame *flame,
                        const struct ag_held_stack *stack)
{
    const struct ag_holders *holders = flame->view.holders;
    uint32_t node = 0;

    count_in_node(tree, flame->subject, node, stack);
    node = child_of(tree, holders, node, 1 + flame->subject->group_of(stack));
    if (node)
        count_in_node(tree, flame->subject, node, stack);
    for (uint32_t i = stack->n; node && i-- > 0;) {
        node = child_of(tree, holders, node, holders->frames[stack->first + i]);
        if (node)
            count_in_node(tree, flame->subject, node, stack);
    }
    if (node && stack->call) {
        node = child_of(tree, holders, node, FRAME_CALL | stack->call);
        if (node)
            count_in_node(tree, flame->subject, node, stack);
    }
}

static bool make_tree(struct tree *tree, const struct flame *flame)
{
    const struct ag_holders *holders = flame->view.holders;

    (void)add_tree_node(tree, 0);
    for (uint32_t i = 0; !tree->failed && i < holders->n_stacks; i++) {
        if (flame->subject->has(&holders->stacks[i]))
            add_to_tree(tree, flame, &holders->stacks[i]);
    }
    return !tree->failed;
}

/* ---- names --------------------------------------------------------------------------------- */

static bool is_library_frame(const struct ag_holders *holders, uint64_t frame)
{
    return !is_call(frame) && frame_is_of_library(holders, frame);
}

/* Names a frame as frame_texts() does, and what stands in the place of a frame, too. */
static unsigned name_frame(const struct flame *flame, uint64_t frame,
                           struct frame_text ret[FRAME_INLINED])
{
    if (!is_call(frame))
        return frame_texts(&flame->view, frame, ret);
    ret->place[0] = '\0';
    snprintf(ret->name, sizeof(ret->name), "%s", flame->view.holders->text + (uint32_t)frame);
    return 1;
}

/* ---- the graph ----------------------------------------------------------------------------- */

static bool is_node_shown(const struct tree *tree, const struct node *node)
{
    for (unsigned measure = 0; measure < FLAME_MEASURES; measure++) {
        uint64_t part = node->values[measure];

        if (part && part >= tree->nodes[0].values[measure] / SMALLEST_PART)
            return true;
    }
    return false;
}

/* [name, place, [values...], [ */
static void open_node(const struct flame *flame, const struct frame_text *frame,
                      const struct node *node)
{
    struct ag_text *text = flame->text;

    ag_text_add(text, "[");
    html_add_json(text, frame->name);
    ag_text_add(text, ",");
    html_add_json(text, frame->place);
    for (unsigned measure = 0; measure < flame->subject->n_measures; measure++)
        ag_text_add(text, "%s%llu", measure ? "," : ",[",
                    (unsigned long long)node->values[measure]);
    ag_text_add(text, "],[");
}

/* A level for each name of the frame; below them its children. No deeper than the longest stack. */
static void add_node_json(const struct flame *flame, const struct tree *tree, uint32_t number,
                          unsigned level)
{
    const struct node *node = &tree->nodes[number];
    struct frame_text *names = calloc(FRAME_INLINED, sizeof(*names));
    unsigned n = 1;
    bool any = false, is_library = false;

    if (!names) {
        flame->text->truncated = true;
        return;
    }
    if (!level)
        snprintf(names->name, sizeof(names->name), "%s", flame->subject->whole);
    else if (level == 1)
        flame->subject->name_group((unsigned)node->frame - 1, names);
    else
        n = name_frame(flame, node->frame, names);
    is_library = level > 1 && is_library_frame(flame->view.holders, node->frame);
    for (unsigned i = n; i-- > 0;)
        open_node(flame, &names[i], node);
    free(names);
    for (uint32_t child = node->child; child; child = tree->nodes[child].next) {
        if (!is_node_shown(tree, &tree->nodes[child]))
            continue;
        ag_text_add(flame->text, any ? ",\n" : "");
        add_node_json(flame, tree, child, level + 1);
        any = true;
    }
    for (unsigned i = 0; i < n; i++)
        ag_text_add(flame->text, is_library ? "],1]" : "]]");
}

static void add_graph(const struct flame *flame, const struct tree *tree)
{
    static const char *const units[] = {
        [UNIT_COUNT] = "count", [UNIT_BYTES] = "bytes", [UNIT_NS] = "ns"};
    const struct flame_subject *subject = flame->subject;

    ag_text_add(flame->text,
                "<div class=\"flames\"><script type=\"application/json\">{\"measures\":[");
    for (unsigned measure = 0; measure < subject->n_measures; measure++)
        ag_text_add(flame->text, "%s\"%s\"", measure ? "," : "", subject->names[measure]);
    ag_text_add(flame->text, "],\"units\":[");
    for (unsigned measure = 0; measure < subject->n_measures; measure++)
        ag_text_add(flame->text, "%s\"%s\"", measure ? "," : "", units[subject->units[measure]]);
    ag_text_add(flame->text, "],\"root\":");
    add_node_json(flame, tree, 0, 0);
    ag_text_add(flame->text, "}</script></div>\n");
}

void flame_add_graph(const struct flame *flame)
{
    struct tree tree = {.nodes = NULL};

    if (make_tree(&tree, flame))
        add_graph(flame, &tree);
    flame->text->truncated |= tree.failed;
    free(tree.nodes);
}

/* ---- the table ----------------------------------------------------------------------------- */

/* A row of the table: rows are sorted, stacks stay where they are. */
struct row {
    const struct ag_held_stack *stack;
    uint64_t values[FLAME_MEASURES];
};

static int by_values(const void *a, const void *b)
{
    const struct row *x = a, *y = b;

    for (unsigned measure = 0; measure < FLAME_MEASURES; measure++) {
        if (x->values[measure] != y->values[measure])
            return x->values[measure] > y->values[measure] ? -1 : 1;
    }
    return x->stack < y->stack ? -1 : x->stack > y->stack;
}

static uint32_t find_table_rows(const struct flame *flame, struct row *rows)
{
    const struct ag_holders *holders = flame->view.holders;
    uint32_t n = 0;

    for (uint32_t i = 0; i < holders->n_stacks; i++) {
        if (!flame->subject->has(&holders->stacks[i]))
            continue;
        rows[n].stack = &holders->stacks[i];
        for (unsigned measure = 0; measure < flame->subject->n_measures; measure++)
            rows[n].values[measure] = flame->subject->value_of(rows[n].stack, measure);
        n++;
    }
    qsort(rows, n, sizeof(*rows), by_values);
    return n;
}

static void add_frame_name(struct ag_text *text, const struct frame_text *name)
{
    html_add(text, name->name);
    ag_text_add(text, " <small>");
    html_add(text, name->place);
    ag_text_add(text, "</small>");
}

/* The innermost frame that is not of a library; the innermost one if all are. */
static uint32_t first_own(const struct ag_holders *holders, const struct ag_held_stack *stack)
{
    for (uint32_t i = 0; i < stack->n; i++) {
        if (!is_library_frame(holders, holders->frames[stack->first + i]))
            return i;
    }
    return 0;
}

/* Writes each function of the stack on a line of its own, innermost first. Only one stays in sight:
 * the program's own that is nearest. Where that is the innermost, it is not said twice. */
static void add_frames(const struct flame *flame, const struct ag_held_stack *stack)
{
    struct frame_text *names = calloc(FRAME_INLINED, sizeof(*names));
    const struct ag_holders *holders = flame->view.holders;
    uint32_t own = first_own(holders, stack);
    struct ag_text *text = flame->text;

    if (names && stack->n) {
        (void)name_frame(flame, holders->frames[stack->first + own], names);
        ag_text_add(text, "<details><summary>");
        add_frame_name(text, &names[0]);
        ag_text_add(text, "</summary>");
    }
    for (uint32_t i = 0; names && i < stack->n; i++) {
        unsigned n = name_frame(flame, holders->frames[stack->first + i], names);

        for (unsigned k = !own && !i; k < n; k++) {
            add_frame_name(text, &names[k]);
            ag_text_add(text, "<br>");
        }
    }
    text->truncated |= !names;
    ag_text_add(text, stack->n ? "</details>" : "not known");
    free(names);
}

/* Does a row have more than 0 there? Else the table goes without the column. */
static bool is_measure_column(const struct row *rows, uint32_t n, unsigned measure)
{
    uint32_t i = 0;

    while (i < n && !rows[i].values[measure])
        i++;
    return i < n;
}

static void add_table_head(const struct flame *flame, const char *caption,
                           const char *const *columns, unsigned n_columns, const bool *shown)
{
    ag_text_add(flame->text, "<table class=\"cells\">\n<caption>%s</caption>\n<thead><tr>",
                caption);
    for (unsigned i = 0; i < n_columns; i++)
        ag_text_add(flame->text, "<th scope=\"col\">%s</th>", columns[i]);
    for (unsigned measure = 0; measure < flame->subject->n_measures; measure++) {
        if (shown[measure])
            ag_text_add(flame->text, "<th scope=\"col\" class=\"num\">%s</th>",
                        flame->subject->names[measure]);
    }
    ag_text_add(flame->text, "</tr></thead>\n<tbody>\n");
}

static void add_measures(const struct flame *flame, const struct row *row, const bool *shown)
{
    const struct flame_subject *subject = flame->subject;
    char value[32];

    for (unsigned measure = 0; measure < subject->n_measures; measure++) {
        if (shown[measure])
            ag_text_add(flame->text, "<td class=\"num\" data-label=\"%s\">%s</td>",
                        subject->names[measure],
                        html_number(value, sizeof(value), subject->units[measure],
                                    (double)row->values[measure]));
    }
    ag_text_add(flame->text, "</tr>\n");
}

void flame_add_table(const struct flame *flame, const char *caption, const char *const *columns,
                     unsigned n_columns,
                     void (*add_cells)(struct ag_text *text, const struct flame *flame,
                                       const struct ag_held_stack *stack))
{
    struct row *rows = calloc(flame->view.holders->n_stacks, sizeof(*rows));
    uint32_t n = rows ? find_table_rows(flame, rows) : 0;
    bool shown[FLAME_MEASURES] = {false};

    flame->text->truncated |= !rows;
    for (unsigned measure = 0; measure < flame->subject->n_measures; measure++)
        shown[measure] = is_measure_column(rows, n, measure);
    add_table_head(flame, caption, columns, n_columns, shown);
    for (uint32_t i = 0; i < n && i < SHOWN; i++) {
        ag_text_add(flame->text, "<tr><th scope=\"row\">");
        add_frames(flame, rows[i].stack);
        ag_text_add(flame->text, "</th>");
        add_cells(flame->text, flame, rows[i].stack);
        add_measures(flame, &rows[i], shown);
    }
    ag_text_add(flame->text, "</tbody>\n</table>\n");
    if (n > SHOWN)
        ag_text_add(flame->text,
                    "<p class=\"note\">%u more stacks are in the JSON report alone.</p>\n",
                    n - SHOWN);
    free(rows);
}
