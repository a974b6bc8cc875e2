/*
 * Another process needs room on the card while this one allocates and frees blocks of 1 MiB, after
 * it has had, and freed, 80 % of the card: how much does that get within 2 s? It is this program
 * again, without a library before it, and takes all that it can: `neighbour_mib N`.
 */
#include "tests/gpu/check.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#define SECONDS 2
#define STEP    (32 * MIB)

static int take(void)
{
    size_t taken = 0;
    void *block;

    OK(cudaFree(0));
    for (double began = now_s(); now_s() - began < SECONDS;) {
        if (cudaMalloc(&block, STEP) == cudaSuccess)
            taken += STEP;
        else
            usleep(1000);
    }
    printf("neighbour_mib %zu\n", taken / MIB);
    return 0;
}

static pid_t begin_neighbour(void)
{
    char program[] = "/proc/self/exe", word[] = "take", *argv[] = {program, word, NULL};
    pid_t child;

    unsetenv("LD_PRELOAD");
    CHECK(posix_spawn(&child, program, NULL, NULL, argv, environ) == 0);
    return child;
}

/* Where the other has taken all, there may be none for a moment. */
static unsigned long turns(pid_t until)
{
    unsigned long n_pairs = 0;
    int status;
    void *block;

    while (waitpid(until, &status, WNOHANG) == 0) {
        for (int i = 0; i < 1000; i++) {
            if (cudaMalloc(&block, MIB) != cudaSuccess)
                continue;
            OK(cudaFree(block));
            n_pairs++;
        }
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return n_pairs;
}

int main(int argc, char **argv)
{
    size_t free_bytes, total_bytes;

    if (argc > 1 && !strcmp(argv[1], "take"))
        return take();
    OK(cudaFree(0));
    OK(cudaMemGetInfo(&free_bytes, &total_bytes));
    std::vector<void *> blocks(free_bytes / (64 * MIB) * 8 / 10);
    for (int turn = 0; turn < 3; turn++) {
        for (auto &block : blocks)
            OK(cudaMalloc(&block, 64 * MIB));
        for (auto &block : blocks)
            OK(cudaFree(block));
    }
    printf("freed_mib %zu\n", blocks.size() * 64);
    fflush(stdout);
    unsigned long n_pairs = turns(begin_neighbour());
    fprintf(stderr, "%lu pairs\n", n_pairs);
    return 0;
}
