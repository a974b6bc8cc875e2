/* Lives in the way its first argument names, some in the folder that the second names: children,
 * daemons, tight limits, errors that stay. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/common/device.h"
#include "tests/common/parts.h"
#include "tests/common/say.h"

#define MIB ((size_t)1 << 20)

/* Takes n blocks, has them written and read, gives them back. */
static void work(int n)
{
    CUdeviceptr p;

    for (int i = 0; i < n; i++) {
        OK(cuMemAlloc(&p, MIB));
        launch_fill(NULL, p, 1000, 5);
        say("wrong words: %u", count_wrong(p, 1000, 5));
        OK(cuMemFree(p));
    }
}

static void open_and_work(int n)
{
    device_open();
    work(n);
}

static pid_t begin_child(void)
{
    pid_t child = fork();

    if (child < 0)
        _exit(98);
    return child;
}

/* --- who watches from outside --- */

static void wait_for_input(void)
{
    char byte;

    open_and_work(3);
    say("ready");
    while (read(0, &byte, 1) > 0)
        ;
}

/* An exec that fails, which nobody can tell before: a single argument may have 128 KiB. */
static int exec_in_vain(void)
{
    static char too_long[200000];

    memset(too_long, 'x', sizeof(too_long) - 1);
    return execl("/bin/echo", "echo", too_long, (char *)NULL);
}

static void killed_after_exec_failed(void)
{
    open_and_work(2);
    say("still here: %d", exec_in_vain());
    work(1);
    (void)raise(SIGKILL);
}

/* --- children --- */

/* Parent and child each begin with CUDA after the fork; the child is killed. */
static void fork_first(void)
{
    pid_t child = begin_child();

    if (!child) {
        open_and_work(5);
        (void)raise(SIGKILL);
    }
    say_child(child);
    open_and_work(2);
}

/* The child of a process that uses CUDA asks the driver, which refuses. */
static void fork_asks(void)
{
    CUdeviceptr p;
    pid_t child;

    open_and_work(2);
    child = begin_child();
    if (!child) {
        SAY_CODE("alloc in the child", cuMemAlloc(&p, MIB));
        SAY_CODE("init in the child", cuInit(0));
        exit(0);
    }
    say_child(child);
    work(1);
}

static void fork_idle(void)
{
    pid_t child;

    open_and_work(2);
    child = begin_child();
    if (!child)
        exit(0);
    say_child(child);
}

static void *allocate_on(void *stop)
{
    CUdeviceptr p;
    CUcontext context;
    CUdevice device;

    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    while (!__atomic_load_n((int *)stop, __ATOMIC_RELAXED)) {
        OK(cuMemAlloc(&p, 4096));
        OK(cuMemFree(p));
    }
    return NULL;
}

/* Children made while other threads are in the middle of allocating. */
static void fork_busy(void)
{
    pthread_t threads[3];
    CUdeviceptr p;
    int stop = 0;

    open_and_work(1);
    for (int i = 0; i < 3; i++)
        OK(pthread_create(&threads[i], NULL, allocate_on, &stop));
    for (int i = 0; i < 30; i++) {
        pid_t child = begin_child();

        if (!child)
            exit(cuMemAlloc(&p, MIB) == CUDA_ERROR_NOT_INITIALIZED ? 7 : 8);
        say_child(child);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 3; i++)
        OK(pthread_join(threads[i], NULL));
}

static int look_slowly(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)info, (void)size, (void)unused;
    for (volatile int i = 0; i < 2000; i++)
        ;
    return 0;
}

static void *look_around(void *stop)
{
    while (!__atomic_load_n((int *)stop, __ATOMIC_RELAXED))
        (void)dl_iterate_phdr(look_slowly, NULL);
    return NULL;
}

/* What another thread holds of the loader's locks stays taken in a child, which then may end but
 * not look anything up. */
static void fork_and_end(int n)
{
    for (int i = 0; i < n; i++) {
        pid_t child = begin_child();

        if (!child) {
            (void)alarm(20); /* it is to hang no longer than that */
            if (i % 3 == 0)
                _exit(5);
            if (i % 3 == 1)
                exit(5);
            execlp("true", "true", NULL);
        }
        say_child(child);
    }
}

static void fork_looking(void)
{
    pthread_t thread;
    int stop = 0;

    OK(pthread_create(&thread, NULL, look_around, &stop));
    fork_and_end(9);
    open_and_work(1);
    fork_and_end(9);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    OK(pthread_join(thread, NULL));
}

struct loading {
    CUcontext context;
    int stop;
};

static void *load_code(void *data)
{
    static const char image[64] = "any bytes";
    struct loading *loading = data;
    CUmodule module;

    OK(cuCtxSetCurrent(loading->context));
    while (!__atomic_load_n(&loading->stop, __ATOMIC_RELAXED)) {
        OK(cuModuleLoadData(&module, image));
        OK(cuModuleUnload(module));
    }
    return NULL;
}

/* A thread that loads code makes us look around. */
static void fork_loading(void)
{
    struct loading loading = {0};
    pthread_t threads[3];

    open_and_work(1);
    OK(cuCtxGetCurrent(&loading.context));
    for (int i = 0; i < 3; i++)
        OK(pthread_create(&threads[i], NULL, load_code, &loading));
    for (int i = 0; i < 100; i++) {
        pid_t child = begin_child();

        if (!child) {
            (void)alarm(20);
            _exit(5);
        }
        say_child(child);
    }
    __atomic_store_n(&loading.stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 3; i++)
        OK(pthread_join(threads[i], NULL));
}

static void spawned(void)
{
    char *const args[] = {"echo", "another program", NULL};
    pid_t child;

    open_and_work(1);
    OK(posix_spawn(&child, "/bin/echo", NULL, NULL, args, environ));
    say_child(child);
    OK(system("echo by a shell"));
    child = vfork();
    if (!child) {
        execv("/no/such/program", args);
        _exit(9);
    }
    say_child(child);
    work(1);
}

/* A daemon: the parent goes, the child has no terminal and no descriptors but one. */
static void daemonised(void)
{
    pid_t child = begin_child();

    if (child)
        _exit(0);
    (void)setsid();
    OK(chdir("/"));
    child = begin_child();
    if (child)
        _exit(0);
    close(0);
    close(2);
    open_and_work(2);
}

/* --- little room --- */

static void without_descriptors(bool before)
{
    if (!before)
        open_and_work(2);
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    if (before)
        device_open();
    work(2);
    say("lowest descriptor: %d", dup(1));
}

/* The simulated driver keeps its memory in a file, which must be there before files are limited. By
 * libc's own dlsym, past the hooks, which are not to be awake yet. */
static void let_driver_make_its_memory(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *libc = dlopen("libc.so.6", RTLD_NOW);
    void *(*real_dlsym)(void *, const char *);
    __typeof__(&cuDevicePrimaryCtxRetain) retain;
    __typeof__(&cuCtxSetCurrent) set_current;
    __typeof__(&cuMemAlloc_v2) alloc;
    __typeof__(&cuMemFree_v2) release;
    CUcontext context;
    CUdeviceptr p;

    *(void **)&real_dlsym = dlvsym(libc, "dlsym", "GLIBC_2.34");
    if (!real_dlsym)
        *(void **)&real_dlsym = dlvsym(dlopen("libdl.so.2", RTLD_NOW), "dlsym", "GLIBC_2.2.5");
    *(void **)&retain = real_dlsym(driver, "cuDevicePrimaryCtxRetain");
    *(void **)&set_current = real_dlsym(driver, "cuCtxSetCurrent");
    *(void **)&alloc = real_dlsym(driver, "cuMemAlloc_v2");
    *(void **)&release = real_dlsym(driver, "cuMemFree_v2");
    OK(cuInit(0));
    OK(retain(&context, 0));
    OK(set_current(context));
    OK(alloc(&p, MIB));
    OK(release(p));
}

static size_t address_space(void)
{
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    if (!file || fscanf(file, "%zu", &pages) != 1)
        _exit(98);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Where contexts are made, and at the end. */
static void with_limit(int resource, rlim_t value)
{
    struct rlimit was, little;

    OK(getrlimit((__rlimit_resource_t)resource, &was));
    let_driver_make_its_memory();
    if (resource == RLIMIT_AS) /* all that the driver needs, but not much more */
        value = address_space() + 8 * MIB;
    little = (struct rlimit){value, was.rlim_max};
    OK(setrlimit((__rlimit_resource_t)resource, &little));
    device_open();
    OK(setrlimit((__rlimit_resource_t)resource, &was));
    work(2);
    if (resource != RLIMIT_AS)
        OK(setrlimit((__rlimit_resource_t)resource, &little));
}

/* The root folder changes after CUDA was begun: no /dev/shm, no /proc, no folder for reports. */
static void in_empty_root(bool before)
{
    int parent = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
    char folder[] = "/tmp/lives-XXXXXX";

    if (parent < 0 || !mkdtemp(folder) || (!before && (device_open(), false)))
        _exit(98);
    say("chroot: %d", chroot(folder) ? errno : 0);
    OK(chdir("/"));
    if (before)
        device_open();
    work(2);
    OK(unlinkat(parent, strrchr(folder, '/') + 1, AT_REMOVEDIR));
    OK(close(parent));
}

static void *take_and_leave(void *context)
{
    CUdeviceptr p[20];

    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < 20; i++)
        OK(cuMemAlloc(&p[i], 64 * 1024));
    for (int i = 0; i < 20; i++)
        OK(cuMemFree(p[i]));
    return NULL;
}

/* The folder is full from then on. */
static void fill_up(const char *folder)
{
    static const char page[4096];
    char path[4096];
    int fd;

    snprintf(path, sizeof(path), "%s/all-there-is", folder);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    while (write(fd, page, sizeof(page)) > 0)
        ;
    say("full: %d", errno == ENOSPC);
    close(fd);
}

/* Threads begin, and end, where nothing more can be written. */
static void in_full_folder(const char *folder)
{
    pthread_t threads[3];
    CUcontext context;

    open_and_work(1);
    OK(cuCtxGetCurrent(&context));
    fill_up(folder);
    for (int i = 0; i < 3; i++)
        OK(pthread_create(&threads[i], NULL, take_and_leave, context));
    for (int i = 0; i < 3; i++)
        OK(pthread_join(threads[i], NULL));
    work(1);
}

/* --- errors that stay --- */

/* A kernel writes where nothing is: from then on everything fails. */
static void broken(void)
{
    CUdeviceptr p, q;
    CUcontext context;
    size_t free_bytes, total;
    CUdevice device;

    device_open();
    OK(cuDeviceGet(&device, 0));
    OK(cuMemAlloc(&p, MIB));
    OK(cuMemAlloc(&q, MIB));
    OK(cuMemFree(q));
    launch_fill(NULL, 0x1234000, 10, 1);
    SAY_CODE("synchronise", cuCtxSynchronize());
    SAY_CODE("alloc", cuMemAlloc(&q, MIB));
    SAY_CODE("alloc of another size", cuMemAlloc(&q, 3 * MIB));
    SAY_CODE("memset", cuMemsetD8(p, 1, MIB));
    SAY_CODE("free", cuMemFree(p));
    SAY_CODE("free again", cuMemFree(p));
    SAY_CODE("info", cuMemGetInfo(&free_bytes, &total));
    SAY_CODE("stream", cuStreamSynchronize(NULL));
    SAY_CODE("context", cuCtxCreate(&context, NULL, 0, device));
}

static void broken_and_reset(void)
{
    CUcontext context;
    CUdevice device;

    broken();
    OK(cuDeviceGet(&device, 0));
    SAY_CODE("reset", cuDevicePrimaryCtxReset(device));
    SAY_CODE("retain", cuDevicePrimaryCtxRetain(&context, device));
}

/* Nothing is at that address. */
static void launch_astray(CUstream stream)
{
    launch_fill(stream, 0x1234000, 10, 1);
    SAY_CODE("synchronise", cuCtxSynchronize());
}

static void *launch_beside(void *context)
{
    OK(cuCtxSetCurrent(context));
    launch_speak(CU_STREAM_PER_THREAD, 1);
    launch_speak(CU_STREAM_PER_THREAD, 2);
    OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    return NULL;
}

/* Functions on streams, a graph, another thread's, and then an error that stays. */
static void launched(void)
{
    CUdeviceptr p, result;
    CUcontext context = device_open();
    CUgraphExec exec;
    CUgraph graph;
    CUstream stream;
    pthread_t thread;

    OK(cuMemAlloc(&p, MIB));
    OK(cuMemAlloc(&result, MIB));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(pthread_create(&thread, NULL, launch_beside, context));
    OK(pthread_join(thread, NULL));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 20; i++)
        launch_fill(NULL, p, 10, 1);
    launch_check(stream, p, 10, 1, result);
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    launch_astray(stream);
    SAY_CODE("free", cuMemFree(p));
}

/* A launch finds the error, when memory is kept. */
static void launched_after(void)
{
    CUdeviceptr p, result;

    (void)device_open();
    OK(cuMemAlloc(&p, MIB));
    for (int i = 0; i < 3; i++) {
        OK(cuMemAlloc(&result, MIB));
        OK(cuMemFree(result));
    }
    OK(cuMemAlloc(&result, MIB));
    launch_check(NULL, p, 10, 1, result);
    launch_astray(NULL);
    SAY_CODE("launch", cuLaunchKernel(kernel_speak, 1, 1, 1, 1, 1, 1, 0, NULL,
                                      (void *[]){&(uint32_t){1}}, NULL));
    SAY_CODE("free", cuMemFree(p));
}

/* As the runtime does, which is not linked with the driver. */
static void looked_up(void)
{
    CUdeviceptr p = 0x1234000;
    uint32_t n = 10, value = 1;
    void *args[] = {&p, &n, &value};
    __typeof__(&cuLaunchKernel) launch;
    CUdriverProcAddressQueryResult found;

    (void)device_open();
    OK(cuGetProcAddress("cuLaunchKernel", (void **)(void *)&launch, 12000, 0, &found));
    OK(launch(kernel_fill, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
    SAY_CODE("synchronise", cuCtxSynchronize());
    SAY_CODE("alloc", cuMemAlloc(&p, MIB));
}

/* As the runtime looks up what is launched by the driver API. */
static void kernel_launched(void)
{
    static const char image[64] = "any bytes";
    CUfunction function;
    CUkernel kernel;
    CUlibrary library;
    uint32_t word = 1;
    void *args[] = {&word};

    (void)device_open();
    OK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "speak"));
    OK(cuKernelGetFunction(&function, kernel));
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
    launch_astray(NULL);
    SAY_CODE("alloc", cuMemAlloc(&(CUdeviceptr){0}, MIB));
}

/* What is unloaded has no name any more. */
static void unloaded_launched(void)
{
    static const char image[64] = "any bytes";
    CUfunction function;
    CUmodule module;
    uint32_t word = 1;
    void *args[] = {&word};

    (void)device_open();
    OK(cuModuleLoadData(&module, image));
    OK(cuModuleGetFunction(&function, module, "speak"));
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
    OK(cuCtxSynchronize());
    OK(cuModuleUnload(module));
    launch_astray(NULL);
    SAY_CODE("alloc", cuMemAlloc(&(CUdeviceptr){0}, MIB));
}

/* --- threads, plug-ins, late frees --- */

/* Threads that end leave their freed blocks to those who come. */
static void threads_end(void)
{
    CUcontext context = device_open();
    size_t before, after, total;

    OK(cuMemGetInfo(&before, &total));
    for (int i = 0; i < 200; i++) {
        pthread_t thread;

        OK(pthread_create(&thread, NULL, take_and_leave, context));
        OK(pthread_join(thread, NULL));
    }
    OK(cuMemGetInfo(&after, &total));
    say("memory is back: %d", after + 4 * MIB >= before);
}

/* A plug-in's way: the driver opened, used and closed, again and again. */
static void plug_in(void)
{
    for (int iteration = 0; iteration < 3; iteration++) {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        CUresult (*alloc)(CUdeviceptr *, size_t), (*release)(CUdeviceptr);
        CUdeviceptr p;

        if (!driver)
            _exit(98);
        device_open();
        *(void **)&alloc = dlsym(driver, "cuMemAlloc_v2");
        *(void **)&release = dlsym(driver, "cuMemFree_v2");
        OK(alloc(&p, MIB));
        OK(release(p));
        say("closed: %d", dlclose(driver));
        work(1);
    }
}

static CUdeviceptr kept;

/* Runs when the driver is gone. */
__attribute__((destructor)) static void free_late(void)
{
    CUdeviceptr p;

    if (!kept)
        return;
    SAY_CODE("late free", cuMemFree(kept));
    SAY_CODE("late alloc", cuMemAlloc(&p, MIB));
}

static void frees_late(void)
{
    device_open();
    OK(cuMemAlloc(&kept, MIB));
}

static void free_at_exit(void)
{
    SAY_CODE("free at exit", cuMemFree(kept));
}

static void frees_at_exit(void)
{
    OK(atexit(free_at_exit)); /* before the driver's own: runs after it */
    frees_late();
}

static bool lives_as_child(const char *way)
{
    if (!strcmp(way, "fork_first"))
        fork_first();
    else if (!strcmp(way, "fork_asks"))
        fork_asks();
    else if (!strcmp(way, "fork_idle"))
        fork_idle();
    else if (!strcmp(way, "fork_busy"))
        fork_busy();
    else if (!strcmp(way, "fork_looking"))
        fork_looking();
    else if (!strcmp(way, "fork_loading"))
        fork_loading();
    else if (!strcmp(way, "spawn"))
        spawned();
    else if (!strcmp(way, "daemon"))
        daemonised();
    else
        return false;
    return true;
}

static bool lives_in_little_room(const char *way)
{
    if (!strcmp(way, "closed_before"))
        without_descriptors(true);
    else if (!strcmp(way, "closed_after"))
        without_descriptors(false);
    else if (!strcmp(way, "no_files"))
        with_limit(RLIMIT_NOFILE, 3);
    else if (!strcmp(way, "short_files"))
        with_limit(RLIMIT_FSIZE, 1000);
    else if (!strcmp(way, "little_space"))
        with_limit(RLIMIT_AS, 0);
    else if (!strcmp(way, "no_locked"))
        with_limit(RLIMIT_MEMLOCK, 0);
    else if (!strcmp(way, "root_before"))
        in_empty_root(true);
    else if (!strcmp(way, "root_after"))
        in_empty_root(false);
    else if (!strcmp(way, "umask"))
        umask(0777), open_and_work(2);
    else
        return false;
    return true;
}

static const struct part parts[] = {
    {"wait", wait_for_input},
    {"exec_fails_killed", killed_after_exec_failed},
    {"broken", broken},
    {"broken_reset", broken_and_reset},
    {"launched", launched},
    {"launched_after", launched_after},
    {"looked_up", looked_up},
    {"kernel_launched", kernel_launched},
    {"unloaded_launched", unloaded_launched},
    {"threads_end", threads_end},
    {"plug_in", plug_in},
    {"frees_late", frees_late},
    {"frees_at_exit", frees_at_exit},
};

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "";

    if (lives_as_child(way) || lives_in_little_room(way) || RUN_PART(parts, way))
        return 3;
    if (!strcmp(way, "full_folder") && argc > 2)
        in_full_folder(argv[2]);
    else
        return 97;
    return 3;
}
