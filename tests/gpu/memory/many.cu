/*
 * Touches many parts of the runtime and prints what a program can see of them: codes, bytes,
 * attributes. The text must not depend on who gives the memory. Lines that start with `placement:`
 * truthfully differ when device memory is replaced by managed memory; `modest` asks for no memory
 * that the machine does not have, which nobody should do with managed memory.
 */
#include "tests/gpu/check.h"

#include <cuda.h>
#include <vector>

__constant__ unsigned constant_words[4];
__device__ unsigned device_words[4];

__global__ void add(unsigned *p, size_t n, unsigned value)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * (size_t)blockDim.x)
        p[i] += value + constant_words[i & 3];
}

__global__ void read_texture(unsigned *out, cudaTextureObject_t texture, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = tex1Dfetch<unsigned>(texture, i);
}

__global__ void read_texture_2d(float *out, cudaTextureObject_t texture, int w, int h)
{
    int x = threadIdx.x, y = blockIdx.x;
    if (x < w && y < h)
        out[y * w + x] = tex2D<float>(texture, x + 0.5f, y + 0.5f);
}

static void say(const char *what, cudaError_t code)
{
    printf("%s: %s, then %s\n", what, cudaGetErrorName(code), cudaGetErrorName(cudaGetLastError()));
}

static uint64_t hash(const void *bytes, size_t n)
{
    uint64_t h = 14695981039346656037ull;
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const unsigned char *)bytes)[i]) * 1099511628211ull;
    return h;
}

static void say_hash(const char *what, const void *device, size_t n)
{
    std::vector<unsigned char> back(n);
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(back.data(), device, n, cudaMemcpyDeviceToHost));
    printf("%s: %016llx\n", what, (unsigned long long)hash(back.data(), n));
}

static std::vector<unsigned char> some_bytes(size_t n, unsigned seed)
{
    std::vector<unsigned char> bytes(n);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)((i * 2654435761u + seed) >> 13);
    return bytes;
}

static bool modest;

static void codes(void)
{
    void *p = NULL;
    unsigned *q;
    int on_stack = 0;
    say("malloc 0", cudaMalloc(&p, 0));
    printf("malloc 0 gives NULL: %d\n", p == NULL);
    say("malloc to NULL", cudaMalloc((void **)NULL, 16));
    if (!modest) {
        say("malloc 1 PiB", cudaMalloc(&p, (size_t)1 << 50));
        say("malloc SIZE_MAX", cudaMalloc(&p, SIZE_MAX));
    }
    say("malloc 1", cudaMalloc(&p, 1));
    say("free", cudaFree(p));
    say("free again", cudaFree(p));
    say("free NULL", cudaFree(NULL));
    say("free of the stack", cudaFree(&on_stack));
    OK(cudaMalloc(&q, 1000 * sizeof *q));
    say("free interior", cudaFree(q + 100));
    say("free host of device", cudaFreeHost(q));
    say("free async of malloc", cudaFreeAsync(q, 0));
    OK(cudaDeviceSynchronize());
    say("free still possible", cudaFree(q));
    OK(cudaMallocHost(&p, 4096));
    say("free of pinned", cudaFree(p));
    say("free host", cudaFreeHost(p));
    printf("driver alloc 0: %d\n", cuMemAlloc((CUdeviceptr *)&p, 0));
    printf("driver free 0: %d\n", cuMemFree(0));
}

static void memory_info(void)
{
    size_t before, after, back, total, total_again;
    void *p;
    OK(cudaMemGetInfo(&before, &total));
    OK(cudaMalloc(&p, 64 * MIB));
    OK(cudaMemGetInfo(&after, &total_again));
    OK(cudaFree(p));
    OK(cudaMemGetInfo(&back, &total));
    long long taken = (long long)before - (long long)after;
    long long kept = (long long)before - (long long)back;
    printf("placement: 64 MiB taken: %s\n",
           taken >= (long long)(60 * MIB) && taken <= (long long)(68 * MIB) ? "yes" : "no");
    printf("placement: given back: %s\n", llabs(kept) <= (long long)(4 * MIB) ? "yes" : "no");
    printf("total: %zu %d\n", total, total == total_again);
}

static void attributes(void)
{
    unsigned *p;
    size_t n = 123457, size = 0;
    CUdeviceptr base = 0, start = 0;
    CUcontext current, context = NULL;
    CUmemorytype type;
    CUmemoryPool pool = (CUmemoryPool)1;
    void *host = NULL;
    unsigned managed = 9, mapped = 9;
    int ordinal = -1;
    cudaPointerAttributes a = {};
    OK(cudaMalloc(&p, n));
    CUdeviceptr d = (CUdeviceptr)(p + 100);
    OK(cudaPointerGetAttributes(&a, p + 100));
    printf("placement: type %d, host pointer %s\n", a.type, a.hostPointer ? "set" : "NULL");
    printf("device %d, same pointer %d\n", a.device, a.devicePointer == p + 100);
    OK(cuCtxGetCurrent(&current));
    printf("context: %d", cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, d));
    printf(" current %d\n", context == current);
    printf("memory type: %d", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, d));
    printf(" %d\n", type);
    printf("pool: %d", cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, d));
    printf(" NULL %d\n", pool == NULL);
    printf("ordinal: %d", cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, d));
    printf(" %d\n", ordinal);
    printf("start: %d", cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, d));
    printf(" ours %d\n", start == (CUdeviceptr)p);
    printf("size: %d", cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, d));
    printf(" %zu\n", size);
    printf("mapped: %d", cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, d));
    printf(" %u\n", mapped);
    printf("placement: managed: %d",
           cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, d));
    printf(" %u\n", managed);
    printf("placement: host: %d",
           cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, d));
    printf(" %s\n", host ? "set" : "NULL");
    CUpointer_attribute many[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                  CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
    void *values[] = {&context, &size, &pool};
    context = NULL;
    pool = (CUmemoryPool)1;
    printf("several at once: %d", cuPointerGetAttributes(3, many, values, d));
    printf(" context %d size %zu pool NULL %d\n", context == current, size, pool == NULL);
    printf("range: %d", cuMemGetAddressRange(&base, &size, d));
    printf(" base %d size %zu\n", base == (CUdeviceptr)p, size);
    printf("aligned to 256: %d\n", (uintptr_t)p % 256 == 0);
    OK(cudaFree(p));
    printf("range after free: %d\n", cuMemGetAddressRange(&base, &size, d));
}

static void pitched(void)
{
    const size_t w = 1000, h = 37;
    char *a, *b;
    size_t pitch_a, pitch_b;
    auto bytes = some_bytes(w * h, 1);
    std::vector<unsigned char> back(w * h);
    OK(cudaMallocPitch(&a, &pitch_a, w, h));
    OK(cudaMallocPitch(&b, &pitch_b, w, h));
    printf("pitch: %zu %zu\n", pitch_a, pitch_b);
    OK(cudaMemset2D(a, pitch_a, 0x11, w, h));
    OK(cudaMemcpy2D(a, pitch_a, bytes.data(), w, w, h, cudaMemcpyHostToDevice));
    OK(cudaMemcpy2DAsync(b, pitch_b, a, pitch_a, w, h, cudaMemcpyDeviceToDevice, 0));
    OK(cudaFree(a));
    OK(cudaMemcpy2D(back.data(), w, b, pitch_b, w, h, cudaMemcpyDeviceToHost));
    OK(cudaFree(b));
    printf("2D copies: %d\n", memcmp(back.data(), bytes.data(), w * h) == 0);

    cudaPitchedPtr box;
    OK(cudaMalloc3D(&box, make_cudaExtent(100, 10, 5)));
    printf("3D pitch: %zu\n", box.pitch);
    OK(cudaMemset3D(box, 0x22, make_cudaExtent(100, 10, 5)));
    OK(cudaFree(box.ptr));
}

static void copies(void)
{
    const size_t n = 3 * MIB + 17;
    auto bytes = some_bytes(n, 2);
    unsigned char *p, *q;
    OK(cudaMalloc(&p, n));
    OK(cudaMalloc(&q, n));
    OK(cudaMemcpy(p, bytes.data(), n, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(q + 5, p + 9, n - 9, cudaMemcpyDeviceToDevice));
    OK(cudaMemcpy(q, p, 5, cudaMemcpyDefault));
    OK(cudaMemset(q + n - 4, 0x77, 4));
    say_hash("copies", q, n);
    OK(cudaMemcpyToSymbol(device_words, bytes.data(), sizeof device_words));
    OK(cudaMemcpyFromSymbol(q, device_words, sizeof device_words, 0, cudaMemcpyDeviceToDevice));
    say_hash("symbol", q, sizeof device_words);
    OK(cudaFree(p));
    OK(cudaFree(q));
}

static void streams_and_events(void)
{
    const size_t n = 500000;
    cudaStream_t streams[6] = {cudaStreamLegacy, cudaStreamPerThread};
    cudaEvent_t from, to;
    unsigned *p, *pinned;
    int least, greatest;
    float ms = -1;
    OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    OK(cudaStreamCreate(&streams[2]));
    OK(cudaStreamCreateWithFlags(&streams[3], cudaStreamNonBlocking));
    OK(cudaStreamCreateWithPriority(&streams[4], cudaStreamDefault, greatest));
    OK(cudaStreamCreateWithPriority(&streams[5], cudaStreamNonBlocking, least));
    OK(cudaEventCreate(&from));
    OK(cudaEventCreate(&to));
    OK(cudaMallocHost(&pinned, n * sizeof *p));
    for (int i = 0; i < 6; i++) {
        OK(cudaMalloc(&p, n * sizeof *p));
        OK(cudaMemsetAsync(p, i, n * sizeof *p, streams[i]));
        OK(cudaEventRecord(from, streams[i]));
        add<<<64, 256, 0, streams[i]>>>(p, n, 1 + i);
        OK(cudaEventRecord(to, streams[i]));
        OK(cudaMemcpyAsync(pinned, p, n * sizeof *p, cudaMemcpyDeviceToHost, streams[i]));
        OK(cudaStreamSynchronize(streams[i]));
        OK(cudaFree(p));
        OK(cudaEventElapsedTime(&ms, from, to));
        printf("stream %d: %016llx, event %s, query %s, elapsed %d\n", i,
               (unsigned long long)hash(pinned, n * sizeof *p),
               cudaGetErrorName(cudaEventQuery(to)), cudaGetErrorName(cudaStreamQuery(streams[i])),
               ms >= 0);
    }
    for (int i = 2; i < 6; i++)
        OK(cudaStreamDestroy(streams[i]));
    OK(cudaEventDestroy(from));
    OK(cudaEventDestroy(to));
    OK(cudaFreeHost(pinned));
}

static void host_memory(void)
{
    const size_t n = 10000;
    unsigned *mapped, *seen_by_device, *managed, *registered;
    void *pages;
    OK(cudaHostAlloc((void **)&mapped, n * sizeof *mapped, cudaHostAllocMapped));
    OK(cudaHostGetDevicePointer((void **)&seen_by_device, mapped, 0));
    memset(mapped, 0, n * sizeof *mapped);
    add<<<4, 256>>>(seen_by_device, n, 3);
    OK(cudaDeviceSynchronize());
    printf("mapped: %016llx\n", (unsigned long long)hash(mapped, n * sizeof *mapped));
    OK(cudaFreeHost(mapped));

    OK(posix_memalign(&pages, 4096, n * sizeof *registered));
    registered = (unsigned *)pages;
    memset(registered, 0, n * sizeof *registered);
    OK(cudaHostRegister(registered, n * sizeof *registered, cudaHostRegisterDefault));
    OK(cudaHostGetDevicePointer((void **)&seen_by_device, registered, 0));
    add<<<4, 256>>>(seen_by_device, n, 4);
    OK(cudaDeviceSynchronize());
    printf("registered: %016llx\n", (unsigned long long)hash(registered, n * sizeof *registered));
    OK(cudaHostUnregister(registered));
    free(pages);

    OK(cudaMallocManaged(&managed, n * sizeof *managed));
    memset(managed, 0, n * sizeof *managed);
    add<<<4, 256>>>(managed, n, 5);
    OK(cudaDeviceSynchronize());
    printf("managed: %016llx\n", (unsigned long long)hash(managed, n * sizeof *managed));
    OK(cudaFree(managed));
}

/* The program's own stream-ordered memory is none of our business, and must stay so. */
static void own_pool(void)
{
    cudaMemPool_t pool;
    cudaMemPoolProps props = {};
    cudaStream_t s;
    unsigned *p, *q;
    CUmemoryPool handle = NULL;
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    OK(cudaStreamCreate(&s));
    OK(cudaMemPoolCreate(&pool, &props));
    OK(cudaMallocFromPoolAsync((void **)&p, 40000, pool, s));
    OK(cudaMallocAsync(&q, 40000, s));
    OK(cudaMemsetAsync(p, 1, 40000, s));
    OK(cudaMemcpyAsync(q, p, 40000, cudaMemcpyDeviceToDevice, s));
    OK(cudaStreamSynchronize(s));
    OK(cuPointerGetAttribute(&handle, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, (CUdeviceptr)p));
    printf("own pool's handle: %d\n", handle == (CUmemoryPool)pool);
    say_hash("own pool", q, 40000);
    OK(cudaFreeAsync(p, s));
    say("plain free of async memory", cudaFree(q));
    OK(cudaStreamSynchronize(s));
    OK(cudaMemPoolDestroy(pool));
    OK(cudaStreamDestroy(s));
}

static void textures(void)
{
    const int n = 5000, w = 64, h = 40;
    unsigned *p, *out;
    float *grid, *values;
    size_t pitch;
    cudaTextureObject_t texture;
    cudaResourceDesc resource = {};
    cudaTextureDesc how = {};
    auto bytes = some_bytes(n * sizeof(unsigned), 3);
    OK(cudaMalloc(&p, n * sizeof *p));
    OK(cudaMalloc(&out, n * sizeof *out));
    OK(cudaMemcpy(p, bytes.data(), n * sizeof *p, cudaMemcpyHostToDevice));
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = p;
    resource.res.linear.desc = cudaCreateChannelDesc<unsigned>();
    resource.res.linear.sizeInBytes = n * sizeof *p;
    how.readMode = cudaReadModeElementType;
    OK(cudaCreateTextureObject(&texture, &resource, &how, NULL));
    read_texture<<<(n + 255) / 256, 256>>>(out, texture, n);
    say_hash("linear texture", out, n * sizeof *out);
    OK(cudaDestroyTextureObject(texture));
    OK(cudaFree(p));
    OK(cudaFree(out));

    std::vector<float> host(w * h);
    for (int i = 0; i < w * h; i++)
        host[i] = (float)i / 7;
    OK(cudaMallocPitch(&grid, &pitch, w * sizeof *grid, h));
    OK(cudaMalloc(&values, w * h * sizeof *values));
    OK(cudaMemcpy2D(grid, pitch, host.data(), w * sizeof *grid, w * sizeof *grid, h,
                    cudaMemcpyHostToDevice));
    resource = {};
    resource.resType = cudaResourceTypePitch2D;
    resource.res.pitch2D.devPtr = grid;
    resource.res.pitch2D.desc = cudaCreateChannelDesc<float>();
    resource.res.pitch2D.width = w;
    resource.res.pitch2D.height = h;
    resource.res.pitch2D.pitchInBytes = pitch;
    how.filterMode = cudaFilterModeLinear;
    OK(cudaCreateTextureObject(&texture, &resource, &how, NULL));
    read_texture_2d<<<h, w>>>(values, texture, w, h);
    say_hash("pitched texture", values, w * h * sizeof *values);
    OK(cudaDestroyTextureObject(texture));
    OK(cudaFree(grid));
    OK(cudaFree(values));
}

static void graphs(void)
{
    const size_t n = 100000;
    cudaStream_t s;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    unsigned *p, *q;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(cudaMalloc(&p, n * sizeof *p));
    OK(cudaMalloc(&q, n * sizeof *q));
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    OK(cudaMemsetAsync(p, 0, n * sizeof *p, s));
    for (int i = 0; i < 5; i++)
        add<<<16, 256, 0, s>>>(p, n, i);
    OK(cudaMemcpyAsync(q, p, n * sizeof *p, cudaMemcpyDeviceToDevice, s));
    OK(cudaStreamEndCapture(s, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
        void *other;
        OK(cudaMalloc(&other, n));
        OK(cudaGraphLaunch(exec, s));
        OK(cudaFree(other));
    }
    OK(cudaStreamSynchronize(s));
    say_hash("graph", q, n * sizeof *q);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaFree(p));
    OK(cudaFree(q));
    OK(cudaStreamDestroy(s));
}

/* Many sizes alive at once: no two may overlap. */
static void crowd(void)
{
    std::vector<unsigned *> all;
    for (size_t i = 1; i <= 300; i++) {
        unsigned *p;
        OK(cudaMalloc(&p, i * 1003));
        OK(cudaMemset(p, (int)i, i * 1003));
        all.push_back(p);
        if (i % 7 == 0) {
            OK(cudaFree(all[i / 2]));
            OK(cudaMalloc(&all[i / 2], (i / 2 + 1) * 1003));
            OK(cudaMemset(all[i / 2], (int)(i / 2 + 1), (i / 2 + 1) * 1003));
        }
    }
    int n_right = 0;
    for (size_t i = 1; i <= 300; i++) {
        std::vector<unsigned char> back(i * 1003);
        OK(cudaMemcpy(back.data(), all[i - 1], back.size(), cudaMemcpyDeviceToHost));
        n_right += back == std::vector<unsigned char>(i * 1003, (unsigned char)i);
        OK(cudaFree(all[i - 1]));
    }
    printf("crowd: %d of 300 right\n", n_right);
}

int main(int argc, char **argv)
{
    modest = argc > 1 && !strcmp(argv[1], "modest");
    const unsigned words[4] = {1, 2, 3, 4};
    OK(cudaMemcpyToSymbol(constant_words, words, sizeof words));
    copies();
    memory_info();
    codes();
    attributes();
    pitched();
    textures();
    crowd();
    streams_and_events();
    own_pool();
    graphs();
    host_memory();
    crowd();
    codes();
    say("at the end", cudaDeviceSynchronize());
    return 0;
}
