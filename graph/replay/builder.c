/* Builds, updates and launches the graph of one segment: see builder.h.
 *
 * Three things are delicate:
 * - Over a programmatic edge a kernel may start before its predecessor has finished; but what comes
 *   after must find both finished. So a node after a programmatic edge's end also depends in full
 *   on the node before that edge: when a node starts, all its predecessors but the last are done.
 * - A node that is updated before its executable was first uploaded or launched stays slow: 0.12 us
 *   more on the device each time it runs (measured on an H200). So the executable is uploaded
 *   before its first update. Updates of an executable that is running are taken at once and cost no
 *   more, so a second executable would gain nothing.
 * - A node that copies or fills refers to what the driver knows of its memory. When that memory was
 *   freed, and the program has other memory at the same address, a launch would crash in the driver
 *   (seen on an H200, for copies to pinned memory). So after a free such nodes are set again,
 *   changed or not. */
#include "graph/replay/builder.h"

#include <string.h>

#include "graph/record/arguments.h"
#include "graph/record/memory.h"
#include "graph/tuning.h"
#include "interpose/core/base/pages.h"
#include "interpose/core/driver/driver.h"

struct place {
    uint32_t offset, bytes; /* of the payload, in `last` */
};

struct node {
    CUgraphNode handle;
    struct ag_signature signature;
};

struct ag_graph {
    struct ag_graph_params params;
    CUgraph handle;
    CUgraphExec exec;
    unsigned char *last; /* the payloads it has, or will be made with, at their places */
    uint32_t n, filled;  /* operations and payload bytes so far */
    uint64_t epoch;      /* of memory (copies.h), when copies and fills were set */
    bool dead, last_was_programmatic, has_priorities, is_uploaded, names_memory;
    size_t size; /* of the mapping that holds this */
    struct place *places;
    struct node *nodes;
};

/* clang-format off */
#define NEEDED(NEEDS) /* of all that replay calls, but what it can do without */ \
    NEEDS(cuFuncGetParamInfo) NEEDS(cuStreamIsCapturing) NEEDS(cuGraphCreate) \
    NEEDS(cuGraphDestroy) NEEDS(cuGraphAddKernelNode_v2) NEEDS(cuGraphAddMemcpyNode) \
    NEEDS(cuGraphAddMemsetNode) NEEDS(cuGraphAddDependencies) \
    NEEDS(cuGraphKernelNodeSetAttribute) NEEDS(cuGraphInstantiateWithFlags) NEEDS(cuGraphUpload) \
    NEEDS(cuGraphLaunch) NEEDS(cuGraphExecDestroy) NEEDS(cuGraphExecKernelNodeSetParams_v2) \
    NEEDS(cuGraphExecMemcpyNodeSetParams) NEEDS(cuGraphExecMemsetNodeSetParams) \
    NEEDS(cuLaunchKernel) NEEDS(cuLaunchKernelEx) NEEDS(cuMemcpyAsync) NEEDS(cuMemcpyHtoDAsync_v2) \
    NEEDS(cuMemcpyDtoHAsync_v2) NEEDS(cuMemcpyDtoDAsync_v2) NEEDS(cuMemcpy3DAsync_v2) \
    NEEDS(cuMemsetD8Async) NEEDS(cuMemsetD16Async) NEEDS(cuMemsetD32Async) \
    NEEDS(cuMemsetD2D8Async) NEEDS(cuMemsetD2D16Async) NEEDS(cuMemsetD2D32Async)
/* clang-format on */

const char *ag_graph_missing(void)
{
#define CHECK(symbol)  \
    if (!ag_cu.symbol) \
        return #symbol;
    NEEDED(CHECK)
#undef CHECK
    return NULL;
}

/* --- parameters of nodes --- */

static void kernel_params(const struct ag_graph *graph, const struct ag_op *op,
                          struct ag_arguments *arguments, CUDA_KERNEL_NODE_PARAMS_v2 *ret_params)
{
    struct ag_kernel_payload *payload = (void *)op->payload;
    struct ag_kernel_config config;

    ag_op_kernel_config(&op->signature, &config);
    ag_arguments_of(payload, arguments);
    *ret_params = (CUDA_KERNEL_NODE_PARAMS_v2){
        .gridDimX = payload->grid[0],
        .gridDimY = payload->grid[1],
        .gridDimZ = payload->grid[2],
        .blockDimX = config.block[0],
        .blockDimY = config.block[1],
        .blockDimZ = config.block[2],
        .sharedMemBytes = config.shared_bytes,
        .kernelParams = arguments->params,
    };
    if (op->signature.word[0] & AG_OP_IS_CUKERNEL) {
        ret_params->kern = (CUkernel)(void *)config.function;
        ret_params->ctx = graph->params.context;
    } else {
        ret_params->func = config.function;
    }
}

/* What the driver takes of an operation: the one of its kind. */
struct node_params {
    struct ag_arguments arguments;
    CUDA_KERNEL_NODE_PARAMS_v2 kernel;
    CUDA_MEMSET_NODE_PARAMS fill;
    CUDA_MEMCPY3D copy;
};

static void params_of(const struct ag_graph *graph, const struct ag_op *op,
                      struct node_params *ret_params)
{
    struct ag_fill_area area;

    switch (ag_op_kind(op)) {
    case AG_OP_KERNEL:
        kernel_params(graph, op, &ret_params->arguments, &ret_params->kernel);
        break;
    case AG_OP_COPY:
        ag_arguments_copy(&op->signature, (const void *)op->payload, &ret_params->copy);
        break;
    case AG_OP_COPY_3D:
        ret_params->copy = *ag_op_copy_3d_params(&op->signature);
        break;
    case AG_OP_FILL:
    case AG_OP_FILL_2D:
        ag_op_fill_area(op, &area);
        ret_params->fill = (CUDA_MEMSET_NODE_PARAMS){.dst = area.to,
                                                     .pitch = area.pitch,
                                                     .value = area.value,
                                                     .elementSize = area.width,
                                                     .width = area.columns,
                                                     .height = area.rows};
        break;
    }
}

static bool names_memory(const struct ag_op *op)
{
    return ag_op_kind(op) != AG_OP_KERNEL;
}

/* Nodes cannot copy or fill nothing. */
static bool moves_nothing(const struct ag_op *op)
{
    if (ag_op_kind(op) == AG_OP_COPY)
        return !((const struct ag_copy_payload *)(const void *)op->payload)->bytes;
    if (ag_op_kind(op) == AG_OP_FILL)
        return !((const struct ag_fill_payload *)(const void *)op->payload)->count;
    return false;
}

/* --- building --- */

static size_t rounded(size_t bytes)
{
    return (bytes + 7) & ~(size_t)7;
}

struct ag_graph *ag_graph_begin(const struct ag_graph_params *params, CUresult *ret_why)
{
    size_t n = params->n_ops, head = rounded(sizeof(struct ag_graph));
    size_t bytes = rounded(params->n_bytes);
    size_t size = head + n * sizeof(struct node) + n * sizeof(struct place) + bytes;
    struct ag_graph *graph = ag_pages_get(size);
    unsigned char *at;

    if (!graph) {
        *ret_why = CUDA_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    at = (unsigned char *)graph + head;
    graph->params = *params;
    graph->size = size;
    graph->nodes = (void *)at;
    at += n * sizeof(struct node);
    graph->places = (void *)at;
    at += n * sizeof(struct place);
    graph->last = at;
    graph->epoch = atomic_load_explicit(&ag_memory_epoch, memory_order_acquire);
    *ret_why = ag_cu.cuGraphCreate(&graph->handle, 0);
    if (*ret_why == CUDA_SUCCESS)
        return graph;
    ag_pages_free(graph, graph->size);
    return NULL;
}

/* Attributes of a launch that nodes have too. Nodes do not inherit the stream's priority. */
static CUresult set_attributes(struct ag_graph *graph, const struct ag_op *op, CUgraphNode node)
{
    CUlaunchAttribute cooperative = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};
    CUlaunchAttribute priority = {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY,
                                  .value.priority = graph->params.priority};
    bool has_priority = false;
    struct ag_kernel_config config;
    CUresult result = CUDA_SUCCESS;

    ag_op_kernel_config(&op->signature, &config);
    for (uint32_t i = 0; i < config.n_attributes && result == CUDA_SUCCESS; i++) {
        const CUlaunchAttribute *attribute = &config.attributes[i];

        if (attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            continue; /* an edge */
        has_priority |= attribute->id == CU_LAUNCH_ATTRIBUTE_PRIORITY;
        result = ag_cu.cuGraphKernelNodeSetAttribute(node, attribute->id, &attribute->value);
    }
    graph->has_priorities |= has_priority;
    if (result == CUDA_SUCCESS && op->signature.word[0] & AG_OP_IS_COOPERATIVE)
        result = ag_cu.cuGraphKernelNodeSetAttribute(node, cooperative.id, &cooperative.value);
    if (result == CUDA_SUCCESS && !has_priority && graph->params.priority)
        result = ag_cu.cuGraphKernelNodeSetAttribute(node, priority.id, &priority.value);
    return result;
}

/* May this kernel start before the one before it has finished? */
static bool may_overlap(const struct ag_graph *graph, const struct ag_op *op)
{
    struct ag_kernel_config config;

    if (!ag_cu.cuGraphAddDependencies_v2 || !graph->n || ag_op_kind(op) != AG_OP_KERNEL ||
        (graph->nodes[graph->n - 1].signature.word[0] & 0xff) != AG_OP_KERNEL)
        return false;
    ag_op_kernel_config(&op->signature, &config);
    for (uint32_t i = 0; i < config.n_attributes; i++) {
        if (config.attributes[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            return config.attributes[i].value.programmaticStreamSerializationAllowed != 0;
    }
    return false;
}

/* The edge from the node before, of the kind that lets the new one start early where the driver
 * takes it. */
static CUresult connect(struct ag_graph *graph, CUgraphNode node)
{
    const CUgraphEdgeData edge = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                  .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
    CUgraphNode before = graph->nodes[graph->n - 1].handle;

    graph->last_was_programmatic =
        ag_cu.cuGraphAddDependencies_v2(graph->handle, &before, &node, &edge, 1) == CUDA_SUCCESS;
    return graph->last_was_programmatic
               ? CUDA_SUCCESS
               : ag_cu.cuGraphAddDependencies(graph->handle, &before, &node, 1);
}

static CUresult add_op_node(struct ag_graph *graph, const struct ag_op *op,
                            const CUgraphNode *before, size_t n_before, CUgraphNode *ret_node)
{
    CUcontext context = graph->params.context;
    CUgraph handle = graph->handle;
    struct node_params params;

    params_of(graph, op, &params);
    switch (ag_op_kind(op)) {
    case AG_OP_KERNEL:
        return ag_cu.cuGraphAddKernelNode_v2(ret_node, handle, before, n_before, &params.kernel);
    case AG_OP_COPY:
    case AG_OP_COPY_3D:
        return ag_cu.cuGraphAddMemcpyNode(ret_node, handle, before, n_before, &params.copy,
                                          context);
    case AG_OP_FILL:
    case AG_OP_FILL_2D:
        return ag_cu.cuGraphAddMemsetNode(ret_node, handle, before, n_before, &params.fill,
                                          context);
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult ag_graph_add(struct ag_graph *graph, const struct ag_op *op)
{
    uint32_t n = graph->n, bytes = op->payload_bytes;
    bool overlaps = may_overlap(graph, op);
    CUgraphNode before[2], node;
    size_t n_before = 0;
    CUresult result;

    if (n >= graph->params.n_ops ||
        rounded(bytes) > rounded(graph->params.n_bytes) - graph->filled || moves_nothing(op))
        return CUDA_ERROR_INVALID_VALUE;
    if (n && !overlaps)
        before[n_before++] = graph->nodes[n - 1].handle;
    if (graph->last_was_programmatic)
        before[n_before++] = graph->nodes[n - 2].handle;
    graph->last_was_programmatic = false;
    result = add_op_node(graph, op, before, n_before, &node);
    if (result == CUDA_SUCCESS && overlaps)
        result = connect(graph, node);
    if (result == CUDA_SUCCESS && ag_op_kind(op) == AG_OP_KERNEL)
        result = set_attributes(graph, op, node);
    if (result != CUDA_SUCCESS)
        return result;
    graph->nodes[n] = (struct node){node, op->signature};
    graph->places[n] = (struct place){graph->filled, bytes};
    memcpy(graph->last + graph->filled, op->payload, bytes);
    graph->filled += (uint32_t)rounded(bytes);
    graph->n++;
    graph->names_memory |= names_memory(op);
    return CUDA_SUCCESS;
}

/* Without the flag all nodes run at the priority of the stream they are launched into, which is
 * what launches without a priority of their own do. Not uploaded: that is work on a stream, and a
 * program that knows its stream to be done would find it busy. Before the first launch the stream
 * is about to be busy anyway. */
CUresult ag_graph_finish(struct ag_graph *graph)
{
    unsigned flags = graph->has_priorities ? CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY : 0;

    return ag_cu.cuGraphInstantiateWithFlags(&graph->exec, graph->handle, flags);
}

/* --- launching --- */

static CUresult set_node(const struct ag_graph *graph, CUgraphNode node, const struct ag_op *op)
{
    CUcontext context = graph->params.context;
    struct node_params params;

    params_of(graph, op, &params);
    switch (ag_op_kind(op)) {
    case AG_OP_KERNEL:
        return ag_cu.cuGraphExecKernelNodeSetParams_v2(graph->exec, node, &params.kernel);
    case AG_OP_COPY:
        return ag_cu.cuGraphExecMemcpyNodeSetParams(graph->exec, node, &params.copy, context);
    case AG_OP_FILL:
    case AG_OP_FILL_2D:
        return ag_cu.cuGraphExecMemsetNodeSetParams(graph->exec, node, &params.fill, context);
    case AG_OP_COPY_3D:
        break; /* the driver sets no copy of several rows */
    }
    return CUDA_ERROR_INVALID_VALUE;
}

/* Payloads are zero up to the next multiple of 8, here and there. */
static bool same_payload(const unsigned char *a, const unsigned char *b, uint32_t bytes)
{
    uint64_t difference = 0;

    for (uint32_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        uint64_t x, y;

        memcpy(&x, a + at, sizeof(x));
        memcpy(&y, b + at, sizeof(y));
        difference |= x ^ y;
    }
    return !difference;
}

bool ag_graph_has(const struct ag_graph *graph, uint32_t i, const struct ag_op *op)
{
    const struct place place = graph->places[i];

    return op->payload_bytes == place.bytes &&
           same_payload(graph->last + place.offset, op->payload, place.bytes);
}

/* Have all nodes the payloads of `ops`? Those mostly lie as close together as the graph's. */
static bool has_all(const struct ag_graph *graph, const struct ag_op *ops)
{
    const struct ag_op *end = &ops[graph->n - 1];
    const struct place last = graph->places[graph->n - 1];

    return (uintptr_t)end->payload - (uintptr_t)ops->payload == last.offset &&
           end->payload_bytes == last.bytes && !memcmp(graph->last, ops->payload, graph->filled);
}

/* Gives the nodes the payloads of `ops`: those that have others, and every node that names memory
 * if `anew`, and then no other node. */
static CUresult update(const struct ag_graph *graph, const struct ag_op *ops, bool anew,
                       uint32_t *ret_updated)
{
    for (uint32_t i = 0; i < graph->n; i++) {
        const struct place place = graph->places[i];
        CUresult result;
        bool has;

        if (anew && !names_memory(&ops[i]))
            continue;
        has = ag_graph_has(graph, i, &ops[i]);
        if (has && !anew)
            continue;
        result = ops[i].payload_bytes != place.bytes || moves_nothing(&ops[i])
                     ? CUDA_ERROR_INVALID_VALUE
                     : set_node(graph, graph->nodes[i].handle, &ops[i]);
        if (result != CUDA_SUCCESS)
            return result;
        memcpy(graph->last + place.offset, ops[i].payload, place.bytes);
        *ret_updated += !has;
    }
    return CUDA_SUCCESS;
}

/* Sets all nodes anew if memory that they name may have been freed since; before the upload, which
 * may look at that memory, too. */
static CUresult renew(struct ag_graph *graph, const struct ag_op *ops, uint32_t *ret_updated)
{
    uint64_t epoch = atomic_load_explicit(&ag_memory_epoch, memory_order_acquire);
    bool is_old = graph->names_memory && graph->epoch != epoch;

    graph->epoch = epoch;
    return is_old ? update(graph, ops, true, ret_updated) : CUDA_SUCCESS;
}

const unsigned char *ag_graph_payloads(const struct ag_graph *graph, uint32_t *ret_bytes)
{
    *ret_bytes = graph->filled;
    return graph->last;
}

bool ag_graph_prepare(struct ag_graph *graph, const unsigned char *payloads, uint32_t *at,
                      uint32_t most, uint32_t *ret_updated)
{
    *ret_updated = 0;
    for (; !graph->dead && *at < graph->n && *ret_updated < most; ++*at) {
        const struct place place = graph->places[*at];
        const struct ag_op op = {graph->nodes[*at].signature, place.bytes,
                                 (unsigned char *)payloads + place.offset};

        if (ag_op_kind(&op) != AG_OP_KERNEL || ag_graph_has(graph, *at, &op))
            continue;
        graph->dead = set_node(graph, graph->nodes[*at].handle, &op) != CUDA_SUCCESS;
        memcpy(graph->last + place.offset, op.payload, place.bytes);
        ++*ret_updated;
    }
    return !graph->dead && *at < graph->n;
}

CUresult ag_graph_launch(struct ag_graph *graph, const struct ag_op *ops, CUstream stream,
                         uint32_t *ret_updated)
{
    uint32_t updated = 0;
    CUresult result;

    if (graph->dead)
        return CUDA_ERROR_INVALID_VALUE;
    result = renew(graph, ops, &updated);
    if (result == CUDA_SUCCESS && !graph->is_uploaded)
        (void)ag_cu.cuGraphUpload(graph->exec, stream); /* refused, it is launched all the same */
    graph->is_uploaded = true;
    if (result == CUDA_SUCCESS && !has_all(graph, ops))
        result = update(graph, ops, false, &updated);
    if (result == CUDA_SUCCESS)
        result = ag_cu.cuGraphLaunch(graph->exec, stream);
    if (result != CUDA_SUCCESS) {
        graph->dead = true;
        return result;
    }
    *ret_updated = updated;
    return CUDA_SUCCESS;
}

/* --- the end --- */

void ag_graph_destroy(struct ag_graph *graph)
{
    if (!graph)
        return;
    if (graph->exec)
        (void)ag_cu.cuGraphExecDestroy(graph->exec);
    (void)ag_cu.cuGraphDestroy(graph->handle);
    ag_pages_free(graph, graph->size);
}

void ag_graph_forget(struct ag_graph *graph)
{
    if (graph)
        ag_pages_free(graph, graph->size);
}

CUgraph ag_graph_handle(const struct ag_graph *graph)
{
    return graph->handle;
}

uint64_t ag_graph_bytes(const struct ag_graph *graph)
{
    return (uint64_t)(graph->n + 1) * AG_GRAPH_NODE_BYTES;
}
