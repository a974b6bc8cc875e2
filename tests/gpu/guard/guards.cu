/* Mistakes for ALLOGRAFT_GUARD to find, each in a function of its own, and a program without any.
 * usage: guards behind|before|freed-by-kernel|freed-by-copy|beyond|stale|clean|pairs
 *   pairs   a line "pairs: N ns" for the checks of speed: 4096 allocations and frees of 1 MiB */
#include "tests/gpu/check.h"

static unsigned *allocate(size_t bytes)
{
    unsigned *p;
    OK(cudaMalloc(&p, bytes));
    return p;
}

static void kernel_writes(void *p, size_t words)
{
    late_write<<<1, THREADS>>>((unsigned *)p, words, 0x11111111, 0);
    OK(cudaGetLastError());
    OK(cudaDeviceSynchronize());
}

/* 3 words behind a block of 1000 bytes. */
static void behind(void)
{
    unsigned *p = allocate(1000);
    kernel_writes(p, 253);
    OK(cudaFree(p));
}

/* 2 words right before a block of 3000 bytes. */
static void before(void)
{
    unsigned *p = allocate(3000);
    kernel_writes(p - 2, 2);
    OK(cudaFree(p));
}

/* 4 words into a block of 5000 bytes, at offset 400, after it was freed. */
static void freed_by_kernel(void)
{
    unsigned *p = allocate(5000);
    OK(cudaFree(p));
    kernel_writes(p + 100, 4);
}

/* The last 6 bytes of a block of 6000 bytes, after it was freed. */
static void freed_by_copy(void)
{
    const char ones[6] = {1, 1, 1, 1, 1, 1};
    char *p = (char *)allocate(6000);
    OK(cudaFree(p));
    OK(cudaMemcpy(p + 5994, ones, sizeof ones, cudaMemcpyHostToDevice));
}

/* A word behind the last page of a block: the device stops. */
static void beyond(void)
{
    unsigned *p = allocate(4096);
    late_write<<<1, 1>>>(p + 1024, 1, 1, 0);
    printf("after it: %d\n", (int)cudaDeviceSynchronize());
}

/* A freed block is read by a kernel: with pages the device stops. */
static void stale(void)
{
    unsigned *p = allocate(4096), *to = allocate(4096), word = 0;
    OK(cudaFree(p));
    copy_words<<<1, 1>>>(to, p, 1);
    cudaError_t code = cudaDeviceSynchronize();
    if (code == cudaSuccess)
        OK(cudaMemcpy(&word, to, sizeof word, cudaMemcpyDeviceToHost));
    printf("after it: %d, read %08x\n", (int)code, word);
}

/* Blocks of many sizes, written to their last byte on two streams. */
static void clean(void)
{
    unsigned *blocks[64];
    cudaStream_t streams[2];
    size_t wrong = 0, pitch;
    void *rows;
    OK(cudaStreamCreateWithFlags(&streams[0], cudaStreamNonBlocking));
    OK(cudaStreamCreate(&streams[1]));
    for (int turn = 0; turn < 20; turn++) {
        for (size_t i = 0; i < 64; i++) {
            blocks[i] = allocate((1 + 611 * i) * sizeof(unsigned));
            late_write<<<FEW_BLOCKS, THREADS, 0, streams[i % 2]>>>(blocks[i], 1 + 611 * i, i, 1000);
        }
        OK(cudaDeviceSynchronize());
        for (size_t i = 0; i < 64; i++) {
            size_t n = 1 + 611 * i;
            unsigned *words = (unsigned *)malloc(n * sizeof(unsigned));
            OK(cudaMemcpy(words, blocks[i], n * sizeof(unsigned), cudaMemcpyDeviceToHost));
            wrong += count_wrong(words, n, i);
            free(words);
            OK(cudaFree(blocks[i]));
        }
    }
    OK(cudaMallocPitch(&rows, &pitch, 1000, 30));
    OK(cudaMemset(rows, 7, pitch * 30));
    OK(cudaFree(rows));
    printf("wrong words: %zu, pitch %zu\n", wrong, pitch);
}

static void pairs(void)
{
    const int n = 4096;
    OK(cudaFree(allocate(1 * MIB)));
    double began = now_s();
    for (int i = 0; i < n; i++)
        OK(cudaFree(allocate(1 * MIB)));
    printf("pairs: %.0f ns\n", (now_s() - began) / n * 1e9);
}

static const struct {
    const char *name;
    void (*run)(void);
} parts[] = {
    {"behind", behind},
    {"before", before},
    {"freed-by-kernel", freed_by_kernel},
    {"freed-by-copy", freed_by_copy},
    {"beyond", beyond},
    {"stale", stale},
    {"clean", clean},
    {"pairs", pairs},
};

int main(int argc, char **argv)
{
    warm_up_kernels();
    for (const auto &part : parts) {
        if (argc > 1 && !strcmp(argv[1], part.name)) {
            part.run();
            puts("done");
            return 0;
        }
    }
    return EXIT_UNUSABLE;
}
