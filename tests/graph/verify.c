/* graph/replay/verify.c: right graphs are found right and wrong ones wrong, and in any case, also
 * when calls of the driver fail, the memory ends as if the operations had run once. */
#include "graph/replay/verify.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "policy/answers/answers.h"
#include "policy/order/capture.h"
#include "policy/order/fence.h"
#include "world.h"

enum { N = 12, NOT_REACHED = 42 };

/* What may be done twice. */
static const enum what possible[] = {
    WHAT_MIX,       WHAT_BLEND,   WHAT_KERNEL,      WHAT_BUFFER,
    WHAT_PRIORITY,  WHAT_OVERLAP, WHAT_COOPERATIVE, WHAT_DEVICE_COPY,
    WHAT_TO_DEVICE, WHAT_SHAPED,  WHAT_FILL,        WHAT_FILL_SHAPED,
};
static const enum what impossible[] = {WHAT_TO_HOST, WHAT_HOST_COPY};

static struct made made[N];
static struct ag_op ops[N];
static bool is_busy;

/* policy/answers/answers.c: nothing is redirected here. */
CUresult ag_answer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    return ag_cu.cuPointerGetAttribute(data, attribute, address);
}

/* policy/order/fence.c, as far as it is wanted. */
bool ag_fence_wait_idle(struct ag_context *context, uint64_t timeout_ns)
{
    (void)context;
    (void)timeout_ns;
    return !is_busy && cuCtxSynchronize() == CUDA_SUCCESS;
}

/* policy/order/capture.c: nothing is captured here. */
CUstreamCaptureMode ag_capture_relax(void)
{
    return CU_STREAM_CAPTURE_MODE_RELAXED;
}

void ag_capture_restore(CUstreamCaptureMode previous)
{
    (void)previous;
}

static void write_script(struct script *script, uint64_t *seed)
{
    script_random(script, N, seed);
    for (unsigned i = 0; i < N; i++)
        script->what[i] = possible[chance_below(seed, N_OF(possible))];
}

static enum ag_verify verify_on(CUstream stream, struct ag_graph *graph)
{
    uint32_t updated = 0;

    return ag_verify_segment(NULL, graph, ops, N, stream, &updated);
}

static enum ag_verify verify(struct ag_graph *graph)
{
    return verify_on(world.stream, graph);
}

static void expect(const struct state *expected)
{
    static struct state state;

    world_read(&state);
    CHECK(!memcmp(&state, expected, sizeof(state)));
    CHECK_SAID(!sim_violations(), "%s", sim_last_violation());
}

/* Of a script that is written anew; its operations are in `ops`. */
static struct ag_graph *graph_of(struct script *script, uint64_t *seed)
{
    struct ag_graph *graph;

    write_script(script, seed);
    script_make(script, made, ops);
    OK(script_build(ops, N, &graph));
    return graph;
}

static void test_right(uint64_t *seed)
{
    static struct state before, after;
    struct script script;
    struct ag_graph *graph;

    graph = graph_of(&script, seed);
    for (unsigned iteration = 0; iteration < 8; iteration++) {
        script_make(&script, made, ops);
        world_scramble(seed);
        world_read(&before);
        script_submit(ops, N);
        world_read(&after);
        world_write(&before);
        CHECK(verify(graph) == AG_VERIFY_SAME);
        expect(&after);
        script_vary(&script, 4, seed);
    }
    ag_graph_destroy(graph);
}

static unsigned n_taken, n_given;

static bool is_private(CUstream stream)
{
    return stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD &&
           stream != world.stream;
}

static CUresult take_private(CUdeviceptr *ret_address, size_t size, CUstream stream)
{
    CHECK(is_private(stream));
    n_taken++;
    return cuMemAllocAsync(ret_address, size, stream);
}

static CUresult give_private(CUdeviceptr address, CUstream stream)
{
    CHECK(is_private(stream));
    n_given++;
    return cuMemFreeAsync(address, stream);
}

/* The legacy stream's graphs take no pool memory on it: the driver would keep threads that end
 * while their streams wait. */
static void test_legacy(uint64_t *seed)
{
    static struct state before, after;
    struct script script;
    struct ag_graph *graph;

    graph = graph_of(&script, seed);
    world_read(&before);
    script_submit(ops, N);
    world_read(&after);
    world_write(&before);
    ag_cu.cuMemAllocAsync = take_private;
    ag_cu.cuMemFreeAsync = give_private;
    CHECK(verify_on(NULL, graph) == AG_VERIFY_SAME && n_taken == 1 && n_given == 1);
    ag_cu.cuMemAllocAsync = cuMemAllocAsync;
    ag_cu.cuMemFreeAsync = cuMemFreeAsync;
    expect(&after);
    ag_graph_destroy(graph);
}

static void test_impossible(uint64_t *seed)
{
    static struct state before;
    struct script script;
    struct ag_graph *graph;

    for (unsigned i = 0; i < N_OF(impossible); i++) {
        write_script(&script, seed);
        script.what[chance_below(seed, N)] = impossible[i];
        script_make(&script, made, ops);
        OK(script_build(ops, N, &graph));
        world_read(&before);
        CHECK(verify(graph) == AG_VERIFY_SKIPPED);
        expect(&before);
        ag_graph_destroy(graph);
    }
    graph = graph_of(&script, seed);
    is_busy = true;
    CHECK(verify(graph) == AG_VERIFY_SKIPPED);
    is_busy = false;
    expect(&before);
    ag_graph_destroy(graph);
}

static CUresult lose_update(CUgraphExec exec, CUgraphNode node,
                            const CUDA_KERNEL_NODE_PARAMS_v2 *params)
{
    (void)exec;
    (void)node;
    (void)params;
    return CUDA_SUCCESS;
}

/* What the log says while `graph` is verified. */
static enum ag_verify verify_and_listen(struct ag_graph *graph, char *said, size_t room)
{
    int out = dup(STDERR_FILENO), file = memfd_create("log", 0);
    enum ag_verify answer;
    ssize_t n;

    CHECK(out >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0);
    answer = verify(graph);
    CHECK(dup2(out, STDERR_FILENO) >= 0);
    n = pread(file, said, room - 1, 0);
    CHECK(n >= 0);
    said[n] = 0;
    (void)close(file);
    (void)close(out);
    return answer;
}

/* A graph that misses an update. */
static void test_wrong(uint64_t *seed)
{
    static struct state before, after;
    char said[2000], base[40];
    struct script script;
    struct ag_graph *graph;

    write_script(&script, seed);
    script.what[N - 1] = WHAT_MIX;
    script_make(&script, made, ops);
    OK(script_build(ops, N, &graph));
    script.payload[N - 1]++;
    script_make(&script, made, ops);
    world_read(&before);
    script_submit(ops, N);
    world_read(&after);
    world_write(&before);
    ag_cu.cuGraphExecKernelNodeSetParams_v2 = lose_update;
    CHECK(verify_and_listen(graph, said, sizeof(said)) == AG_VERIFY_DIFFERENT);
    ag_cu.cuGraphExecKernelNodeSetParams_v2 = cuGraphExecKernelNodeSetParams_v2;
    expect(&after);
    CHECK_SAID(strstr(said, "allograft: ALLOGRAFT_GRAPH_VERIFY: ") == said, "%s", said);
    CHECK_SAID(strchr(said, '\n') == said + strlen(said) - 1, "%s", said);
    (void)snprintf(base, sizeof(base), "at %#llx of 4096 bytes", world.area[0]);
    if (!strstr(said, base))
        (void)snprintf(base, sizeof(base), "at %#llx of 4096 bytes", world.area[1]);
    CHECK_SAID(strstr(said, base), "%s", said);
    ag_graph_destroy(graph);
}

/* --- calls that fail --- */

static const char *const symbols[] = {
    "cuPointerGetAttribute", "cuMemAllocAsync",      "cuMemFreeAsync",
    "cuMemcpyDtoDAsync_v2",  "cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2",
    "cuMemcpy3DAsync_v2",    "cuGraphLaunch",        "cuGraphExecKernelNodeSetParams_v2",
    "cuLaunchKernel",        "cuLaunchKernelEx",     "cuStreamQuery",
    "cuStreamCreate",        "cuEventCreate",        "cuEventRecord",
    "cuStreamWaitEvent",
};

/* One verification, with `fault`; its memory into *ret_state. Without one: operation by operation.
 */
static int run(const char *symbol, unsigned n, struct state *ret_state)
{
    struct script script;
    struct ag_graph *graph;
    uint64_t seed = 3;
    uint32_t updated;
    char fault[100];

    if (symbol) {
        (void)snprintf(fault, sizeof(fault), "%s:%u:%d", symbol, n, CUDA_ERROR_OUT_OF_MEMORY);
        CHECK(!setenv("SIM_FAIL", fault, 1));
    }
    world_open();
    write_script(&script, &seed);
    for (unsigned i = 0; i < N; i++)
        script.what[i] = possible[i];
    world_scramble(&seed);
    script_make(&script, made, ops);
    OK(script_build(ops, N, &graph));
    script_vary(&script, 4, &seed);
    script_make(&script, made, ops);
    if (!symbol) {
        script_submit(ops, N);
    } else if (verify(graph) == AG_VERIFY_SKIPPED &&
               ag_graph_launch(graph, ops, world.stream, &updated) != CUDA_SUCCESS) {
        script_submit(ops, N);
    }
    world_read(ret_state);
    ag_graph_destroy(graph);
    CHECK_SAID(!sim_violations(), "%s", sim_last_violation());
    return symbol && sim_calls(symbol) < n ? NOT_REACHED : 0;
}

static int run_apart(const char *symbol, unsigned n, struct state *ret_state)
{
    pid_t child = fork();
    int status = 0;

    if (!child)
        _exit(run(symbol, n, ret_state));
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_SAID(WIFEXITED(status) && (!status || WEXITSTATUS(status) == NOT_REACHED),
               "SIM_FAIL=%s:%u ended with %x", symbol, n, (unsigned)status);
    return WEXITSTATUS(status);
}

static void test_faults(void)
{
    struct state *states =
        mmap(NULL, 2 * sizeof(*states), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(states != MAP_FAILED);
    CHECK(!run_apart(NULL, 0, &states[0]));
    for (size_t i = 0; i < N_OF(symbols); i++) {
        for (unsigned n = 1, status = 0; !status; n++) {
            status = (unsigned)run_apart(symbols[i], n, &states[1]);
            CHECK_SAID(!status || n > 1, "%s is never called", symbols[i]);
            CHECK_SAID(!memcmp(&states[0], &states[1], sizeof(states[0])), "SIM_FAIL=%s:%u",
                       symbols[i], n);
        }
    }
    (void)munmap(states, 2 * sizeof(*states));
}

int main(void)
{
    uint64_t seed = getenv("SIM_SEED") ? strtoull(getenv("SIM_SEED"), NULL, 10) : 1;

    test_faults();
    world_open();
    for (unsigned i = 0; i < 10; i++)
        test_right(&seed);
    test_legacy(&seed);
    test_impossible(&seed);
    for (unsigned i = 0; i < 10; i++)
        test_wrong(&seed);
    return 0;
}
