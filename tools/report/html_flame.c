/* html_flame.c: stacks as a tree, outermost function first, and as a table: see html_flame.h. */
#include "tools/report/html_flame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/base/html.h"
#include "tools/base/list.h"
#include "tools/report/holders_view.h"

#define MOST_INLINED  16u
#define SMALLEST_PART 4000u /* of the whole: smaller parts of the graph are left out */
#define SHOWN         20u   /* stacks of the table */

enum measure { AT_PEAK, NEVER_FREED, ALLOCATED, N_MEASURES };

static const char *const measure_names[N_MEASURES] = {"at the peak", "never freed", "allocated"};

/* A frame below the same frames. Nodes name each other by their number, 0 for none. */
struct node {
    uint64_t frame; /* of the first level: 1 + the group */
    uint64_t bytes[N_MEASURES];
    uint32_t child, next;
};

struct tree {
    struct node *nodes; /* the first one is the root */
    size_t n, capacity;
    bool failed; /* memory ran out */
};

struct flame {
    struct ag_holders_view view;
    struct tree tree;
    struct ag_text *text;
};

/* ---- the tree ------------------------------------------------------------------------------ */

static uint64_t bytes_of(const struct ag_held_stack *stack, enum measure measure)
{
    const struct ag_held *held = stack->held;

    switch (measure) {
    case AT_PEAK:
        return held[AG_HELD_PEAK].bytes;
    case NEVER_FREED:
        return held[AG_HELD_LIVE].bytes + held[AG_HELD_ENDED].bytes;
    default:
        return held[AG_HELD_EVER].bytes;
    }
}

static uint32_t add_node(struct tree *tree, uint64_t frame)
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
static bool is_same(const struct ag_holders *holders, uint64_t a, uint64_t b)
{
    const char *x = holders->text + (uint32_t)a, *y = holders->text + (uint32_t)b;

    if (a == b || !(a & b & AG_FRAME_PYTHON))
        return a == b;
    return ag_frame_line(a) == ag_frame_line(b) && !strcmp(x, y) &&
           !strcmp(x + strlen(x) + 1, y + strlen(y) + 1);
}

/* The child of that frame, which is added if there is none. */
static uint32_t child_of(struct tree *tree, const struct ag_holders *holders, uint32_t parent,
                         uint64_t frame)
{
    uint32_t child = tree->nodes[parent].child, added;

    for (; child; child = tree->nodes[child].next) {
        if (is_same(holders, tree->nodes[child].frame, frame))
            return child;
    }
    added = add_node(tree, frame);
    if (added) {
        tree->nodes[added].next = tree->nodes[parent].child;
        tree->nodes[parent].child = added;
    }
    return added;
}

static void count(struct tree *tree, uint32_t node, const struct ag_held_stack *stack)
{
    for (unsigned measure = 0; measure < N_MEASURES; measure++)
        tree->nodes[node].bytes[measure] += bytes_of(stack, measure);
}

static void add_stack(struct tree *tree, const struct ag_holders *holders,
                      const struct ag_held_stack *stack)
{
    unsigned group = ag_held_group((enum ag_held_kind)stack->kind, stack->device);
    uint32_t node = 0;

    count(tree, node, stack);
    node = child_of(tree, holders, node, 1 + group);
    if (node)
        count(tree, node, stack);
    for (uint32_t i = stack->n; node && i-- > 0;) {
        node = child_of(tree, holders, node, holders->frames[stack->first + i]);
        if (node)
            count(tree, node, stack);
    }
}

static bool make_tree(struct tree *tree, const struct ag_holders *holders)
{
    (void)add_node(tree, 0);
    for (uint32_t i = 0; !tree->failed && i < holders->n_stacks; i++)
        add_stack(tree, holders, &holders->stacks[i]);
    return !tree->failed;
}

/* ---- names --------------------------------------------------------------------------------- */

struct frame_text {
    char name[256], place[600];
};

static void name_group(unsigned group, struct frame_text *ret)
{
    ret->place[0] = '\0';
    if (group < AG_HELD_DEVICES)
        snprintf(ret->name, sizeof(ret->name), "memory of device %u", group);
    else
        snprintf(ret->name, sizeof(ret->name), "%s memory",
                 group == AG_HELD_DEVICES ? "managed" : "pinned host");
}

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static void name_python(const struct ag_holders *holders, uint64_t frame, struct frame_text *ret)
{
    const char *function = holders->text + (uint32_t)frame;

    snprintf(ret->name, sizeof(ret->name), "%s", *function ? function : "?");
    snprintf(ret->place, sizeof(ret->place), "%s:%u", function + strlen(function) + 1,
             ag_frame_line(frame));
}

static void name_native(const struct ag_holders *holders, uint64_t frame,
                        const struct ag_frame_name *name, struct frame_text *ret)
{
    unsigned module = (unsigned)(frame >> 48);
    const char *path = module ? holders->text + holders->modules[module].path : "code in no file";

    if (name && *name->function)
        snprintf(ret->name, sizeof(ret->name), "%s", name->function);
    else
        snprintf(ret->name, sizeof(ret->name), "%.200s+0x%llx", file_name(path),
                 (unsigned long long)(frame & ((1ull << 48) - 1)));
    if (name && *name->file)
        snprintf(ret->place, sizeof(ret->place), "%s:%u", name->file, name->line);
    else
        snprintf(ret->place, sizeof(ret->place), "%.500s", file_name(path));
}

/* The names of a frame, innermost first: several where functions were inlined. At least one. */
static unsigned name_frame(const struct flame *flame, uint64_t frame,
                           struct frame_text ret[MOST_INLINED])
{
    const struct ag_holders *holders = flame->view.holders;
    struct ag_frame_name names[MOST_INLINED];
    unsigned n = 0;

    if (frame & AG_FRAME_PYTHON) {
        name_python(holders, frame, &ret[0]);
        return 1;
    }
    if (flame->view.names)
        n = flame->view.names(flame->view.namer, holders, frame, names, MOST_INLINED);
    if (!n)
        name_native(holders, frame, NULL, &ret[0]);
    for (unsigned i = 0; i < n; i++)
        name_native(holders, frame, &names[i], &ret[i]);
    return n ? n : 1;
}

/* ---- the graph ----------------------------------------------------------------------------- */

static bool is_shown(const struct tree *tree, const struct node *node)
{
    for (unsigned measure = 0; measure < N_MEASURES; measure++) {
        uint64_t part = node->bytes[measure];

        if (part && part >= tree->nodes[0].bytes[measure] / SMALLEST_PART)
            return true;
    }
    return false;
}

/* [name, place, [bytes...], [ */
static void open_node(struct ag_text *text, const struct frame_text *frame, const struct node *node)
{
    ag_text_add(text, "[");
    html_add_json(text, frame->name);
    ag_text_add(text, ",");
    html_add_json(text, frame->place);
    for (unsigned measure = 0; measure < N_MEASURES; measure++)
        ag_text_add(text, "%s%llu", measure ? "," : ",[", (unsigned long long)node->bytes[measure]);
    ag_text_add(text, "],[");
}

/* A level for each name of the frame; below them its children. No deeper than the longest stack. */
static void add_node_json(const struct flame *flame, uint32_t number, unsigned level)
{
    const struct node *node = &flame->tree.nodes[number];
    struct frame_text *names = calloc(MOST_INLINED, sizeof(*names));
    unsigned n = 1;
    bool any = false;

    if (!names) {
        flame->text->truncated = true;
        return;
    }
    if (!level)
        snprintf(names->name, sizeof(names->name), "all memory");
    else if (level == 1)
        name_group((unsigned)node->frame - 1, names);
    else
        n = name_frame(flame, node->frame, names);
    for (unsigned i = n; i-- > 0;)
        open_node(flame->text, &names[i], node);
    free(names);
    for (uint32_t child = node->child; child; child = flame->tree.nodes[child].next) {
        if (!is_shown(&flame->tree, &flame->tree.nodes[child]))
            continue;
        ag_text_add(flame->text, any ? ",\n" : "");
        add_node_json(flame, child, level + 1);
        any = true;
    }
    for (unsigned i = 0; i < n; i++)
        ag_text_add(flame->text, "]]");
}

static void add_graph(const struct flame *flame)
{
    ag_text_add(flame->text,
                "<div class=\"flames\"><script type=\"application/json\">{\"measures\":[");
    for (unsigned measure = 0; measure < N_MEASURES; measure++)
        ag_text_add(flame->text, "%s\"%s\"", measure ? "," : "",
                    measure == NEVER_FREED && flame->view.is_running ? "held now"
                                                                     : measure_names[measure]);
    ag_text_add(flame->text, "],\"root\":");
    add_node_json(flame, 0, 0);
    ag_text_add(flame->text, "}</script></div>\n");
}

/* ---- the table ----------------------------------------------------------------------------- */

/* Of the table: rows are sorted, stacks stay where they are. */
struct row {
    const struct ag_held_stack *stack;
};

static int by_peak(const void *a, const void *b)
{
    const struct ag_held_stack *x = ((const struct row *)a)->stack;
    const struct ag_held_stack *y = ((const struct row *)b)->stack;

    for (unsigned measure = 0; measure < N_MEASURES; measure++) {
        uint64_t m = bytes_of(x, measure), n = bytes_of(y, measure);

        if (m != n)
            return m > n ? -1 : 1;
    }
    return x < y ? -1 : x > y;
}

/* Each function of the stack on a line of its own, innermost first; only that stays in sight. */
static void add_frames(const struct flame *flame, const struct ag_held_stack *stack)
{
    struct frame_text *names = calloc(MOST_INLINED, sizeof(*names));

    for (uint32_t i = 0; names && i < stack->n; i++) {
        unsigned n = name_frame(flame, flame->view.holders->frames[stack->first + i], names);

        for (unsigned k = 0; k < n; k++) {
            ag_text_add(flame->text, i || k ? "<br>" : "<details><summary>");
            html_add(flame->text, names[k].name);
            ag_text_add(flame->text, " <small>");
            html_add(flame->text, names[k].place);
            ag_text_add(flame->text, i || k ? "</small>" : "</small></summary>");
        }
    }
    flame->text->truncated |= !names;
    ag_text_add(flame->text, stack->n ? "</details>" : "not known");
    free(names);
}

static void add_row(const struct flame *flame, const struct ag_held_stack *stack)
{
    struct frame_text group;
    char size[32];

    name_group(ag_held_group((enum ag_held_kind)stack->kind, stack->device), &group);
    ag_text_add(flame->text, "<tr><th scope=\"row\">");
    add_frames(flame, stack);
    ag_text_add(flame->text, "</th><td data-label=\"memory\">%s%s</td>",
                stack->kind == AG_HELD_POOL ? "pools, " : "", group.name);
    for (unsigned measure = 0; measure < N_MEASURES; measure++)
        ag_text_add(flame->text, "<td class=\"num\" data-label=\"%s\">%s</td>",
                    measure_names[measure],
                    unit_text(size, sizeof(size), UNIT_BYTES, (double)bytes_of(stack, measure)));
    ag_text_add(flame->text, "</tr>\n");
}

static void add_table(const struct flame *flame)
{
    const struct ag_holders *holders = flame->view.holders;
    struct row *rows = calloc(holders->n_stacks, sizeof(*rows));
    uint32_t n = holders->n_stacks;

    flame->text->truncated |= !rows;
    for (uint32_t i = 0; rows && i < n; i++)
        rows[i].stack = &holders->stacks[i];
    if (rows)
        qsort(rows, n, sizeof(*rows), by_peak);
    ag_text_add(flame->text,
                "<table class=\"cells\">\n<caption>Stacks, those that held most at the peak first"
                "</caption>\n<thead><tr><th scope=\"col\">allocated by</th><th scope=\"col\">memory"
                "</th>");
    for (unsigned measure = 0; measure < N_MEASURES; measure++)
        ag_text_add(flame->text, "<th scope=\"col\" class=\"num\">%s</th>", measure_names[measure]);
    ag_text_add(flame->text, "</tr></thead>\n<tbody>\n");
    for (uint32_t i = 0; rows && i < n && i < SHOWN; i++)
        add_row(flame, rows[i].stack);
    ag_text_add(flame->text, "</tbody>\n</table>\n");
    if (n > SHOWN)
        ag_text_add(flame->text,
                    "<p class=\"note\">%u more stacks are in the JSON report alone.</p>\n",
                    n - SHOWN);
    free(rows);
}

/* ---- the card ------------------------------------------------------------------------------ */

static void add_note(struct ag_text *text, const struct process *process)
{
    const struct ag_stats_head *head = &process->stats->head;
    char size[32];

    ag_text_add(text, "<p class=\"note\">");
    html_add_process(text, head->program, head->rank, head->pid, head->host);
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

bool html_add_flame(struct ag_text *text, const struct process *process)
{
    struct flame flame = {.text = text};

    if (!process->holders || !process->holders->n_stacks)
        return false;
    flame.view = holders_view(process);
    if (make_tree(&flame.tree, process->holders)) {
        html_card_begin(text, true, "Who held memory", NULL);
        add_note(text, process);
        add_graph(&flame);
        add_table(&flame);
        html_card_end(text);
    }
    text->truncated |= flame.tree.failed;
    free(flame.tree.nodes);
    holders_view_finish(&flame.view);
    return true;
}
