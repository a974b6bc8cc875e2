/* The runtime API from plain C: memory of every kind, copies, streams, events, graphs, errors.
 * Kernels come from a library loaded at run time. */
#include <string.h>

#include "runtime_test.h"

enum { N = 1000, BYTES = N * sizeof(unsigned) };

static cudaKernel_t fill, add;

static void launch(cudaKernel_t kernel, cudaStream_t stream, void **args)
{
    dim3 grid = {4, 1, 1}, block = {256, 1, 1};
    OK(cudaLaunchKernel((const void *)kernel, grid, block, args, 0, stream));
}

static void fill_with(unsigned *p, unsigned value, cudaStream_t stream)
{
    int n = N;
    launch(fill, stream, (void *[]){&p, &value, &n});
}

static void expect_all(const void *device, unsigned value)
{
    unsigned host[N];
    OK(cudaMemcpy(host, device, BYTES, cudaMemcpyDeviceToHost));
    for (int i = 0; i < N; i++)
        CHECK(host[i] == value);
}

static void *device_words(void)
{
    void *p = NULL;
    OK(cudaMalloc(&p, BYTES));
    CHECK(p != NULL);
    return p;
}

static void test_devices(void)
{
    int count = 0, device = -1, warp = 0, version = 0;
    struct cudaDeviceProp prop;
    OK(cudaGetDeviceCount(&count));
    CHECK(count >= 1);
    OK(cudaSetDevice(0));
    OK(cudaGetDevice(&device));
    CHECK(device == 0);
    OK(cudaGetDeviceProperties(&prop, 0));
    OK(cudaDeviceGetAttribute(&warp, cudaDevAttrWarpSize, 0));
    CHECK(prop.name[0] != '\0' && prop.totalGlobalMem > 0 && prop.warpSize == warp);
    OK(cudaDriverGetVersion(&version));
    CHECK(version >= 13000);
    EXPECT(cudaErrorInvalidDevice, cudaSetDevice(count));
    EXPECT(cudaErrorInvalidDevice, cudaGetLastError());
    EXPECT(cudaSuccess, cudaGetLastError());
}

static void test_memory(void)
{
    void *p = device_words(), *none = &p, *pinned, *managed;
    size_t pitch, free_before, free_after, total;
    struct cudaPointerAttributes attributes;

    OK(cudaPointerGetAttributes(&attributes, p));
    CHECK(attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged);
    CHECK(attributes.devicePointer == p);
    OK(cudaPointerGetAttributes(&attributes, &p));
    CHECK(attributes.type == cudaMemoryTypeUnregistered);
    OK(cudaFree(p));
    OK(cudaFree(NULL));
    OK(cudaMalloc(&none, 0));
    CHECK(none == NULL);
    EXPECT(cudaErrorMemoryAllocation, cudaMalloc(&p, (size_t)1 << 50));
    (void)cudaGetLastError();

    OK(cudaMemGetInfo(&free_before, &total));
    OK(cudaMallocPitch(&p, &pitch, 100, 7));
    CHECK(pitch >= 100);
    OK(cudaFree(p));
    OK(cudaMemGetInfo(&free_after, &total));
    CHECK(free_before <= total && free_after == free_before);

    OK(cudaMallocHost(&pinned, BYTES));
    memset(pinned, 1, BYTES);
    OK(cudaPointerGetAttributes(&attributes, pinned));
    CHECK(attributes.type == cudaMemoryTypeHost);
    OK(cudaFreeHost(pinned));
    OK(cudaMallocManaged(&managed, BYTES, cudaMemAttachGlobal));
    OK(cudaPointerGetAttributes(&attributes, managed));
    CHECK(attributes.type == cudaMemoryTypeManaged);
    fill_with(managed, 5, NULL);
    OK(cudaDeviceSynchronize());
    CHECK(((unsigned *)managed)[N - 1] == 5);
    OK(cudaFree(managed));
}

static void test_flat_copies(void)
{
    unsigned host[N], back[N];
    void *a = device_words(), *b = device_words();
    for (unsigned i = 0; i < N; i++)
        host[i] = i * i;
    OK(cudaMemcpy(a, host, BYTES, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(b, a, BYTES, cudaMemcpyDeviceToDevice));
    OK(cudaMemcpy(back, b, BYTES, cudaMemcpyDefault));
    CHECK(memcmp(host, back, BYTES) == 0);
    OK(cudaMemset(b, 0x11, BYTES));
    expect_all(b, 0x11111111);
    memset(back, 0, BYTES);
    OK(cudaMemcpy(back, host, BYTES, cudaMemcpyHostToHost));
    CHECK(memcmp(host, back, BYTES) == 0);
    OK(cudaMemcpy(a, NULL, 0, cudaMemcpyHostToDevice));
    EXPECT(cudaErrorInvalidMemcpyDirection, cudaMemcpy(a, b, BYTES, (enum cudaMemcpyKind)9));
    (void)cudaGetLastError();
    OK(cudaFree(a));
    OK(cudaFree(b));
}

/* A block of 5 x 3 bytes out of the middle of a picture, and one of 5 x 3 x 2 out of a volume. */
static void test_pitched_copies(void)
{
    enum { WIDTH = 16, HEIGHT = 8, DEPTH = 4 };
    unsigned char volume[DEPTH][HEIGHT][WIDTH], back[2][3][5];
    for (int i = 0; i < DEPTH * HEIGHT * WIDTH; i++)
        (&volume[0][0][0])[i] = (unsigned char)i;
    void *p;
    size_t pitch;
    OK(cudaMallocPitch(&p, &pitch, WIDTH, HEIGHT));
    OK(cudaMemcpy2D(p, pitch, volume, WIDTH, WIDTH, HEIGHT, cudaMemcpyHostToDevice));
    OK(cudaMemcpy2D(back, 5, (char *)p + 2 * pitch + 7, pitch, 5, 3, cudaMemcpyDeviceToHost));
    for (int y = 0; y < 3; y++)
        CHECK(memcmp(back[0][y], &volume[0][2 + y][7], 5) == 0);
    EXPECT(cudaErrorInvalidPitchValue,
           cudaMemcpy2D(p, 1, volume, WIDTH, WIDTH, HEIGHT, cudaMemcpyHostToDevice));
    (void)cudaGetLastError();
    OK(cudaFree(p));

    struct cudaPitchedPtr d;
    struct cudaExtent all = {WIDTH, HEIGHT, DEPTH}, part = {5, 3, 2};
    OK(cudaMalloc3D(&d, all));
    struct cudaMemcpy3DParms in = {.srcPtr = {volume, WIDTH, WIDTH, HEIGHT},
                                   .dstPtr = d,
                                   .extent = all,
                                   .kind = cudaMemcpyHostToDevice};
    OK(cudaMemcpy3D(&in));
    struct cudaMemcpy3DParms out = {.srcPtr = d,
                                    .srcPos = {7, 2, 1},
                                    .dstPtr = {back, 5, 5, 3},
                                    .extent = part,
                                    .kind = cudaMemcpyDeviceToHost};
    OK(cudaMemcpy3D(&out));
    for (int z = 0; z < 2; z++) {
        for (int y = 0; y < 3; y++) {
            CHECK(memcmp(back[z][y], &volume[1 + z][2 + y][7], 5) == 0);
        }
    }
    OK(cudaMemset3D(d, 9, all));
    OK(cudaMemcpy3D(&out));
    CHECK(back[0][0][0] == 9 && back[1][2][4] == 9);
    OK(cudaFree(d.ptr));
}

static void count_up(void *counter)
{
    ++*(int *)counter;
}

static void test_streams_and_events(void)
{
    unsigned *a = device_words(), *b = device_words();
    cudaStream_t first, second;
    cudaEvent_t done, later;
    float ms = -1;
    int n = N, calls = 0;
    OK(cudaStreamCreate(&first));
    OK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    OK(cudaEventCreate(&done));
    OK(cudaEventCreateWithFlags(&later, cudaEventDefault));

    fill_with(a, 3, first);
    OK(cudaEventRecord(done, first));
    OK(cudaStreamWaitEvent(second, done, 0));
    OK(cudaMemsetAsync(b, 0, BYTES, second));
    launch(add, second, (void *[]){&b, &a, &n});
    launch(add, second, (void *[]){&b, &a, &n});
    OK(cudaLaunchHostFunc(second, count_up, &calls));
    OK(cudaEventRecord(later, second));
    OK(cudaEventSynchronize(later));
    CHECK(calls == 1);
    OK(cudaEventQuery(later));
    OK(cudaEventElapsedTime(&ms, done, later));
    CHECK(ms >= 0);
    OK(cudaStreamQuery(second));
    expect_all(b, 6);
    OK(cudaEventDestroy(done));
    OK(cudaEventDestroy(later));
    OK(cudaStreamDestroy(first));
    OK(cudaStreamDestroy(second));
    OK(cudaFree(a));
    OK(cudaFree(b));
}

static void test_pools(void)
{
    void *p, *q;
    cudaMemPool_t pool, own;
    unsigned long long keep = ~0ull, got = 0;
    cudaStream_t stream;
    struct cudaMemPoolProps props = {.allocType = cudaMemAllocationTypePinned,
                                     .location = {.type = cudaMemLocationTypeDevice, .id = 0}};
    OK(cudaStreamCreate(&stream));
    OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &got));
    CHECK(got == keep);
    OK(cudaMallocAsync(&p, BYTES, stream));
    fill_with(p, 8, stream);
    OK(cudaStreamSynchronize(stream));
    expect_all(p, 8);
    OK(cudaFreeAsync(p, stream));
    OK(cudaMemPoolCreate(&own, &props));
    OK(cudaMallocFromPoolAsync(&q, BYTES, own, stream));
    OK(cudaFreeAsync(q, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemPoolTrimTo(own, 0));
    OK(cudaMemPoolDestroy(own));
    OK(cudaStreamDestroy(stream));
}

static void test_capture(void)
{
    unsigned *a = device_words(), *b = device_words();
    int n = N;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    size_t n_nodes = 0;
    enum cudaStreamCaptureStatus status;
    OK(cudaStreamCreate(&stream));
    OK(cudaMemset(b, 0, BYTES));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    fill_with(a, 2, stream);
    launch(add, stream, (void *[]){&b, &a, &n});
    OK(cudaStreamIsCapturing(stream, &status));
    CHECK(status == cudaStreamCaptureStatusActive);
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphGetNodes(graph, NULL, &n_nodes));
    CHECK(n_nodes == 2);
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    for (int i = 0; i < 3; i++)
        OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    expect_all(b, 6);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaStreamDestroy(stream));
    OK(cudaFree(a));
    OK(cudaFree(b));
}

static void test_built_graph(void)
{
    unsigned *a = device_words();
    unsigned value = 4, host[N];
    int n = N;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t kernel, copy;
    struct cudaKernelNodeParams params = {.func = (void *)fill,
                                          .gridDim = {4, 1, 1},
                                          .blockDim = {256, 1, 1},
                                          .kernelParams = (void *[]){&a, &value, &n}};
    OK(cudaGraphCreate(&graph, 0));
    OK(cudaGraphAddKernelNode(&kernel, graph, NULL, 0, &params));
    OK(cudaGraphAddMemcpyNode1D(&copy, graph, &kernel, 1, host, a, BYTES, cudaMemcpyDeviceToHost));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, NULL));
    OK(cudaDeviceSynchronize());
    CHECK(host[0] == 4 && host[N - 1] == 4);
    value = 7;
    OK(cudaGraphExecKernelNodeSetParams(exec, kernel, &params));
    OK(cudaGraphLaunch(exec, NULL));
    OK(cudaDeviceSynchronize());
    CHECK(host[0] == 7 && host[N - 1] == 7);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaFree(a));
}

static void test_errors(void)
{
    void *p = device_words();
    CHECK(strcmp(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation") == 0);
    CHECK(strlen(cudaGetErrorString(cudaErrorMemoryAllocation)) > 0);
    EXPECT(cudaErrorInvalidValue, cudaFree((char *)p + 8));
    EXPECT(cudaErrorInvalidValue, cudaPeekAtLastError());
    OK(cudaFree(p)); /* a success leaves the last error as it is */
    EXPECT(cudaErrorInvalidValue, cudaGetLastError());
    EXPECT(cudaSuccess, cudaPeekAtLastError());
    EXPECT(cudaErrorInvalidDeviceFunction,
           cudaLaunchKernel((const void *)test_errors, (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL, 0,
                            NULL));
    (void)cudaGetLastError();
}

static void test_reset(void)
{
    void *p = device_words();
    OK(cudaDeviceReset());
    p = device_words(); /* a context of its own again */
    fill_with(p, 1, NULL);
    expect_all(p, 1);
    OK(cudaFree(p));
}

int main(void)
{
    cudaLibrary_t library;
    static const char code[] = "any bytes";
    OK(cudaLibraryLoadData(&library, code, NULL, NULL, 0, NULL, NULL, 0));
    OK(cudaLibraryGetKernel(&fill, library, "_Z4fillPjji"));
    OK(cudaLibraryGetKernel(&add, library, "_Z3addPjPKji"));
    test_devices();
    test_memory();
    test_flat_copies();
    test_pitched_copies();
    test_streams_and_events();
    test_pools();
    test_errors();
    test_reset();
    if (driver_has_graphs()) {
        test_capture();
        test_built_graph();
    }
    OK(cudaLibraryUnload(library));
    printf("ok\n");
    return 0;
}
