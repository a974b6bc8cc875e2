/* Every call of the driver that building, updating and launching makes, failing in its turn:
 * whoever submits one by one what a graph could not take loses nothing and does nothing twice. */
#include "world.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 24, ITERATIONS = 12, NOT_REACHED = 42 };

static const char *const symbols[] = {
    "cuGraphCreate",
    "cuGraphDestroy",
    "cuGraphAddKernelNode_v2",
    "cuGraphAddMemcpyNode",
    "cuGraphAddMemsetNode",
    "cuGraphAddDependencies_v2",
    "cuGraphKernelNodeSetAttribute",
    "cuGraphInstantiateWithFlags",
    "cuGraphUpload",
    "cuGraphLaunch",
    "cuGraphExecDestroy",
    "cuGraphExecKernelNodeSetParams_v2",
    "cuGraphExecMemcpyNodeSetParams",
    "cuGraphExecMemsetNodeSetParams",
};

static struct made made[N];
static struct ag_op ops[N];

/* As the replayer does: a graph where there is one, built again after some iterations where not. */
static void run_iterations(struct script script, uint64_t chance_state, bool as_graphs)
{
    struct ag_graph *graph = NULL;
    uint32_t updated;

    for (unsigned iteration = 0; iteration < ITERATIONS; iteration++) {
        script_make(&script, made, ops);
        if (as_graphs && !graph && iteration % 4 == 0)
            (void)script_build(ops, N, &graph);
        if (!graph) {
            script_submit(ops, N);
        } else if (ag_graph_launch(graph, ops, world.stream, &updated) != CUDA_SUCCESS) {
            script_submit(ops, N);
            ag_graph_destroy(graph);
            graph = NULL;
        }
        script_vary(&script, 3, &chance_state);
    }
    ag_graph_destroy(graph);
}

static int run(const char *symbol, unsigned n)
{
    static struct state before, after, again;
    struct script script;
    uint64_t chance_state = 5;
    char fault[100];

    (void)snprintf(fault, sizeof(fault), "%s:%u:%d", symbol, n, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(!setenv("SIM_FAIL", fault, 1));
    world_open();
    script_random(&script, N, &chance_state);
    for (unsigned i = 0; i < N_WHATS; i++) /* each kind is there, and two that may overlap */
        script.what[i] = (enum what)i;
    script.what[WHAT_COOPERATIVE + 1] = WHAT_OVERLAP;
    script.what[N - 1] = WHAT_DEVICE_COPY;
    world_scramble(&chance_state);
    world_read(&before);
    run_iterations(script, chance_state, false);
    world_read(&after);
    world_write(&before);
    run_iterations(script, chance_state, true);
    world_read(&again);
    CHECK_SAID(!memcmp(&after, &again, sizeof(after)), "SIM_FAIL=%s", fault);
    CHECK_SAID(!sim_violations(), "SIM_FAIL=%s: %s", fault, sim_last_violation());
    return sim_calls(symbol) < n ? NOT_REACHED : 0;
}

int main(void)
{
    unsigned n_runs = 0;

    for (size_t i = 0; i < N_OF(symbols); i++) {
        int status = 0;

        for (unsigned n = 1; !status && n < 200; n++, n_runs++) {
            pid_t child = fork();

            if (!child)
                return run(symbols[i], n);
            CHECK(child > 0 && waitpid(child, &status, 0) == child);
            CHECK_SAID(WIFEXITED(status) && (!status || WEXITSTATUS(status) == NOT_REACHED),
                       "SIM_FAIL=%s:%u ended with %x", symbols[i], n, (unsigned)status);
            CHECK_SAID(!status || n > 1, "%s is never called", symbols[i]);
        }
    }
    printf("%u runs\n", n_runs);
    return 0;
}
