/* Edges between branches: see edges.h. */
#include "graph/replay/edges.h"

#include "graph/forks.h"
#include "interpose/base/pages.h"
#include "interpose/driver/driver.h"

#define MOST_BEFORE AG_MAX_BRANCHES

struct nodes {
    CUgraphNode node[MOST_BEFORE];
    uint32_t n;
};

struct ag_edges {
    struct {
        struct nodes before;
        CUevent last; /* recorded behind its last node; NULL: none was */
        bool used;
    } branch[AG_MAX_BRANCHES];
    struct {
        CUevent event;
        uint32_t branch; /* that recorded it last */
        struct nodes covered;
    } recorded[AG_FORKS_EVENTS];
    uint32_t n_recorded;
};

struct ag_edges *ag_edges_new(void)
{
    return ag_pages_get(sizeof(struct ag_edges));
}

void ag_edges_free(struct ag_edges *edges)
{
    if (edges)
        ag_pages_free(edges, sizeof(*edges));
}

const CUgraphNode *ag_edges_before(const struct ag_edges *edges, uint32_t branch, uint32_t *ret_n)
{
    *ret_n = edges->branch[branch].before.n;
    return edges->branch[branch].before.node;
}

void ag_edges_add(struct ag_edges *edges, uint32_t branch, CUgraphNode node)
{
    edges->branch[branch].before = (struct nodes){.node = {node}, .n = 1};
    edges->branch[branch].last = NULL;
    edges->branch[branch].used = true;
}

static bool add_nodes(struct nodes *to, const struct nodes *more)
{
    for (uint32_t i = 0; i < more->n; i++) {
        uint32_t at = 0;

        while (at < to->n && to->node[at] != more->node[i])
            at++;
        if (at == MOST_BEFORE)
            return false;
        to->node[at] = more->node[i];
        to->n += at == to->n;
    }
    return true;
}

static uint32_t find(const struct ag_edges *edges, CUevent event)
{
    uint32_t i = 0;

    while (i < edges->n_recorded && edges->recorded[i].event != event)
        i++;
    return i;
}

static bool record(struct ag_edges *edges, uint32_t branch, CUevent event)
{
    uint32_t i = find(edges, event);

    if (i == AG_FORKS_EVENTS)
        return false;
    if (i == edges->n_recorded)
        edges->n_recorded++;
    else if (edges->branch[edges->recorded[i].branch].last == event)
        edges->branch[edges->recorded[i].branch].last = NULL; /* it says something else now */
    edges->recorded[i].event = event;
    edges->recorded[i].branch = branch;
    edges->recorded[i].covered = edges->branch[branch].before;
    edges->branch[branch].last = event;
    return true;
}

/* What comes next on the branch comes behind the event, so a record before this one ends it no
 * more. */
static bool wait(struct ag_edges *edges, uint32_t branch, CUevent event)
{
    uint32_t i = find(edges, event);

    edges->branch[branch].used = true;
    edges->branch[branch].last = NULL;
    return i < edges->n_recorded &&
           add_nodes(&edges->branch[branch].before, &edges->recorded[i].covered);
}

bool ag_edges_mark(struct ag_edges *edges, const struct ag_op *op)
{
    uint32_t branch = ag_op_branch(op);

    return ag_op_kind(op) == AG_OP_RECORD ? record(edges, branch, ag_op_event(op))
                                          : wait(edges, branch, ag_op_event(op));
}

CUresult ag_edges_finish(const struct ag_edges *edges, CUgraph graph)
{
    CUresult result = CUDA_SUCCESS;

    for (uint32_t i = 0; i < edges->n_recorded && result == CUDA_SUCCESS; i++) {
        const struct nodes *covered = &edges->recorded[i].covered;
        CUgraphNode node;

        result = ag_cu.cuGraphAddEventRecordNode(&node, graph, covered->node, covered->n,
                                                 edges->recorded[i].event);
    }
    return result;
}

bool ag_edges_are_closed(const struct ag_edges *edges)
{
    for (uint32_t i = 1; i < AG_MAX_BRANCHES; i++) {
        if (edges->branch[i].used && !edges->branch[i].last)
            return false;
    }
    return true;
}

CUevent ag_edges_last_event(const struct ag_edges *edges, uint32_t branch)
{
    return edges->branch[branch].last;
}
