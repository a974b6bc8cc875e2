/* graph.c: graphs as such: nodes, edges, copies, user objects. */
#include "tests/sim/graphs/sim_graph.h"

#include <stdlib.h>
#include <string.h>

struct CUuserObject_st {
    void *data;
    CUhostFn destroy;
    unsigned refs;
};

static unsigned long long next_id;

static bool graph_ok(CUgraph graph)
{
    return sim_handle_is(graph, SIM_GRAPH);
}

static bool node_ok(CUgraphNode node)
{
    return sim_handle_is(node, SIM_NODE);
}

/* ---- life ---- */

CUgraph sim_graph_new(void)
{
    return sim_handle_new(SIM_GRAPH, sizeof(struct CUgraph_st));
}

static void node_delete(CUgraphNode node)
{
    if (node->work.kind == SIM_WORK_CHILD)
        sim_graph_delete(node->work.u.child);
    sim_work_finish(&node->work);
    sim_graph_memory_unref(node->memory);
    free(node->before);
    free(node->edges);
    free(node->param_pointers);
    free(node->attributes);
    sim_handle_free(node);
}

static void object_release(CUuserObject object, unsigned count)
{
    object->refs -= SIM_MIN(count, object->refs);
    if (object->refs)
        return;
    CUhostFn destroy = object->destroy;
    void *data = object->data;
    sim_handle_free(object);
    /* Host code: it may call anything but the driver. */
    sim_unlock();
    sim_in_callback(SIM_IN_HOST_FUNCTION);
    destroy(data);
    sim_in_callback(SIM_IN_NOTHING);
    sim_lock();
}

void sim_graph_delete(CUgraph graph)
{
    if (!graph)
        return;
    for (unsigned i = 0; i < graph->n_nodes; i++)
        node_delete(graph->nodes[i]);
    for (unsigned i = 0; i < graph->n_objects; i++)
        object_release(graph->objects[i], 1);
    free(graph->objects);
    free(graph->nodes);
    sim_handle_free(graph);
}

static CUgraphNode *copy_list(const CUgraphNode *nodes, size_t n)
{
    CUgraphNode *copy = calloc(n + 1, sizeof(CUgraphNode));

    if (!copy)
        abort();
    if (n)
        memcpy(copy, nodes, n * sizeof(CUgraphNode));
    return copy;
}

static CUgraphEdgeData *copy_edges(const CUgraphEdgeData *edges, size_t n)
{
    CUgraphEdgeData *copy = calloc(n + 1, sizeof(CUgraphEdgeData));

    if (!copy)
        abort();
    if (n && edges)
        memcpy(copy, edges, n * sizeof(CUgraphEdgeData));
    return copy;
}

void sim_graph_set_tail(CUgraphNode **tail, size_t *n_tail, const CUgraphNode *nodes, size_t n)
{
    CUgraphNode *copy = copy_list(nodes, n);

    free(*tail);
    *tail = copy;
    *n_tail = n;
}

static CUgraphNode append(CUgraph graph, CUgraphNodeType type)
{
    CUgraphNode node = sim_handle_new(SIM_NODE, sizeof(*node));

    if (graph->n_nodes == graph->capacity) {
        graph->capacity = graph->capacity ? graph->capacity * 2 : 16;
        graph->nodes = realloc(graph->nodes, graph->capacity * sizeof(CUgraphNode));
        if (!graph->nodes)
            abort();
    }
    graph->nodes[graph->n_nodes++] = node;
    node->graph = graph;
    node->type = type;
    node->id = ++next_id;
    return node;
}

/* The driver's node refers to what the driver knows of the memory, not to an address alone. Memory
 * of allocation nodes is another block at each launch. */
static void find_named(const struct sim_work *work, const struct sim_block *ret[SIM_NAMED])
{
    uint64_t address[SIM_NAMED] = {0};

    if (work->kind == SIM_WORK_SET) {
        address[0] = work->u.set.dst;
    } else if (work->kind == SIM_WORK_COPY) {
        address[0] = work->u.copy.dst.host ? 0 : work->u.copy.dst.address;
        address[1] = work->u.copy.src.host ? 0 : work->u.copy.src.address;
    }
    for (unsigned i = 0; i < SIM_NAMED; i++) {
        ret[i] = address[i] ? sim_block_at(address[i]) : NULL;
        if (ret[i] && ret[i]->kind == SIM_BLOCK_GRAPH)
            ret[i] = NULL;
    }
}

void sim_graph_set_work(CUgraphNode node, const struct sim_work *work)
{
    const struct sim_block *block[SIM_NAMED];

    node->work = *work;
    find_named(work, block);
    for (unsigned i = 0; i < SIM_NAMED; i++)
        node->named[i] = block[i] ? block[i]->id : 0;
}

void sim_graph_check_named(CUgraph graph)
{
    for (unsigned i = 0; i < graph->n_nodes; i++) {
        CUgraphNode node = graph->nodes[i];
        const struct sim_block *block[SIM_NAMED];

        if (node->work.kind == SIM_WORK_CHILD)
            sim_graph_check_named(node->work.u.child);
        if (node->work.kind == SIM_WORK_KERNEL && sim_code_has_references(&node->work.u.kernel))
            sim_violation(NULL, 0, 0, NULL,
                          "a launch of a graph with a kernel that may read texture or surface "
                          "references, which is undefined");
        find_named(&node->work, block);
        for (unsigned j = 0; j < SIM_NAMED; j++) {
            if (node->named[j] && (!block[j] || block[j]->id != node->named[j]))
                sim_violation(NULL, block[j] ? block[j]->base : 0, 0, block[j],
                              "a launch of a graph whose copy or fill names memory that was freed "
                              "since it was set; the real driver crashes");
        }
    }
}

CUresult sim_graph_add(CUgraph graph, CUgraphNodeType type, struct sim_work *work, CUcontext ctx,
                       const CUgraphNode *before, size_t n_before, CUgraphNode *ret_node)
{
    CUresult result = graph_ok(graph) && ret_node && (before || !n_before)
                          ? CUDA_SUCCESS
                          : CUDA_ERROR_INVALID_VALUE;

    for (size_t i = 0; i < n_before && result == CUDA_SUCCESS; i++)
        if (!node_ok(before[i]) || before[i]->graph != graph)
            result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n_before && result == CUDA_SUCCESS; i++)
        for (size_t j = 0; j < i; j++)
            if (before[i] == before[j])
                result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS) {
        sim_work_finish(work);
        return result;
    }
    CUgraphNode node = append(graph, type);
    node->before = copy_list(before, n_before);
    node->edges = copy_edges(NULL, n_before);
    node->n_before = (unsigned)n_before;
    sim_graph_set_work(node, work);
    node->ctx = ctx;
    memset(work, 0, sizeof(*work));
    *ret_node = node;
    return CUDA_SUCCESS;
}

static CUgraphNode clone_of(const CUgraphNode *from, const CUgraphNode *to, unsigned n,
                            CUgraphNode node)
{
    for (unsigned i = 0; i < n; i++)
        if (from[i] == node)
            return to[i];
    return NULL;
}

static CUlaunchAttributeValue *copy_attributes(const CUlaunchAttributeValue *from)
{
    CUlaunchAttributeValue *to = from ? calloc(CU_LAUNCH_ATTRIBUTE_MAX, sizeof(*to)) : NULL;

    if (from && !to)
        abort();
    if (from)
        memcpy(to, from, CU_LAUNCH_ATTRIBUTE_MAX * sizeof(*to));
    return to;
}

CUgraph sim_graph_clone(CUgraph graph)
{
    CUgraph clone = sim_graph_new();

    for (unsigned i = 0; i < graph->n_nodes; i++) {
        CUgraphNode from = graph->nodes[i], to = append(clone, from->type);
        sim_work_copy(&to->work, &from->work);
        memcpy(to->named, from->named, sizeof(to->named));
        if (from->work.kind == SIM_WORK_CHILD) {
            to->work.u.child = sim_graph_clone(from->work.u.child);
            to->work.u.child->parent = to;
        }
        to->ctx = from->ctx;
        to->original = from;
        to->attributes = copy_attributes(from->attributes);
        to->disabled = from->disabled;
        to->freed = from->freed;
        to->memory = from->memory;
        if (to->memory)
            to->memory->refs++;
    }
    for (unsigned i = 0; i < graph->n_nodes; i++) {
        CUgraphNode from = graph->nodes[i], to = clone->nodes[i];
        to->before = copy_list(from->before, from->n_before);
        to->edges = copy_edges(from->edges, from->n_before);
        to->n_before = from->n_before;
        for (unsigned j = 0; j < to->n_before; j++)
            to->before[j] = clone_of(graph->nodes, clone->nodes, graph->n_nodes, from->before[j]);
    }
    clone->objects = calloc(graph->n_objects + 1, sizeof(CUuserObject));
    if (!clone->objects)
        abort();
    for (unsigned i = 0; i < graph->n_objects; i++) {
        graph->objects[i]->refs++;
        clone->objects[clone->n_objects++] = graph->objects[i];
    }
    return clone;
}

CUgraphNode sim_graph_find_clone(CUgraph graph, CUgraphNode original)
{
    for (unsigned i = 0; i < graph->n_nodes; i++) {
        CUgraphNode node = graph->nodes[i];
        if (node->original == original)
            return node;
        if (node->work.kind == SIM_WORK_CHILD) {
            CUgraphNode inner = sim_graph_find_clone(node->work.u.child, original);
            if (inner)
                return inner;
        }
    }
    return NULL;
}

/* ---- order ---- */

static bool all_marked(CUgraphNode node)
{
    for (unsigned i = 0; i < node->n_before; i++)
        if (!node->before[i]->mark)
            return false;
    return true;
}

bool sim_graph_sort(CUgraph graph, CUgraphNode *order)
{
    unsigned n = 0, before;

    for (unsigned i = 0; i < graph->n_nodes; i++)
        graph->nodes[i]->mark = 0;
    do {
        before = n;
        for (unsigned i = 0; i < graph->n_nodes; i++) {
            CUgraphNode node = graph->nodes[i];
            if (node->mark || !all_marked(node))
                continue;
            node->mark = 1;
            order[n++] = node;
        }
    } while (n > before);
    return n == graph->n_nodes;
}

static bool reaches(CUgraphNode node, CUgraphNode other)
{
    if (node == other)
        return true;
    if (node->mark)
        return false;
    node->mark = 1;
    for (unsigned i = 0; i < node->n_before; i++)
        if (reaches(node->before[i], other))
            return true;
    return false;
}

/* Does `node` come before `other`, or is it the same? */
bool sim_graph_node_before(CUgraphNode node, CUgraphNode other)
{
    for (unsigned i = 0; i < other->graph->n_nodes; i++)
        other->graph->nodes[i]->mark = 0;
    return reaches(other, node);
}

/* ---- calls ---- */

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!graph || flags)
        return CUDA_ERROR_INVALID_VALUE;
    *graph = sim_graph_new();
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!graph_ok(graph) || graph->parent)
        return CUDA_ERROR_INVALID_VALUE;
    sim_graph_delete(graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph *clone, CUgraph graph)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!clone || !graph_ok(graph))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < graph->n_nodes; i++)
        if (graph->nodes[i]->memory || graph->nodes[i]->freed)
            return CUDA_ERROR_NOT_SUPPORTED;
    *clone = sim_graph_clone(graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode *node, CUgraphNode original, CUgraph clone)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!node || !graph_ok(clone) || !node_ok(original))
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphNode found = sim_graph_find_clone(clone, original);
    if (!found)
        return CUDA_ERROR_INVALID_VALUE;
    *node = found;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!node_ok(node) || !type)
        return CUDA_ERROR_INVALID_VALUE;
    *type = node->type;
    return CUDA_SUCCESS;
}

static void unlink_node(CUgraphNode node, CUgraphNode before)
{
    for (unsigned i = 0; i < node->n_before; i++) {
        if (node->before[i] != before)
            continue;
        node->n_before--;
        node->edges[i] = node->edges[node->n_before];
        node->before[i--] = node->before[node->n_before];
    }
}

CUresult cuGraphDestroyNode(CUgraphNode node)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!node_ok(node))
        return CUDA_ERROR_INVALID_VALUE;
    if (node->memory || node->freed)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUgraph graph = node->graph;
    for (unsigned i = 0; i < graph->n_nodes; i++) {
        if (graph->nodes[i] != node) {
            unlink_node(graph->nodes[i], node);
            continue;
        }
        memmove(&graph->nodes[i], &graph->nodes[i + 1],
                (graph->n_nodes - i - 1) * sizeof(CUgraphNode));
        graph->n_nodes--;
        i--;
    }
    node_delete(node);
    return CUDA_SUCCESS;
}

/* A list handed out: a NULL array asks for the number only; surplus places are filled with NULL. */
struct out {
    CUgraphNode *nodes, *nodes_to;
    CUgraphEdgeData *edges; /* NULL: edges that say something make the answer a lossy one */
    size_t room, n;
    bool lossy;
};

static bool is_plain(const CUgraphEdgeData *edge)
{
    return !edge->from_port && !edge->to_port && !edge->type;
}

static void put_edge(struct out *out, const CUgraphEdgeData *edge)
{
    out->lossy |= out->nodes && !out->edges && !is_plain(edge);
    if (out->edges && out->n < out->room)
        out->edges[out->n] = *edge;
}

static void put(struct out *out, CUgraphNode node, CUgraphNode to)
{
    if (out->nodes && out->n < out->room)
        out->nodes[out->n] = node;
    if (out->nodes_to && out->n < out->room)
        out->nodes_to[out->n] = to;
    out->n++;
}

static CUresult finish(struct out *out, size_t *n)
{
    for (size_t i = out->n; i < out->room; i++) {
        if (out->nodes)
            out->nodes[i] = NULL;
        if (out->nodes_to)
            out->nodes_to[i] = NULL;
    }
    if (out->lossy)
        return CUDA_ERROR_LOSSY_QUERY;
    *n = out->nodes ? SIM_MIN(out->n, out->room) : out->n;
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *n)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!graph_ok(graph) || !n)
        return CUDA_ERROR_INVALID_VALUE;
    struct out out = {.nodes = nodes, .room = nodes ? *n : 0};
    for (unsigned i = 0; i < graph->n_nodes; i++)
        put(&out, graph->nodes[i], NULL);
    return finish(&out, n);
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *n)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!graph_ok(graph) || !n)
        return CUDA_ERROR_INVALID_VALUE;
    struct out out = {.nodes = nodes, .room = nodes ? *n : 0};
    for (unsigned i = 0; i < graph->n_nodes; i++)
        if (!graph->nodes[i]->n_before)
            put(&out, graph->nodes[i], NULL);
    return finish(&out, n);
}

static CUresult get_edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data,
                          size_t *n)
{
    if (!graph_ok(graph) || !n || !from != !to)
        return CUDA_ERROR_INVALID_VALUE;
    struct out out = {.nodes = from, .nodes_to = to, .edges = data, .room = from ? *n : 0};
    for (unsigned i = 0; i < graph->n_nodes; i++) {
        for (unsigned j = 0; j < graph->nodes[i]->n_before; j++) {
            put_edge(&out, &graph->nodes[i]->edges[j]);
            put(&out, graph->nodes[i]->before[j], graph->nodes[i]);
        }
    }
    return finish(&out, n);
}

static CUresult get_before(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data, size_t *n)
{
    if (!node_ok(node) || !n)
        return CUDA_ERROR_INVALID_VALUE;
    struct out out = {.nodes = nodes, .edges = data, .room = nodes ? *n : 0};
    for (unsigned i = 0; i < node->n_before; i++) {
        put_edge(&out, &node->edges[i]);
        put(&out, node->before[i], NULL);
    }
    return finish(&out, n);
}

static CUresult get_after(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data, size_t *n)
{
    if (!node_ok(node) || !n)
        return CUDA_ERROR_INVALID_VALUE;
    struct out out = {.nodes = nodes, .edges = data, .room = nodes ? *n : 0};
    for (unsigned i = 0; i < node->graph->n_nodes; i++) {
        CUgraphNode other = node->graph->nodes[i];
        for (unsigned j = 0; j < other->n_before; j++) {
            if (other->before[j] != node)
                continue;
            put_edge(&out, &other->edges[j]);
            put(&out, other, NULL);
        }
    }
    return finish(&out, n);
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *n)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return get_edges(graph, from, to, NULL, n);
}

CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to,
                            CUgraphEdgeData *data, size_t *n)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return get_edges(graph, from, to, data, n);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *n)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return get_before(node, nodes, NULL, n);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data,
                                       size_t *n)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return get_before(node, nodes, data, n);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *n)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return get_after(node, nodes, NULL, n);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *nodes,
                                         CUgraphEdgeData *data, size_t *n)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return get_after(node, nodes, data, n);
}

static bool has_edge(CUgraphNode from, CUgraphNode to)
{
    for (unsigned i = 0; i < to->n_before; i++)
        if (to->before[i] == from)
            return true;
    return false;
}

/* Only kernels have ports, and only kernels wait for one of another kernel. */
bool sim_graph_edge_ok(CUgraphNode from, CUgraphNodeType to, const CUgraphEdgeData *edge)
{
    static const unsigned char zero[sizeof(edge->reserved)];

    if (edge->to_port || memcmp(edge->reserved, zero, sizeof(zero)))
        return false;
    if (!edge->from_port)
        return !edge->type;
    return edge->type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC &&
           edge->from_port <= CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER &&
           from->type == CU_GRAPH_NODE_TYPE_KERNEL && to == CU_GRAPH_NODE_TYPE_KERNEL;
}

static void append_edge(CUgraphNode node, CUgraphNode from, const CUgraphEdgeData *edge)
{
    node->before = realloc(node->before, (node->n_before + 1) * sizeof(CUgraphNode));
    node->edges = realloc(node->edges, (node->n_before + 1) * sizeof(CUgraphEdgeData));
    if (!node->before || !node->edges)
        abort();
    node->edges[node->n_before] = edge ? *edge : (CUgraphEdgeData){0};
    node->before[node->n_before++] = from;
}

static CUresult change_edges(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                             const CUgraphEdgeData *data, size_t n, bool add)
{
    if (!graph_ok(graph) || (n && (!from || !to)))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n; i++)
        if (!node_ok(from[i]) || !node_ok(to[i]) || from[i]->graph != graph ||
            to[i]->graph != graph || from[i] == to[i] || has_edge(from[i], to[i]) == add ||
            (data && !sim_graph_edge_ok(from[i], to[i]->type, &data[i])))
            return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n; i++) {
        CUgraphNode node = to[i];
        if (!add) {
            unlink_node(node, from[i]);
            continue;
        }
        append_edge(node, from[i], data ? &data[i] : NULL);
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                size_t n)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return change_edges(graph, from, to, NULL, n, true);
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *data, size_t n)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    /* Kept, and every edge is a full dependency: kernels do not tell when others may start. */
    return change_edges(graph, from, to, data, n, true);
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   size_t n)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return change_edges(graph, from, to, NULL, n, false);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                      const CUgraphEdgeData *data, size_t n)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return change_edges(graph, from, to, data, n, false);
}

/* ---- user objects ---- */

CUresult cuUserObjectCreate(CUuserObject *ret_object, void *data, CUhostFn destroy,
                            unsigned int count, unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!ret_object || !destroy || !count || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    CUuserObject object = sim_handle_new(SIM_USER_OBJECT, sizeof(*object));
    object->data = data;
    object->destroy = destroy;
    object->refs = count;
    *ret_object = object;
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!sim_handle_is(object, SIM_USER_OBJECT) || !count)
        return CUDA_ERROR_INVALID_VALUE;
    object->refs += count;
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!sim_handle_is(object, SIM_USER_OBJECT) || !count || count > object->refs)
        return CUDA_ERROR_INVALID_VALUE;
    object_release(object, count);
    return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                 unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!graph_ok(graph) || !sim_handle_is(object, SIM_USER_OBJECT) || !count)
        return CUDA_ERROR_INVALID_VALUE;
    graph->objects = realloc(graph->objects, (graph->n_objects + count) * sizeof(CUuserObject));
    if (!graph->objects)
        abort();
    for (unsigned i = 0; i < count; i++)
        graph->objects[graph->n_objects++] = object;
    if (!(flags & CU_GRAPH_USER_OBJECT_MOVE))
        object->refs += count;
    return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    unsigned held = 0;

    if (!graph_ok(graph) || !sim_handle_is(object, SIM_USER_OBJECT) || !count)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < graph->n_objects; i++)
        held += graph->objects[i] == object;
    if (held < count)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0, left = count; i < graph->n_objects && left; i++) {
        if (graph->objects[i] == object) {
            graph->objects[i--] = graph->objects[--graph->n_objects];
            left--;
        }
    }
    object_release(object, count);
    return CUDA_SUCCESS;
}
