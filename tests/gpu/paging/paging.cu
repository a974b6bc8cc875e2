/*
 * A program that needs 4 GiB, for a run that is given 2 (ALLOGRAFT_LIMIT):
 *   bytes WHAT    works on all of it and prints checksums. WHAT: read, rw, hidden, copies, graphs,
 *                 fills, threads, fork, frees
 *   held          copies and fills while a kernel waits for the host: natively none of them waits
 *   time WHAT K   passes over all blocks, K kernels on each in turn: ms a pass, of the last ones.
 *                 WHAT: read, rw
 *   longest       allocates 7.5 GiB, for a run that is given 8: ms of the longest call
 */
#include "tests/gpu/check.h"
#include "tests/gpu/paging/kernels.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

static const int n_blocks = 16, grid = 132 * 8, passes = 6;
static const size_t block_bytes = 256 * MIB, n_words = block_bytes / sizeof(uint4);

__global__ void wait_for_host(const volatile unsigned *flag)
{
    while (!*flag)
        ;
}

static unsigned long long *device_sum;

static void open_sum()
{
    OK(cudaMalloc(&device_sum, sizeof *device_sum));
    OK(cudaMemset(device_sum, 0, sizeof *device_sum));
}

static unsigned long long take_sum()
{
    unsigned long long s;
    OK(cudaMemcpy(&s, device_sum, sizeof s, cudaMemcpyDeviceToHost));
    OK(cudaMemset(device_sum, 0, sizeof *device_sum));
    return s;
}

static std::vector<uint4 *> allocate()
{
    std::vector<uint4 *> all(n_blocks);
    for (int i = 0; i < n_blocks; i++) {
        OK(cudaMalloc(&all[i], block_bytes));
        fill<<<grid, 256>>>(all[i], n_words, i);
    }
    OK(cudaDeviceSynchronize());
    return all;
}

static void print_sums(const std::vector<uint4 *> &all)
{
    for (uint4 *p : all) {
        read_all<<<grid, 256>>>(p, n_words, device_sum);
        printf("%llx\n", take_sum());
    }
}

static void work(const std::vector<uint4 *> &all, const char *what, int k, cudaStream_t stream)
{
    for (uint4 *p : all)
        for (int i = 0; i < k; i++) {
            if (!strcmp(what, "read"))
                read_all<<<grid, 256, 0, stream>>>(p, n_words, device_sum);
            else
                mix<<<grid, 256, 0, stream>>>(p, n_words);
        }
}

static void work_hidden(const std::vector<uint4 *> &all)
{
    uint4 **table;
    OK(cudaMalloc(&table, n_blocks * sizeof(uint4 *)));
    OK(cudaMemcpy(table, all.data(), n_blocks * sizeof(uint4 *), cudaMemcpyHostToDevice));
    for (int pass = 0; pass < 3; pass++)
        for (int i = 0; i < n_blocks; i++) {
            mix<<<grid, 256>>>(all[(i * 5 + pass) % n_blocks], n_words);
            mix<<<grid, 256>>>(all[(i * 5 + pass) % n_blocks], n_words);
            mix_hidden<<<grid, 256>>>(table, i, n_words);
        }
    OK(cudaFree(table));
}

/* Copies and fills that begin and end anywhere, of memory of the host that is pinned or not. */
static void work_copies(const std::vector<uint4 *> &all)
{
    const size_t bytes = 100 * MIB + 12345;
    std::vector<unsigned char> pageable(bytes);
    unsigned char *pinned;
    OK(cudaMallocHost(&pinned, bytes));
    for (size_t i = 0; i < bytes; i++)
        pageable[i] = pinned[i] = (unsigned char)(i * 7 + (i >> 9));
    for (int i = 0; i < n_blocks; i++) {
        char *p = (char *)all[i], *q = (char *)all[(i + 7) % n_blocks];
        OK(cudaMemcpy(p + 999, pageable.data(), bytes, cudaMemcpyHostToDevice));
        OK(cudaMemcpyAsync(q + 32 * MIB - 5, pinned, bytes, cudaMemcpyHostToDevice));
        OK(cudaMemcpy(q, p + 7 * MIB + 1, 150 * MIB, cudaMemcpyDeviceToDevice));
        OK(cudaMemset(p + 31 * MIB + 1, i, 2 * MIB));
        OK(cudaMemset2DAsync(q + MIB, 65536, 255 - i, 1000, 1000));
        OK(cudaMemcpy2D(p + 64, 8192, q + 8, 4096, 4000, 4000, cudaMemcpyDeviceToDevice));
        OK(cudaMemcpyAsync(pinned, q + 48 * MIB, bytes, cudaMemcpyDeviceToHost));
        OK(cudaMemcpy(pageable.data(), p + 96 * MIB + 3, bytes, cudaMemcpyDeviceToHost));
        OK(cudaDeviceSynchronize());
        unsigned long long s = 0;
        for (size_t j = 0; j < bytes; j++)
            s = s * 31 + pageable[j] + 3 * pinned[j];
        printf("host %llx\n", s);
    }
    OK(cudaFreeHost(pinned));
}

/* Fills, and copies of a half of a block to the other one, so often in a row that it had better be
 * on the device. */
static void work_fills(const std::vector<uint4 *> &all)
{
    for (int pass = 0; pass < 3; pass++)
        for (int i = 0; i < n_blocks; i++)
            for (int k = 0; k < 4; k++) {
                OK(cudaMemsetAsync(all[i], i + 16 * pass + k, block_bytes / 2));
                OK(cudaMemcpyAsync(all[i] + n_words / 2, all[i], block_bytes / 2,
                                   cudaMemcpyDeviceToDevice));
            }
}

/* Graphs of kernels, with copies and fills in every second one, launched while pieces move. */
static void work_graphs(const std::vector<uint4 *> &all)
{
    std::vector<cudaGraphExec_t> graphs;
    cudaStream_t stream;
    OK(cudaStreamCreate(&stream));
    for (int i = 0; i < n_blocks; i++) {
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
        mix<<<grid, 256, 0, stream>>>(all[i], n_words);
        if (i % 2) {
            OK(cudaMemcpyAsync(all[i], all[i] + n_words / 2, block_bytes / 4,
                               cudaMemcpyDeviceToDevice, stream));
            OK(cudaMemsetAsync(all[i] + n_words / 4, i, block_bytes / 8, stream));
        }
        OK(cudaStreamEndCapture(stream, &graph));
        OK(cudaGraphInstantiate(&exec, graph, 0));
        OK(cudaGraphDestroy(graph));
        graphs.push_back(exec);
    }
    for (int pass = 0; pass < 3; pass++)
        for (int i = 0; i < n_blocks; i++) {
            mix<<<grid, 256, 0, stream>>>(all[(i * 3) % n_blocks], n_words);
            mix<<<grid, 256, 0, stream>>>(all[(i * 3) % n_blocks], n_words);
            OK(cudaGraphLaunch(graphs[i], stream));
        }
    OK(cudaStreamSynchronize(stream));
    for (cudaGraphExec_t exec : graphs)
        OK(cudaGraphExecDestroy(exec));
    OK(cudaStreamDestroy(stream));
}

/* Each thread has blocks of its own, and all of them move those of the others. */
static void work_threads(const std::vector<uint4 *> &all)
{
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++)
        threads.emplace_back([&all, t] {
            cudaStream_t stream;
            OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
            for (int pass = 0; pass < 4; pass++)
                for (int i = t; i < n_blocks; i += 4)
                    work({all[i]}, "rw", 3, stream);
            OK(cudaStreamSynchronize(stream));
            OK(cudaStreamDestroy(stream));
        });
    for (std::thread &thread : threads)
        thread.join();
}

static void work_fork(const std::vector<uint4 *> &all)
{
    work(all, "rw", 2, 0);
    pid_t child = fork();
    if (!child)
        _exit(cudaFree(all[0]) == cudaSuccess); /* a child has no CUDA */
    int status;
    waitpid(child, &status, 0);
    printf("child %d\n", status);
    work(all, "rw", 2, 0);
}

/* Sizes that differ, freed and allocated in turns, while the rest is in use. */
static void work_frees(std::vector<uint4 *> &all)
{
    for (int turn = 0; turn < 40; turn++) {
        int i = (turn * 7) % n_blocks;
        OK(cudaFree(all[i]));
        OK(cudaMalloc(&all[i], block_bytes + (turn % 3) * 5 * MIB));
        fill<<<grid, 256>>>(all[i], n_words, turn);
        work({all[i], all[(i + 3) % n_blocks], all[i]}, "rw", 2, 0);
    }
}

static int bytes(const char *what)
{
    std::vector<uint4 *> all = allocate();
    if (!strcmp(what, "read") || !strcmp(what, "rw"))
        for (int pass = 0; pass < 3; pass++)
            work(all, what, 3, 0);
    else if (!strcmp(what, "hidden"))
        work_hidden(all);
    else if (!strcmp(what, "copies"))
        work_copies(all);
    else if (!strcmp(what, "fills"))
        work_fills(all);
    else if (!strcmp(what, "graphs"))
        work_graphs(all);
    else if (!strcmp(what, "threads"))
        work_threads(all);
    else if (!strcmp(what, "fork"))
        work_fork(all);
    else if (!strcmp(what, "frees"))
        work_frees(all);
    else
        return EXIT_UNUSABLE;
    printf("%llx\n", take_sum());
    print_sums(all);
    for (uint4 *p : all)
        OK(cudaFree(p));
    return 0;
}

/* The code of a kernel is on the device, and whatever the first use of a call makes is made: that
 * may wait for the work before it. */
static void warm_up(const std::vector<uint4 *> &all, unsigned *flag, char *pinned,
                    cudaStream_t stream)
{
    *flag = 1;
    wait_for_host<<<1, 1, 0, stream>>>(flag);
    for (int i = 0; i < 2; i++) {
        mix<<<1, 32, 0, stream>>>(all[i], 32);
        OK(cudaMemcpyAsync(all[i], all[2], MIB, cudaMemcpyDeviceToDevice, stream));
        OK(cudaMemsetAsync(all[i], 1, MIB, stream));
        OK(cudaMemcpyAsync(all[i], pinned, MIB, cudaMemcpyHostToDevice, stream));
        OK(cudaMemcpyAsync(pinned, all[i], MIB, cudaMemcpyDeviceToHost, stream));
    }
    OK(cudaDeviceSynchronize());
    *flag = 0;
}

/* A wait is a hang: SIGALRM ends it. */
static int held()
{
    /* Each stream has a queue of its own, and no code is loaded behind the kernel. */
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    open_sum();
    std::vector<uint4 *> all = allocate();
    unsigned *flag;
    std::vector<char> pageable(4096);
    char *pinned;
    cudaStream_t held_up, free_one;
    OK(cudaHostAlloc((void **)&flag, sizeof *flag, cudaHostAllocMapped));
    OK(cudaMallocHost(&pinned, MIB));
    OK(cudaStreamCreateWithFlags(&held_up, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&free_one, cudaStreamNonBlocking));
    warm_up(all, flag, pinned, held_up);
    warm_up(all, flag, pinned, free_one);
    wait_for_host<<<1, 1, 0, held_up>>>(flag);
    alarm(20);
    for (int i = 0; i < n_blocks; i++) { /* behind the kernel, without a wait */
        char *p = (char *)all[i], *q = (char *)all[(i + 1) % n_blocks];
        OK(cudaMemcpyAsync(p, q, MIB, cudaMemcpyDeviceToDevice, held_up));
        OK(cudaMemsetAsync(q, i, MIB, held_up));
        OK(cudaMemcpyAsync(p + MIB, pinned, MIB, cudaMemcpyHostToDevice, held_up));
        OK(cudaMemcpyAsync(pinned, q + MIB, MIB, cudaMemcpyDeviceToHost, held_up));
        mix<<<1, 32, 0, held_up>>>(all[i], 32);
    }
    printf("behind it\n");
    fflush(stdout);
    for (int i = 0; i < n_blocks; i++) { /* beside it */
        mix<<<1, 32, 0, free_one>>>(all[i], 32);
        OK(cudaStreamSynchronize(free_one));
    }
    printf("beside it\n");
    fflush(stdout);
    for (int i = 0; i < n_blocks; i++)
        OK(cudaMemcpyAsync((char *)all[i] + 2 * MIB, pageable.data(), 4096, cudaMemcpyHostToDevice,
                           held_up));
    printf("small copies from pageable memory\n");
    fflush(stdout);
    *(volatile unsigned *)flag = 1;
    OK(cudaDeviceSynchronize());
    alarm(0);
    return 0;
}

static int timed(const char *what, int k)
{
    std::vector<uint4 *> all = allocate();
    std::vector<double> ms;
    for (int pass = 0; pass < passes; pass++) {
        double start = now_s();
        work(all, what, k, 0);
        OK(cudaDeviceSynchronize());
        ms.push_back(1000 * (now_s() - start));
    }
    std::sort(ms.begin() + 2, ms.end());
    printf("%s_%d_first_pass_ms %.2f\n%s_%d_pass_ms %.2f\n", what, k, ms[0], what, k,
           ms[2 + (passes - 2) / 2]);
    return 0;
}

/* While a thread of ours makes memory of the host. */
static int longest()
{
    const int n = 240;
    double ms = 0;
    for (int i = 0; i < n; i++) {
        double start = now_s();
        void *p;
        OK(cudaMalloc(&p, 32 * MIB));
        ms = i ? std::max(ms, 1000 * (now_s() - start)) : 0; /* the first one makes the context */
    }
    printf("longest_ms %.1f\n", ms);
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "held"))
        return held();
    if (!strcmp(mode, "longest"))
        return longest();
    open_sum();
    if (!strcmp(mode, "bytes") && argc > 2)
        return bytes(argv[2]);
    if (!strcmp(mode, "time") && argc > 3)
        return timed(argv[2], atoi(argv[3]));
    fprintf(stderr, "usage: paging bytes WHAT|held|time WHAT K|longest\n");
    return EXIT_UNUSABLE;
}
