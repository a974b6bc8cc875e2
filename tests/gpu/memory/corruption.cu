/*
 * Is freed memory handed out again while a kernel that was launched before the free still writes
 * to it? A kernel writes late; the program frees its buffer and allocates the same size; a next
 * user fills the new buffer; afterwards every word must be the next user's.
 *
 * `naive` replaces cudaMalloc/cudaFree in here by a stream-ordered pool without any order of its
 * own, the way a first redirect would be written: it must be found out, or the test sees nothing.
 */
#include "tests/gpu/check.h"

#include <thread>
#include <vector>

static const unsigned old_value = 0xdeadbeefu;
static const unsigned char new_byte = 0x5a;
static const unsigned new_value = 0x5a5a5a5au;
static const unsigned long long late_ns = 100 * 1000 * 1000;

static bool naive;
static cudaMemPool_t naive_pool;
static cudaStream_t naive_stream; /* 0, or a private one where 0 would keep order by itself */

static struct {
    size_t n_wrong, n_words;
    int n_same_address, n_iterations;
    double longest_free_s;
} seen;

static unsigned *take(size_t bytes)
{
    void *p;
    if (naive) {
        OK(cudaMallocFromPoolAsync(&p, bytes, naive_pool, naive_stream));
        if (naive_stream)
            OK(cudaStreamSynchronize(naive_stream));
    } else {
        OK(cudaMalloc(&p, bytes));
    }
    return (unsigned *)p;
}

static void release(unsigned *p)
{
    double start = now_s();
    if (naive)
        OK(cudaFreeAsync(p, naive_stream));
    else
        OK(cudaFree(p));
    double took = now_s() - start;
    if (took > seen.longest_free_s)
        seen.longest_free_s = took;
}

static void start_naive(bool stream_0_keeps_order)
{
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    uint64_t keep = UINT64_MAX;
    OK(cudaMemPoolCreate(&naive_pool, &props));
    OK(cudaMemPoolSetAttribute(naive_pool, cudaMemPoolAttrReleaseThreshold, &keep));
    if (stream_0_keeps_order)
        OK(cudaStreamCreateWithFlags(&naive_stream, cudaStreamNonBlocking));
}

/* How the next user fills the new buffer. */
enum fill { FILL_MEMSET, FILL_KERNEL, FILL_COPY };

static void fill_on(unsigned *p, size_t n, cudaStream_t stream, enum fill how)
{
    static std::vector<unsigned> source;
    switch (how) {
    case FILL_MEMSET:
        OK(cudaMemsetAsync(p, new_byte, n * sizeof *p, stream));
        break;
    case FILL_KERNEL:
        late_write<<<FEW_BLOCKS, THREADS, 0, stream>>>(p, n, new_value, 0);
        break;
    case FILL_COPY:
        source.assign(n, new_value);
        OK(cudaMemcpyAsync(p, source.data(), n * sizeof *p, cudaMemcpyHostToDevice, stream));
        break;
    }
    OK(cudaGetLastError());
}

static void judge(unsigned *old_p, unsigned *p, size_t n)
{
    std::vector<unsigned> back(n);
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(back.data(), p, n * sizeof *p, cudaMemcpyDeviceToHost));
    seen.n_wrong += count_wrong(back.data(), n, new_value);
    seen.n_words += n;
    seen.n_same_address += old_p == p;
    seen.n_iterations++;
}

/* Starts the late kernel on `stream` and frees the buffer under it; returns the old address. */
static unsigned *take_under_kernel(size_t n, cudaStream_t stream)
{
    unsigned *p = take(n * sizeof *p);
    late_write<<<FEW_BLOCKS, THREADS, 0, stream>>>(p, n, old_value, late_ns);
    OK(cudaGetLastError());
    return p;
}

static unsigned *free_under_kernel(size_t n, cudaStream_t stream)
{
    unsigned *p = take_under_kernel(n, stream);
    release(p);
    return p;
}

static const size_t sizes[] = {1024 * KIB, 16 * KIB, 1000, 8 * MIB + 12345}; /* words */

static void two_streams(cudaStream_t first, const std::vector<cudaStream_t> &next)
{
    enum fill fills[] = {FILL_MEMSET, FILL_KERNEL, FILL_COPY};
    int k = 0;
    for (size_t n : sizes)
        for (cudaStream_t stream : next) {
            unsigned *old_p = free_under_kernel(n, first);
            unsigned *p = take(n * sizeof *p);
            fill_on(p, n, stream, fills[k++ % 3]);
            judge(old_p, p, n);
            release(p);
        }
}

static cudaStream_t new_stream(unsigned flags)
{
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, flags));
    return stream;
}

static void nonblocking(void)
{
    cudaStream_t a = new_stream(cudaStreamNonBlocking), b = new_stream(cudaStreamNonBlocking);
    two_streams(a, {cudaStreamLegacy, b, cudaStreamPerThread});
}

static void blocking(void)
{
    cudaStream_t a = new_stream(cudaStreamDefault), b = new_stream(cudaStreamDefault);
    two_streams(a, {cudaStreamLegacy, b, a});
}

/* The old user on this thread's default stream, the next user on another thread's. */
static void per_thread(void)
{
    for (size_t n : sizes) {
        unsigned *old_p = free_under_kernel(n, cudaStreamPerThread);
        std::thread other([=] {
            unsigned *p = take(n * sizeof *p);
            fill_on(p, n, cudaStreamPerThread, FILL_MEMSET);
            judge(old_p, p, n);
            release(p);
        });
        other.join();
    }
}

/* The stream that the old user runs on is destroyed, which does not wait for its work. */
static void destroyed(unsigned flags, cudaStream_t next)
{
    for (size_t n : sizes) {
        cudaStream_t stream = new_stream(flags);
        unsigned *old_p = take(n * sizeof *old_p);
        late_write<<<FEW_BLOCKS, THREADS, 0, stream>>>(old_p, n, old_value, late_ns);
        OK(cudaStreamDestroy(stream));
        release(old_p);
        unsigned *p = take(n * sizeof *p);
        fill_on(p, n, next, FILL_MEMSET);
        judge(old_p, p, n);
        release(p);
    }
}

static void destroyed_blocking(void)
{
    destroyed(cudaStreamDefault, new_stream(cudaStreamDefault));
}

/* The legacy stream does not wait for what is left of a non-blocking one. */
static void destroyed_nonblocking(void)
{
    destroyed(cudaStreamNonBlocking, cudaStreamLegacy);
}

/* The old user is a node of a graph. */
static void graph(void)
{
    cudaStream_t a = new_stream(cudaStreamDefault), b = new_stream(cudaStreamDefault);
    for (size_t n : sizes) {
        cudaGraph_t recorded;
        cudaGraphExec_t exec;
        unsigned *old_p = take(n * sizeof *old_p);
        OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
        late_write<<<FEW_BLOCKS, THREADS, 0, a>>>(old_p, n, old_value, late_ns);
        OK(cudaStreamEndCapture(a, &recorded));
        OK(cudaGraphInstantiate(&exec, recorded, 0));
        OK(cudaGraphUpload(exec, a));
        OK(cudaDeviceSynchronize());
        OK(cudaGraphLaunch(exec, a));
        release(old_p);
        unsigned *p = take(n * sizeof *p);
        fill_on(p, n, b, FILL_MEMSET);
        judge(old_p, p, n);
        OK(cudaGraphExecDestroy(exec));
        OK(cudaGraphDestroy(recorded));
        release(p);
    }
}

/* The first non-blocking stream appears after the memory changed hands. */
static void late_stream(void)
{
    size_t n = sizes[0];
    unsigned *old_p = free_under_kernel(n, new_stream(cudaStreamDefault));
    unsigned *p = take(n * sizeof *p);
    fill_on(p, n, new_stream(cudaStreamNonBlocking), FILL_MEMSET);
    judge(old_p, p, n);
    release(p);
}

/* The memory changes hands while some stream is being captured. */
static void capture(void)
{
    cudaStream_t a = new_stream(cudaStreamNonBlocking), b = new_stream(cudaStreamNonBlocking);
    cudaStream_t captured = new_stream(cudaStreamNonBlocking);
    for (size_t n : sizes) {
        cudaGraph_t recorded;
        unsigned *old_p = take_under_kernel(n, a);
        OK(cudaStreamBeginCapture(captured, cudaStreamCaptureModeRelaxed));
        release(old_p);
        unsigned *p = take(n * sizeof *p);
        fill_on(p, n, b, FILL_MEMSET);
        OK(cudaStreamEndCapture(captured, &recorded));
        OK(cudaGraphDestroy(recorded));
        judge(old_p, p, n);
        release(p);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
        bool stream_0_keeps_order;
    } scenarios[] = {
        {"nonblocking", nonblocking, false},
        {"blocking", blocking, true},
        {"per-thread", per_thread, true},
        {"late-stream", late_stream, true},
        {"destroyed-blocking", destroyed_blocking, true},
        {"destroyed-nonblocking", destroyed_nonblocking, false},
        {"graph", graph, true},
        {"capture", capture, false},
    };
    const char *wanted = argc > 1 ? argv[1] : "";
    naive = argc > 2 && !strcmp(argv[2], "naive");
    for (auto &s : scenarios) {
        if (strcmp(s.name, wanted))
            continue;
        warm_up_kernels();
        if (naive)
            start_naive(s.stream_0_keeps_order);
        s.run();
        OK(cudaDeviceSynchronize());
        printf(
            "%zu of %zu words wrong, same address in %d of %d iterations, longest free %.2f ms\n",
            seen.n_wrong, seen.n_words, seen.n_same_address, seen.n_iterations,
            1e3 * seen.longest_free_s);
        return seen.n_wrong ? EXIT_BROKEN : 0;
    }
    fprintf(stderr, "usage: corruption SCENARIO [naive]\n");
    return EXIT_UNUSABLE;
}
