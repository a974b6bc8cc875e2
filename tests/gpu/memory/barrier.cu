/*
 * The host reads memory that a kernel writes, right after a cudaFree of something else: natively
 * the free has waited for the kernel, so the bytes are there. Or it writes what a batch copy from
 * pageable memory was to read, in any order, which the free has waited for likewise.
 *
 * `nobarrier` leaves the cudaFree out: the bytes must then be missing, or nothing is tested.
 */
#include "tests/gpu/check.h"

#include <vector>

static const unsigned new_value = 0x33333333u;
static const unsigned long long late_ns = 50 * 1000 * 1000;
static const size_t n_words = 64 * KIB;
static const size_t n_bytes = n_words * sizeof(unsigned);
static const int n_iterations = 3;

static bool barrier = true;
static size_t n_wrong, n_checked;

/* A program of its own: a module that has such a variable is enough to be told from others. */
#ifdef MANAGED_VARIABLE
__managed__ unsigned managed_variable[n_words];
#endif

/* What the host reads and where the device writes it; if `copied`, a copy leads from one to the
 * other. */
struct shared_words {
    unsigned *host, *device;
    bool copied, batch, is_source; /* batch: the copy is one; is_source: it leads to the device */
};

static unsigned *page_aligned(void)
{
    void *p;
    OK(posix_memalign(&p, 4096, n_bytes));
    return (unsigned *)p;
}

static struct shared_words make_pinned(void)
{
    struct shared_words w = {};
    OK(cudaMallocHost(&w.host, n_bytes));
    w.device = w.host;
    return w;
}

static struct shared_words make_registered(void)
{
    struct shared_words w = {};
    w.host = page_aligned();
    OK(cudaHostRegister(w.host, n_bytes, cudaHostRegisterMapped));
    OK(cudaHostGetDevicePointer((void **)&w.device, w.host, 0));
    return w;
}

static struct shared_words make_mapped(void)
{
    struct shared_words w = {};
    OK(cudaHostAlloc((void **)&w.host, n_bytes, cudaHostAllocMapped | cudaHostAllocPortable));
    OK(cudaHostGetDevicePointer((void **)&w.device, w.host, 0));
    return w;
}

static struct shared_words make_managed(void)
{
    struct shared_words w = {};
    OK(cudaMallocManaged(&w.host, n_bytes));
    w.device = w.host;
    return w;
}

#ifdef MANAGED_VARIABLE
static struct shared_words make_variable(void)
{
    struct shared_words w = {};
    OK(cudaGetSymbolAddress((void **)&w.device, managed_variable));
    w.host = managed_variable;
    return w;
}
#endif

static struct shared_words make_copied(void)
{
    struct shared_words w = {};
    OK(cudaMallocHost(&w.host, n_bytes));
    OK(cudaMalloc(&w.device, n_bytes));
    w.copied = true;
    return w;
}

/* Pageable memory of more bytes than a driver takes along with the call. */
static struct shared_words make_batch_to(void)
{
    struct shared_words w = {};
    w.host = page_aligned();
    OK(cudaMalloc(&w.device, n_bytes));
    w.batch = true;
    return w;
}

static struct shared_words make_batch_from(void)
{
    struct shared_words w = make_batch_to();
    w.is_source = true;
    return w;
}

static void copy_batch(void *to, const void *from, cudaStream_t stream)
{
    cudaMemcpyAttributes attributes = {};
    void *tos[] = {to};
    const void *froms[] = {from};
    size_t bytes[] = {n_bytes}, first[] = {0};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderAny;
    OK(cudaMemcpyBatchAsync(tos, froms, bytes, 1, &attributes, first, 1, stream));
}

/* The host writes the source of a batch once the free has returned. */
static void source_trip(struct shared_words w, cudaStream_t stream)
{
    unsigned *other, *spare;
    unsigned *seen = page_aligned();
    OK(cudaMalloc(&other, 1 * MIB));
    OK(cudaMalloc(&spare, n_bytes));
    memset(w.host, new_value & 0xff, n_bytes);
    late_write<<<FEW_BLOCKS, THREADS, 0, stream>>>(spare, n_words, 0, late_ns);
    OK(cudaGetLastError());
    copy_batch(w.device, w.host, stream);
    if (barrier)
        OK(cudaFree(other));
    memset(w.host, 0, n_bytes);
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(seen, w.device, n_bytes, cudaMemcpyDeviceToHost));
    n_wrong += count_wrong(seen, n_words, new_value);
    n_checked += n_words;
    if (!barrier)
        OK(cudaFree(other));
    OK(cudaFree(spare));
    free(seen);
}

static void iteration_trip(struct shared_words w, cudaStream_t stream)
{
    unsigned *other;
    OK(cudaMalloc(&other, 1 * MIB));
    memset(w.host, 0, n_bytes);
    late_write<<<FEW_BLOCKS, THREADS, 0, stream>>>(w.device, n_words, new_value, late_ns);
    OK(cudaGetLastError());
    if (w.copied)
        OK(cudaMemcpyAsync(w.host, w.device, n_bytes, cudaMemcpyDeviceToHost, stream));
    if (w.batch)
        copy_batch(w.host, w.device, stream);
    if (barrier)
        OK(cudaFree(other));
    n_wrong += count_wrong(w.host, n_words, new_value);
    n_checked += n_words;
    OK(cudaDeviceSynchronize());
    if (!barrier)
        OK(cudaFree(other));
}

/* Frees with nothing to hide before the program has any memory that the host can see. */
static void free_some_early(void)
{
    for (int i = 0; i < 5; i++) {
        void *p;
        OK(cudaMalloc(&p, 1 * MIB));
        OK(cudaFree(p));
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        struct shared_words (*make)(void);
    } kinds[] = {
#ifdef MANAGED_VARIABLE
        {"variable", make_variable},
#endif
        {"pinned", make_pinned},         {"registered", make_registered},
        {"mapped", make_mapped},         {"managed", make_managed},
        {"copied", make_copied},         {"batch-to", make_batch_to},
        {"batch-from", make_batch_from},
    };
    const char *wanted = argc > 1 ? argv[1] : "";
    barrier = !(argc > 2 && !strcmp(argv[2], "nobarrier"));
    for (auto &kind : kinds) {
        if (strcmp(kind.name, wanted))
            continue;
        cudaStream_t streams[3] = {cudaStreamLegacy, NULL, NULL};
        warm_up_kernels();
        free_some_early();
        OK(cudaStreamCreateWithFlags(&streams[1], cudaStreamDefault));
        OK(cudaStreamCreateWithFlags(&streams[2], cudaStreamNonBlocking));
        struct shared_words w = kind.make();
        if (w.batch) /* none on the legacy stream */
            streams[0] = cudaStreamPerThread;
        for (int i = 0; i < n_iterations; i++)
            (w.is_source ? source_trip : iteration_trip)(w, streams[i]);
        printf("%zu of %zu words wrong\n", n_wrong, n_checked);
        return n_wrong ? EXIT_BROKEN : 0;
    }
    fprintf(stderr, "usage: barrier KIND [nobarrier]\n");
    return EXIT_UNUSABLE;
}
