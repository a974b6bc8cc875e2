/*
 * Pinned memory that is taken and given back, natively and with ALLOGRAFT_HOST.
 *     pinned answers   what the driver says of new, freed and reused memory: one text
 *     pinned wait      the host reads other pinned memory right after a cudaFreeHost: 0 as natively
 *     pinned early     memory freed beside a kernel that writes it is nobody else's until then
 *     pinned threads   24 threads pin, copy and free: their bytes; `name value`: the turns, and
 *                      those in which sizes are new
 *     pinned blocks    `name value`: large blocks that are new, and copies and kernels that use one
 *     pinned pairs     `name value`: pairs of cudaMallocHost and cudaFreeHost, of the same size
 */
#include "tests/gpu/check.h"

#include <algorithm>
#include <atomic>
#include <cuda.h>
#include <thread>
#include <vector>

static const size_t n_words = 64 * KIB;
static const size_t n_bytes = n_words * sizeof(unsigned);
static const unsigned long long late_ns = 50 * 1000 * 1000;

/* --- answers --- */

static void say_pointer(const char *what, void *p)
{
    struct cudaPointerAttributes is = {};
    unsigned flags = 77;
    void *device = NULL;
    int code = (int)cudaPointerGetAttributes(&is, p);

    printf("%s: %d, type %d, device %d, itself %d, %d\n", what, code, (int)is.type, is.device,
           is.hostPointer == p, is.devicePointer == p);
    code = (int)cudaHostGetFlags(&flags, p);
    /* Whether small memory is portable is answered now so, now otherwise (H100). */
    printf("    flags: %d, %u\n", code, flags & ~cudaHostAllocPortable);
    printf("    device pointer: %d\n", (int)cudaHostGetDevicePointer(&device, p, 0));
    (void)cudaGetLastError();
}

static void say_kind(CUdeviceptr at)
{
    static const CUpointer_attribute kinds[] = {
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, CU_POINTER_ATTRIBUTE_MAPPED,
        CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,
        CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE,   CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
    };

    printf("    kind:");
    for (CUpointer_attribute kind : kinds) {
        unsigned long long value = 0;
        int code = (int)cuPointerGetAttribute(&value, kind, at);

        printf(" %d %llu", code, value);
    }
    printf("\n");
}

/* The runtime answers for memory that the driver does not know: so it is asked itself, too. */
static void say_driver(void *p, size_t offset)
{
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)p + offset, base = 0, start = 0;
    size_t size = 0, range = 0;
    unsigned type = 0, sync = 0;
    int code;

    code = (int)cuMemGetAddressRange(&base, &size, at);
    printf("    range: %d, begins %d, %zu bytes\n", code, base == (uintptr_t)p, size);
    code = (int)cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at);
    printf("    start: %d, begins %d\n", code, start == (uintptr_t)p);
    code = (int)cuPointerGetAttribute(&range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at);
    printf("    size: %d, %zu\n", code, range);
    code = (int)cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at);
    printf("    type: %d, %u\n", code, type);
    say_kind(at);
    code = (int)cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at);
    printf("    synchronous: %d, %u\n", code, sync & 1);
}

static unsigned long long buffer_id(void *p)
{
    unsigned long long id = 0;

    OK(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, (CUdeviceptr)(uintptr_t)p));
    return id;
}

static void say_life(size_t bytes, size_t again, unsigned flags)
{
    unsigned long long id;
    void *p;

    printf("%zu and %zu bytes, flags %u\n", bytes, again, flags);
    OK(cudaHostAlloc(&p, bytes, flags));
    say_pointer("new", p);
    say_driver(p, 0);
    say_driver(p, bytes - 1);
    say_driver(p, bytes);
    id = buffer_id(p);
    OK(cudaFreeHost(p));
    say_pointer("freed", p);
    say_driver(p, 0);
    say_driver(p, bytes - 1);
    printf("freed twice: %d\n", (int)cuMemFreeHost(p));
    printf("inside: %d\n", (int)cuMemFreeHost((char *)p + 64));
    printf("unregistered: %d\n", (int)cuMemHostUnregister(p));
    OK(cudaHostAlloc(&p, again, flags));
    printf("again, unregistered: %d\n", (int)cuMemHostUnregister(p));
    printf("again, registered: %d\n", (int)cuMemHostRegister(p, again, 0));
    printf("again, inside: %d\n", (int)cuMemFreeHost((char *)p + 64));
    say_pointer("again", p);
    say_driver(p, 0);
    say_driver(p, again - 1);
    printf("another buffer: %d\n", buffer_id(p) != id);
    OK(cudaFreeHost(p));
}

/* What is the driver's answer in each mode of capture, and what becomes of the capture? */
static void say_captured(cudaStreamCaptureMode mode)
{
    cudaGraph_t graph = NULL;
    cudaStream_t stream;
    void *p, *q = NULL;
    int code;

    OK(cudaHostAlloc(&p, n_bytes, 0));
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaStreamBeginCapture(stream, mode));
    printf("captured, mode %d: free %d", (int)mode, (int)(code = (int)cudaFreeHost(p)));
    printf(", alloc %d", (int)cudaHostAlloc(&q, n_bytes, 0));
    printf(", end %d\n", (int)cudaStreamEndCapture(stream, &graph));
    (void)cudaGetLastError();
    if (code)
        OK(cudaFreeHost(p));
    if (q)
        OK(cudaFreeHost(q));
    OK(cudaStreamDestroy(stream));
}

static void say_contexts(void)
{
    CUcontext primary, other;
    void *p;

    OK(cuCtxGetCurrent(&primary));
    OK(cudaHostAlloc(&p, n_bytes, 0));
    OK(cudaFreeHost(p));
    OK(cuCtxCreate(&other, NULL, 0, 0));
    OK(cuMemHostAlloc(&p, n_bytes, 0));
    OK(cuMemFreeHost(p));
    OK(cuMemHostAlloc(&p, n_bytes, 0));
    OK(cuCtxDestroy(other));
    OK(cuCtxSetCurrent(primary));
    say_pointer("its context is gone", p);
    printf("free: %d\n", (int)cuMemFreeHost(p));
    OK(cudaHostAlloc(&p, n_bytes, 0));
    memset(p, 1, n_bytes);
    say_pointer("of the first context", p);
    OK(cudaFreeHost(p));
}

static int answers(void)
{
    say_life(4096, 4096, 0);
    say_life(1000, 990, cudaHostAllocPortable);
    say_life(MIB, MIB - 60 * KIB, cudaHostAllocMapped);
    say_life(64 * MIB, 64 * MIB, 0);
    say_life(8192, 8192, cudaHostAllocWriteCombined);
    printf("nothing: %d, nowhere: %d\n", (int)cuMemFreeHost(NULL), (int)cuMemFreeHost((void *)1));
    say_captured(cudaStreamCaptureModeGlobal);
    say_captured(cudaStreamCaptureModeThreadLocal);
    say_captured(cudaStreamCaptureModeRelaxed);
    say_contexts();
    return 0;
}

/* --- order --- */

static int waits(bool frees)
{
    unsigned *seen, *p;
    cudaStream_t stream;
    size_t n_wrong = 0;

    warm_up_kernels();
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaMallocHost(&seen, n_bytes));
    for (unsigned i = 1; i <= 4; i++) {
        OK(cudaMallocHost(&p, n_bytes));
        late_write<<<FEW_BLOCKS, THREADS, 0, i % 2 ? stream : 0>>>(seen, n_words, i, late_ns);
        if (frees)
            OK(cudaFreeHost(p));
        n_wrong += count_wrong(seen, n_words, i);
        OK(cudaDeviceSynchronize());
    }
    printf("%zu wrong words\n", n_wrong);
    return n_wrong ? EXIT_BROKEN : 0;
}

/* The device writes late; whoever gets the memory next has written it by then. */
static int early(void)
{
    unsigned *p;
    cudaStream_t stream;
    size_t n_wrong = 0;

    warm_up_kernels();
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaMallocHost(&p, n_bytes));
    for (unsigned i = 1; i <= 10; i++) {
        late_write<<<FEW_BLOCKS, THREADS, 0, stream>>>(p, n_words, i, late_ns);
        OK(cudaFreeHost(p));
        OK(cudaMallocHost(&p, n_bytes));
        for (size_t k = 0; k < n_words; k++)
            p[k] = 100 + i;
        OK(cudaDeviceSynchronize());
        n_wrong += count_wrong(p, n_words, 100 + i);
    }
    printf("%zu wrong words\n", n_wrong);
    return n_wrong ? EXIT_BROKEN : 0;
}

/* --- threads --- */

struct worker {
    std::vector<double> first_us, later_us; /* turns */
    size_t n_wrong = 0;
};

static const unsigned n_threads = 24, n_first = 50, n_later = 200;
static std::atomic<unsigned> n_warm; /* threads that have made their first turns */

/* A turn: pin, fill, copy there and back into other pinned memory, free both. */
static void turn(worker &it, cudaStream_t stream, unsigned *device, size_t words, unsigned value)
{
    unsigned *from, *to;

    OK(cudaMallocHost(&from, words * sizeof *from));
    OK(cudaMallocHost(&to, words * sizeof *to));
    for (size_t i = 0; i < words; i += 64)
        from[i] = value;
    OK(cudaMemcpyAsync(device, from, words * sizeof *from, cudaMemcpyHostToDevice, stream));
    OK(cudaMemcpyAsync(to, device, words * sizeof *to, cudaMemcpyDeviceToHost, stream));
    OK(cudaFreeHost(from));
    OK(cudaStreamSynchronize(stream));
    for (size_t i = 0; i < words; i += 64)
        it.n_wrong += to[i] != value;
    OK(cudaFreeHost(to));
}

static void turns(worker &it, std::vector<double> &us, cudaStream_t stream, unsigned *device,
                  unsigned number, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        double begin = now_s();

        turn(it, stream, device, (1 * KIB) << (i + number) % 9, number * 100000 + i);
        us.push_back((now_s() - begin) * 1e6);
    }
}

/* A size that nobody has freed yet is the driver's to pin, and it pins for one thread at a time:
 * the first turns tell of that alone, and are counted apart. */
static void work(worker &it, unsigned number)
{
    cudaStream_t stream;
    unsigned *device;

    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaMalloc(&device, 4 * MIB));
    turns(it, it.first_us, stream, device, number, n_first);
    n_warm++;
    while (n_warm < n_threads)
        std::this_thread::yield();
    turns(it, it.later_us, stream, device, number, n_later);
    OK(cudaFree(device));
}

static double percentile(const std::vector<double> &sorted, unsigned tenths)
{
    return sorted[std::min(sorted.size() * tenths / 1000, sorted.size() - 1)];
}

static void say_turns(const char *prefix, std::vector<double> &us)
{
    std::sort(us.begin(), us.end());
    printf("%sturn_p50_us %.2f\n", prefix, percentile(us, 500));
    printf("%sturn_p90_us %.2f\n", prefix, percentile(us, 900));
    printf("%sturn_p99_us %.2f\n", prefix, percentile(us, 990));
    printf("%sturn_max_us %.2f\n", prefix, us.back());
}

static int threads(void)
{
    std::vector<worker> workers(n_threads);
    std::vector<std::thread> running;
    std::vector<double> first, later;
    size_t n_wrong = 0;

    OK(cudaFree(0));
    for (unsigned i = 0; i < n_threads; i++)
        running.emplace_back(work, std::ref(workers[i]), i);
    for (std::thread &thread : running)
        thread.join();
    for (const worker &it : workers) {
        n_wrong += it.n_wrong;
        first.insert(first.end(), it.first_us.begin(), it.first_us.end());
        later.insert(later.end(), it.later_us.begin(), it.later_us.end());
    }
    say_turns("", later);
    say_turns("first_", first);
    fprintf(stderr, "%zu wrong words\n", n_wrong);
    return n_wrong ? EXIT_BROKEN : 0;
}

/* --- pairs --- */

static double one_of_us(size_t bytes, unsigned n)
{
    double begin = now_s();
    void *p;

    for (unsigned i = 0; i < n; i++) {
        OK(cudaMallocHost(&p, bytes));
        OK(cudaFreeHost(p));
    }
    return (now_s() - begin) * 1e6 / n;
}

/* Where pairs are quick, many of them are timed at once: reading the clock takes as long as one. */
static double pair_us(size_t bytes, bool beside_work)
{
    const unsigned n = bytes > MIB ? 20 : 200;
    std::vector<double> us;
    unsigned *words, many = 1;

    OK(cudaMalloc(&words, 4));
    for (unsigned i = 0; i < n; i++) {
        if (beside_work)
            late_write<<<1, 1>>>(words, 1, i, 0);
        if (beside_work)
            OK(cudaDeviceSynchronize());
        us.push_back(one_of_us(bytes, many));
        many = us.back() < 10 && !beside_work ? 50 : 1;
    }
    OK(cudaFree(words));
    std::sort(us.begin(), us.end());
    return us[us.size() / 2];
}

static int pairs(void)
{
    double begin;
    void *p;

    warm_up_kernels();
    printf("pair_4kib_us %.3f\n", pair_us(4 * KIB, false));
    printf("pair_1mib_us %.3f\n", pair_us(MIB, false));
    printf("pair_64mib_us %.3f\n", pair_us(64 * MIB, false));
    printf("pair_after_work_4kib_us %.3f\n", pair_us(4 * KIB, true));
    begin = now_s();
    OK(cudaMallocHost(&p, 256 * MIB));
    printf("first_256mib_us %.0f\n", (now_s() - begin) * 1e6);
    OK(cudaFreeHost(p));
    return 0;
}

/* --- new blocks --- */

static __global__ void sum(const uint4 *words, size_t n, unsigned *result)
{
    unsigned own = 0;

    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        own += words[i].x + words[i].y + words[i].z + words[i].w;
    if (own)
        atomicAdd(result, own);
}

/* The best of some, in GB/s. */
template <typename F> static double rate(size_t bytes, F &&move)
{
    double best = 0;

    for (int i = 0; i < 6; i++) {
        double begin = now_s();

        move();
        OK(cudaDeviceSynchronize());
        best = std::max(best, (double)bytes / (now_s() - begin) / 1e9);
    }
    return best;
}

static void *new_block(const char *name, size_t bytes)
{
    double begin = now_s();
    void *p;

    OK(cudaMallocHost(&p, bytes));
    printf("new_%s_us %.0f\n", name, (now_s() - begin) * 1e6);
    return p;
}

/* Of sizes that nobody has freed yet; then how fast the device gets at the largest. */
static int blocks()
{
    const size_t bytes = 1024 * MIB;
    unsigned *result;
    void *p[4], *device;

    OK(cudaMalloc(&device, bytes));
    OK(cudaMalloc(&result, sizeof *result));
    p[0] = new_block("16mib", 16 * MIB);
    p[1] = new_block("64mib", 64 * MIB);
    p[2] = new_block("256mib", 256 * MIB);
    p[3] = new_block("1gib", bytes);
    printf("new_up_gb_per_s %.2f\n",
           rate(bytes, [&] { OK(cudaMemcpyAsync(device, p[3], bytes, cudaMemcpyHostToDevice)); }));
    printf("new_down_gb_per_s %.2f\n",
           rate(bytes, [&] { OK(cudaMemcpyAsync(p[3], device, bytes, cudaMemcpyDeviceToHost)); }));
    printf("new_kernel_gb_per_s %.2f\n", rate(bytes, [&] {
               sum<<<1024, 256>>>((const uint4 *)p[3], bytes / sizeof(uint4), result);
           }));
    for (void *block : p)
        OK(cudaFreeHost(block));
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    OK(cudaFree(0));
    if (!strcmp(what, "answers"))
        return answers();
    if (!strcmp(what, "wait"))
        return waits(argc == 2);
    if (!strcmp(what, "early"))
        return early();
    if (!strcmp(what, "threads"))
        return threads();
    if (!strcmp(what, "pairs"))
        return pairs();
    if (!strcmp(what, "blocks"))
        return blocks();
    return EXIT_UNUSABLE;
}
