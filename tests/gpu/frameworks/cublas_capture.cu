/*
 * cuBLAS inside a stream capture: with its own workspace, with one that the program allocates
 * before, and with a handle (and its workspace) made while the capture is open. The library is
 * opened at run time; without it the program skips.
 */
#include "tests/gpu/check.h"

#include <dlfcn.h>
#include <vector>

typedef void *handle_t;
static int (*create)(handle_t *);
static int (*destroy)(handle_t);
static int (*set_stream)(handle_t, cudaStream_t);
static int (*set_workspace)(handle_t, void *, size_t);
static int (*sgemm)(handle_t, int, int, int, int, int, const float *, const float *, int,
                    const float *, int, const float *, float *, int);

static bool open_library(void)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
    void *library = NULL;
    for (const char *name : names)
        if (!library)
            library = dlopen(name, RTLD_NOW);
    if (!library)
        return false;
    create = (int (*)(handle_t *))dlsym(library, "cublasCreate_v2");
    destroy = (int (*)(handle_t))dlsym(library, "cublasDestroy_v2");
    set_stream = (int (*)(handle_t, cudaStream_t))dlsym(library, "cublasSetStream_v2");
    set_workspace = (int (*)(handle_t, void *, size_t))dlsym(library, "cublasSetWorkspace_v2");
    *(void **)&sgemm = dlsym(library, "cublasSgemm_v2");
    return create && destroy && set_stream && set_workspace && sgemm;
}

static const int n = 1024;
static const size_t matrix_bytes = (size_t)n * n * sizeof(float);
static float *a, *b, *c;

static void print_sum(const char *what)
{
    std::vector<float> back((size_t)n * n);
    uint64_t sum = 14695981039346656037ull;
    OK(cudaMemcpy(back.data(), c, matrix_bytes, cudaMemcpyDeviceToHost));
    for (float value : back) {
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        sum = (sum ^ bits) * 1099511628211ull;
    }
    printf("%s: %016llx\n", what, (unsigned long long)sum);
}

static int multiply(handle_t handle)
{
    const float one = 1, half = 0.5f;
    int code = 0;
    for (int i = 0; i < 3 && !code; i++) /* c = a b + c / 2, three times */
        code = sgemm(handle, 0, 0, n, n, n, &one, a, n, b, n, &half, c, n);
    return code;
}

static void replay(cudaGraph_t graph, cudaStream_t s, const char *what)
{
    cudaGraphExec_t exec;
    OK(cudaMemset(c, 0, matrix_bytes));
    OK(cudaDeviceSynchronize());
    OK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 2; i++) {
        void *between; /* a program that goes on allocating */
        OK(cudaGraphLaunch(exec, s));
        OK(cudaMalloc(&between, 8 * MIB));
        OK(cudaMemset(between, 0xff, 8 * MIB));
        OK(cudaFree(between));
    }
    OK(cudaStreamSynchronize(s));
    print_sum(what);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
}

/* `late`: the handle, and what it allocates, is made inside the capture. */
static void scenario(const char *what, cudaStreamCaptureMode mode, size_t workspace_bytes,
                     bool late)
{
    cudaStream_t s;
    cudaGraph_t graph = NULL;
    handle_t handle = NULL;
    void *workspace = NULL;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    if (!late)
        OK(create(&handle));
    if (workspace_bytes)
        OK(cudaMalloc(&workspace, workspace_bytes));
    OK(cudaDeviceSynchronize());
    OK(cudaStreamBeginCapture(s, mode));
    int made = late ? create(&handle) : 0, code = -1;
    if (made == 0) {
        OK(set_stream(handle, s));
        if (workspace_bytes)
            OK(set_workspace(handle, workspace, workspace_bytes));
        code = multiply(handle);
    }
    cudaError_t end = cudaStreamEndCapture(s, &graph);
    (void)cudaGetLastError();
    printf("%s: create %d, multiply %d, end %s\n", what, made, code, cudaGetErrorName(end));
    if (end == cudaSuccess && graph)
        replay(graph, s, what);
    if (handle && made == 0)
        OK(destroy(handle));
    OK(cudaFree(workspace));
    OK(cudaStreamDestroy(s));
    OK(cudaDeviceSynchronize());
}

int main()
{
    handle_t handle;
    std::vector<float> init((size_t)n * n);
    if (!open_library())
        return 77;
    OK(cudaMalloc(&a, matrix_bytes));
    OK(cudaMalloc(&b, matrix_bytes));
    OK(cudaMalloc(&c, matrix_bytes));
    for (size_t i = 0; i < init.size(); i++)
        init[i] = (float)((i * 7919) % 1009) / 1009.0f;
    OK(cudaMemcpy(a, init.data(), matrix_bytes, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(b, init.data(), matrix_bytes, cudaMemcpyHostToDevice));
    OK(cudaMemset(c, 0, matrix_bytes));
    OK(create(&handle));
    printf("eager %d\n", multiply(handle));
    print_sum("eager");
    OK(destroy(handle));
    scenario("own workspace, global", cudaStreamCaptureModeGlobal, 0, false);
    scenario("own workspace, relaxed", cudaStreamCaptureModeRelaxed, 0, false);
    scenario("given workspace, global", cudaStreamCaptureModeGlobal, 32 * MIB, false);
    scenario("given workspace, thread-local", cudaStreamCaptureModeThreadLocal, 4 * MIB, false);
    scenario("handle made inside, relaxed", cudaStreamCaptureModeRelaxed, 0, true);
    OK(cudaFree(a));
    OK(cudaFree(b));
    OK(cudaFree(c));
    return 0;
}
