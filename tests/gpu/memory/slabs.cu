/*
 * Small blocks for which nothing was freed before, as `name value` lines: what one costs in the
 * mean, in the median, from 16 threads at once; all frees of them on an idle device.
 *
 * `handful` allocates and frees eight blocks in a process that has no other, and prints only how
 * long that takes and what the device has less meanwhile.
 */
#include "tests/gpu/check.h"

#include <algorithm>
#include <thread>
#include <vector>

static const int n_cold = 2000;
static const int n_threads = 16;

static double room_mib()
{
    size_t left, total;
    OK(cudaMemGetInfo(&left, &total));
    return (double)left / (double)MIB;
}

static double median(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

static double us(double since)
{
    return 1e6 * (now_s() - since);
}

/* Eight blocks of 1 to 64 KiB, the device idle: time, and memory while they are there. */
static void handful()
{
    void *blocks[8];
    OK(cudaFree(nullptr)); /* makes the context */
    double before = room_mib(), began = now_s();
    for (int i = 0; i < 8; i++)
        OK(cudaMalloc(&blocks[i], KIB << i % 7));
    double spent = us(began);
    printf("handful_taken_mib %.3f\n", before - room_mib());
    began = now_s();
    for (void *block : blocks)
        OK(cudaFree(block));
    printf("handful_us %.3f\n", spent + us(began));
}

/* All are written to and read back: a block that another overlaps is found. */
static bool are_apart(const std::vector<unsigned char *> &blocks, size_t bytes)
{
    std::vector<unsigned char> ends(2);
    for (size_t i = 0; i < blocks.size(); i++)
        OK(cudaMemset(blocks[i], (int)(i % 251), bytes));
    for (size_t i = 0; i < blocks.size(); i++) {
        OK(cudaMemcpy(&ends[0], blocks[i], 1, cudaMemcpyDeviceToHost));
        OK(cudaMemcpy(&ends[1], blocks[i] + bytes - 1, 1, cudaMemcpyDeviceToHost));
        if (ends[0] != i % 251 || ends[1] != i % 251)
            return false;
    }
    return true;
}

static bool cold(size_t kib)
{
    std::vector<unsigned char *> blocks(n_cold);
    std::vector<double> each;
    double began = now_s();
    for (auto &block : blocks) {
        double start = now_s();
        OK(cudaMalloc(&block, kib * KIB));
        each.push_back(us(start));
    }
    printf("cold_%zukib_us %.4f\ncold_median_%zukib_us %.4f\n", kib, us(began) / n_cold, kib,
           median(each));
    bool apart = are_apart(blocks, kib * KIB);
    OK(cudaDeviceSynchronize());
    began = now_s();
    for (auto block : blocks)
        OK(cudaFree(block));
    printf("freed_%zukib_us %.4f\n", kib, us(began) / n_cold);
    return apart;
}

/* Of sizes that nothing was freed of. */
static void from_threads()
{
    std::vector<std::thread> threads;
    double began = now_s();
    for (int i = 0; i < n_threads; i++) {
        threads.emplace_back([] {
            OK(cudaSetDevice(0));
            for (int k = 0; k < n_cold; k++) {
                void *p;
                OK(cudaMalloc(&p, 7 * KIB));
            }
        });
    }
    for (auto &thread : threads)
        thread.join();
    printf("cold_16_threads_per_s %.0f\n", n_threads * n_cold / (now_s() - began));
}

int main(int argc, char **argv)
{
    bool apart = true;
    if (argc > 1 && !strcmp(argv[1], "handful")) {
        handful();
        return 0;
    }
    for (int i = 0; i < 2;
         i++) { /* from here on small blocks are cut under the default policy, too */
        void *p;
        OK(cudaMalloc(&p, MIB));
        OK(cudaFree(p));
    }
    for (size_t kib : {1, 4, 16, 64})
        apart = cold(kib) && apart;
    from_threads();
    return apart ? 0 : EXIT_BROKEN;
}
