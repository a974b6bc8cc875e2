/* graph/replay/builder.c and graph/replay/submit.c: the same bytes one by one and as a graph,
 * whatever changes from launch to launch; what nodes are given; what cannot be done. */
#include "world.h"

#include <string.h>
#include <unistd.h>

#include "graph/record/memory.h"

static uint64_t seed;
static struct made made[MAX_OPS], other_made[MAX_OPS];
static struct ag_op ops[MAX_OPS], other_ops[MAX_OPS];

static uint32_t n_different(const struct ag_op *a, const struct ag_op *b, uint32_t n)
{
    uint32_t different = 0;

    for (uint32_t i = 0; i < n; i++)
        different += memcmp(a[i].payload, b[i].payload, a[i].payload_bytes) != 0;
    return different;
}

static void expect_same(const struct state *expected, const char *when)
{
    static struct state state;

    world_read(&state);
    for (unsigned i = 0; i < AREA_BYTES; i++) {
        CHECK_SAID(state.area[0][i] == expected->area[0][i], "%s, first area at %u", when, i);
        CHECK_SAID(state.area[1][i] == expected->area[1][i], "%s, second area at %u", when, i);
        CHECK_SAID(state.pinned[i] == expected->pinned[i], "%s, host memory at %u", when, i);
    }
    CHECK_SAID(state.quiet == expected->quiet, "%s, kernels without parameters", when);
    CHECK_SAID(!sim_violations(), "%s: %s", when, sim_last_violation());
}

/* Waits between launches: only what changed is updated. */
static void test_updates(uint32_t n)
{
    static struct state before, after;
    struct script script;
    struct ag_graph *graph;

    script_random(&script, n, &seed);
    script_make(&script, other_made, other_ops);
    OK(script_build(other_ops, n, &graph));
    for (unsigned iteration = 0; iteration < 12; iteration++) {
        uint32_t updated = 1000;

        script_make(&script, made, ops);
        world_scramble(&seed);
        world_read(&before);
        script_submit(ops, n);
        world_read(&after);
        world_write(&before);
        OK(ag_graph_launch(graph, ops, world.stream, &updated));
        expect_same(&after, "a launch");
        CHECK_SAID(updated == n_different(ops, other_ops, n), "%u updated", updated);
        script_make(&script, other_made, other_ops);
        script_vary(&script, iteration % 9, &seed);
    }
    CHECK(ag_graph_bytes(graph) > 0);
    ag_graph_destroy(graph);
}

/* No waiting: updated while it runs. It is uploaded once, before its first update. */
static void test_flight(uint32_t n)
{
    static struct state before, after;
    struct script first, second;
    struct ag_graph *graph;
    unsigned long n_made = sim_calls("cuGraphInstantiateWithFlags");
    unsigned long n_uploads = sim_calls("cuGraphUpload");
    uint32_t updated;

    script_random(&first, n, &seed);
    second = first;
    script_vary(&second, 8, &seed);
    script_make(&first, made, ops);
    script_make(&second, other_made, other_ops);
    world_read(&before);
    for (unsigned i = 0; i < 40; i++)
        script_submit(i % 2 ? ops : other_ops, n);
    world_read(&after);
    world_write(&before);
    OK(script_build(ops, n, &graph));
    CHECK(sim_calls("cuGraphUpload") == n_uploads);
    for (unsigned i = 0; i < 40; i++)
        OK(ag_graph_launch(graph, i % 2 ? ops : other_ops, world.stream, &updated));
    expect_same(&after, "launches in flight");
    CHECK(sim_calls("cuGraphInstantiateWithFlags") == n_made + 1);
    CHECK(sim_calls("cuGraphUpload") == n_uploads + 1);
    ag_graph_destroy(graph);
    expect_same(&after, "the graph destroyed");
}

/* Destroyed while its work is under way. */
static void test_destroyed_in_flight(void)
{
    static struct state before, after;
    struct script script;
    struct ag_graph *graph;
    uint32_t updated;

    script_random(&script, 20, &seed);
    script_make(&script, made, ops);
    world_read(&before);
    script_submit(ops, 20);
    world_read(&after);
    world_write(&before);
    OK(script_build(ops, 20, &graph));
    OK(ag_graph_launch(graph, ops, world.stream, &updated));
    ag_graph_destroy(graph);
    expect_same(&after, "a graph destroyed under way");
}

static struct ag_graph *build_of(const enum what *what, uint32_t n)
{
    struct ag_graph *graph;

    for (uint32_t i = 0; i < n; i++) {
        world_make(&made[i], what[i], i, i);
        ops[i] = made[i].op;
    }
    OK(script_build(ops, n, &graph));
    return graph;
}

static CUlaunchAttributeValue attribute_of(CUgraphNode node, CUlaunchAttributeID id)
{
    CUlaunchAttributeValue value;

    OK(cuGraphKernelNodeGetAttribute(node, id, &value));
    return value;
}

static void test_attributes(void)
{
    static const enum what what[] = {WHAT_MIX, WHAT_PRIORITY, WHAT_COOPERATIVE, WHAT_KERNEL};
    CUgraphNode nodes[4];
    size_t n = 4;
    struct ag_graph *graph = build_of(what, 4);

    OK(cuGraphGetNodes(ag_graph_handle(graph), nodes, &n));
    CHECK(n == 4);
    CHECK(attribute_of(nodes[0], CU_LAUNCH_ATTRIBUTE_PRIORITY).priority == -1);
    CHECK(attribute_of(nodes[1], CU_LAUNCH_ATTRIBUTE_PRIORITY).priority == -2);
    CHECK(attribute_of(nodes[2], CU_LAUNCH_ATTRIBUTE_PRIORITY).priority == -1);
    CHECK(!attribute_of(nodes[0], CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative);
    CHECK(attribute_of(nodes[2], CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative == 1);
    ag_graph_destroy(graph);
}

static bool has_edge(CUgraph graph, unsigned from, unsigned to, bool programmatic)
{
    CUgraphNode nodes[16], begin[32], end[32];
    CUgraphEdgeData data[32];
    size_t n_nodes = 16, n = 32;

    OK(cuGraphGetNodes(graph, nodes, &n_nodes));
    OK(cuGraphGetEdges_v2(graph, begin, end, data, &n));
    for (size_t i = 0; i < n; i++) {
        if (begin[i] == nodes[from] && end[i] == nodes[to])
            return (data[i].type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC &&
                    data[i].from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC) == programmatic;
    }
    return false;
}

/* Whatever starts finds all but the one before it done, and that one too where it did not say
 * otherwise. */
static void test_edges(void)
{
    static const enum what what[] = {WHAT_OVERLAP, WHAT_OVERLAP,     WHAT_OVERLAP,
                                     WHAT_MIX,     WHAT_DEVICE_COPY, WHAT_OVERLAP};
    struct ag_graph *graph = build_of(what, 6);
    CUgraph handle = ag_graph_handle(graph);
    size_t n = 0;

    CHECK(has_edge(handle, 0, 1, true));
    CHECK(has_edge(handle, 1, 2, true) && has_edge(handle, 0, 2, false));
    CHECK(has_edge(handle, 2, 3, false) && has_edge(handle, 1, 3, false));
    CHECK(has_edge(handle, 3, 4, false) && has_edge(handle, 4, 5, false));
    OK(cuGraphGetEdges_v2(handle, NULL, NULL, NULL, &n));
    CHECK_SAID(n == 7, "%zu edges", n);
    ag_graph_destroy(graph);
    /* A driver that knows no such edges. */
    ag_cu.cuGraphAddDependencies_v2 = NULL;
    graph = build_of(what, 6);
    OK(cuGraphGetEdges(ag_graph_handle(graph), NULL, NULL, &n));
    CHECK_SAID(n == 5, "%zu edges", n);
    ag_graph_destroy(graph);
    ag_cu.cuGraphAddDependencies_v2 = cuGraphAddDependencies_v2;
}

static CUresult added_alone(const struct ag_graph_params *params, const struct made *made,
                            unsigned times)
{
    CUresult result;
    struct ag_graph *graph = ag_graph_begin(params, &result);

    CHECK(graph && result == CUDA_SUCCESS);
    while (times-- && result == CUDA_SUCCESS)
        result = ag_graph_add(graph, &made->op);
    ag_graph_destroy(graph);
    return result;
}

/* Nodes copy and fill something; a graph takes as many operations as were said. */
static void test_refused(void)
{
    struct ag_graph_params params = {.context = world.context, .n_ops = 1, .n_bytes = 24};
    struct made empty;

    world_make(&empty, WHAT_DEVICE_COPY, 1, 1);
    ((struct ag_copy_payload *)(void *)empty.payload)->bytes = 0;
    CHECK(added_alone(&params, &empty, 1) == CUDA_ERROR_INVALID_VALUE);
    world_make(&empty, WHAT_FILL, 1, 1);
    ((struct ag_fill_payload *)(void *)empty.payload)->count = 0;
    CHECK(added_alone(&params, &empty, 1) == CUDA_ERROR_INVALID_VALUE);
    world_make(&empty, WHAT_FILL, 1, 1);
    CHECK(added_alone(&params, &empty, 1) == CUDA_SUCCESS);
    CHECK(added_alone(&params, &empty, 2) == CUDA_ERROR_INVALID_VALUE);
    params.n_bytes = 16;
    CHECK(added_alone(&params, &empty, 1) == CUDA_ERROR_INVALID_VALUE);
}

/* An update that the driver does not take: nothing has been submitted, and the graph stays dead. */
static void test_dead(void)
{
    static const enum what what[] = {WHAT_MIX, WHAT_FILL, WHAT_MIX};
    static struct state before;
    struct ag_graph *graph = build_of(what, 3);
    uint32_t updated = 1000;
    unsigned long n_launches = sim_calls("cuGraphLaunch");
    struct ag_fill_payload *fill = (void *)made[1].payload;

    world_read(&before);
    ops[0].payload[0]++;
    fill->count = 0; /* no driver takes it */
    CHECK(ag_graph_launch(graph, ops, world.stream, &updated) == CUDA_ERROR_INVALID_VALUE);
    expect_same(&before, "a launch refused");
    world_make(&made[1], WHAT_FILL, 1, 1);
    CHECK(ag_graph_launch(graph, ops, world.stream, &updated) != CUDA_SUCCESS);
    expect_same(&before, "a dead graph launched");
    CHECK(updated == 1000 && sim_calls("cuGraphLaunch") == n_launches);
    ag_graph_destroy(graph);
}

/* Freed, and allocated again at the same address. */
static void allocate_anew(CUdeviceptr memory)
{
    CUdeviceptr other[64];
    unsigned n = 0;

    OK(cuCtxSynchronize());
    OK(cuMemFree_v2(memory));
    ag_memory_forget();
    do {
        CHECK(n < 64);
        OK(cuMemAlloc_v2(&other[n], AREA_BYTES));
    } while (other[n++] != memory);
    while (--n)
        OK(cuMemFree_v2(other[n - 1]));
}

/* The nodes that name memory are set again behind a free, once, whether or not the graph was
 * launched before; no others are, and none counts as updated. */
static void test_freed_since(bool launched)
{
    static const enum what what[] = {WHAT_MIX, WHAT_FILL, WHAT_MIX};
    struct ag_fill_payload *fill = (void *)made[1].payload;
    unsigned long n_fills, n_kernels = sim_calls("cuGraphExecKernelNodeSetParams_v2");
    unsigned char byte = 0;
    struct ag_graph *graph;
    CUdeviceptr memory;
    uint32_t updated = 0;

    for (uint32_t i = 0; i < 3; i++) {
        world_make(&made[i], what[i], i, i);
        ops[i] = made[i].op;
    }
    OK(cuMemAlloc_v2(&memory, AREA_BYTES));
    fill->to = memory;
    OK(script_build(ops, 3, &graph));
    n_fills = sim_calls("cuGraphExecMemsetNodeSetParams");
    if (launched)
        OK(ag_graph_launch(graph, ops, world.stream, &updated));
    for (unsigned i = 1; i <= 3; i++) {
        allocate_anew(memory);
        for (unsigned j = 0; j < 3; j++) {
            OK(ag_graph_launch(graph, ops, world.stream, &updated));
            CHECK(!updated && sim_calls("cuGraphExecMemsetNodeSetParams") == n_fills + i);
        }
        OK(cuStreamSynchronize(world.stream));
        OK(cuMemcpyDtoH_v2(&byte, memory, 1));
        CHECK(byte == (unsigned char)fill->value);
    }
    CHECK(sim_calls("cuGraphExecKernelNodeSetParams_v2") == n_kernels);
    CHECK_SAID(!sim_violations(), "%s", sim_last_violation());
    ag_graph_destroy(graph);
    OK(cuMemFree_v2(memory));
}

/* The driver sets no copy of several rows: behind a free such a graph is refused, and submits
 * nothing. */
static void test_rows_freed_since(void)
{
    static const enum what what[] = {WHAT_MIX, WHAT_SHAPED};
    static struct state before;
    struct ag_graph *graph = build_of(what, 2);
    uint32_t updated;

    OK(ag_graph_launch(graph, ops, world.stream, &updated));
    world_read(&before);
    ag_memory_forget();
    CHECK(ag_graph_launch(graph, ops, world.stream, &updated) == CUDA_ERROR_INVALID_VALUE);
    expect_same(&before, "a launch refused");
    ag_graph_destroy(graph);
}

static void test_missing(void)
{
    CHECK(!ag_graph_missing());
    ag_cu.cuGraphLaunch = NULL;
    CHECK(ag_graph_missing() && !strcmp(ag_graph_missing(), "cuGraphLaunch"));
    ag_cu.cuGraphLaunch = cuGraphLaunch;
    ag_cu.cuFuncGetParamInfo = NULL;
    CHECK(ag_graph_missing() && !strcmp(ag_graph_missing(), "cuFuncGetParamInfo"));
    ag_cu.cuFuncGetParamInfo = cuFuncGetParamInfo;
    CHECK(!ag_graph_missing());
}

static void test_dump(void)
{
    static const enum what what[] = {WHAT_MIX, WHAT_FILL};
    struct ag_graph *graph = build_of(what, 2);
    char folder[] = "graph-dump-XXXXXX", path[100];

    CHECK(mkdtemp(folder));
    CHECK(!ag_graph_dump(graph, folder, 7));
    (void)snprintf(path, sizeof(path), "%s/allograft-%ld-7.dot", folder, (long)getpid());
    CHECK_SAID(!unlink(path), "%s", path);
    CHECK(!rmdir(folder));
    CHECK(ag_graph_dump(graph, folder, 8) < 0);
    ag_graph_destroy(graph);
}

/* Prepared for payloads that it had before, in pieces, while it runs: the launch in flight is not
 * changed, and the next one is right, whether its payloads were foreseen or not. */
static void test_prepared(uint32_t n)
{
    static struct state before, after;
    static unsigned char kept[MAX_OPS * AG_MAX_PAYLOAD];
    struct script script, next;
    struct ag_graph *graph;
    uint32_t bytes, updated, n_kernels = 0;

    script_random(&script, n, &seed);
    script_make(&script, made, ops);
    OK(script_build(ops, n, &graph));
    for (uint32_t i = 0; i < n; i++)
        n_kernels += ag_op_kind(&ops[i]) == AG_OP_KERNEL;
    for (unsigned iteration = 0; iteration < 12; iteration++) {
        const unsigned char *payloads = ag_graph_payloads(graph, &bytes);
        uint32_t at = 0, prepared = 0, piece;
        bool foreseen = iteration % 3;

        memcpy(kept, payloads, bytes);
        next = script;
        script_vary(&next, 4, &seed);
        script_make(&next, other_made, other_ops);
        world_scramble(&seed);
        world_read(&before);
        script_submit(other_ops, n);
        script_submit(foreseen ? ops : other_ops, n);
        world_read(&after);
        world_write(&before);
        OK(ag_graph_launch(graph, other_ops, world.stream, &updated));
        for (bool goes_on = true; goes_on; prepared += piece) {
            goes_on = ag_graph_prepare(graph, kept, &at, 3, &piece);
            CHECK(piece <= 3 && at <= n);
        }
        CHECK(prepared <= n_kernels && prepared <= n_different(ops, other_ops, n));
        OK(ag_graph_launch(graph, foreseen ? ops : other_ops, world.stream, &updated));
        expect_same(&after, "a launch that was prepared");
        CHECK(updated == (foreseen ? n_different(ops, other_ops, n) - prepared : prepared));
        if (!foreseen) {
            script = next;
            script_make(&script, made, ops);
        }
    }
    ag_graph_destroy(graph);
}

static void test_all_on(CUstream stream)
{
    world.stream = stream;
    for (uint32_t n = 1; n <= MAX_OPS; n = n * 3 / 2 + 1)
        test_updates(n);
    for (uint32_t n = 1; n <= 40; n = n * 3 + 1) {
        test_flight(n);
        test_prepared(n);
    }
    test_destroyed_in_flight();
}

int main(void)
{
    size_t before = 0, after = 0;

    seed = getenv("SIM_SEED") ? strtoull(getenv("SIM_SEED"), NULL, 10) : 1;
    world_open();
    OK(cuMemGetInfo_v2(&before, NULL));
    test_all_on(CU_STREAM_LEGACY);
    test_all_on(CU_STREAM_PER_THREAD);
    OK(cuStreamCreateWithPriority(&world.stream, CU_STREAM_NON_BLOCKING, -1));
    test_all_on(world.stream);
    test_attributes();
    test_edges();
    test_refused();
    test_dead();
    test_freed_since(false);
    test_freed_since(true);
    test_rows_freed_since();
    test_missing();
    test_dump();
    ag_graph_destroy(NULL);
    ag_graph_forget(NULL);
    OK(cuMemGetInfo_v2(&after, NULL));
    CHECK_SAID(before == after, "%zu bytes were free, and %zu are", before, after);
    CHECK(!sim_violations());
    return 0;
}
