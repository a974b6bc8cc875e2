/* start_constructed LIBRARY: a thread makes the first call of the process while another one opens a
 * library, whose constructor uses CUDA, too. The library is this file again, with CONSTRUCTED. */
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include "tests/common/context.h"
#include "tests/common/say.h"

extern sem_t is_constructing;

#ifdef CONSTRUCTED

/* Long enough for the other thread to be in its call. */
__attribute__((constructor)) static void use_cuda(void)
{
    CUdeviceptr p;

    OK(sem_post(&is_constructing));
    (void)usleep(100000);
    (void)context_open();
    OK(cuMemAlloc(&p, 4096));
    OK(cuMemFree(p));
}

#else

sem_t is_constructing;

static void *use_cuda_beside(void *unused)
{
    CUdeviceptr p;

    OK(sem_wait(&is_constructing));
    (void)context_open();
    OK(cuMemAlloc(&p, 4096));
    OK(cuMemFree(p));
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t other;

    (void)alarm(60); /* rather than for ever */
    OK(sem_init(&is_constructing, 0, 0));
    OK(pthread_create(&other, NULL, use_cuda_beside, NULL));
    OK(!dlopen(argc > 1 ? argv[1] : "", RTLD_NOW));
    OK(pthread_join(other, NULL));
    say("both have used CUDA");
    return 0;
}

#endif
