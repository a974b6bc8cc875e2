/* graph/learn/matcher.c: random segments against a plain table of paths, with little room and with
 * much.
 */
#include "graph/learn/matcher.h"

#include <string.h>

#include "tests/common/chance.h"
#include "tests/common/check.h"

#define N_SYMBOLS 60u
#define MOST      4000u

/* --- the model: every path that was grown and not evicted --- */

struct path {
    struct ag_node *node; /* NULL: none */
    unsigned parent, symbol, depth;
    unsigned child[N_SYMBOLS]; /* 0 for none */
    uint64_t used;             /* when it was met last */
    uint64_t own; /* when it was last made, ended at, or its graph launched; after an eviction, as
                      any beneath */
    uint32_t ends;
    unsigned graph; /* its number, 0 for none */
    bool is_kept;   /* while an eviction is checked */
};

static struct path paths[MOST + 1]; /* paths[0] is the root */
static unsigned n_paths;
static uint64_t n_ends, state;
static unsigned next_graph, n_evictions;

static struct ag_signature signature_of(unsigned symbol)
{
    struct ag_signature signature = {.word = {AG_OP_KERNEL}};

    signature.word[1 + symbol % (AG_SIGNATURE_WORDS - 1)] = 1000 + symbol; /* one word differs */
    return signature;
}

/* Some symbols have the same. */
static uint64_t hash_of(unsigned symbol)
{
    return symbol / 3 * 0x9e3779b97f4a7c15u;
}

static void begin_model(struct ag_matcher *matcher)
{
    memset(paths, 0, sizeof(paths));
    paths[0].node = ag_matcher_root(matcher);
    n_paths = 1;
    n_ends = 0;
}

static unsigned free_path(void)
{
    for (unsigned i = 1; i < n_paths; i++) {
        if (!paths[i].node)
            return i;
    }
    CHECK(n_paths <= MOST);
    return n_paths++;
}

/* --- comparing --- */

/* Both ways: what the trie lists is in the model, and what is in the model is listed. */
static void compare(struct ag_matcher *matcher)
{
    unsigned n = 0;

    for (unsigned i = 0; i < n_paths; i++) {
        const struct path *path = &paths[i];
        const struct ag_node *node = path->node;
        unsigned below = 0;

        if (!node)
            continue;
        n += i > 0;
        CHECK(node->depth == path->depth && node->ends == path->ends);
        CHECK((uintptr_t)node->graphs == path->graph);
        for (unsigned symbol = 0; symbol < N_SYMBOLS; symbol++) {
            if (path->child[symbol])
                CHECK(paths[path->child[symbol]].node->parent == node);
        }
        for (unsigned j = 1; j < n_paths; j++) {
            unsigned above = j;

            if (!paths[j].node || !paths[j].graph || j == i)
                continue;
            while (above && above != i)
                above = paths[above].parent;
            below += above == i;
        }
        CHECK_SAID(node->below == below, "%u, not %u", node->below, below);
    }
    CHECK(ag_matcher_count(matcher) == n);
}

static void keep(unsigned path)
{
    for (; !paths[path].is_kept; path = paths[path].parent)
        paths[path].is_kept = true;
}

/* Not where `fresh` took its place. */
static bool is_still_there(unsigned path, const struct ag_node *fresh)
{
    const struct ag_node *parent = paths[paths[path].parent].node;

    return parent && paths[path].node->parent == parent && paths[path].node != fresh;
}

/* After something was evicted: nothing that must stay, and nothing used later than what stayed. */
static void note_evicted(unsigned in_hand, const struct ag_node *fresh)
{
    static bool was_there[MOST + 1];
    uint64_t latest = 0;
    bool any = false;

    for (unsigned i = 1; i < n_paths; i++) {
        for (unsigned at = i; at && paths[i].node; at = paths[at].parent) {
            if (paths[at].own < paths[i].own)
                paths[at].own = paths[i].own;
        }
    }
    paths[0].is_kept = true;
    keep(in_hand);
    for (unsigned i = 1; i < n_paths; i++) {
        was_there[i] = paths[i].node;
        if (paths[i].node && paths[i].graph)
            keep(i);
    }
    for (unsigned depth = 1, found = 1; found; depth++) { /* parents first */
        found = 0;
        for (unsigned i = 1; i < n_paths; i++) {
            if (!paths[i].node || paths[i].depth != depth)
                continue;
            found = 1;
            if (is_still_there(i, fresh))
                continue;
            CHECK(!paths[i].is_kept);
            any = true;
            if (paths[i].used > latest)
                latest = paths[i].used;
            paths[paths[i].parent].child[paths[i].symbol] = 0;
            paths[i].node = NULL;
        }
    }
    for (unsigned i = 1; i < n_paths; i++)
        CHECK(!paths[i].node || paths[i].is_kept || paths[i].used >= latest);
    for (unsigned i = 0; i < n_paths; i++) {
        paths[i].is_kept = false;
        if (was_there[i] && !paths[i].node)
            memset(&paths[i], 0, sizeof(paths[i]));
    }
    n_evictions += any;
}

/* --- steps --- */

static unsigned step(struct ag_matcher *matcher, unsigned path, unsigned symbol)
{
    struct ag_signature signature = signature_of(symbol);
    struct ag_node *node = paths[path].node, *child;
    unsigned known = paths[path].child[symbol];
    uint32_t before = ag_matcher_count(matcher);

    child = ag_matcher_follow(matcher, node, &signature, hash_of(symbol));
    CHECK(child == (known ? paths[known].node : NULL));
    if (!known) {
        child = ag_matcher_grow(matcher, node, &signature, hash_of(symbol));
        if (ag_matcher_count(matcher) != before + 1)
            note_evicted(path, child);
        if (!child)
            return 0;
        known = free_path();
        paths[known] = (struct path){.node = child,
                                     .parent = path,
                                     .symbol = symbol,
                                     .depth = paths[path].depth + 1,
                                     .own = n_ends};
        paths[path].child[symbol] = known;
    }
    CHECK(child == ag_matcher_grow(matcher, node, &signature, hash_of(symbol)));
    CHECK(child == ag_matcher_follow(matcher, node, &signature, hash_of(symbol)));
    CHECK(child->parent == node && child->hash == hash_of(symbol) &&
          ag_signature_equal(&child->signature, &signature));
    paths[known].used = n_ends;
    return known;
}

static void set_graph(struct ag_matcher *matcher, unsigned path, unsigned graph)
{
    struct ag_variants *old =
        ag_matcher_set_graphs(matcher, paths[path].node, (struct ag_variants *)(uintptr_t)graph);

    CHECK((uintptr_t)old == paths[path].graph);
    paths[path].graph = graph;
}

static void check_oldest(struct ag_matcher *matcher)
{
    struct ag_node *oldest = ag_matcher_oldest_graph(matcher);
    uint64_t used = UINT64_MAX, found = UINT64_MAX;

    for (unsigned i = 1; i < n_paths; i++) {
        if (paths[i].node && paths[i].graph && paths[i].own < used)
            used = paths[i].own;
        if (paths[i].node && paths[i].node == oldest)
            found = paths[i].own;
    }
    CHECK(used == found);
}

struct habits {
    uint32_t max_nodes;
    unsigned longest, n_first,
        n_symbols; /* of a segment; symbols of its first step, and of others */
    unsigned n_graphs;
};

static void one_segment(struct ag_matcher *matcher, const struct habits *habits, unsigned *n_graphs)
{
    unsigned length = 1 + (unsigned)chance_below(&state, habits->longest), path = 0, next;

    for (unsigned i = 0; i < length; i++) {
        next = step(matcher, path,
                    (unsigned)chance_below(&state, i ? habits->n_symbols : habits->n_first));
        if (!next)
            break;
        path = next;
        if (paths[path].graph && chance_below(&state, 2)) {
            ag_matcher_note_use(matcher, paths[path].node);
            paths[path].own = n_ends;
        }
    }
    if (!path)
        return;
    ag_matcher_ended(matcher, paths[path].node);
    paths[path].ends++;
    paths[path].own = ++n_ends;
    if (paths[path].graph && chance_below(&state, 3) == 0) {
        set_graph(matcher, path, 0);
        --*n_graphs;
    } else if (*n_graphs < habits->n_graphs && chance_below(&state, 4) == 0) {
        *n_graphs += !paths[path].graph;
        set_graph(matcher, path, ++next_graph);
    }
}

static void count_one(struct ag_variants *graphs, void *data)
{
    CHECK(graphs);
    ++*(unsigned *)data;
}

static void random_segments(const struct habits *habits, unsigned n)
{
    struct ag_matcher *matcher = ag_matcher_new(habits->max_nodes);
    unsigned n_graphs = 0, dropped = 0;

    CHECK(matcher);
    begin_model(matcher);
    for (unsigned i = 0; i < n; i++) {
        one_segment(matcher, habits, &n_graphs);
        CHECK(ag_matcher_count(matcher) <= habits->max_nodes);
        if (i % 64 == 0) {
            check_oldest(matcher);
            compare(matcher);
        }
        if (i % 1000 == 999) {
            n_graphs = 0;
            for (unsigned j = 1; j < n_paths; j++) {
                if (paths[j].node && paths[j].graph % 2)
                    set_graph(matcher, j, 0);
                n_graphs += paths[j].node && paths[j].graph;
            }
        }
    }
    ag_matcher_free(matcher, count_one, &dropped);
    CHECK(dropped == n_graphs);
}

/* --- streams that hardly repeat --- */

/* One segment of n operations; the node where it ended, or NULL where it was not learnt. */
static struct ag_node *segment_of(struct ag_matcher *matcher, uint64_t first, uint64_t n)
{
    struct ag_node *node = ag_matcher_root(matcher);
    struct ag_signature signature = {.word = {AG_OP_KERNEL}};

    for (uint64_t i = first; i < first + n && node; i++) {
        signature.word[1] = i;
        node = ag_matcher_grow(matcher, node, &signature, hash_of((unsigned)i));
    }
    if (node)
        ag_matcher_ended(matcher, node);
    return node;
}

/* A segment that comes again and again, beside those that never do. */
static void what_repeats_stays(void)
{
    struct ag_matcher *matcher = ag_matcher_new(2000);
    const struct ag_node *node;

    CHECK(matcher);
    for (uint64_t iteration = 0; iteration < 3000; iteration++) {
        (void)segment_of(matcher, (iteration + 1) << 20, 200);
        node = segment_of(matcher, 0, 100);
        CHECK_SAID(node && node->ends == iteration + 1, "iteration %lu", (unsigned long)iteration);
    }
    CHECK(ag_matcher_count(matcher) <= 2000);
    ag_matcher_free(matcher, NULL, NULL);
}

/* Nodes with many children that are evicted with them, again and again. */
static void wide_nodes_go(void)
{
    struct ag_matcher *matcher = ag_matcher_new(300);
    struct ag_signature signature = {.word = {AG_OP_KERNEL}};

    CHECK(matcher);
    for (uint64_t i = 0; i < 20000; i++) {
        struct ag_node *node, *wide;

        signature.word[1] = i / 20 << 8;
        wide = ag_matcher_grow(matcher, ag_matcher_root(matcher), &signature, i / 20 * 7919);
        CHECK(wide);
        signature.word[1] = i;
        node = ag_matcher_grow(matcher, wide, &signature, i * 104729);
        CHECK(node && ag_matcher_follow(matcher, wide, &signature, i * 104729) == node);
        ag_matcher_ended(matcher, node);
    }
    CHECK(ag_matcher_count(matcher) <= 300);
    ag_matcher_free(matcher, NULL, NULL);
}

/* One path that is longer than there is room: refused, and all is well after it. */
static void too_long(void)
{
    struct ag_matcher *matcher = ag_matcher_new(50);
    struct ag_signature signature = {.word = {AG_OP_KERNEL}};
    struct ag_node *node, *next;

    CHECK(matcher);
    node = ag_matcher_root(matcher);
    for (unsigned i = 0; i < 50; i++) {
        signature.word[1] = i;
        next = ag_matcher_grow(matcher, node, &signature, i);
        CHECK(next);
        node = next;
    }
    signature.word[1] = 50;
    CHECK(!ag_matcher_grow(matcher, node, &signature, 50));
    CHECK(ag_matcher_count(matcher) == 50 && node->depth == 50);
    ag_matcher_ended(matcher, node);
    node = ag_matcher_grow(matcher, ag_matcher_root(matcher), &signature, 50);
    CHECK(node && node->depth == 1 && ag_matcher_count(matcher) == 1);
    ag_matcher_free(matcher, NULL, NULL);
    ag_matcher_free(NULL, NULL, NULL);
}

/* Each finds the memory of those before it, and nothing in it; with many children, new memory. */
static void one_after_another(void)
{
    static const struct habits each[] = {{AG_MATCHER_NODES, 8, 4, 4, 20},
                                         {AG_MATCHER_NODES, 8, N_SYMBOLS, 4, 20}};

    ag_matcher_prepare();
    for (unsigned i = 0; i < 30; i++)
        random_segments(&each[i % 7 == 6], 130);
    for (unsigned i = 0; i < 20; i++) /* more than are kept */
        ag_matcher_prepare();
}

int main(void)
{
    static const struct habits each[] = {
        {MOST, 5, 4, 4, 20},        {300, 12, 3, 5, 20},
        {300, 30, N_SYMBOLS, 2, 5}, {300, 3, N_SYMBOLS, N_SYMBOLS, 40},
        {1000, 40, 12, 20, 3},      {40, 20, 12, 3, 1},
    };

    for (unsigned i = 0; i < N_OF(each); i++) {
        state = i;
        random_segments(&each[i], 6000);
    }
    CHECK(n_evictions > 100);
    what_repeats_stays();
    wide_nodes_go();
    too_long();
    one_after_another();
    return 0;
}
