/*
 * A forked child and its parent. `before`: both use CUDA, the child with 5 allocations, the parent
 * with 3. `after`: the parent has used CUDA and forks a child that ends without doing so.
 */
#include "tests/gpu/check.h"

#include <sys/wait.h>
#include <unistd.h>

static int use_cuda(int n_allocations)
{
    int n_right = 0;
    for (int i = 0; i < n_allocations; i++) {
        unsigned *p, back = 0;
        OK(cudaMalloc(&p, 10000));
        late_write<<<1, 32>>>(p, 100, 40 + i, 0);
        OK(cudaMemcpy(&back, p + 99, sizeof back, cudaMemcpyDeviceToHost));
        OK(cudaFree(p));
        n_right += back == 40u + i;
    }
    return n_right;
}

static void print_child(pid_t child)
{
    int status;
    OK(waitpid(child, &status, 0) != child);
    printf("child: %s\n", WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "well" : "not well");
}

int main(int argc, char **argv)
{
    bool before = argc > 1 && !strcmp(argv[1], "before");
    if (!before)
        printf("parent: %d of 3\n", use_cuda(3));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (!before)
            _exit(0);
        return use_cuda(5) == 5 ? 0 : 1;
    }
    print_child(child);
    if (before)
        printf("parent: %d of 3\n", use_cuda(3));
    return 0;
}
