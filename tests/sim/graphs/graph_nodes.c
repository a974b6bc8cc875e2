/* graph_nodes.c: nodes of each kind: their parameters in and out. */
#include "tests/sim/graphs/sim_graph.h"

#include <stdlib.h>
#include <string.h>

bool sim_graph_node_ok(CUgraphNode node, CUgraphNodeType type)
{
    return sim_handle_is(node, SIM_NODE) && node->type == type;
}

CUgraphNodeType sim_graph_type_of(enum sim_work_kind kind)
{
    switch (kind) {
    case SIM_WORK_KERNEL:
        return CU_GRAPH_NODE_TYPE_KERNEL;
    case SIM_WORK_COPY:
        return CU_GRAPH_NODE_TYPE_MEMCPY;
    case SIM_WORK_SET:
        return CU_GRAPH_NODE_TYPE_MEMSET;
    case SIM_WORK_HOST:
        return CU_GRAPH_NODE_TYPE_HOST;
    case SIM_WORK_EVENT_RECORD:
        return CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    case SIM_WORK_EVENT_WAIT:
        return CU_GRAPH_NODE_TYPE_WAIT_EVENT;
    case SIM_WORK_CHILD:
        return CU_GRAPH_NODE_TYPE_GRAPH;
    case SIM_WORK_WRITE_VALUE:
    case SIM_WORK_WAIT_VALUE:
        return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    default:
        return CU_GRAPH_NODE_TYPE_EMPTY;
    }
}

/* ---- parameters to work ---- */

static CUresult kernel_work(const CUDA_KERNEL_NODE_PARAMS_v2 *ask, struct sim_work *work,
                            CUcontext *ret_ctx)
{
    const unsigned grid[3] = {ask->gridDimX, ask->gridDimY, ask->gridDimZ};
    const unsigned block[3] = {ask->blockDimX, ask->blockDimY, ask->blockDimZ};

    /* A kernel belongs into .kern: in .func it is refused, whatever a launch would accept. */
    if (!ask->func == !ask->kern)
        return CUDA_ERROR_INVALID_VALUE;
    if (ask->func ? !sim_handle_is(ask->func, SIM_FUNCTION) : !sim_handle_is(ask->kern, SIM_KERNEL))
        return CUDA_ERROR_INVALID_HANDLE;
    *ret_ctx = ask->func ? sim_function_context(ask->func) : ask->ctx ? ask->ctx : sim_current();
    if (!sim_handle_is(*ret_ctx, SIM_CONTEXT))
        return CUDA_ERROR_INVALID_CONTEXT;
    return sim_kernel_work_init(work, ask->func ? ask->func : (CUfunction)(void *)ask->kern, grid,
                                block, ask->sharedMemBytes, ask->kernelParams, ask->extra);
}

static CUDA_KERNEL_NODE_PARAMS_v2 widen(const CUDA_KERNEL_NODE_PARAMS_v1 *ask)
{
    return (CUDA_KERNEL_NODE_PARAMS_v2){
        .func = ask->func,
        .gridDimX = ask->gridDimX,
        .gridDimY = ask->gridDimY,
        .gridDimZ = ask->gridDimZ,
        .blockDimX = ask->blockDimX,
        .blockDimY = ask->blockDimY,
        .blockDimZ = ask->blockDimZ,
        .sharedMemBytes = ask->sharedMemBytes,
        .kernelParams = ask->kernelParams,
        .extra = ask->extra,
    };
}

static CUresult copy_work(const CUDA_MEMCPY3D *ask, struct sim_work *work)
{
    memset(work, 0, sizeof(*work));
    work->kind = SIM_WORK_COPY;
    CUresult result = sim_copy_from_3d(ask, &work->u.copy);
    if (result != CUDA_SUCCESS)
        return result;
    if (!ask->WidthInBytes || !ask->Height || !ask->Depth)
        return CUDA_ERROR_INVALID_VALUE;
    sim_copy_for_node(&work->u.copy);
    return CUDA_SUCCESS;
}

static CUresult set_work(CUdeviceptr dst, size_t pitch, unsigned value, unsigned element_bytes,
                         size_t width, size_t height, struct sim_work *work)
{
    if (element_bytes != 1 && element_bytes != 2 && element_bytes != 4)
        return CUDA_ERROR_INVALID_VALUE;
    if (!width || !height || dst % element_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_block_at(dst) && !sim_arena_has(dst, NULL))
        return CUDA_ERROR_INVALID_VALUE;
    memset(work, 0, sizeof(*work));
    work->kind = SIM_WORK_SET;
    work->u.set = (struct sim_set){dst, pitch, width, height, value, element_bytes};
    return CUDA_SUCCESS;
}

static CUresult host_work(CUhostFn fn, void *data, struct sim_work *work)
{
    if (!fn)
        return CUDA_ERROR_INVALID_VALUE;
    *work = (struct sim_work){.kind = SIM_WORK_HOST, .u.host = {.fn = fn, .data = data}};
    return CUDA_SUCCESS;
}

static CUresult event_work(enum sim_work_kind kind, CUevent event, struct sim_work *work)
{
    if (!sim_handle_is(event, SIM_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    *work = (struct sim_work){.kind = kind, .u.event = event};
    return CUDA_SUCCESS;
}

static CUresult child_work(CUgraph child, struct sim_work *work)
{
    if (!sim_handle_is(child, SIM_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < child->n_nodes; i++)
        if (child->nodes[i]->memory || child->nodes[i]->freed)
            return CUDA_ERROR_NOT_SUPPORTED;
    *work = (struct sim_work){.kind = SIM_WORK_CHILD, .u.child = sim_graph_clone(child)};
    return CUDA_SUCCESS;
}

static CUresult value_work(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *ask, struct sim_work *work)
{
    /* One operation a node is what captures make of the stream calls. */
    if (ask->count != 1 || !ask->paramArray || ask->flags)
        return CUDA_ERROR_NOT_SUPPORTED;
    return sim_value_work(&ask->paramArray[0], work);
}

CUresult sim_graph_work_of(const CUgraphNodeParams *params, struct sim_work *work,
                           CUcontext *ret_ctx)
{
    CUDA_KERNEL_NODE_PARAMS_v2 kernel;

    *ret_ctx = sim_current();
    *work = (struct sim_work){.kind = SIM_WORK_EMPTY};
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        memcpy(&kernel, &params->kernel, sizeof(kernel));
        return kernel_work(&kernel, work, ret_ctx);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        if (params->memcpy.copyCtx)
            *ret_ctx = params->memcpy.copyCtx;
        return copy_work(&params->memcpy.copyParams, work);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        if (params->memset.ctx)
            *ret_ctx = params->memset.ctx;
        return set_work(params->memset.dst, params->memset.pitch, params->memset.value,
                        params->memset.elementSize, params->memset.width, params->memset.height,
                        work);
    case CU_GRAPH_NODE_TYPE_HOST:
        return host_work(params->host.fn, params->host.userData, work);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return child_work(params->graph.graph, work);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return event_work(SIM_WORK_EVENT_WAIT, params->eventWait.event, work);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return event_work(SIM_WORK_EVENT_RECORD, params->eventRecord.event, work);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return value_work(&params->memOp, work);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

/* ---- adding ---- */

static CUresult add(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t n_before,
                    CUresult made, struct sim_work *work, CUcontext ctx)
{
    if (made != CUDA_SUCCESS)
        return made;
    CUgraph child = work->kind == SIM_WORK_CHILD ? work->u.child : NULL;
    CUresult result =
        sim_graph_add(graph, sim_graph_type_of(work->kind), work, ctx, before, n_before, node);
    if (result == CUDA_SUCCESS && child)
        child->parent = *node;
    else if (child)
        sim_graph_delete(child);
    return result;
}

CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                              size_t n_before, const CUDA_KERNEL_NODE_PARAMS_v1 *ask)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    struct sim_work work;
    CUcontext ctx;

    if (!ask)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_KERNEL_NODE_PARAMS_v2 wide = widen(ask);
    CUresult made = kernel_work(&wide, &work, &ctx);
    return add(node, graph, before, n_before, made, &work, ctx);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                 size_t n_before, const CUDA_KERNEL_NODE_PARAMS_v2 *ask)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    struct sim_work work;
    CUcontext ctx = NULL;

    if (!ask)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult made = kernel_work(ask, &work, &ctx);
    return add(node, graph, before, n_before, made, &work, ctx);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                              size_t n_before, const CUDA_MEMCPY3D *ask, CUcontext ctx)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    struct sim_work work;

    return add(node, graph, before, n_before, copy_work(ask, &work), &work, ctx);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                              size_t n_before, const CUDA_MEMSET_NODE_PARAMS *ask, CUcontext ctx)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    struct sim_work work;

    if (!ask)
        return CUDA_ERROR_INVALID_VALUE;
    return add(node, graph, before, n_before,
               set_work(ask->dst, ask->pitch, ask->value, ask->elementSize, ask->width, ask->height,
                        &work),
               &work, ctx);
}

CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                            size_t n_before, const CUDA_HOST_NODE_PARAMS *ask)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    struct sim_work work;

    if (!ask)
        return CUDA_ERROR_INVALID_VALUE;
    return add(node, graph, before, n_before, host_work(ask->fn, ask->userData, &work), &work,
               NULL);
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                  size_t n_before, CUgraph child)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    struct sim_work work;

    return add(node, graph, before, n_before, child_work(child, &work), &work, NULL);
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                             size_t n_before)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    struct sim_work work = {.kind = SIM_WORK_EMPTY};

    return add(node, graph, before, n_before, CUDA_SUCCESS, &work, NULL);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                   size_t n_before, CUevent event)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    struct sim_work work;

    return add(node, graph, before, n_before, event_work(SIM_WORK_EVENT_RECORD, event, &work),
               &work, NULL);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                 size_t n_before, CUevent event)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    struct sim_work work;

    return add(node, graph, before, n_before, event_work(SIM_WORK_EVENT_WAIT, event, &work), &work,
               NULL);
}

static CUresult add_any(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                        size_t n_before, CUgraphNodeParams *params)
{
    struct sim_work work;
    CUcontext ctx;

    if (!params || !node || !sim_handle_is(graph, SIM_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return sim_graph_add_alloc(graph, NULL, before, n_before, params->alloc.bytesize,
                                   &params->alloc.poolProps, &params->alloc.dptr, node);
    if (params->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        return sim_graph_add_free(graph, NULL, before, n_before, params->free.dptr, node);
    CUresult made = sim_graph_work_of(params, &work, &ctx);
    return add(node, graph, before, n_before, made, &work, ctx);
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                        size_t n_before, CUgraphNodeParams *params)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return add_any(node, graph, before, n_before, params);
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                           const CUgraphEdgeData *data, size_t n_before, CUgraphNodeParams *params)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    for (size_t i = 0; data && params && i < n_before; i++)
        if (!before || !sim_handle_is(before[i], SIM_NODE) ||
            !sim_graph_edge_ok(before[i], params->type, &data[i]))
            return CUDA_ERROR_INVALID_VALUE;
    CUresult result = add_any(node, graph, before, n_before, params);
    if (result == CUDA_SUCCESS && data)
        memcpy((*node)->edges, data, n_before * sizeof(*data));
    return result;
}

/* ---- reading ---- */

static void **param_pointers(CUgraphNode node)
{
    const struct sim_kernel_work *kernel = &node->work.u.kernel;
    const struct sim_kernel_entry *entry = kernel->entry;

    free(node->param_pointers);
    node->param_pointers = calloc(entry->n_params + 1, sizeof(void *));
    if (!node->param_pointers)
        abort();
    for (unsigned i = 0; i < entry->n_params; i++)
        node->param_pointers[i] = kernel->params + entry->offsets[i];
    return node->param_pointers;
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2 *params)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!params || !sim_graph_node_ok(node, CU_GRAPH_NODE_TYPE_KERNEL))
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_kernel_work *kernel = &node->work.u.kernel;
    *params = (CUDA_KERNEL_NODE_PARAMS_v2){
        .func = kernel->function,
        .gridDimX = kernel->grid[0],
        .gridDimY = kernel->grid[1],
        .gridDimZ = kernel->grid[2],
        .blockDimX = kernel->block[0],
        .blockDimY = kernel->block[1],
        .blockDimZ = kernel->block[2],
        .sharedMemBytes = kernel->shared_bytes,
        .kernelParams = param_pointers(node),
        .kern = kernel->kernel,
        .ctx = node->ctx,
    };
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!params || !sim_graph_node_ok(node, CU_GRAPH_NODE_TYPE_KERNEL))
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_kernel_work *kernel = &node->work.u.kernel;
    *params = (CUDA_KERNEL_NODE_PARAMS_v1){
        .func = kernel->function,
        .gridDimX = kernel->grid[0],
        .gridDimY = kernel->grid[1],
        .gridDimZ = kernel->grid[2],
        .blockDimX = kernel->block[0],
        .blockDimY = kernel->block[1],
        .blockDimZ = kernel->block[2],
        .sharedMemBytes = kernel->shared_bytes,
        .kernelParams = param_pointers(node),
    };
    return CUDA_SUCCESS;
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *params)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!params || !sim_graph_node_ok(node, CU_GRAPH_NODE_TYPE_MEMCPY))
        return CUDA_ERROR_INVALID_VALUE;
    *params = node->work.u.copy.as_asked;
    return CUDA_SUCCESS;
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *params)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!params || !sim_graph_node_ok(node, CU_GRAPH_NODE_TYPE_MEMSET))
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_set *set = &node->work.u.set;
    *params = (CUDA_MEMSET_NODE_PARAMS){.dst = set->dst,
                                        .pitch = set->pitch,
                                        .value = set->value,
                                        .elementSize = set->element_bytes,
                                        .width = set->width,
                                        .height = set->height};
    return CUDA_SUCCESS;
}

CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *params)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!params || !sim_graph_node_ok(node, CU_GRAPH_NODE_TYPE_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    params->fn = node->work.u.host.fn;
    params->userData = node->work.u.host.data;
    return CUDA_SUCCESS;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!graph || !sim_graph_node_ok(node, CU_GRAPH_NODE_TYPE_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    *graph = node->work.u.child;
    return CUDA_SUCCESS;
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!event || !sim_graph_node_ok(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD))
        return CUDA_ERROR_INVALID_VALUE;
    *event = node->work.u.event;
    return CUDA_SUCCESS;
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!event || !sim_graph_node_ok(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT))
        return CUDA_ERROR_INVALID_VALUE;
    *event = node->work.u.event;
    return CUDA_SUCCESS;
}

/* ---- changing a node of a graph (of an executable graph: graph_exec.c) ---- */

static CUresult replace(CUgraphNode node, CUgraphNodeType type, CUresult made,
                        struct sim_work *work)
{
    if (made != CUDA_SUCCESS)
        return made;
    if (!sim_graph_node_ok(node, type)) {
        sim_work_finish(work);
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_work_finish(&node->work);
    sim_graph_set_work(node, work);
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *ask)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    struct sim_work work;
    CUcontext ctx;

    if (!ask)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_KERNEL_NODE_PARAMS_v2 wide = widen(ask);
    return replace(node, CU_GRAPH_NODE_TYPE_KERNEL, kernel_work(&wide, &work, &ctx), &work);
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2 *ask)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    struct sim_work work;
    CUcontext ctx;

    if (!ask)
        return CUDA_ERROR_INVALID_VALUE;
    return replace(node, CU_GRAPH_NODE_TYPE_KERNEL, kernel_work(ask, &work, &ctx), &work);
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *ask)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    struct sim_work work;

    return replace(node, CU_GRAPH_NODE_TYPE_MEMCPY, copy_work(ask, &work), &work);
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *ask)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    struct sim_work work;

    if (!ask)
        return CUDA_ERROR_INVALID_VALUE;
    return replace(node, CU_GRAPH_NODE_TYPE_MEMSET,
                   set_work(ask->dst, ask->pitch, ask->value, ask->elementSize, ask->width,
                            ask->height, &work),
                   &work);
}

CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *ask)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    struct sim_work work;

    if (!ask)
        return CUDA_ERROR_INVALID_VALUE;
    return replace(node, CU_GRAPH_NODE_TYPE_HOST, host_work(ask->fn, ask->userData, &work), &work);
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    struct sim_work work;

    return replace(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD,
                   event_work(SIM_WORK_EVENT_RECORD, event, &work), &work);
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    struct sim_work work;

    return replace(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT,
                   event_work(SIM_WORK_EVENT_WAIT, event, &work), &work);
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    struct sim_work work;
    CUcontext ctx;

    if (!params || params->type == CU_GRAPH_NODE_TYPE_GRAPH)
        return CUDA_ERROR_INVALID_VALUE;
    return replace(node, params->type, sim_graph_work_of(params, &work, &ctx), &work);
}

/* ---- attributes of kernel nodes ---- */

static CUlaunchAttributeValue *attributes_of(CUgraphNode node)
{
    if (!node->attributes)
        node->attributes = calloc(CU_LAUNCH_ATTRIBUTE_MAX, sizeof(*node->attributes));
    if (!node->attributes)
        abort();
    return node->attributes;
}

/* Those that cuda.h calls valid for graph nodes; a preferred cluster needs one to prefer it to. */
static bool node_has(CUgraphNode node, CUkernelNodeAttrID attribute)
{
    switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
        return attributes_of(node)[CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION].clusterDim.x;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        return false;
    default:
        return (unsigned)attribute < CU_LAUNCH_ATTRIBUTE_MAX;
    }
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute,
                                       CUkernelNodeAttrValue *value)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!value || !sim_graph_node_ok(node, CU_GRAPH_NODE_TYPE_KERNEL) || !node_has(node, attribute))
        return CUDA_ERROR_INVALID_VALUE;
    *value = attributes_of(node)[attribute];
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute,
                                       const CUkernelNodeAttrValue *value)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!value || !sim_graph_node_ok(node, CU_GRAPH_NODE_TYPE_KERNEL) || !node_has(node, attribute))
        return CUDA_ERROR_INVALID_VALUE;
    attributes_of(node)[attribute] = *value;
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!sim_graph_node_ok(dst, CU_GRAPH_NODE_TYPE_KERNEL) ||
        !sim_graph_node_ok(src, CU_GRAPH_NODE_TYPE_KERNEL))
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(attributes_of(dst), attributes_of(src),
           CU_LAUNCH_ATTRIBUTE_MAX * sizeof(*dst->attributes));
    return CUDA_SUCCESS;
}
