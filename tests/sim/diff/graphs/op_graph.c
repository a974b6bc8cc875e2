/* op_graph.c: a random program builds graphs by hand, launches them, and changes what their nodes
 * do. The nodes stand in chains, one after another within each; of nodes in different chains none
 * writes what another uses. */
#include <string.h>

#include "diff.h"

#define CHAINS 3

/* A graph that is being built. */
struct build {
    struct world *w;
    struct graph *graph;
    CUgraphNode last[CHAINS]; /* of each chain; NULL: none yet */
    unsigned since;           /* uses before that one come before all that follows */
};

struct arguments {
    CUdeviceptr dst, src;
    uint32_t bytes, value;
    void *list[3];
};

/* What a node works on. */
struct work {
    struct buffer *dst, *src; /* src: NULL where the node reads none */
    size_t bytes;
};

/* ---- what nodes do ---- */

static bool is_kernel(const struct node *node)
{
    return node->kind == NODE_KERNEL || node->kind == NODE_CHILD || node->kind == NODE_TEMPORARY;
}

static bool reads(const struct node *node)
{
    return node->kind == NODE_COPY || (is_kernel(node) && node->kernel != KERNEL_FILL);
}

/* Beside what is the node's context to use, a copy or a fill may not come to be of another
 * context's memory, which the driver tells apart only where it gives memory of its contexts. */
static bool suits(const struct build *it, const struct node *node, const struct buffer *buffer)
{
    unsigned context = it->graph->context;

    if (node->kind == NODE_HOST)
        return buffer->kind == BUFFER_VARIABLE;
    if (it->w->contexts[buffer->context].device != it->w->contexts[context].device ||
        !buffer_reachable(it->w, buffer, context))
        return false;
    return is_kernel(node) || (buffer->host ? node->kind == NODE_COPY : buffer->context == context);
}

static struct buffer *pick(struct build *it, const struct node *node, bool write,
                           const struct buffer *but)
{
    struct world *w = it->w;
    struct buffer *found = NULL;
    unsigned n = 0;

    for (unsigned i = 0; i < MAX_BUFFERS; i++) {
        struct buffer *buffer = &w->buffers[i];

        if (!buffer->live || !buffer->filled || buffer == but || !suits(it, node, buffer))
            continue;
        if (graph_may_use(it->graph, it->since, buffer, node->chain, write) && draw(w, ++n) == 0)
            found = buffer;
    }
    return found;
}

/* False: there is no memory for it. */
static bool pick_work(struct build *it, const struct node *node, struct work *ret_work)
{
    struct work *work = ret_work;

    *work = (struct work){.dst = pick(it, node, true, NULL)};
    if (!work->dst)
        return false;
    work->bytes = work->dst->extent;
    if (!reads(node))
        return true;
    work->src = pick(it, node, false, work->dst);
    if (!work->src)
        return false;
    if (node->kernel == KERNEL_HASH && node->kind != NODE_COPY)
        work->bytes = work->src->extent;
    else if (work->src->extent < work->bytes)
        work->bytes = work->src->extent;
    return true;
}

static CUDA_KERNEL_NODE_PARAMS kernel_params(const struct build *it, const struct node *node,
                                             const struct work *work, struct arguments *args)
{
    *args = (struct arguments){.dst = work->dst->p,
                               .src = work->src ? work->src->p : 0,
                               .bytes = (uint32_t)work->bytes,
                               .value = node->value};
    args->list[0] = &args->dst;
    args->list[1] = work->src ? (void *)&args->src : &args->bytes;
    args->list[2] = work->src ? &args->bytes : &args->value;
    return (CUDA_KERNEL_NODE_PARAMS){
        .func = it->w->contexts[it->graph->context].kernels[node->kernel],
        .gridDimX = 1,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = 32,
        .blockDimY = 1,
        .blockDimZ = 1,
        .kernelParams = args->list,
    };
}

static CUDA_MEMCPY3D copy_params(const struct work *work)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .srcDevice = work->src->p,
                           .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .dstDevice = work->dst->p,
                           .WidthInBytes = work->bytes,
                           .Height = 1,
                           .Depth = 1};
}

static CUDA_MEMSET_NODE_PARAMS memset_params(const struct node *node, const struct work *work)
{
    return (CUDA_MEMSET_NODE_PARAMS){.dst = work->dst->p,
                                     .elementSize = 4,
                                     .value = node->value,
                                     .width = work->bytes / 4,
                                     .height = 1};
}

/* A graph of one kernel. */
static CUresult make_child(const struct build *it, const struct node *node, const struct work *work,
                           CUgraph *ret_child)
{
    struct arguments args;
    CUDA_KERNEL_NODE_PARAMS params = kernel_params(it, node, work, &args);
    CUgraphNode inner;
    CUresult result = cu.cuGraphCreate(ret_child, 0);

    return result ? result : cu.cuGraphAddKernelNode_v2(&inner, *ret_child, NULL, 0, &params);
}

/* ---- building ---- */

static CUcontext handle_of(const struct build *it)
{
    return it->w->contexts[it->graph->context].handle;
}

static CUresult add_child(const struct build *it, struct node *node, const struct work *work,
                          const CUgraphNode *after, size_t n)
{
    CUgraph child = NULL;
    CUresult result = make_child(it, node, work, &child);

    if (result == CUDA_SUCCESS)
        result = cu.cuGraphAddChildGraphNode(&node->handle, it->graph->graph, after, n, child);
    (void)cu.cuGraphDestroy(child);
    return result;
}

/* Memory of the graph's own, which a kernel fills, another one adds to what there is, and which is
 * freed. */
static CUresult add_temporary(const struct build *it, struct node *node, const struct work *work,
                              const CUgraphNode *after, size_t n)
{
    CUDA_MEM_ALLOC_NODE_PARAMS memory = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                                   .id = it->w->contexts[it->graph->context].device}},
        .bytesize = work->bytes};
    struct node fill = {.kernel = KERNEL_FILL, .value = node->value}, add = {.kernel = KERNEL_ADD};
    CUgraph graph = it->graph->graph;
    CUgraphNode alloc, filled, added;
    CUDA_KERNEL_NODE_PARAMS params;
    struct arguments args;
    struct buffer own = {0};
    const size_t unit = (size_t)2 << 20;
    CUresult result =
        ROOM_TO_LAUNCH(it->w, it->graph->context, (work->bytes + unit - 1) / unit * unit,
                       cu.cuGraphAddMemAllocNode(&alloc, graph, after, n, &memory));

    if (result != CUDA_SUCCESS)
        return result;
    own.p = memory.dptr;
    params = kernel_params(it, &fill, &(struct work){&own, NULL, work->bytes}, &args);
    result = cu.cuGraphAddKernelNode_v2(&filled, graph, &alloc, 1, &params);
    params = kernel_params(it, &add, &(struct work){work->dst, &own, work->bytes}, &args);
    if (result == CUDA_SUCCESS)
        result = cu.cuGraphAddKernelNode_v2(&added, graph, &filled, 1, &params);
    if (result == CUDA_SUCCESS)
        result = cu.cuGraphAddMemFreeNode(&node->handle, graph, &added, 1, memory.dptr);
    return result;
}

static CUresult add(const struct build *it, struct node *node, const struct work *work)
{
    CUgraph graph = it->graph->graph;
    CUgraphNode after[CHAINS];
    CUDA_KERNEL_NODE_PARAMS kernel;
    CUDA_MEMSET_NODE_PARAMS memset_node;
    CUDA_HOST_NODE_PARAMS host;
    CUDA_MEMCPY3D copy;
    struct arguments args;
    size_t n = 0;

    for (unsigned chain = 0; chain < CHAINS; chain++) {
        bool is_after = chain == node->chain || chain == node->other || node->kind == NODE_EMPTY;

        if (is_after && it->last[chain] && (!n || after[n - 1] != it->last[chain]))
            after[n++] = it->last[chain];
    }
    if (n == CHAINS && after[0] == after[2])
        n--;
    switch (node->kind) {
    case NODE_KERNEL:
        kernel = kernel_params(it, node, work, &args);
        return cu.cuGraphAddKernelNode_v2(&node->handle, graph, after, n, &kernel);
    case NODE_CHILD:
        return add_child(it, node, work, after, n);
    case NODE_MEMSET:
        memset_node = memset_params(node, work);
        return cu.cuGraphAddMemsetNode(&node->handle, graph, after, n, &memset_node, handle_of(it));
    case NODE_COPY:
        copy = copy_params(work);
        return cu.cuGraphAddMemcpyNode(&node->handle, graph, after, n, &copy, handle_of(it));
    case NODE_HOST:
        host = host_node_of(work->dst, node->value);
        return cu.cuGraphAddHostNode(&node->handle, graph, after, n, &host);
    case NODE_TEMPORARY:
        return add_temporary(it, node, work, after, n);
    default:
        return cu.cuGraphAddEmptyNode(&node->handle, graph, after, n);
    }
}

static void note_node(struct build *it, const struct node *node)
{
    it->graph->nodes[it->graph->n_nodes++] = *node;
    it->last[node->chain] = node->handle;
    if (node->kind != NODE_EMPTY)
        return;
    for (unsigned chain = 0; chain < CHAINS; chain++)
        it->last[chain] = node->handle;
    it->since = it->graph->n_uses;
}

/* False: there is no memory for it. */
static bool add_node(struct build *it, struct node node)
{
    struct world *w = it->w;
    struct work work = {0};
    CUresult result;

    if (node.kind != NODE_EMPTY && !pick_work(it, &node, &work))
        return false;
    node.use = it->graph->n_uses;
    result = add(it, &node, &work);
    if (!did(w, result, "node %d kernel %d chain %u b%d b%d", (int)node.kind, (int)node.kernel,
             node.chain, work.dst ? (int)work.dst->id : -1, work.src ? (int)work.src->id : -1))
        return false;
    if (work.dst)
        graph_use(w, it->graph, work.dst, node.chain, true);
    if (work.src)
        graph_use(w, it->graph, work.src, node.chain, false);
    if (node.kind == NODE_TEMPORARY)
        it->graph->has_memory = w->uses_pools = true;
    note_node(it, &node);
    return true;
}

static struct node draw_node(struct world *w)
{
    static const unsigned kinds[] = {NODE_KERNEL, NODE_KERNEL, NODE_KERNEL, NODE_KERNEL,
                                     NODE_COPY,   NODE_COPY,   NODE_MEMSET, NODE_CHILD};
    struct node node = {.chain = draw(w, CHAINS), .value = draw(w, 1u << 30)};

    node.kind = kinds[draw(w, sizeof(kinds) / sizeof(kinds[0]))];
    node.kernel = (enum kernel)draw(w, KERNEL_MARK);
    node.other = chance(w, 25) ? draw(w, CHAINS) : node.chain;
    if (may_look(w) && chance(w, w->traits->by_nodes ? 30 : 6))
        node.kind = NODE_HOST;
    else if (chance(w, 6))
        node.kind = NODE_EMPTY;
    if (w->traits->n_threads == 1 && chance(w, 5)) {
        node.kind = NODE_TEMPORARY;
        node.kernel = KERNEL_FILL;
    }
    return node;
}

static CUresult instantiate(struct world *w, struct graph *graph)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};

    memcpy(graph->uses, graph->first, sizeof(graph->uses));
    if (chance(w, 30))
        return ROOM(w, graph->context, 0,
                    cu.cuGraphInstantiateWithParams(&graph->exec, graph->graph, &params));
    return ROOM(w, graph->context, 0,
                cu.cuGraphInstantiateWithFlags(&graph->exec, graph->graph, 0));
}

static bool build_graph(struct world *w)
{
    struct graph *slot = graph_slot(w), graph = {0};
    struct build it = {.w = w, .graph = &graph};
    unsigned stream = stream_pick(w), n;

    if (!slot || stream == MAX_STREAMS)
        return false;
    graph.context = w->streams[stream].context;
    use_context(w, graph.context);
    if (!did(w, cu.cuGraphCreate(&graph.graph, 0), "cuGraphCreate"))
        return true;
    n = 1 + draw(w, MAX_NODES);
    for (unsigned i = 0; i < n && graph.n_uses + 2 <= MAX_USES; i++)
        (void)add_node(&it, draw_node(w));
    memcpy(graph.first, graph.uses, sizeof(graph.first));
    if (!graph.n_nodes || !did(w, instantiate(w, &graph), "cuGraphInstantiate g%u", w->next_id)) {
        (void)cu.cuGraphDestroy(graph.graph);
        return true;
    }
    graph.id = w->next_id++;
    graph.alive = true;
    *slot = graph;
    return true;
}

/* ---- changing ---- */

/* Memory that the graph does not use yet, or its own. */
static bool pick_other_work(struct build *it, const struct node *node, struct work *ret_work)
{
    struct graph *graph = it->graph;
    struct world *w = it->w;
    struct work *work = ret_work;
    struct graph without = *graph;

    /* What the node itself uses does not stand in its way. */
    for (unsigned i = node->use; i < node->use + 1 + reads(node); i++)
        without.uses[i].id = 0;
    for (unsigned i = 0; i < without.n_uses; i++)
        without.uses[i].stream = CHAINS; /* of no node's chain */
    return pick_work(&(struct build){.w = w, .graph = &without}, node, work);
}

static void note_other_work(struct use *uses, struct world *w, const struct node *node,
                            const struct work *work)
{
    const struct buffer *both[] = {work->dst, work->src};

    for (unsigned i = 0; i < 2 && both[i]; i++) {
        uses[node->use + i].buffer = (unsigned)(both[i] - w->buffers);
        uses[node->use + i].id = both[i]->id;
    }
}

static CUresult change(const struct build *it, const struct node *node, const struct work *work)
{
    CUgraphExec exec = it->graph->exec;
    CUDA_KERNEL_NODE_PARAMS kernel;
    CUDA_MEMSET_NODE_PARAMS memset_node;
    CUDA_HOST_NODE_PARAMS host;
    CUDA_MEMCPY3D copy;
    struct arguments args;
    CUgraph child = NULL;
    CUresult result;

    switch (node->kind) {
    case NODE_KERNEL:
        kernel = kernel_params(it, node, work, &args);
        return cu.cuGraphExecKernelNodeSetParams_v2(exec, node->handle, &kernel);
    case NODE_MEMSET:
        memset_node = memset_params(node, work);
        return cu.cuGraphExecMemsetNodeSetParams(exec, node->handle, &memset_node, handle_of(it));
    case NODE_COPY:
        copy = copy_params(work);
        return cu.cuGraphExecMemcpyNodeSetParams(exec, node->handle, &copy, handle_of(it));
    case NODE_HOST:
        host = host_node_of(work->dst, node->value);
        return cu.cuGraphExecHostNodeSetParams(exec, node->handle, &host);
    default:
        result = make_child(it, node, work, &child);
        if (result == CUDA_SUCCESS)
            result = cu.cuGraphExecChildGraphNodeSetParams(exec, node->handle, child);
        (void)cu.cuGraphDestroy(child);
        return result;
    }
}

/* One that is refused changes nothing. */
static bool change_node(struct world *w, struct graph *graph)
{
    unsigned at = draw(w, graph->n_nodes);
    struct node node = graph->nodes[at];
    struct build it = {.w = w, .graph = graph};
    struct work work;

    if (!graph->graph || node.kind == NODE_EMPTY || node.kind == NODE_TEMPORARY ||
        (node.kind == NODE_COPY && !w->traits->recopies))
        return false;
    node.value = draw(w, 1u << 30);
    if (!pick_other_work(&it, &node, &work))
        return false;
    if (did(w, change(&it, &node, &work), "change g%u node %u b%u b%d", graph->id, at, work.dst->id,
            work.src ? (int)work.src->id : -1))
        note_other_work(graph->uses, w, &node, &work);
    return true;
}

/* Without an executable graph the other one goes, too. */
static void instantiate_anew(struct world *w, struct graph *graph)
{
    (void)did(w, cu.cuGraphExecDestroy(graph->exec), "cuGraphExecDestroy g%u", graph->id);
    graph->alive = did(w, instantiate(w, graph), "cuGraphInstantiate g%u anew", graph->id);
    if (!graph->alive)
        (void)cu.cuGraphDestroy(graph->graph);
}

/* A kernel does another thing from the next instantiation on. */
static bool change_and_instantiate(struct world *w, struct graph *graph)
{
    struct node *node = &graph->nodes[draw(w, graph->n_nodes)];
    struct graph anew = *graph;
    struct build it = {.w = w, .graph = &anew};
    CUDA_KERNEL_NODE_PARAMS params;
    struct arguments args;
    struct work work;

    memcpy(anew.uses, graph->first, sizeof(anew.uses));
    if (!graph->graph || graph->has_memory || node->kind != NODE_KERNEL ||
        !pick_other_work(&it, node, &work))
        return false;
    params = kernel_params(&it, node, &work, &args);
    if (!did(w, cu.cuGraphKernelNodeSetParams_v2(node->handle, &params), "set g%u node %u b%u b%d",
             graph->id, (unsigned)(node - graph->nodes), work.dst->id,
             work.src ? (int)work.src->id : -1))
        return true;
    note_other_work(graph->first, w, node, &work);
    instantiate_anew(w, graph);
    return true;
}

/* The executable graph becomes one with the same nodes that work on other memory. */
static bool update_whole(struct world *w, struct graph *graph)
{
    CUgraphExecUpdateResultInfo info = {0};
    struct graph other = {.context = graph->context};
    struct build it = {.w = w, .graph = &other};

    for (unsigned i = 0; i < graph->n_nodes; i++) {
        if (graph->nodes[i].kind == NODE_COPY && !w->traits->recopies)
            return false;
    }
    if (graph->has_memory ||
        !did(w, cu.cuGraphCreate(&other.graph, 0), "cuGraphCreate for g%u", graph->id))
        return false;
    for (unsigned i = 0; i < graph->n_nodes; i++) {
        struct node node = graph->nodes[i];

        node.value += w->op;
        if (!add_node(&it, node))
            break;
    }
    if (other.n_nodes == graph->n_nodes) {
        CUresult result = cu.cuGraphExecUpdate_v2(graph->exec, other.graph, &info);

        if (did(w, result, "cuGraphExecUpdate g%u: %d", graph->id, (int)info.result))
            memcpy(graph->uses, other.uses, sizeof(graph->uses));
    }
    (void)cu.cuGraphDestroy(other.graph);
    return true;
}

/* A copy of the graph takes its place; nodes of the executable graph go by those of the first. */
static bool clone(struct world *w, struct graph *graph)
{
    CUgraph copy;
    CUresult result = CUDA_SUCCESS;

    if (!graph->graph || graph->has_memory)
        return false;
    if (!did(w, cu.cuGraphClone(&copy, graph->graph), "cuGraphClone g%u", graph->id))
        return true;
    for (unsigned i = 0; i < graph->n_nodes && result == CUDA_SUCCESS; i++)
        result = cu.cuGraphNodeFindInClone(&graph->nodes[i].handle, graph->nodes[i].handle, copy);
    (void)did(w, result, "cuGraphNodeFindInClone g%u", graph->id);
    (void)cu.cuGraphDestroy(graph->graph);
    graph->graph = copy;
    if (result == CUDA_SUCCESS)
        instantiate_anew(w, graph);
    else
        graph_destroy(graph);
    return true;
}

/* Is all that the graph names there? */
static bool is_whole(const struct world *w, const struct graph *graph)
{
    for (unsigned i = 0; i < graph->n_uses; i++)
        if (!graph_used(w, &graph->uses[i]))
            return false;
    return true;
}

static bool upload(struct world *w, struct graph *graph)
{
    unsigned stream = stream_pick(w);
    struct clock stamp;

    if (stream == MAX_STREAMS || w->streams[stream].context != graph->context ||
        !is_whole(w, graph))
        return false;
    if (did(w, cu.cuGraphUpload(graph->exec, stream_handle(w, stream)), "cuGraphUpload g%u s%u",
            graph->id, stream))
        stream_submit(w, stream, &stamp); /* a place in the stream */
    return true;
}

static bool change_graph(struct world *w, struct graph *graph)
{
    use_context(w, graph->context);
    switch (draw(w, 8)) {
    case 0:
        return update_whole(w, graph);
    case 1:
        return clone(w, graph);
    case 2:
        return upload(w, graph);
    case 3:
        return change_and_instantiate(w, graph);
    case 4: /* the executable graph stays */
        if (!graph->graph || graph->has_memory)
            return false;
        (void)did(w, cu.cuGraphDestroy(graph->graph), "cuGraphDestroy g%u early", graph->id);
        graph->graph = NULL;
        return true;
    default:
        return change_node(w, graph);
    }
}

bool op_graph_by_hand(struct world *w)
{
    struct graph *graph = graph_pick(w, true);

    if (!graph || chance(w, 15))
        return build_graph(w);
    return chance(w, 40) ? change_graph(w, graph) : op_graph_launch(w);
}
