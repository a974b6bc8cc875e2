/* cudaMemGetInfo around allocations: what is taken is gone, what is freed is back at once. */
#include "tests/gpu/check.h"

#include <vector>

static int n_wrong;

static long long free_now(void)
{
    size_t free_bytes, total;
    OK(cudaMemGetInfo(&free_bytes, &total));
    return (long long)free_bytes;
}

/* Other allocations of the driver (local memory, code) blur the figures by a few MiB. */
static void expect(const char *what, long long got, size_t wanted, size_t slack)
{
    bool right = llabs(got - (long long)wanted) <= (long long)slack;
    printf("%s%s %.1f MiB%s", n_wrong || strcmp(what, "64 MiB:") ? "; " : "", what,
           (double)got / (double)MIB, right ? "" : " (wrong)");
    n_wrong += !right;
}

static void one(const char *what, size_t bytes)
{
    void *p;
    long long before = free_now();
    OK(cudaMalloc(&p, bytes));
    long long taken = before - free_now();
    OK(cudaFree(p));
    expect(what, taken, bytes, 4 * MIB);
    expect("kept", before - free_now(), 0, 4 * MIB);
}

static void hundred_small(void)
{
    std::vector<void *> all(100);
    long long before = free_now();
    for (auto &p : all)
        OK(cudaMalloc(&p, 1 * MIB));
    long long taken = before - free_now();
    for (auto &p : all)
        OK(cudaFree(p));
    expect("100 x 1 MiB:", taken, 150 * MIB, 54 * MIB); /* the driver may round up to 2 MiB */
    expect("kept", before - free_now(), 0, 8 * MIB);
}

/* Freed while a kernel still uses it: natively the free has waited, so it is back. */
static void busy(void)
{
    unsigned *p;
    cudaStream_t s;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    long long before = free_now();
    OK(cudaMalloc(&p, 256 * MIB));
    late_write<<<FEW_BLOCKS, THREADS, 0, s>>>(p, 1000, 1, 50 * 1000 * 1000);
    OK(cudaFree(p));
    expect("busy 256 MiB kept", before - free_now(), 0, 8 * MIB);
    OK(cudaDeviceSynchronize());
}

int main()
{
    warm_up_kernels();
    one("64 MiB:", 64 * MIB);
    one("1 GiB:", 1 * GIB);
    hundred_small();
    busy();
    one("64 MiB again:", 64 * MIB);
    printf("\n");
    return n_wrong ? EXIT_BROKEN : 0;
}
