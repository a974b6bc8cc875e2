/* Graphs of the control API: the caller says what is captured, and when it is replayed. */
#include <stdatomic.h>
#include <stdlib.h>

#include "interpose/api/api.h"
#include "interpose/core/report/stats.h"
#include "interpose/core/report/trace/trace.h"
#include "interpose/hooks/entry.h"
#include "policy/alloc/alloc.h"
#include "policy/backends/private_pool.h"
#include "policy/contexts/context.h"

enum graph_state { EMPTY, OPEN, CAPTURED };

struct allograft_graph {
    enum graph_state state;
    bool keeps, debugs;
    CUcontext context;
    CUdevice device;
    uint64_t began;  /* the capture, as the trace has it */
    CUstream stream; /* while OPEN */
    CUgraph graph;   /* while CAPTURED, if it is kept */
    CUgraphExec exec;
    allograft_pool pool;
    bool holds_pool; /* where the library serves the program's allocations */
};

/* The graph that the calling thread captures. */
static _Thread_local allograft_graph *open_graph;

bool ag_api_thread_captures(void)
{
    return open_graph != NULL;
}

/* ---- pools and streams that are shared ---- */

static _Atomic uint64_t last_pool; /* relaxed: who names a pool was given its number */

allograft_status ag_api_pool_new(allograft_pool *ret)
{
    if (!ret)
        return ag_api_fail(ALLOGRAFT_INVALID, "pool_new: nowhere to put the result");
    *ret = atomic_fetch_add_explicit(&last_pool, 1, memory_order_relaxed) + 1;
    return ALLOGRAFT_OK;
}

/* Made for a device when first asked for; under ag_api_lock. */
static allograft_pool shared_pools[AG_MAX_DEVICES];

allograft_status ag_api_pool_shared(int device, allograft_pool *ret)
{
    allograft_status status = ag_api_check_device(device, false);

    if (status == ALLOGRAFT_OK && !ret)
        status = ag_api_fail(ALLOGRAFT_INVALID, "pool_shared: nowhere to put the result");
    if (status != ALLOGRAFT_OK)
        return status;
    ag_lock_take(&ag_api_lock);
    if (!shared_pools[device])
        (void)ag_api_pool_new(&shared_pools[device]);
    *ret = shared_pools[device];
    ag_lock_release(&ag_api_lock);
    return ALLOGRAFT_OK;
}

static allograft_status make_shared(CUcontext context, unsigned long long id, void **ret)
{
    struct ag_api_stream *fresh = malloc(sizeof(*fresh));
    allograft_status status;

    if (!fresh)
        return ag_api_fail(ALLOGRAFT_NO_MEMORY, "no memory for a stream");
    *fresh = (struct ag_api_stream){.context = context, .id = id};
    status = AG_API_DO(cuStreamCreate, &fresh->stream, CU_STREAM_NON_BLOCKING);
    if (status == ALLOGRAFT_OK) {
        CUstream made = fresh->stream;

        *ret = ag_api_stream_share(context, id, fresh);
        if (*ret == made)
            return ALLOGRAFT_OK;
        (void)ag_api_cu.cuStreamDestroy_v2(made); /* another thread was first */
    }
    free(fresh);
    return status;
}

allograft_status ag_api_capture_stream(int device, void **ret)
{
    allograft_status status = ag_api_check_device(device, false);
    unsigned long long id = 0;
    CUcontext context = NULL;
    CUstream found = NULL;
    bool pushed;

    if (status == ALLOGRAFT_OK && !ret)
        status = ag_api_fail(ALLOGRAFT_INVALID, "capture_stream: nowhere to put the result");
    if (status != ALLOGRAFT_OK)
        return status;
    status = ag_api_enter_device(device, &pushed);
    if (status == ALLOGRAFT_OK)
        status = AG_API_DO(cuCtxGetCurrent, &context);
    if (status == ALLOGRAFT_OK) {
        if (ag_api_cu.cuCtxGetId && ag_api_cu.cuCtxGetId(context, &id) != CUDA_SUCCESS)
            id = 0;
        found = ag_api_stream_share(context, id, NULL);
        if (found)
            *ret = found;
        else
            status = make_shared(context, id, ret);
    }
    ag_api_leave(pushed);
    return status;
}

/* ---- one graph ---- */

allograft_status ag_api_graph_create(int keep_graph, allograft_graph **ret)
{
    allograft_status status = ag_api_enter();
    allograft_graph *graph;

    if (status != ALLOGRAFT_OK)
        return status;
    if (!ret)
        return ag_api_fail(ALLOGRAFT_INVALID, "graph_create: nowhere to put the result");
    if (!ag_api_cu.cuStreamBeginCapture_v2 || !ag_api_cu.cuGraphInstantiateWithFlags)
        return ag_api_fail(ALLOGRAFT_UNSUPPORTED,
                           "the driver is too old for graphs (CUDA 11.4 is needed)");
    graph = calloc(1, sizeof(*graph));
    if (!graph)
        return ag_api_fail(ALLOGRAFT_NO_MEMORY, "no memory for a graph");
    graph->keeps = keep_graph != 0;
    *ret = graph;
    return ALLOGRAFT_OK;
}

allograft_status ag_api_graph_enable_debug_mode(allograft_graph *graph)
{
    if (!graph)
        return ag_api_fail(ALLOGRAFT_INVALID, "no graph given");
    graph->debugs = true;
    return ALLOGRAFT_OK;
}

/* Lets the program's allocations come from the pool; called before the capture. */
static allograft_status use_private_pool(allograft_graph *graph, allograft_pool pool)
{
    uint64_t newest = atomic_load_explicit(&last_pool, memory_order_relaxed);

    if (pool > newest)
        return ag_api_fail(ALLOGRAFT_INVALID, "pool %llu: there is none of that name",
                           (unsigned long long)pool);
    if (pool == ALLOGRAFT_NEW_POOL)
        (void)ag_api_pool_new(&pool);
    graph->pool = pool;
    if (!ag_api_intercepts())
        return ALLOGRAFT_OK;
    if (!ag_private_hold(pool))
        return ag_api_fail(ALLOGRAFT_NO_MEMORY, "no memory for a pool");
    graph->holds_pool = true;
    if (ag_private_begin(pool))
        return ALLOGRAFT_OK;
    return ag_api_fail(ALLOGRAFT_STATE, "another capture into pool %llu is open",
                       (unsigned long long)pool);
}

static void leave_graph_pool(allograft_graph *graph)
{
    if (graph->holds_pool) {
        ag_entry_before(AG_FLUSH_FREE); /* what is withheld may use its memory */
        ag_entry_depth++;
        ag_alloc_pool_ended(ag_private_let_go(graph->pool));
        ag_entry_depth--;
    }
    graph->holds_pool = false;
    graph->pool = 0;
}

allograft_status ag_api_graph_capture_begin(allograft_graph *graph, void *stream,
                                            allograft_pool pool, allograft_capture_mode mode)
{
    allograft_status status;

    if (!graph)
        return ag_api_fail(ALLOGRAFT_INVALID, "no graph given");
    if (graph->state != EMPTY)
        return ag_api_fail(ALLOGRAFT_STATE,
                           "the graph holds a capture already: reset it, or use another");
    if (open_graph)
        return ag_api_fail(ALLOGRAFT_STATE, "this thread has a capture open already");
    if (ag_api_is_default_stream(stream))
        return ag_api_fail(ALLOGRAFT_INVALID,
                           "a default stream cannot be captured (though replayed on)");
    if ((unsigned)mode > ALLOGRAFT_CAPTURE_RELAXED)
        return ag_api_fail(ALLOGRAFT_INVALID, "capture mode %d: 0, 1 or 2", (int)mode);
    status = ag_api_not_capturing(stream, "capture_begin");
    if (status == ALLOGRAFT_OK)
        status = AG_API_DO(cuCtxGetCurrent, &graph->context);
    if (status == ALLOGRAFT_OK)
        status = AG_API_DO(cuCtxGetDevice, &graph->device);
    if (status != ALLOGRAFT_OK)
        return status;
    graph->began = ag_trace_began();
    status = use_private_pool(graph, pool);
    if (status == ALLOGRAFT_OK) {
        status = AG_API_DO(cuStreamBeginCapture_v2, stream, (CUstreamCaptureMode)mode);
        if (status != ALLOGRAFT_OK && graph->holds_pool)
            ag_private_end();
    }
    if (status != ALLOGRAFT_OK) {
        leave_graph_pool(graph);
        return status;
    }
    graph->stream = stream;
    graph->state = OPEN;
    open_graph = graph;
    return ALLOGRAFT_OK;
}

static void trace_graph(const allograft_graph *graph, uint64_t began, enum ag_trace_kind kind,
                        const void *stream, bool in_vain)
{
    if (ag_trace_on())
        ag_trace_add_call(began, (struct ag_trace_event){
                                     .kind = kind,
                                     .device = (int16_t)graph->device,
                                     .stream = (uintptr_t)stream,
                                     .code = in_vain,
                                 });
}

/* Ends the capture; what came of it, or NULL. */
static allograft_status end_capture(allograft_graph *graph, CUgraph *ret)
{
    allograft_status status;

    *ret = NULL;
    status = AG_API_DO(cuStreamEndCapture, graph->stream, ret);
    if (graph->holds_pool)
        ag_private_end();
    open_graph = NULL;
    graph->stream = NULL;
    graph->state = EMPTY;
    if (status == ALLOGRAFT_OK && !*ret)
        status = ag_api_fail(ALLOGRAFT_DRIVER, "the capture is invalid");
    return status;
}

/* Whatever made it: an error of the driver, since there is nothing else to be told. */
static allograft_status came_to_nothing(allograft_graph *graph, allograft_status status)
{
    ag_stats_add(AG_STAT_API_CAPTURES_FAILED, 1);
    leave_graph_pool(graph);
    return status == ALLOGRAFT_CAPTURING ? ALLOGRAFT_DRIVER : status;
}

static allograft_status instantiate(CUgraph from, CUgraphExec *ret)
{
    /* Memory that the graph allocates and does not free goes before its next launch. */
    return AG_API_DO(cuGraphInstantiateWithFlags, ret, from,
                     CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
}

allograft_status ag_api_graph_capture_end(allograft_graph *graph)
{
    allograft_status status;
    CUgraph captured;
    CUstream stream;

    if (!graph)
        return ag_api_fail(ALLOGRAFT_INVALID, "no graph given");
    if (graph->state != OPEN)
        return ag_api_fail(ALLOGRAFT_STATE, "no capture into the graph is open");
    if (open_graph != graph)
        return ag_api_fail(ALLOGRAFT_STATE, "the capture was begun by another thread");
    stream = graph->stream;
    status = end_capture(graph, &captured);
    if (status == ALLOGRAFT_OK && !graph->keeps)
        status = instantiate(captured, &graph->exec);
    trace_graph(graph, graph->began, AG_TRACE_API_CAPTURE, stream, status != ALLOGRAFT_OK);
    if (status != ALLOGRAFT_OK) {
        if (captured)
            (void)ag_api_cu.cuGraphDestroy(captured);
        return came_to_nothing(graph, status);
    }
    graph->state = CAPTURED;
    if (graph->keeps || graph->debugs)
        graph->graph = captured;
    else
        (void)ag_api_cu.cuGraphDestroy(captured);
    ag_stats_add(AG_STAT_API_CAPTURES, 1);
    return ALLOGRAFT_OK;
}

static allograft_status need_capture(const allograft_graph *graph)
{
    if (!graph)
        return ag_api_fail(ALLOGRAFT_INVALID, "no graph given");
    if (graph->state != CAPTURED)
        return ag_api_fail(ALLOGRAFT_STATE, "the graph holds no capture");
    return ALLOGRAFT_OK;
}

static allograft_status need_kept(const allograft_graph *graph)
{
    allograft_status status = need_capture(graph);

    if (status == ALLOGRAFT_OK && !graph->keeps)
        status = ag_api_fail(ALLOGRAFT_STATE, "the graph was not made with keep_graph");
    return status;
}

allograft_status ag_api_graph_instantiate(allograft_graph *graph)
{
    allograft_status status = need_kept(graph);
    CUgraphExec exec = NULL;
    bool pushed;

    if (status == ALLOGRAFT_OK)
        status = ag_api_enter_context(graph->context, &pushed);
    if (status != ALLOGRAFT_OK)
        return status;
    status = instantiate(graph->graph, &exec);
    if (status == ALLOGRAFT_OK) {
        if (graph->exec)
            (void)ag_api_cu.cuGraphExecDestroy(graph->exec);
        graph->exec = exec;
    }
    ag_api_leave(pushed);
    return status;
}

allograft_status ag_api_graph_replay(allograft_graph *graph, void *stream)
{
    uint64_t began = ag_trace_began();
    allograft_status status = need_capture(graph);

    if (status == ALLOGRAFT_OK && !graph->exec)
        status = ag_api_graph_instantiate(graph);
    if (status == ALLOGRAFT_OK)
        status = AG_API_DO(cuGraphLaunch, graph->exec, stream);
    if (status != ALLOGRAFT_OK)
        return status;
    ag_stats_add(AG_STAT_API_REPLAYS, 1);
    trace_graph(graph, began, AG_TRACE_API_REPLAY, stream, false);
    return ALLOGRAFT_OK;
}

allograft_status ag_api_graph_reset(allograft_graph *graph)
{
    CUgraph captured;

    if (!graph)
        return ag_api_fail(ALLOGRAFT_INVALID, "no graph given");
    if (graph->state == OPEN) {
        CUstream stream = graph->stream;

        if (open_graph != graph)
            return ag_api_fail(ALLOGRAFT_STATE, "another thread captures into the graph");
        (void)end_capture(graph, &captured);
        trace_graph(graph, graph->began, AG_TRACE_API_CAPTURE, stream, true);
        if (captured)
            (void)ag_api_cu.cuGraphDestroy(captured);
        ag_stats_add(AG_STAT_API_CAPTURES_FAILED, 1);
    }
    if (graph->exec)
        (void)ag_api_cu.cuGraphExecDestroy(graph->exec);
    if (graph->graph)
        (void)ag_api_cu.cuGraphDestroy(graph->graph);
    graph->exec = NULL;
    graph->graph = NULL;
    graph->state = EMPTY;
    leave_graph_pool(graph);
    return ALLOGRAFT_OK;
}

allograft_status ag_api_graph_destroy(allograft_graph *graph)
{
    allograft_status status = graph ? ag_api_graph_reset(graph) : ALLOGRAFT_OK;

    if (status == ALLOGRAFT_OK)
        free(graph);
    return status;
}

allograft_status ag_api_graph_debug_dump(allograft_graph *graph, const char *path)
{
    allograft_status status = need_capture(graph);

    if (status == ALLOGRAFT_OK && (!path || !*path))
        status = ag_api_fail(ALLOGRAFT_INVALID, "debug_dump: no file given");
    if (status == ALLOGRAFT_OK && !ag_api_cu.cuGraphDebugDotPrint)
        status = ag_api_fail(ALLOGRAFT_UNSUPPORTED, "the driver is too old to write graphs");
    if (status == ALLOGRAFT_OK && !graph->graph)
        status =
            ag_api_fail(ALLOGRAFT_STATE,
                        "the graph was not kept: keep_graph, or debug mode before the capture");
    if (status == ALLOGRAFT_OK)
        status =
            AG_API_DO(cuGraphDebugDotPrint, graph->graph, path, CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE);
    if (status == ALLOGRAFT_OK && !graph->keeps) {
        (void)ag_api_cu.cuGraphDestroy(graph->graph);
        graph->graph = NULL;
    }
    return status;
}

allograft_status ag_api_graph_raw(allograft_graph *graph, void **ret)
{
    allograft_status status = need_kept(graph);

    if (status == ALLOGRAFT_OK && !ret)
        status = ag_api_fail(ALLOGRAFT_INVALID, "graph_raw: nowhere to put the result");
    if (status == ALLOGRAFT_OK)
        *ret = graph->graph;
    return status;
}

allograft_status ag_api_graph_pool(allograft_graph *graph, allograft_pool *ret)
{
    allograft_status status = need_capture(graph);

    if (status == ALLOGRAFT_OK && !ret)
        status = ag_api_fail(ALLOGRAFT_INVALID, "graph_pool: nowhere to put the result");
    if (status == ALLOGRAFT_OK)
        *ret = graph->pool;
    return status;
}
