/*
 * A program that needs 6 GiB, for a run that is given less (ALLOGRAFT_LIMIT):
 *   bytes    works on all of it and prints checksums; lines of measured figures start with "figure"
 *   exhaust  takes blocks until there are no more, says how many and with which code, goes on
 *   room     has a block spilled, frees others, and sees how fast the block becomes
 */
#include "tests/gpu/check.h"
#include "tests/gpu/paging/kernels.h"

#include <algorithm>
#include <vector>

static const int n_blocks = 12, grid = 132 * 16;
static const size_t block_bytes = 512 * MIB, n_words = block_bytes / sizeof(uint4);

__global__ void mix(uint4 *to, const uint4 *from, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * (size_t)blockDim.x) {
        uint4 a = to[i], b = from[n - 1 - i];
        to[i] = make_uint4(a.x * 3 + b.w, a.y ^ b.z, a.z + b.y, a.w - b.x);
    }
}

static unsigned long long *device_sum;

static unsigned long long checksum(const uint4 *p)
{
    unsigned long long s;
    OK(cudaMemset(device_sum, 0, sizeof *device_sum));
    read_all<<<grid, 256>>>(p, n_words, device_sum);
    OK(cudaGetLastError());
    OK(cudaMemcpy(&s, device_sum, sizeof s, cudaMemcpyDeviceToHost));
    return s;
}

template <class F> static double gb_per_s(F kernel)
{
    cudaEvent_t from, to;
    float ms;
    OK(cudaEventCreate(&from));
    OK(cudaEventCreate(&to));
    std::vector<double> rates;
    for (int i = 0; i < 5; i++) {
        OK(cudaEventRecord(from));
        kernel();
        OK(cudaEventRecord(to));
        OK(cudaEventSynchronize(to));
        OK(cudaEventElapsedTime(&ms, from, to));
        rates.push_back(1e-6 * (double)block_bytes / ms);
    }
    OK(cudaEventDestroy(from));
    OK(cudaEventDestroy(to));
    std::sort(rates.begin(), rates.end());
    return rates[rates.size() / 2];
}

static double read_gb_per_s(const uint4 *p)
{
    return gb_per_s([&] { read_all<<<grid, 256>>>(p, n_words, device_sum); });
}

static bool is_managed(const void *p)
{
    cudaPointerAttributes attributes;
    OK(cudaPointerGetAttributes(&attributes, p));
    return attributes.type == cudaMemoryTypeManaged;
}

static uint4 *take(int value)
{
    uint4 *p;
    OK(cudaMalloc(&p, block_bytes));
    fill<<<grid, 256>>>(p, n_words, (unsigned)value);
    OK(cudaGetLastError());
    return p;
}

static void print_sums(const char *when, const std::vector<uint4 *> &all)
{
    for (size_t i = 0; i < all.size(); i++)
        printf("%s, block %zu: %016llx\n", when, i, checksum(all[i]));
}

/* What the bus gives: how fast the device reads the host's pinned memory. */
static double pinned_gb_per_s(void)
{
    void *pinned;
    OK(cudaHostAlloc(&pinned, block_bytes, cudaHostAllocDefault));
    double rate = read_gb_per_s((const uint4 *)pinned);
    OK(cudaFreeHost(pinned));
    return rate;
}

/* The slowest of the spilled blocks, and the slowest of the others. */
static void print_figures(const std::vector<uint4 *> &all)
{
    double rates[2] = {1e9, 1e9}, written = 1e9;
    int n_spilled = 0;
    for (uint4 *p : all) {
        bool spilled = is_managed(p);
        rates[spilled] = std::min(rates[spilled], read_gb_per_s(p));
        n_spilled += spilled;
        if (spilled)
            written = std::min(written, gb_per_s([&] { fill<<<grid, 256>>>(p, n_words, 1); }));
    }
    printf("figure spilled_blocks %d\n", n_spilled);
    printf("figure device_read_gb_per_s %.1f\n", rates[0]);
    printf("figure spilled_read_gb_per_s %.1f\n", rates[1]);
    printf("figure spilled_write_gb_per_s %.1f\n", written);
    printf("figure pinned_read_gb_per_s %.1f\n", pinned_gb_per_s());
}

static int bytes(void)
{
    std::vector<uint4 *> all;
    std::vector<unsigned> piece(256 * KIB);
    for (int i = 0; i < n_blocks; i++)
        all.push_back(take(i));
    print_sums("filled", all);
    for (int iteration = 0; iteration < 3; iteration++)
        for (int i = 0; i < n_blocks; i++)
            mix<<<grid, 256>>>(all[i], all[(i + 5) % n_blocks], n_words);
    print_sums("mixed", all);
    for (int i = 0; i < n_blocks; i += 3) {
        OK(cudaFree(all[i]));
        all[i] = take(100 + i);
    }
    for (int i = 0; i + 2 < n_blocks; i += 3) {
        OK(cudaMemcpy(all[i], all[i + 1], block_bytes / 2, cudaMemcpyDeviceToDevice));
        OK(cudaMemset(all[i + 2], i, block_bytes / 4));
        OK(cudaMemcpy(piece.data(), all[i] + i, piece.size() * 4, cudaMemcpyDeviceToHost));
        OK(cudaMemcpy(all[i + 1], piece.data(), piece.size() * 4, cudaMemcpyHostToDevice));
        printf("piece of block %d: %08x %08x\n", i, piece[5], piece[piece.size() - 1]);
    }
    print_sums("taken again and copied", all);
    print_figures(all);
    for (uint4 *p : all)
        OK(cudaFree(p));
    return 0;
}

static int exhaust(void)
{
    std::vector<uint4 *> all;
    size_t free_bytes, total;
    cudaError_t code = cudaSuccess;
    OK(cudaMemGetInfo(&free_bytes, &total));
    printf("total_mib %zu\n", total / MIB);
    while ((int)all.size() < n_blocks) {
        uint4 *p;
        code = cudaMalloc(&p, block_bytes);
        if (code)
            break;
        fill<<<grid, 256>>>(p, n_words, (unsigned)all.size());
        all.push_back(p);
    }
    printf("blocks %zu\ncode %d %d\n", all.size(), code, cudaGetLastError());
    OK(cudaMemGetInfo(&free_bytes, &total));
    printf("free_mib %zu\n", free_bytes / MIB);
    size_t n_right = 0;
    for (size_t i = 0; i < all.size(); i++) {
        unsigned long long before = checksum(all[i]);
        fill<<<grid, 256>>>(all[i], n_words, (unsigned)i);
        n_right += before == checksum(all[i]);
    }
    printf("right %zu\n", n_right);
    OK(cudaFree(all.back()));
    all.back() = take(99);
    printf("again %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    for (uint4 *p : all)
        OK(cudaFree(p));
    return 0;
}

/* Blocks until one is spilled; natively there are just some. */
static std::vector<uint4 *> take_until_spilled(void)
{
    std::vector<uint4 *> all;
    while (all.size() < 6) {
        all.push_back(take((int)all.size()));
        if (is_managed(all.back()))
            break;
    }
    return all;
}

static int room(void)
{
    std::vector<uint4 *> all = take_until_spilled();
    uint4 *last = all.back();
    unsigned long long wanted = checksum(last);
    printf("spilled %d\nbefore_gb_per_s %.1f\n", is_managed(last), read_gb_per_s(last));
    for (size_t i = 0; i + 1 < all.size(); i++)
        OK(cudaFree(all[i]));
    double rate, start = now_s();
    do { /* a program that goes on working */
        void *p;
        OK(cudaMalloc(&p, 1 * MIB));
        rate = read_gb_per_s(last);
        OK(cudaFree(p));
    } while (rate < 500 && now_s() - start < 3);
    printf("after_ms %.1f\nafter_gb_per_s %.1f\n", 1000 * (now_s() - start), rate);
    bool right = checksum(last) == wanted;
    printf("bytes %s\n", right ? "right" : "wrong");
    OK(cudaFree(last));
    return right ? 0 : EXIT_BROKEN;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    OK(cudaMalloc(&device_sum, sizeof *device_sum));
    if (!strcmp(mode, "bytes"))
        return bytes();
    if (!strcmp(mode, "exhaust"))
        return exhaust();
    if (!strcmp(mode, "room"))
        return room();
    fprintf(stderr, "usage: spill bytes|exhaust|room\n");
    return EXIT_UNUSABLE;
}
