/* Graphs: building them node by node, updating executable ones. */
#include "mini.h"

#include <string.h>

MR_SAME_SIZE(cudaGraphEdgeData, CUgraphEdgeData);
MR_SAME_SIZE(cudaGraphExecUpdateResultInfo, CUgraphExecUpdateResultInfo);
MR_SAME_SIZE(struct cudaHostNodeParams, CUDA_HOST_NODE_PARAMS);
MR_SAME_SIZE(struct cudaMemAllocNodeParams, CUDA_MEM_ALLOC_NODE_PARAMS);
MR_SAME_SIZE(cudaKernelNodeAttrValue, CUkernelNodeAttrValue);

/* The context that copy and fill nodes work in. */
static cudaError_t current_context(CUcontext *ret_context)
{
    cudaError_t error = mr_enter();
    if (error != cudaSuccess)
        return error;
    return (cudaError_t)DRV(CtxGetCurrent, 4000)(ret_context);
}

cudaError_t cudaGraphCreate(cudaGraph_t *pGraph, unsigned flags)
{
    return MR_RUN(DRV(GraphCreate, 10000)(pGraph, flags));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    return MR_RUN(DRV(GraphDestroy, 10000)(graph));
}

cudaError_t cudaGraphClone(cudaGraph_t *pGraphClone, cudaGraph_t originalGraph)
{
    return MR_RUN(DRV(GraphClone, 10000)(pGraphClone, originalGraph));
}

cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t *pNode, cudaGraphNode_t originalNode,
                                     cudaGraph_t clonedGraph)
{
    return MR_RUN(DRV(GraphNodeFindInClone, 10000)(pNode, originalNode, clonedGraph));
}

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char *path, unsigned flags)
{
    return MR_RUN(DRV(GraphDebugDotPrint, 11030)(graph, path, flags));
}

/* Kernel nodes */

static cudaError_t kernel_params(const struct cudaKernelNodeParams *p,
                                 CUDA_KERNEL_NODE_PARAMS *ret_params)
{
    CUkernel kernel;
    cudaError_t error = p == NULL ? cudaErrorInvalidValue : mr_enter();
    if (error == cudaSuccess)
        error = mr_kernel_of(p->func, &kernel);
    if (error != cudaSuccess)
        return error;
    *ret_params = (CUDA_KERNEL_NODE_PARAMS){
        .gridDimX = p->gridDim.x,
        .gridDimY = p->gridDim.y,
        .gridDimZ = p->gridDim.z,
        .blockDimX = p->blockDim.x,
        .blockDimY = p->blockDim.y,
        .blockDimZ = p->blockDim.z,
        .sharedMemBytes = p->sharedMemBytes,
        .kernelParams = p->kernelParams,
        .extra = p->extra,
        .kern = kernel,
    };
    return cudaSuccess;
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                   const cudaGraphNode_t *pDependencies, size_t numDependencies,
                                   const struct cudaKernelNodeParams *pNodeParams)
{
    CUDA_KERNEL_NODE_PARAMS params;
    return MR_RUN_AFTER(
        kernel_params(pNodeParams, &params),
        DRV(GraphAddKernelNode, 12000)(pGraphNode, graph, pDependencies, numDependencies, &params));
}

cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node,
                                         const struct cudaKernelNodeParams *pNodeParams)
{
    CUDA_KERNEL_NODE_PARAMS params;
    return MR_RUN_AFTER(kernel_params(pNodeParams, &params),
                        DRV(GraphKernelNodeSetParams, 12000)(node, &params));
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t hGraphExec, cudaGraphNode_t node,
                                             const struct cudaKernelNodeParams *pNodeParams)
{
    CUDA_KERNEL_NODE_PARAMS params;
    return MR_RUN_AFTER(kernel_params(pNodeParams, &params),
                        DRV(GraphExecKernelNodeSetParams, 12000)(hGraphExec, node, &params));
}

cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node,
                                         struct cudaKernelNodeParams *pNodeParams)
{
    CUDA_KERNEL_NODE_PARAMS p;
    cudaError_t error = MR_RUN(DRV(GraphKernelNodeGetParams, 12000)(node, &p));
    if (error != cudaSuccess)
        return error;
    const void *stub = mr_host_stub_of(p.kern);
    *pNodeParams = (struct cudaKernelNodeParams){
        .func = stub != NULL ? (void *)stub : (void *)p.kern,
        .gridDim = {p.gridDimX, p.gridDimY, p.gridDimZ},
        .blockDim = {p.blockDimX, p.blockDimY, p.blockDimZ},
        .sharedMemBytes = p.sharedMemBytes,
        .kernelParams = p.kernelParams,
        .extra = p.extra,
    };
    return cudaSuccess;
}

cudaError_t cudaGraphKernelNodeGetAttribute(cudaGraphNode_t hNode, cudaKernelNodeAttrID attr,
                                            cudaKernelNodeAttrValue *value_out)
{
    return MR_RUN(DRV(GraphKernelNodeGetAttribute, 11000)(hNode, (CUkernelNodeAttrID)attr,
                                                          (CUkernelNodeAttrValue *)value_out));
}

cudaError_t cudaGraphKernelNodeSetAttribute(cudaGraphNode_t hNode, cudaKernelNodeAttrID attr,
                                            const cudaKernelNodeAttrValue *value)
{
    return MR_RUN(DRV(GraphKernelNodeSetAttribute, 11000)(hNode, (CUkernelNodeAttrID)attr,
                                                          (const CUkernelNodeAttrValue *)value));
}

cudaError_t cudaGraphKernelNodeCopyAttributes(cudaGraphNode_t hDst, cudaGraphNode_t hSrc)
{
    return MR_RUN(DRV(GraphKernelNodeCopyAttributes, 11000)(hDst, hSrc));
}

/* Copy nodes */

/* A flat copy as the runtime's general description of one. */
static struct cudaMemcpy3DParms flat_copy(void *dst, const void *src, size_t n_bytes,
                                          enum cudaMemcpyKind kind)
{
    return (struct cudaMemcpy3DParms){
        .srcPtr = {(void *)src, n_bytes, n_bytes, 1},
        .dstPtr = {dst, n_bytes, n_bytes, 1},
        .extent = {n_bytes, 1, 1},
        .kind = kind,
    };
}

cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                   const cudaGraphNode_t *pDependencies, size_t numDependencies,
                                   const struct cudaMemcpy3DParms *pCopyParams)
{
    CUcontext context = NULL;
    CUDA_MEMCPY3D c;
    cudaError_t error = current_context(&context);
    if (error == cudaSuccess)
        error = mr_describe_copy(pCopyParams, &c);
    return MR_RUN_AFTER(error, DRV(GraphAddMemcpyNode, 10000)(pGraphNode, graph, pDependencies,
                                                              numDependencies, &c, context));
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                     const cudaGraphNode_t *pDependencies, size_t numDependencies,
                                     void *dst, const void *src, size_t count,
                                     enum cudaMemcpyKind kind)
{
    struct cudaMemcpy3DParms p = flat_copy(dst, src, count, kind);
    return cudaGraphAddMemcpyNode(pGraphNode, graph, pDependencies, numDependencies, &p);
}

cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node,
                                         const struct cudaMemcpy3DParms *pNodeParams)
{
    CUDA_MEMCPY3D c;
    return MR_RUN_AFTER(mr_describe_copy(pNodeParams, &c),
                        DRV(GraphMemcpyNodeSetParams, 10000)(node, &c));
}

cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void *dst, const void *src,
                                           size_t count, enum cudaMemcpyKind kind)
{
    struct cudaMemcpy3DParms p = flat_copy(dst, src, count, kind);
    return cudaGraphMemcpyNodeSetParams(node, &p);
}

cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t hGraphExec, cudaGraphNode_t node,
                                             const struct cudaMemcpy3DParms *pNodeParams)
{
    CUcontext context = NULL;
    CUDA_MEMCPY3D c;
    cudaError_t error = current_context(&context);
    if (error == cudaSuccess)
        error = mr_describe_copy(pNodeParams, &c);
    return MR_RUN_AFTER(error,
                        DRV(GraphExecMemcpyNodeSetParams, 10020)(hGraphExec, node, &c, context));
}

cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t hGraphExec, cudaGraphNode_t node,
                                               void *dst, const void *src, size_t count,
                                               enum cudaMemcpyKind kind)
{
    struct cudaMemcpy3DParms p = flat_copy(dst, src, count, kind);
    return cudaGraphExecMemcpyNodeSetParams(hGraphExec, node, &p);
}

/* Fill nodes */

static CUDA_MEMSET_NODE_PARAMS memset_params(const struct cudaMemsetParams *p)
{
    return (CUDA_MEMSET_NODE_PARAMS){
        .dst = (CUdeviceptr)p->dst,
        .pitch = p->pitch,
        .value = p->value,
        .elementSize = p->elementSize,
        .width = p->width,
        .height = p->height,
    };
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                   const cudaGraphNode_t *pDependencies, size_t numDependencies,
                                   const struct cudaMemsetParams *pMemsetParams)
{
    CUcontext context = NULL;
    if (pMemsetParams == NULL)
        return mr_finish(cudaErrorInvalidValue);
    CUDA_MEMSET_NODE_PARAMS params = memset_params(pMemsetParams);
    return MR_RUN_AFTER(current_context(&context),
                        DRV(GraphAddMemsetNode, 10000)(pGraphNode, graph, pDependencies,
                                                       numDependencies, &params, context));
}

cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t node,
                                         const struct cudaMemsetParams *pNodeParams)
{
    if (pNodeParams == NULL)
        return mr_finish(cudaErrorInvalidValue);
    CUDA_MEMSET_NODE_PARAMS params = memset_params(pNodeParams);
    return MR_RUN(DRV(GraphMemsetNodeSetParams, 10000)(node, &params));
}

cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t hGraphExec, cudaGraphNode_t node,
                                             const struct cudaMemsetParams *pNodeParams)
{
    CUcontext context = NULL;
    if (pNodeParams == NULL)
        return mr_finish(cudaErrorInvalidValue);
    CUDA_MEMSET_NODE_PARAMS params = memset_params(pNodeParams);
    return MR_RUN_AFTER(current_context(&context), DRV(GraphExecMemsetNodeSetParams,
                                                       10020)(hGraphExec, node, &params, context));
}

cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, struct cudaMemsetParams *pNodeParams)
{
    CUDA_MEMSET_NODE_PARAMS p;
    cudaError_t error = MR_RUN(DRV(GraphMemsetNodeGetParams, 10000)(node, &p));
    if (error != cudaSuccess)
        return error;
    *pNodeParams = (struct cudaMemsetParams){(void *)p.dst, p.pitch, p.value,
                                             p.elementSize, p.width, p.height};
    return cudaSuccess;
}

/* Other nodes */

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                 const cudaGraphNode_t *pDependencies, size_t numDependencies,
                                 const struct cudaHostNodeParams *pNodeParams)
{
    return MR_RUN(DRV(GraphAddHostNode, 10000)(pGraphNode, graph, pDependencies, numDependencies,
                                               (const CUDA_HOST_NODE_PARAMS *)pNodeParams));
}

cudaError_t cudaGraphHostNodeGetParams(cudaGraphNode_t node, struct cudaHostNodeParams *pNodeParams)
{
    return MR_RUN(DRV(GraphHostNodeGetParams, 10000)(node, (CUDA_HOST_NODE_PARAMS *)pNodeParams));
}

cudaError_t cudaGraphHostNodeSetParams(cudaGraphNode_t node,
                                       const struct cudaHostNodeParams *pNodeParams)
{
    return MR_RUN(
        DRV(GraphHostNodeSetParams, 10000)(node, (const CUDA_HOST_NODE_PARAMS *)pNodeParams));
}

cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t hGraphExec, cudaGraphNode_t node,
                                           const struct cudaHostNodeParams *pNodeParams)
{
    return MR_RUN(DRV(GraphExecHostNodeSetParams,
                      10020)(hGraphExec, node, (const CUDA_HOST_NODE_PARAMS *)pNodeParams));
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                       const cudaGraphNode_t *pDependencies, size_t numDependencies,
                                       cudaGraph_t childGraph)
{
    return MR_RUN(DRV(GraphAddChildGraphNode, 10000)(pGraphNode, graph, pDependencies,
                                                     numDependencies, childGraph));
}

cudaError_t cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t node, cudaGraph_t *pGraph)
{
    return MR_RUN(DRV(GraphChildGraphNodeGetGraph, 10000)(node, pGraph));
}

cudaError_t cudaGraphExecChildGraphNodeSetParams(cudaGraphExec_t hGraphExec, cudaGraphNode_t node,
                                                 cudaGraph_t childGraph)
{
    return MR_RUN(DRV(GraphExecChildGraphNodeSetParams, 11010)(hGraphExec, node, childGraph));
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                  const cudaGraphNode_t *pDependencies, size_t numDependencies)
{
    return MR_RUN(DRV(GraphAddEmptyNode, 10000)(pGraphNode, graph, pDependencies, numDependencies));
}

cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                        const cudaGraphNode_t *pDependencies,
                                        size_t numDependencies, cudaEvent_t event)
{
    return MR_RUN(DRV(GraphAddEventRecordNode, 11010)(pGraphNode, graph, pDependencies,
                                                      numDependencies, event));
}

cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                      const cudaGraphNode_t *pDependencies, size_t numDependencies,
                                      cudaEvent_t event)
{
    return MR_RUN(DRV(GraphAddEventWaitNode, 11010)(pGraphNode, graph, pDependencies,
                                                    numDependencies, event));
}

cudaError_t cudaGraphExecEventRecordNodeSetEvent(cudaGraphExec_t hGraphExec, cudaGraphNode_t hNode,
                                                 cudaEvent_t event)
{
    return MR_RUN(DRV(GraphExecEventRecordNodeSetEvent, 11010)(hGraphExec, hNode, event));
}

cudaError_t cudaGraphExecEventWaitNodeSetEvent(cudaGraphExec_t hGraphExec, cudaGraphNode_t hNode,
                                               cudaEvent_t event)
{
    return MR_RUN(DRV(GraphExecEventWaitNodeSetEvent, 11010)(hGraphExec, hNode, event));
}

cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                     const cudaGraphNode_t *pDependencies, size_t numDependencies,
                                     struct cudaMemAllocNodeParams *nodeParams)
{
    return MR_RUN(DRV(GraphAddMemAllocNode, 11040)(pGraphNode, graph, pDependencies,
                                                   numDependencies,
                                                   (CUDA_MEM_ALLOC_NODE_PARAMS *)nodeParams));
}

cudaError_t cudaGraphAddMemFreeNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                    const cudaGraphNode_t *pDependencies, size_t numDependencies,
                                    void *dptr)
{
    return MR_RUN(DRV(GraphAddMemFreeNode, 11040)(pGraphNode, graph, pDependencies, numDependencies,
                                                  (CUdeviceptr)dptr));
}

cudaError_t cudaDeviceGraphMemTrim(int device)
{
    return MR_RUN(DRV(DeviceGraphMemTrim, 11040)(device));
}

cudaError_t cudaDeviceGetGraphMemAttribute(int device, enum cudaGraphMemAttributeType attr,
                                           void *value)
{
    return MR_RUN(
        DRV(DeviceGetGraphMemAttribute, 11040)(device, (CUgraphMem_attribute)attr, value));
}

/* Asking and changing a graph */

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *pType)
{
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    cudaError_t error = MR_RUN(DRV(GraphNodeGetType, 10000)(node, &type));
    if (error == cudaSuccess)
        *pType = (enum cudaGraphNodeType)type;
    return error;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *numNodes)
{
    return MR_RUN(DRV(GraphGetNodes, 10000)(graph, nodes, numNodes));
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t *pRootNodes,
                                  size_t *pNumRootNodes)
{
    return MR_RUN(DRV(GraphGetRootNodes, 10000)(graph, pRootNodes, pNumRootNodes));
}

cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to,
                              cudaGraphEdgeData *edgeData, size_t *numEdges)
{
    return MR_RUN(
        DRV(GraphGetEdges, 12030)(graph, from, to, (CUgraphEdgeData *)edgeData, numEdges));
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *pDependencies,
                                         cudaGraphEdgeData *edgeData, size_t *pNumDependencies)
{
    return MR_RUN(DRV(GraphNodeGetDependencies,
                      12030)(node, pDependencies, (CUgraphEdgeData *)edgeData, pNumDependencies));
}

cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t *pDependentNodes,
                                           cudaGraphEdgeData *edgeData, size_t *pNumDependentNodes)
{
    return MR_RUN(DRV(GraphNodeGetDependentNodes, 12030)(
        node, pDependentNodes, (CUgraphEdgeData *)edgeData, pNumDependentNodes));
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                     const cudaGraphNode_t *to, const cudaGraphEdgeData *edgeData,
                                     size_t numDependencies)
{
    return MR_RUN(DRV(GraphAddDependencies,
                      12030)(graph, from, to, (const CUgraphEdgeData *)edgeData, numDependencies));
}

cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                        const cudaGraphNode_t *to,
                                        const cudaGraphEdgeData *edgeData, size_t numDependencies)
{
    return MR_RUN(DRV(GraphRemoveDependencies,
                      12030)(graph, from, to, (const CUgraphEdgeData *)edgeData, numDependencies));
}

cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node)
{
    return MR_RUN(DRV(GraphDestroyNode, 10000)(node));
}

cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t hGraphExec, cudaGraphNode_t hNode,
                                    unsigned isEnabled)
{
    return MR_RUN(DRV(GraphNodeSetEnabled, 11060)(hGraphExec, hNode, isEnabled));
}

cudaError_t cudaGraphNodeGetEnabled(cudaGraphExec_t hGraphExec, cudaGraphNode_t hNode,
                                    unsigned *isEnabled)
{
    return MR_RUN(DRV(GraphNodeGetEnabled, 11060)(hGraphExec, hNode, isEnabled));
}

/* Executable graphs */

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *pGraphExec, cudaGraph_t graph,
                                          unsigned long long flags)
{
    return MR_RUN(DRV(GraphInstantiateWithFlags, 11040)(pGraphExec, graph, flags));
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *pGraphExec, cudaGraph_t graph,
                                 unsigned long long flags)
{
    return cudaGraphInstantiateWithFlags(pGraphExec, graph, flags);
}

cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t graphExec, unsigned long long *flags)
{
    cuuint64_t value = 0;
    cudaError_t error = MR_RUN(DRV(GraphExecGetFlags, 12000)(graphExec, &value));
    if (error == cudaSuccess)
        *flags = value;
    return error;
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t hGraphExec, cudaGraph_t hGraph,
                                cudaGraphExecUpdateResultInfo *resultInfo)
{
    return MR_RUN(
        DRV(GraphExecUpdate, 12000)(hGraphExec, hGraph, (CUgraphExecUpdateResultInfo *)resultInfo));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec)
{
    return MR_RUN(DRV(GraphExecDestroy, 10000)(graphExec));
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t *object_out, void *ptr, cudaHostFn_t destroy,
                                 unsigned initialRefcount, unsigned flags)
{
    return MR_RUN(DRV(UserObjectCreate, 11030)(object_out, ptr, destroy, initialRefcount, flags));
}

cudaError_t cudaUserObjectRetain(cudaUserObject_t object, unsigned count)
{
    return MR_RUN(DRV(UserObjectRetain, 11030)(object, count));
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count)
{
    return MR_RUN(DRV(UserObjectRelease, 11030)(object, count));
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count,
                                      unsigned flags)
{
    return MR_RUN(DRV(GraphRetainUserObject, 11030)(graph, object, count, flags));
}

cudaError_t cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count)
{
    return MR_RUN(DRV(GraphReleaseUserObject, 11030)(graph, object, count));
}
