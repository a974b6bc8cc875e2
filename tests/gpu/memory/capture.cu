/*
 * Memory calls while a stream is being captured: for every capture mode, from the capturing and
 * from another thread, prints the codes, what became of the capture, and whether its replay is
 * right. RELAXED captures must survive and replay.
 */
#include "tests/gpu/check.h"

#include <thread>
#include <vector>

__global__ void add_one(unsigned *p, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * (size_t)blockDim.x)
        p[i] += 1;
}

static const size_t n_words = 64 * KIB;

enum op { OP_MALLOC, OP_FREE, OP_BOTH, OP_PITCH, OP_INFO, N_OPS };
static const char *const op_names[N_OPS] = {"malloc", "free", "both", "pitch", "info"};

static void *old_memory, *new_memory; /* from before the capture; from inside it */

static cudaError_t first_error(cudaError_t a, cudaError_t b)
{
    return a != cudaSuccess ? a : b;
}

static cudaError_t perform(enum op op)
{
    size_t a, b;
    cudaError_t code = cudaSuccess;
    switch (op) {
    case OP_MALLOC:
        code = cudaMalloc(&new_memory, 300000);
        break;
    case OP_PITCH:
        code = cudaMallocPitch(&new_memory, &a, 1000, 10);
        break;
    case OP_FREE:
        code = cudaFree(old_memory);
        if (code == cudaSuccess)
            old_memory = NULL;
        break;
    case OP_BOTH:
        code = cudaMalloc(&new_memory, 70000);
        if (code == cudaSuccess)
            code = first_error(cudaFree(new_memory), cudaMalloc(&new_memory, 70000));
        break;
    default:
        code = cudaMemGetInfo(&a, &b);
    }
    (void)cudaGetLastError();
    return code;
}

static void judge_replay(cudaGraph_t graph, cudaStream_t s, unsigned *words)
{
    cudaGraphExec_t exec;
    std::vector<unsigned> back(n_words);
    OK(cudaMemset(words, 0, n_words * sizeof *words));
    OK(cudaDeviceSynchronize());
    OK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++)
        OK(cudaGraphLaunch(exec, s));
    OK(cudaStreamSynchronize(s));
    OK(cudaMemcpy(back.data(), words, n_words * sizeof *words, cudaMemcpyDeviceToHost));
    printf(", replay %s\n", count_wrong(back.data(), n_words, 6) ? "wrong" : "right");
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
}

static void scenario(cudaStreamCaptureMode mode, bool other_thread, enum op op)
{
    static const char *const modes[] = {"global", "thread-local", "relaxed"};
    cudaStream_t s;
    cudaGraph_t graph = NULL;
    unsigned *words;
    cudaError_t code = cudaSuccess;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(cudaMalloc(&words, n_words * sizeof *words));
    OK(cudaMalloc(&old_memory, 500000));
    new_memory = NULL;
    OK(cudaStreamBeginCapture(s, mode));
    add_one<<<16, 256, 0, s>>>(words, n_words);
    if (other_thread) {
        std::thread t([&] { code = perform(op); });
        t.join();
    } else {
        code = perform(op);
    }
    add_one<<<16, 256, 0, s>>>(words, n_words);
    (void)cudaGetLastError(); /* the second kernel is refused when the capture is dead */
    cudaError_t end = cudaStreamEndCapture(s, &graph);
    (void)cudaGetLastError();
    printf("%s, %s thread, %s: %s, capture %s", modes[mode], other_thread ? "other" : "same",
           op_names[op], cudaGetErrorName(code), cudaGetErrorName(end));
    if (end == cudaSuccess && graph)
        judge_replay(graph, s, words);
    else
        printf("\n");
    printf("  freed after it: new %s", cudaGetErrorName(cudaFree(new_memory)));
    printf(", old %s\n", cudaGetErrorName(cudaFree(old_memory)));
    OK(cudaFree(words));
    OK(cudaStreamDestroy(s));
    OK(cudaDeviceSynchronize());
}

/* Memory taken during a relaxed capture is used by the captured work itself. */
static void use_what_was_taken(void)
{
    cudaStream_t s;
    cudaGraph_t graph;
    unsigned *words;
    void *old;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(cudaMalloc(&old, n_words * sizeof *words));
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    OK(cudaFree(old));
    OK(cudaMalloc(&words, n_words * sizeof *words));
    add_one<<<16, 256, 0, s>>>(words, n_words);
    add_one<<<16, 256, 0, s>>>(words, n_words);
    OK(cudaStreamEndCapture(s, &graph));
    printf("memory taken inside");
    judge_replay(graph, s, words);
    OK(cudaFree(words));
    OK(cudaStreamDestroy(s));
}

int main()
{
    cudaStreamCaptureMode modes[] = {cudaStreamCaptureModeRelaxed, cudaStreamCaptureModeThreadLocal,
                                     cudaStreamCaptureModeGlobal};
    unsigned *p;
    OK(cudaMalloc(&p, 4));
    add_one<<<1, 1>>>(p, 1);
    OK(cudaDeviceSynchronize());
    OK(cudaFree(p));
    use_what_was_taken();
    for (cudaStreamCaptureMode mode : modes)
        for (int other = 0; other < 2; other++)
            for (int op = 0; op < N_OPS; op++)
                scenario(mode, other, (enum op)op);
    use_what_was_taken();
    return 0;
}
