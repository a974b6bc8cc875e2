/* graph_exec.c: executable graphs: instantiate, launch, and what an update may change. */
#include "tests/sim/graphs/sim_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INSTANTIATE_FLAGS                                                                   \
    (CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | \
     CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)

#define NODE_BYTES         2560u     /* of the card */
#define MAX_MEETING_BLOCKS (16 * 32) /* see device.c */

bool sim_exec_ok(CUgraphExec exec)
{
    return sim_handle_is(exec, SIM_EXEC);
}

static bool acyclic(CUgraph graph)
{
    CUgraphNode *order = calloc(graph->n_nodes + 1, sizeof(CUgraphNode));

    if (!order)
        abort();
    bool ok = sim_graph_sort(graph, order);
    free(order);
    return ok;
}

/* From now on they have it, whatever becomes of the limit. */
static void take_stack(CUgraph graph, CUcontext ctx)
{
    for (unsigned i = 0; i < graph->n_nodes; i++) {
        CUgraphNode node = graph->nodes[i];
        CUcontext where = node->ctx && node->ctx->alive ? node->ctx : ctx;

        if (node->work.kind == SIM_WORK_CHILD)
            take_stack(node->work.u.child, ctx);
        if (node->work.kind == SIM_WORK_KERNEL)
            node->work.u.kernel.stack = where->limits[CU_LIMIT_STACK_SIZE];
    }
}

static CUresult instantiate(CUgraphExec *ret_exec, CUgraph graph, cuuint64_t flags)
{
    if (!ret_exec || !sim_handle_is(graph, SIM_GRAPH) || flags & ~(cuuint64_t)INSTANTIATE_FLAGS)
        return CUDA_ERROR_INVALID_VALUE;
    if (!acyclic(graph))
        return CUDA_ERROR_INVALID_VALUE;
    CUcontext ctx = sim_current();
    size_t bytes = NODE_BYTES * (graph->n_nodes + 1);
    if (!sim_overhead_take(ctx->device, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUgraphExec exec = sim_handle_new(SIM_EXEC, sizeof(*exec));
    exec->card = ctx->device;
    exec->card_bytes = bytes;
    exec->graph = sim_graph_clone(graph);
    take_stack(exec->graph, ctx);
    graph->instantiated = true;
    exec->flags = flags;
    exec->ctx = ctx;
    *ret_exec = exec;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                            size_t log_bytes)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (error_node)
        *error_node = NULL;
    if (log && log_bytes)
        *log = 0;
    return instantiate(exec, graph, 0);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                               size_t log_bytes)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (error_node)
        *error_node = NULL;
    if (log && log_bytes)
        *log = 0;
    return instantiate(exec, graph, 0);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return instantiate(exec, graph, flags);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = instantiate(exec, graph, params->flags);
    params->hErrNode_out = NULL;
    params->result_out = result ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return result;
}

CUresult cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *flags)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!sim_exec_ok(exec) || !flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!sim_exec_ok(exec))
        return CUDA_ERROR_INVALID_VALUE;
    sim_graph_delete(exec->graph);
    sim_op_unref(exec->last);
    sim_overhead_give(exec->card, exec->card_bytes);
    sim_handle_free(exec);
    return CUDA_SUCCESS;
}

/* ---- launch ---- */

struct launch {
    CUstream stream;
    struct sim_stamp stamp;
    const struct sim_order *order;
};

static struct sim_op *enqueue(const struct launch *launch, CUgraphNode node, struct sim_work *work,
                              const struct sim_ops *before)
{
    return sim_enqueue_inner(launch->stream, node->ctx, work, launch->stamp, launch->order, before);
}

/* Memory of an allocation node: to the host it is there from the launch on. */
static void begin_block(CUgraphNode node, struct sim_work *work, CUcontext ctx,
                        struct sim_stamp stamp)
{
    struct sim_graph_memory *memory = node->memory;
    struct sim_block *block =
        sim_block_new(SIM_BLOCK_GRAPH, memory->base, memory->size, memory->device, ctx);

    block->taken = memory->taken;
    block->bytes = sim_arena_bytes(memory->device, memory->base);
    block->born_async = true;
    block->born_at = stamp;
    block->pins = 1;
    block->extra = memory;
    sim_graph_block_begins(memory);
    (void)snprintf(block->how_born, sizeof(block->how_born), "a graph's allocation node");
    work->u.block = block;
}

/* The stamp of the free is left open: other nodes of the launch share it. */
static bool end_block(CUgraphNode node, struct sim_work *work)
{
    struct sim_block *block = sim_block_starting_at(node->freed);

    if (!block || block->kind != SIM_BLOCK_GRAPH)
        return false;
    sim_block_bury(block, "a graph's free node");
    block->pins++;
    work->u.block = block;
    return true;
}

static void launch_graph(const struct launch *launch, CUgraph graph, const struct sim_ops *entry,
                         struct sim_ops *ret_leaves);

static struct sim_op *launch_child(const struct launch *launch, CUgraphNode node,
                                   const struct sim_ops *before)
{
    struct sim_ops leaves = {0};
    struct sim_work work = {.kind = SIM_WORK_EMPTY};

    launch_graph(launch, node->work.u.child, before, &leaves);
    for (unsigned i = 0; i < before->n; i++)
        sim_ops_add(&leaves, before->at[i]);
    struct sim_op *op = enqueue(launch, node, &work, &leaves);
    sim_ops_finish(&leaves);
    return op;
}

static struct sim_op *launch_node(const struct launch *launch, CUgraphNode node,
                                  struct sim_ops *before)
{
    struct sim_work work = {.kind = SIM_WORK_EMPTY};
    CUevent event = node->work.u.event;
    bool live_event = sim_handle_is(event, SIM_EVENT);

    if (node->disabled)
        return enqueue(launch, node, &work, before);
    switch (node->work.kind) {
    case SIM_WORK_CHILD:
        return launch_child(launch, node, before);
    case SIM_WORK_ALLOC:
        work.kind = SIM_WORK_ALLOC;
        begin_block(node, &work, launch->stream->ctx, launch->stamp);
        break;
    case SIM_WORK_FREE:
        work.kind = end_block(node, &work) ? SIM_WORK_FREE : SIM_WORK_EMPTY;
        break;
    case SIM_WORK_EVENT_WAIT:
        if (live_event && event->op) {
            sim_ops_add(before, event->op);
            work.kind = SIM_WORK_EVENT_WAIT;
        }
        break;
    case SIM_WORK_EVENT_RECORD:
        work.kind = SIM_WORK_EVENT_RECORD;
        break;
    default:
        sim_work_copy(&work, &node->work);
    }
    struct sim_op *op = enqueue(launch, node, &work, before);
    if (node->work.kind == SIM_WORK_EVENT_RECORD && live_event)
        sim_event_set(event, op);
    return op;
}

/* Enqueues all nodes behind `entry`; leaves: what the end of the graph has to wait for. */
static void launch_graph(const struct launch *launch, CUgraph graph, const struct sim_ops *entry,
                         struct sim_ops *ret_leaves)
{
    CUgraphNode *order = calloc(graph->n_nodes + 1, sizeof(CUgraphNode));

    if (!order)
        abort();
    (void)sim_graph_sort(graph, order);
    for (unsigned i = 0; i < graph->n_nodes; i++) {
        CUgraphNode node = order[i];
        struct sim_ops before = {0};
        for (unsigned j = 0; j < node->n_before; j++)
            sim_ops_add(&before, node->before[j]->op);
        for (unsigned j = 0; j < entry->n && !node->n_before; j++)
            sim_ops_add(&before, entry->at[j]);
        node->op = launch_node(launch, node, &before);
        sim_ops_finish(&before);
    }
    for (unsigned i = 0; i < graph->n_nodes; i++) {
        sim_ops_add(ret_leaves, order[i]->op);
        sim_op_unref(order[i]->op);
        order[i]->op = NULL;
    }
    free(order);
}

/* Memory of the last launch that nobody has freed: freed now, or the launch is refused. What a trim
 * gave back is taken again. */
static CUresult allocate_memory(CUgraphExec exec, CUstream stream)
{
    CUgraph graph = exec->graph;

    for (unsigned i = 0; i < graph->n_nodes; i++) {
        struct sim_graph_memory *memory = graph->nodes[i]->memory;
        struct sim_block *block = memory ? sim_block_starting_at(memory->base) : NULL;
        if (memory && sim_graph_memory_reserve(memory) != CUDA_SUCCESS)
            return CUDA_ERROR_OUT_OF_MEMORY;
        if (!block || block->kind != SIM_BLOCK_GRAPH)
            continue;
        if (!(exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH))
            return CUDA_ERROR_INVALID_VALUE;
        sim_block_free_in(block, stream, "a new launch of its graph");
    }
    return CUDA_SUCCESS;
}

/* What its kernels need. */
static bool take_local(CUgraph graph, CUcontext ctx)
{
    bool taken = true;

    for (unsigned i = 0; i < graph->n_nodes && taken; i++) {
        CUgraphNode node = graph->nodes[i];

        if (node->work.kind == SIM_WORK_CHILD)
            taken = take_local(node->work.u.child, ctx);
        if (node->work.kind == SIM_WORK_KERNEL)
            taken = sim_local_take(node->ctx && node->ctx->alive ? node->ctx : ctx,
                                   node->work.u.kernel.entry);
    }
    return taken;
}

/* The first launch or upload brings the graph to the card. */
static CUresult bring(CUgraphExec exec)
{
    size_t bytes = sim_settings()->upload_bytes * exec->graph->n_nodes;

    sim_graph_check_named(exec->graph);
    if (!take_local(exec->graph, sim_current()))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (exec->uploaded)
        return CUDA_SUCCESS;
    if (!sim_overhead_take(exec->card, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    exec->card_bytes += bytes;
    exec->uploaded = true;
    return CUDA_SUCCESS;
}

/* Such a copy is done when the launch returns (R543). */
static bool copies_to_pageable(const struct CUgraph_st *graph)
{
    for (unsigned i = 0; i < graph->n_nodes; i++) {
        const struct sim_work *work = &graph->nodes[i]->work;

        if ((work->kind == SIM_WORK_COPY && work->u.copy.dst.host) ||
            (work->kind == SIM_WORK_CHILD && copies_to_pageable(work->u.child)))
            return true;
    }
    return false;
}

static CUresult launch(CUgraphExec exec, CUstream stream)
{
    CUresult result = bring(exec);

    if (result == CUDA_SUCCESS)
        result = allocate_memory(exec, stream);

    if (result != CUDA_SUCCESS)
        return result;
    struct sim_ops first = {0}, entry_ops = {0}, leaves = {0};
    struct sim_work work = {.kind = SIM_WORK_EMPTY}, end = {.kind = SIM_WORK_EMPTY};
    struct sim_op *entry, *last;
    sim_ops_add(&first, exec->last);
    sim_enqueue(stream, &work, &first, &entry);
    sim_ops_add(&entry_ops, entry);
    struct launch how = {stream, entry->stamp, &entry->order};
    launch_graph(&how, exec->graph, &entry_ops, &leaves);
    sim_enqueue(stream, &end, &leaves, &last);
    sim_op_unref(exec->last);
    exec->last = last;
    if (copies_to_pageable(exec->graph))
        sim_wait(last);
    sim_op_unref(entry);
    sim_ops_finish(&first);
    sim_ops_finish(&entry_ops);
    sim_ops_finish(&leaves);
    return CUDA_SUCCESS;
}

/* Launched into a capture, a graph becomes a child of the graph that is being captured. */
static CUresult capture_launch(CUgraphExec exec, CUstream stream)
{
    struct sim_work work = {.kind = SIM_WORK_CHILD, .u.child = sim_graph_clone(exec->graph)};
    CUgraph child = work.u.child;
    CUgraphNode node = NULL;
    CUresult result = sim_capture_add(stream, &work, &node);

    if (result == CUDA_SUCCESS)
        child->parent = node;
    else
        sim_graph_delete(child);
    return result;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    CUstream stream;
    CUresult result = sim_stream_find(call.ctx, handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_exec_ok(exec))
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_capture_check_legacy(stream);
    if (result != CUDA_SUCCESS)
        return result;
    return stream->capture ? capture_launch(exec, stream) : launch(exec, stream);
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream handle)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    CUstream stream;
    CUresult result = sim_stream_find(call.ctx, handle, &stream);
    struct sim_work work = {.kind = SIM_WORK_EMPTY};

    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_exec_ok(exec))
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_capture_unsupported(stream);
    if (result == CUDA_SUCCESS)
        result = bring(exec);
    return result ? result : sim_submit(stream, &work, NULL);
}

/* ---- what an update may change ---- */

static bool is_piece_on_host(const struct sim_block *block)
{
    return block->kind == SIM_BLOCK_MAPPED && block->device == CU_DEVICE_CPU;
}

static bool is_on_host(const struct sim_block *block)
{
    return block->kind == SIM_BLOCK_HOST || is_piece_on_host(block);
}

static bool same_place(const struct sim_span *a, const struct sim_span *b)
{
    const struct sim_block *x = sim_block_at(a->address), *y = sim_block_at(b->address);

    if (a->host != b->host)
        return false;
    if (!x || !y)
        return true;
    if (is_on_host(x) || is_on_host(y))
        return true;
    if (x->device != y->device)
        return false;
    return x->kind != SIM_BLOCK_NATIVE || y->kind != SIM_BLOCK_NATIVE || x->ctx == y->ctx;
}

static CUgraphExecUpdateResult set_may_become(const struct sim_set *old, const struct sim_set *new)
{
    struct sim_span from = {.address = old->dst}, to = {.address = new->dst};
    bool same_row = old->width == new->width && old->element_bytes == new->element_bytes;

    if (!same_place(&from, &to) || old->height != new->height ||
        (old->height != 1 && (!same_row || old->pitch != new->pitch)))
        return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

/* Whose the memory is: what a context has allocated, of any kind; or memory of a device, or of the
 * host, that belongs to no context. */
enum owner { A_CONTEXT, THE_DEVICE, THE_HOST };

static enum owner owner_of(const struct sim_block *block)
{
    if (is_piece_on_host(block))
        return THE_HOST;
    return block->kind == SIM_BLOCK_POOL || block->kind == SIM_BLOCK_MAPPED ||
                   block->kind == SIM_BLOCK_GRAPH
               ? THE_DEVICE
               : A_CONTEXT;
}

/* What a copy names stays memory of the same kind of owner (R1324, R1325, R1329, R1390 to R1393);
 * fills have no such limit (R1322, R1327, R1328). */
static bool same_owner(const struct sim_span *a, const struct sim_span *b)
{
    const struct sim_block *x = sim_block_at(a->address), *y = sim_block_at(b->address);

    return !x || !y || owner_of(x) == owner_of(y);
}

/* One side of a copy keeps the type that it was given as, whatever lies there: what is pinned may
 * not become CU_MEMORYTYPE_UNIFIED, but pageable. */
static bool same_side(const struct sim_span *a, CUmemorytype a_type, const struct sim_span *b,
                      CUmemorytype b_type)
{
    if (a_type != b_type)
        return false;
    return a_type == CU_MEMORYTYPE_HOST || (same_place(a, b) && same_owner(a, b));
}

static bool same_sides(const struct sim_copy *old, const struct sim_copy *new)
{
    return same_side(&old->dst, old->as_asked.dstMemoryType, &new->dst,
                     new->as_asked.dstMemoryType) &&
           same_side(&old->src, old->as_asked.srcMemoryType, &new->src,
                     new->as_asked.srcMemoryType);
}

static bool flat(const struct sim_copy *copy)
{
    return copy->height == 1 && copy->depth == 1;
}

/* The result for the update of a node from `old` to `new`. */
static CUgraphExecUpdateResult may_become(const struct sim_work *old, const struct sim_work *new)
{
    if (old->kind != new->kind)
        return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    switch (old->kind) {
    case SIM_WORK_COPY:
        if (!flat(&old->u.copy) || !flat(&new->u.copy))
            return memcmp(&old->u.copy, &new->u.copy, offsetof(struct sim_copy, staged))
                       ? CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED
                       : CU_GRAPH_EXEC_UPDATE_SUCCESS;
        return same_sides(&old->u.copy, &new->u.copy)
                   ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                   : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    case SIM_WORK_SET:
        return set_may_become(&old->u.set, &new->u.set);
    case SIM_WORK_ALLOC:
    case SIM_WORK_FREE:
        return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
    default:
        return CU_GRAPH_EXEC_UPDATE_SUCCESS;
    }
}

/* The node of the graph that `exec` was made from must still be there. A kernel stays in its
 * context; a copy that is given by this way is one row, and was. */
static bool replaceable(CUgraphNode node, CUgraphNodeType type, const struct sim_work *work,
                        CUcontext ctx)
{
    if (!node || node->type != type || (work->kind == SIM_WORK_KERNEL && node->ctx != ctx))
        return false;
    if (work->kind == SIM_WORK_COPY && (!flat(&node->work.u.copy) || !flat(&work->u.copy)))
        return false;
    return may_become(&node->work, work) == CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

/* Clusters must divide the new grid; blocks that meet must all find room on the device. */
static CUresult grid_fits(CUgraphNode node, const struct sim_work *work)
{
    const struct sim_kernel_work *kernel = &work->u.kernel;
    const CUlaunchAttributeValue *attributes = node->attributes;

    if (work->kind != SIM_WORK_KERNEL || !attributes)
        return CUDA_SUCCESS;
    const CUlaunchAttributeValue *cluster = &attributes[CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION];
    if (cluster->clusterDim.x &&
        (kernel->grid[0] % cluster->clusterDim.x || kernel->grid[1] % cluster->clusterDim.y ||
         kernel->grid[2] % cluster->clusterDim.z))
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    if (attributes[CU_LAUNCH_ATTRIBUTE_COOPERATIVE].cooperative &&
        (uint64_t)kernel->grid[0] * kernel->grid[1] * kernel->grid[2] > MAX_MEETING_BLOCKS)
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    return CUDA_SUCCESS;
}

static CUresult exec_replace(CUgraphExec exec, CUgraphNode original, CUgraphNodeType type,
                             CUresult made, struct sim_work *work, CUcontext ctx)
{
    if (made != CUDA_SUCCESS)
        return made;
    CUgraphNode node = sim_exec_ok(exec) && sim_handle_is(original, SIM_NODE)
                           ? sim_graph_find_clone(exec->graph, original)
                           : NULL;
    if (!replaceable(node, type, work, ctx)) {
        sim_work_finish(work);
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult fits = grid_fits(node, work);
    if (fits != CUDA_SUCCESS) {
        sim_work_finish(work);
        return fits;
    }
    if (work->kind == SIM_WORK_KERNEL)
        work->u.kernel.stack = node->work.u.kernel.stack;
    sim_work_finish(&node->work);
    sim_graph_set_work(node, work);
    return CUDA_SUCCESS;
}

static CUresult exec_set(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *params)
{
    struct sim_work work;
    CUcontext ctx;
    CUresult made = sim_graph_work_of(params, &work, &ctx);

    return exec_replace(exec, node, params->type, made, &work, ctx);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!params || params->type == CU_GRAPH_NODE_TYPE_GRAPH)
        return CUDA_ERROR_INVALID_VALUE;
    return exec_set(exec, node, params);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *ask)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};

    if (!ask)
        return CUDA_ERROR_INVALID_VALUE;
    /* The older struct is the beginning of the newer one. */
    memcpy(&params.kernel, ask, sizeof(*ask));
    return exec_set(exec, node, &params);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS_v2 *ask)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};

    if (!ask)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&params.kernel, ask, sizeof(*ask));
    return exec_set(exec, node, &params);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMCPY3D *ask, CUcontext ctx)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};

    if (!ask)
        return CUDA_ERROR_INVALID_VALUE;
    params.memcpy.copyParams = *ask;
    params.memcpy.copyCtx = ctx;
    return exec_set(exec, node, &params);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS *ask, CUcontext ctx)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMSET};

    if (!ask)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&params.memset, ask, sizeof(*ask));
    params.memset.ctx = ctx;
    return exec_set(exec, node, &params);
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                      const CUDA_HOST_NODE_PARAMS *ask)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_HOST};

    if (!ask)
        return CUDA_ERROR_INVALID_VALUE;
    params.host.fn = ask->fn;
    params.host.userData = ask->userData;
    return exec_set(exec, node, &params);
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD};

    params.eventRecord.event = event;
    return exec_set(exec, node, &params);
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT};

    params.eventWait.event = event;
    return exec_set(exec, node, &params);
}

/* ---- whole graphs ---- */

static unsigned position(CUgraph graph, CUgraphNode node)
{
    unsigned i = 0;

    while (i < graph->n_nodes && graph->nodes[i] != node)
        i++;
    return i;
}

/* Nodes are paired by order of creation. */
static bool same_edges(CUgraph a, CUgraph b, unsigned i)
{
    CUgraphNode x = a->nodes[i], y = b->nodes[i];

    if (x->n_before != y->n_before)
        return false;
    for (unsigned j = 0; j < x->n_before; j++) {
        bool found = false;
        for (unsigned k = 0; k < y->n_before; k++)
            found |= position(a, x->before[j]) == position(b, y->before[k]) &&
                     !memcmp(&x->edges[j], &y->edges[k], sizeof(*x->edges));
        if (!found)
            return false;
    }
    return true;
}

static CUgraphExecUpdateResult compare(CUgraph old, CUgraph new, CUgraphNode *ret_node)
{
    *ret_node = NULL;
    if (old->n_nodes != new->n_nodes)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (unsigned i = 0; i < old->n_nodes; i++) {
        CUgraphNode from = old->nodes[i], to = new->nodes[i];
        *ret_node = to;
        if (from->type != to->type)
            return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        if (!same_edges(old, new, i))
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        CUgraphExecUpdateResult result =
            from->work.kind == SIM_WORK_CHILD
                ? compare(from->work.u.child, to->work.u.child, ret_node)
                : may_become(&from->work, &to->work);
        if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
            return result;
    }
    *ret_node = NULL;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static void take_over(CUgraph old, CUgraph new)
{
    for (unsigned i = 0; i < old->n_nodes; i++) {
        CUgraphNode from = new->nodes[i], to = old->nodes[i];
        to->original = from;
        if (to->work.kind == SIM_WORK_CHILD) {
            take_over(to->work.u.child, from->work.u.child);
            continue;
        }
        size_t stack = to->work.kind == SIM_WORK_KERNEL ? to->work.u.kernel.stack : 0;
        sim_work_finish(&to->work);
        sim_work_copy(&to->work, &from->work);
        if (to->work.kind == SIM_WORK_KERNEL)
            to->work.u.kernel.stack = stack;
        memcpy(to->named, from->named, sizeof(to->named));
    }
}

static CUresult update(CUgraphExec exec, CUgraph graph, CUgraphNode *ret_node,
                       CUgraphExecUpdateResult *ret_result)
{
    if (!sim_exec_ok(exec) || !sim_handle_is(graph, SIM_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    *ret_result = compare(exec->graph, graph, ret_node);
    if (*ret_result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    take_over(exec->graph, graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node,
                           CUgraphExecUpdateResult *result)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!error_node || !result)
        return CUDA_ERROR_INVALID_VALUE;
    return update(exec, graph, error_node, result);
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!info)
        return CUDA_ERROR_INVALID_VALUE;
    info->errorFromNode = NULL;
    return update(exec, graph, &info->errorNode, &info->result);
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode original, CUgraph child)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    CUgraphNode node = sim_exec_ok(exec) ? sim_graph_find_clone(exec->graph, original) : NULL,
                wrong;

    if (!node || node->work.kind != SIM_WORK_CHILD || !sim_handle_is(child, SIM_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    if (compare(node->work.u.child, child, &wrong) != CU_GRAPH_EXEC_UPDATE_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    take_over(node->work.u.child, child);
    return CUDA_SUCCESS;
}

/* ---- switching nodes off ---- */

static CUgraphNode switchable(CUgraphExec exec, CUgraphNode original)
{
    CUgraphNode node = sim_exec_ok(exec) ? sim_graph_find_clone(exec->graph, original) : NULL;

    if (!node)
        return NULL;
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return node;
    default:
        return NULL;
    }
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode original, unsigned int enabled)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    CUgraphNode node = switchable(exec, original);

    if (!node)
        return CUDA_ERROR_INVALID_VALUE;
    node->disabled = !enabled;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode original, unsigned int *enabled)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    CUgraphNode node = switchable(exec, original);

    if (!node || !enabled)
        return CUDA_ERROR_INVALID_VALUE;
    *enabled = !node->disabled;
    return CUDA_SUCCESS;
}

/* ---- looking at a graph ---- */

static void print_graph(FILE *file, CUgraph graph, unsigned depth)
{
    for (unsigned i = 0; i < graph->n_nodes; i++) {
        CUgraphNode node = graph->nodes[i];
        fprintf(file, "%*s\"node_%llu\" [shape=box label=\"%llu %s\"];\n", (int)(2 + depth * 2), "",
                node->id, node->id,
                node->work.kind == SIM_WORK_CHILD ? "child graph" : sim_work_name(&node->work));
        for (unsigned j = 0; j < node->n_before; j++)
            fprintf(file, "%*s\"node_%llu\" -> \"node_%llu\";\n", (int)(2 + depth * 2), "",
                    node->before[j]->id, node->id);
        if (node->work.kind == SIM_WORK_CHILD)
            print_graph(file, node->work.u.child, depth + 1);
    }
}

CUresult cuGraphDebugDotPrint(CUgraph graph, const char *path, unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    (void)flags;
    if (!sim_handle_is(graph, SIM_GRAPH) || !path)
        return CUDA_ERROR_INVALID_VALUE;
    FILE *file = fopen(path, "we");
    if (!file)
        return CUDA_ERROR_OPERATING_SYSTEM;
    fprintf(file, "digraph graph_1 {\n");
    print_graph(file, graph, 0);
    fprintf(file, "}\n");
    return fclose(file) ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}
