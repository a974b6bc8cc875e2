/* Opens libraries in the ways programs do, and uses the driver through them and by itself. */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "tests/common/say.h"

static int count_object(struct dl_phdr_info *info, size_t size, void *n)
{
    (void)size;
    /* Ours come on top. */
    if (!strstr(info->dlpi_name, "allograft") && !strstr(info->dlpi_name, "san.so"))
        ++*(int *)n;
    return 0;
}

static void *sum_in_thread(void *function)
{
    say("thread-local sum: %d", ((int (*)(void))function)());
    return NULL;
}

/* Static thread-local storage in a library opened late, in this thread and in a new one. */
static void use_thread_storage(const char *path)
{
    void *library = dlopen(path, RTLD_NOW);
    pthread_t thread;
    void *sum;

    if (!library) {
        say("no static storage: %s", dlerror());
        return;
    }
    sum = dlsym(library, "tls_sum");
    say("thread-local sum: %d", ((int (*)(void))sum)());
    say("thread-local sum: %d", ((int (*)(void))sum)());
    OK(pthread_create(&thread, NULL, sum_in_thread, sum));
    OK(pthread_join(thread, NULL));
}

/* What the loader is asked about itself. */
static void ask_the_loader(void)
{
    Dl_info info;
    int n = 0;

    (void)dl_iterate_phdr(count_object, &n);
    say("objects: %d", n > 2);
    say("RTLD_NEXT malloc: %d", dlsym(RTLD_NEXT, "malloc") != NULL);
    say("RTLD_DEFAULT nothing: %d", dlsym(RTLD_DEFAULT, "no_such_function") != NULL);
    say("error: %s", dlerror());
    say("main is in the program: %d",
        dladdr((void *)ask_the_loader, &info) && strstr(info.dli_fname, "loader"));
}

int main(int argc, char **argv)
{
    int flags = RTLD_NOW | RTLD_LOCAL;
    CUresult (*release)(CUdeviceptr);
    int (*use)(size_t, CUdeviceptr *);
    void *library, *driver;
    CUdeviceptr p = 0;

    if (argc < 4)
        return 97;
    if (!strcmp(argv[1], "deep"))
        flags |= RTLD_DEEPBIND;
    use_thread_storage(argv[3]);
    ask_the_loader();
    library = dlopen(argv[2], flags);
    if (!library) {
        say("not opened: %s", dlerror());
        return 98;
    }
    *(void **)&use = dlsym(library, "use_driver");
    SAY_CODE("used", use(1 << 20, &p));
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&release = dlsym(driver, "cuMemFree_v2");
    SAY_CODE("free", release(p));
    SAY_CODE("free again", release(p));
    if (argc > 4) /* no file may have a byte more */
        OK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, 0}));
    return 5;
}
