/* A program that relies on the wait of cudaFree, with a library that submits work, or reads memory,
 * where no hook sees it. WHAT: "fill", "reuse", "read", "replay", "threads"; WHEN: the library is
 * there "early", or opened "late", or late and bound to the driver ("deep"), or by a "child"; then
 * the libraries, the last of which does it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/common/device.h"
#include "tests/common/say.h"
#include "tests/preload/unseen/unseen.h"

#define WORDS      20000u
#define BYTES      (WORDS * sizeof(uint32_t))
#define ITERATIONS 12u
#define THREADS    3u

static unseen_fill_function *fill_unseen;
static unseen_read_function *read_unseen;
static CUstream stream, other_stream;

static void open_libraries(char **paths, int mode)
{
    void *library = NULL;

    for (; *paths; paths++) {
        library = dlopen(*paths, RTLD_NOW | mode);
        if (!library) {
            say("%s", dlerror());
            _exit(97);
        }
    }
    *(void **)&fill_unseen = dlsym(library, "unseen_fill");
    *(void **)&read_unseen = dlsym(library, mode & RTLD_DEEPBIND ? "read_past" : "unseen_read");
}

/* The free is that of other memory. */
static void wait_by_free(void)
{
    CUdeviceptr p;

    OK(cuMemAlloc(&p, BYTES));
    OK(cuMemFree(p));
}

static uint32_t by_fill(CUdeviceptr p, uint32_t value)
{
    static uint32_t words[WORDS];

    OK((CUresult)fill_unseen(kernel_fill, stream, p, WORDS, value));
    wait_by_free();
    OK(cuMemcpyDtoH(words, p, BYTES));
    return wrong_words(words, WORDS, value);
}

static uint32_t by_read(CUdeviceptr p, uint32_t value)
{
    static uint32_t words[WORDS];

    launch_fill(stream, p, WORDS, value);
    wait_by_free();
    OK((CUresult)read_unseen(words, p, BYTES));
    return wrong_words(words, WORDS, value);
}

/* The memory of the free is handed out again. */
static uint32_t by_reuse(CUdeviceptr p, uint32_t value)
{
    CUdeviceptr first, second;
    uint32_t wrong;

    launch_fill(other_stream, p, WORDS, 0); /* what hooks see lies on one stream */
    OK(cuMemAlloc(&first, BYTES));
    OK((CUresult)fill_unseen(kernel_fill, stream, first, WORDS, 77));
    OK(cuMemFree(first));
    OK(cuMemAlloc(&second, BYTES));
    launch_fill(other_stream, second, WORDS, value);
    OK(cuStreamSynchronize(other_stream));
    OK(cuStreamSynchronize(stream));
    wrong = count_wrong(second, WORDS, value);
    OK(cuMemFree(second));
    return wrong;
}

/* What it writes lies between kernels of the same stream, some of which may be withheld. */
static uint32_t by_replay(CUdeviceptr p, uint32_t value)
{
    for (uint32_t i = 0; i < 5; i++)
        launch_fill(stream, p, WORDS, i);
    OK((CUresult)fill_unseen(kernel_fill, stream, p, WORDS, value));
    OK(cuStreamSynchronize(stream));
    return count_wrong(p, WORDS, value);
}

static _Atomic unsigned n_ready;
static _Atomic bool opened;

/* The first free of each thread behind the opening may be that which finds it out. */
static void *thread(void *context)
{
    static _Thread_local uint32_t words[WORDS];
    CUstream own;
    CUdeviceptr p;
    uintptr_t wrong = 0;

    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&p, BYTES));
    atomic_fetch_add(&n_ready, 1);
    while (!atomic_load(&opened))
        ;
    for (uint32_t i = 0; i < ITERATIONS; i++) {
        OK((CUresult)fill_unseen(kernel_fill, own, p, WORDS, 500 * i));
        wait_by_free();
        OK(cuMemcpyDtoH(words, p, BYTES));
        wrong += wrong_words(words, WORDS, 500 * i);
    }
    OK(cuMemFree(p));
    return (void *)wrong;
}

static void threads(CUcontext context, char **libraries)
{
    pthread_t running[THREADS];
    void *wrong;

    for (unsigned i = 0; i < THREADS; i++)
        pthread_create(&running[i], NULL, thread, context);
    while (atomic_load(&n_ready) < THREADS)
        ;
    open_libraries(libraries, RTLD_LOCAL);
    atomic_store(&opened, true);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(running[i], &wrong);
        say("threads %u: %u words are wrong", i, (unsigned)(uintptr_t)wrong);
    }
}

static void iterate(const char *what, CUdeviceptr p, uint32_t first)
{
    for (uint32_t i = first; i < first + ITERATIONS; i++) {
        uint32_t value = 1000 * (i + 1);

        say("%s %u: %u words are wrong", what, i,
            !strcmp(what, "fill")    ? by_fill(p, value)
            : !strcmp(what, "reuse") ? by_reuse(p, value)
            : !strcmp(what, "read")  ? by_read(p, value)
                                     : by_replay(p, value));
    }
}

static void with_driver(const char *what, char **late, int mode)
{
    CUcontext context = device_open();
    CUdeviceptr p;

    if (!strcmp(what, "threads")) {
        threads(context, late);
        return;
    }
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other_stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&p, BYTES));
    /* It churns, and iterates, before anybody else comes. */
    for (uint32_t i = 0; i < ITERATIONS; i++) {
        for (uint32_t k = 0; k < 5; k++)
            launch_fill(stream, p, WORDS, k);
        wait_by_free();
        OK(cuStreamSynchronize(stream));
    }
    if (late)
        open_libraries(late, mode);
    iterate(what, p, 0);
    OK(cuMemFree(p));
}

int main(int argc, char **argv)
{
    char **libraries = argv + 3;
    int status = 0;

    if (argc < 4)
        return 97;
    if (!strcmp(argv[2], "late") || !strcmp(argv[2], "deep")) {
        with_driver(argv[1], libraries, strcmp(argv[2], "deep") ? RTLD_LOCAL : RTLD_DEEPBIND);
        return 0;
    }
    open_libraries(libraries, RTLD_LOCAL);
    if (!strcmp(argv[2], "child")) {
        (void)cuMemFree(0); /* the parent has looked already */
        if (fork()) {
            (void)wait(&status);
            return WEXITSTATUS(status);
        }
    }
    with_driver(argv[1], NULL, 0);
    return 0;
}
