/* machine.c: see machine.h. */
#include "machine.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "graph/record/memory.h"
#include "graph/record/op.h"
#include "graph/replay/verify.h"
#include "graph/replay/watchdog.h"
#include "graph/stream.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/report/trace/trace.h"
#include "policy/contexts/context.h"
#include "policy/contexts/enter.h"
#include "policy/managed/kernel_params.h"
#include "policy/order/capture.h"
#include "policy/order/fence.h"
#include "policy/pressure.h"
#include "tests/common/check.h"

struct ag_driver ag_cu;
_Atomic uint64_t ag_memory_epoch = 1; /* in the library of graph/record/memory.c */
struct machine machine;

static struct ag_device device = {.total_bytes = 1ull << 37};
static struct ag_context context = {.device = &device};
static struct {
    uint64_t n_streams;
    CUstream prepared; /* the last stream that replay looked at */
    bool past;
} world;

/* --- time --- */

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    (void)clock;
    ret->tv_sec = (time_t)(machine.now / 1000000000u);
    ret->tv_nsec = (long)(machine.now % 1000000000u);
    return 0;
}

/* The device does so much, behind what it has to do; not before the host's call reaches it. */
static void submit(uint64_t ns, uint64_t between)
{
    uint64_t begins = machine.now + machine.costs.first;

    if (machine.busy_until + between > begins)
        begins = machine.busy_until + between;
    machine.busy_until = begins + ns;
}

/* --- the driver --- */

struct exec {
    uint32_t n, n_updated;
};

static CUresult unexpected(void)
{
    CHECK_SAID(false, "a driver function that the machine lacks");
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult launch_kernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                              unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                              unsigned shared, CUstream stream, void **params, void **extra)
{
    (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y;
    (void)block_z, (void)shared, (void)stream, (void)params, (void)extra;
    machine.launches++;
    machine.now += machine.costs.launch;
    submit(machine.costs.kernel, 0);
    return CUDA_SUCCESS;
}

/* 50 bytes a ns, and a microsecond to begin. */
static CUresult copy_to_device(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    (void)to, (void)from, (void)stream;
    machine.now += machine.costs.copy;
    submit(bytes / 50 + 1000, 0);
    return CUDA_SUCCESS;
}

static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *ret)
{
    (void)stream;
    machine.now += 40;
    *ret = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static CUresult query(CUstream stream)
{
    (void)stream;
    machine.now += 170;
    return machine.busy_until > machine.now ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult graph_create(CUgraph *ret, unsigned flags)
{
    (void)flags;
    *ret = calloc(1, sizeof(struct exec));
    return CUDA_SUCCESS;
}

static CUresult graph_destroy(CUgraph graph)
{
    free(graph);
    return CUDA_SUCCESS;
}

static CUresult add_any(CUgraphNode *ret, CUgraph graph)
{
    struct exec *exec = (void *)graph;

    machine.now += machine.costs.add;
    *ret = (CUgraphNode)(uintptr_t)++exec->n;
    return CUDA_SUCCESS;
}

static CUresult add_kernel(CUgraphNode *ret, CUgraph graph, const CUgraphNode *before, size_t n,
                           const CUDA_KERNEL_NODE_PARAMS *params)
{
    (void)before, (void)n, (void)params;
    return add_any(ret, graph);
}

static CUresult add_copy(CUgraphNode *ret, CUgraph graph, const CUgraphNode *before, size_t n,
                         const CUDA_MEMCPY3D *copy, CUcontext ctx)
{
    (void)before, (void)n, (void)copy, (void)ctx;
    return add_any(ret, graph);
}

static CUresult set_attribute(CUgraphNode node, CUkernelNodeAttrID id,
                              const CUkernelNodeAttrValue *value)
{
    (void)node, (void)id, (void)value;
    return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *ret, CUgraph graph, unsigned long long flags)
{
    struct exec *exec = calloc(1, sizeof(*exec));

    (void)flags;
    exec->n = ((struct exec *)(void *)graph)->n;
    machine.now += exec->n * machine.costs.instantiate;
    machine.nodes_built += exec->n;
    *ret = (CUgraphExec)(void *)exec;
    return CUDA_SUCCESS;
}

static CUresult upload(CUgraphExec exec, CUstream stream)
{
    (void)stream;
    machine.now += ((struct exec *)(void *)exec)->n * machine.costs.upload;
    return CUDA_SUCCESS;
}

static CUresult exec_destroy(CUgraphExec exec)
{
    machine.now += machine.costs.destroy;
    free(exec);
    return CUDA_SUCCESS;
}

static CUresult update_any(CUgraphExec exec)
{
    machine.now += machine.costs.update;
    machine.updates++;
    ((struct exec *)(void *)exec)->n_updated++;
    return CUDA_SUCCESS;
}

static CUresult update_kernel(CUgraphExec exec, CUgraphNode node,
                              const CUDA_KERNEL_NODE_PARAMS *params)
{
    (void)node, (void)params;
    return update_any(exec);
}

static CUresult update_copy(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy,
                            CUcontext ctx)
{
    (void)node, (void)copy, (void)ctx;
    return update_any(exec);
}

static void launch_nodes(uint32_t n, uint32_t n_updated)
{
    machine.graph_launches++;
    machine.now += machine.costs.graph_launch;
    submit(n * machine.costs.node + n_updated * machine.costs.updated, machine.costs.graph);
}

static CUresult launch_graph(CUgraphExec exec, CUstream stream)
{
    struct exec *what = (void *)exec;

    (void)stream;
    launch_nodes(what->n, what->n_updated);
    what->n_updated = 0;
    return CUDA_SUCCESS;
}

static void fill_driver(void)
{
#define AG_HOOK(base, symbol, since, flavour, need, flush) \
    *(void **)&ag_cu.symbol = (void *)(uintptr_t)unexpected;
#define AG_CALL AG_HOOK
#include "interpose/core/driver/hooks.def"
    ag_cu.cuLaunchKernel = launch_kernel;
    ag_cu.cuMemcpyHtoDAsync_v2 = copy_to_device;
    ag_cu.cuStreamIsCapturing = is_capturing;
    ag_cu.cuStreamQuery = query;
    ag_cu.cuGraphCreate = graph_create;
    ag_cu.cuGraphDestroy = graph_destroy;
    ag_cu.cuGraphAddKernelNode_v2 = add_kernel;
    ag_cu.cuGraphAddMemcpyNode = add_copy;
    ag_cu.cuGraphKernelNodeSetAttribute = set_attribute;
    ag_cu.cuGraphInstantiateWithFlags = instantiate;
    ag_cu.cuGraphUpload = upload;
    ag_cu.cuGraphLaunch = launch_graph;
    ag_cu.cuGraphExecDestroy = exec_destroy;
    ag_cu.cuGraphExecKernelNodeSetParams_v2 = update_kernel;
    ag_cu.cuGraphExecMemcpyNodeSetParams = update_copy;
}

/* --- what replay asks of the rest of the library --- */

struct ag_context *ag_context_current(void)
{
    return &context;
}

bool ag_context_is_inside(void)
{
    return false;
}

CUresult ag_context_make_current(struct ag_context *which, bool *ret_pushed)
{
    (void)which;
    *ret_pushed = false;
    return CUDA_SUCCESS;
}

void ag_context_restore(bool pushed)
{
    (void)pushed;
}

bool ag_error_is_sticky(CUresult result)
{
    (void)result;
    return false;
}

void ag_pressure_ask(void (*give_back)(void))
{
    (void)give_back;
}

bool ag_pressure_relieve_for_withheld(void)
{
    return false;
}

_Atomic bool ag_cache_anything_kept;

_Atomic unsigned ag_captures_open;
struct ag_capture_guard ag_capture_guard[AG_SLOTS];

CUstreamCaptureMode ag_capture_relax(void)
{
    return CU_STREAM_CAPTURE_MODE_RELAXED;
}

void ag_capture_restore(CUstreamCaptureMode previous)
{
    (void)previous;
}

CUresult ag_fence_wait_on_host(CUevent event)
{
    (void)event;
    return CUDA_SUCCESS;
}

const char *ag_driver_error_name(CUresult result)
{
    (void)result;
    return "an error";
}

/* No operation comes late here. */
void ag_watchdog_configure(uint64_t hold_ns, bool (*look)(void))
{
    (void)hold_ns, (void)look;
}

bool ag_stalled_submit(void)
{
    return false;
}

void ag_watchdog_start(void)
{
}

void ag_params_prepare(void)
{
}

bool ag_watchdog_wake(void)
{
    return true;
}

void ag_watchdog_wait_at_exit(uint64_t timeout_ns)
{
    (void)timeout_ns;
}

void ag_watchdog_begin_child(void)
{
}

enum ag_verify ag_verify_segment(struct ag_context *which, struct ag_graph *graph,
                                 const struct ag_op *ops, uint32_t n, CUstream stream,
                                 uint32_t *ret_updated)
{
    (void)which, (void)graph, (void)ops, (void)n, (void)stream, (void)ret_updated;
    return AG_VERIFY_SKIPPED;
}

static const struct {
    struct ag_layout layout;
    struct ag_param params[3];
} three = {{.n = 3, .total = 24}, {{0, 8}, {8, 8}, {16, 8}}};

const struct ag_layout *ag_params_of(CUfunction function)
{
    (void)function;
    return &three.layout;
}

const void *ag_params_buffer(void **extra, size_t *ret_bytes)
{
    (void)extra, (void)ret_bytes;
    return NULL;
}

/* --- the program --- */

static void complain(enum ag_log_level level, const char *line)
{
    CHECK_SAID(false, "%s (%d)", line, (int)level);
}

void machine_begin(const char *const *settings)
{
    static struct ag_options options;
    static char text[16][128];
    char *environment[17] = {"ALLOGRAFT_GRAPH=all"};
    unsigned n = 1;

    for (; settings && *settings && n < N_OF(text); n++, settings++) {
        snprintf(text[n], sizeof(text[n]), "ALLOGRAFT_GRAPH_%s", *settings);
        environment[n] = text[n];
    }
    fill_driver();
    ag_replay_begin_child(); /* nothing is known of what was before */
    CHECK(ag_options_read(environment, &options, complain) == 0);
    machine = (struct machine){.costs = machine.costs, .now = 1000000000};
    world.prepared = NULL;
    world.past = false;
    ag_replay_configure(&options);
    CHECK(ag_replay_on());
}

static void retire(struct ag_stream *stream, void *data)
{
    (void)data;
    ag_replay_stream_dying(stream->id.handle);
}

void machine_end(void)
{
    ag_stream_each(retire, NULL);
}

CUstream machine_stream(void)
{
    CUstream stream = (CUstream)(uintptr_t)(0x1000 + 16 * ++world.n_streams);

    machine.now += machine.costs.create;
    ag_replay_stream_created(stream, CU_STREAM_NON_BLOCKING, 0);
    return stream;
}

void machine_destroy(CUstream stream)
{
    ag_replay_stream_dying(stream);
    machine.now += machine.costs.end;
}

void machine_go_past(bool past)
{
    world.past = past;
}

static struct ag_stream *enter(CUstream stream)
{
    struct ag_stream *state = NULL;

    machine.now += machine.costs.program;
    if (!world.past)
        state = ag_replay_enter(stream, false);
    if (state && stream != world.prepared)
        machine.now += machine.costs.prepared;
    if (state)
        world.prepared = stream;
    return state;
}

static bool take(struct ag_stream *state)
{
    bool withheld = ag_replay_take(state);

    machine.now += withheld ? machine.costs.withheld : machine.costs.inspected;
    return withheld;
}

void machine_launch(CUstream stream, unsigned function, uint64_t a, uint64_t b, uint64_t c)
{
    CUfunction handle = (CUfunction)(uintptr_t)(0x100000 + 64 * function);
    void *params[] = {&a, &b, &c};
    struct ag_stream *state = enter(stream);

    if (state) {
        struct ag_op *op = ag_replay_op(state);
        const struct ag_kernel_call call = {
            .function = handle, .grid = {1, 1, 1}, .block = {1, 1, 1}, .params = params};

        CHECK(op && ag_op_kernel(op, &call, &three.layout));
        if (take(state))
            return;
    }
    OK(ag_cu.cuLaunchKernel(handle, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

void machine_copy(CUstream stream, uint64_t to, uint64_t from, uint64_t bytes)
{
    struct ag_stream *state = enter(stream);

    if (state) {
        struct ag_op *op = ag_replay_op(state);

        CHECK(op && ag_op_copy(op, to, CU_MEMORYTYPE_DEVICE, from, CU_MEMORYTYPE_HOST, bytes));
        if (take(state))
            return;
    }
    OK(ag_cu.cuMemcpyHtoDAsync_v2(to, (const void *)(uintptr_t)from, bytes, stream));
}

void machine_free(void)
{
    if (!world.past)
        ag_replay_flush_all(AG_FLUSH_FREE);
    machine.now += machine.costs.program;
}

void machine_wait(CUstream stream)
{
    if (!world.past && !ag_replay_is_on_fast_path(stream))
        ag_replay_flush_stream(stream, false, AG_FLUSH_STREAM);
    if (machine.busy_until > machine.now)
        machine.now = machine.busy_until;
    machine.now += machine.costs.wait;
}

void machine_launch_own(uint32_t n)
{
    launch_nodes(n, 0);
}
