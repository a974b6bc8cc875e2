/*
 * Lives and deaths of a process that uses CUDA: killed while kernels run, an error that stays,
 * children, the driver opened and closed as a plug-in does. usage: life WAY [LIBRARY]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tests/gpu/check.h"

#include <cuda.h>
#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(const char *what, int code)
{
    printf("%s: %d\n", what, code);
    fflush(stdout);
}

static void work(int n)
{
    unsigned back = 0, *p;

    for (int i = 0; i < n; i++) {
        OK(cudaMalloc(&p, 1 * MIB));
        late_write<<<1, 32>>>(p, 100, 40 + i, 0);
        OK(cudaMemcpy(&back, p + 99, sizeof back, cudaMemcpyDeviceToHost));
        OK(cudaFree(p));
        say("read back", (int)back);
    }
}

static void wait_for(pid_t child)
{
    int status = 0;

    OK(waitpid(child, &status, 0) != child);
    say("child exited with", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    say("child's signal", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

/* Ends by the signal with kernels running and memory freed behind them. */
static void die(int signal_number)
{
    unsigned *p, *q;
    cudaStream_t stream;

    work(3);
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaMalloc(&p, 64 * MIB));
    OK(cudaMalloc(&q, 64 * MIB));
    late_write<<<FEW_BLOCKS, THREADS, 0, stream>>>(p, 1 * MIB, 1, 3000000000ull);
    late_write<<<FEW_BLOCKS, THREADS, 0, stream>>>(q, 1 * MIB, 1, 3000000000ull);
    say("dying", 1);
    raise(signal_number);
}

/* --- an error that stays --- */

__global__ void write_nowhere(unsigned *p)
{
    *p = 1;
}

static void break_context(void)
{
    write_nowhere<<<1, 1>>>((unsigned *)0x10);
    say("synchronise", cudaDeviceSynchronize());
}

static void stay_broken(void)
{
    unsigned *p, *q, *r;
    size_t free_bytes, total;

    OK(cudaMalloc(&p, 1 * MIB));
    OK(cudaMalloc(&q, 1 * MIB));
    OK(cudaFree(q));
    break_context();
    say("cached alloc", cudaMalloc(&r, 1 * MIB)); /* a block of this size was freed before */
    say("alloc", cudaMalloc(&r, 64 * MIB));
    say("memset", cudaMemset(p, 0, 1 * MIB));
    say("free", cudaFree(p));
    say("free again", cudaFree(p));
    say("info", cudaMemGetInfo(&free_bytes, &total));
    say("stream", cudaStreamSynchronize(0));
    say("last error", cudaGetLastError());
    say("reset", cudaDeviceReset());
}

__global__ void by_runtime(unsigned *p)
{
    *p = 1;
}

__global__ void by_driver(unsigned *p)
{
    *p = 2;
}

/* A kernel of the runtime's, one of the driver's, a graph, and one that fails. */
static void launch_before(void)
{
    void *args[1];
    unsigned *p;
    cudaStream_t stream;
    cudaFunction_t function;
    cudaGraph_t graph;
    cudaGraphExec_t exec;

    OK(cudaMalloc(&p, 1 * MIB));
    args[0] = &p;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    OK(cudaMemsetAsync(p, 0, 4, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    by_runtime<<<1, 1>>>(p);
    OK(cudaGetFuncBySymbol(&function, (const void *)by_driver));
    OK(cuLaunchKernel((CUfunction)function, 1, 1, 1, 1, 1, 1, 0, (CUstream)stream, args, NULL));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaDeviceSynchronize());
    break_context();
    say("alloc", cudaMalloc(&p, 64 * MIB));
}

/* Which cheap calls of the driver tell of an error that stays? Only for people to read. */
static void facts(void)
{
    CUdeviceptr p;
    CUevent event;
    CUcontext context;
    CUdevice device;
    CUstreamCaptureStatus status;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    cudaFunction_t function;
    cudaKernel_t kernel;
    const char *name;
    unsigned long long id;
    unsigned type, flags;
    size_t bytes;

    OK(cudaMalloc((void **)&p, 1 * MIB));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(event, NULL));
    OK(cudaGetFuncBySymbol(&function, (const void *)write_nowhere));
    OK(cudaGetKernel(&kernel, (const void *)write_nowhere));
    break_context();
    say("cuFuncGetName", cuFuncGetName(&name, (CUfunction)function));
    say("cuKernelGetName", cuKernelGetName(&name, (CUkernel)kernel));
    say("cuKernelGetName of a function", cuKernelGetName(&name, (CUkernel)function));
    say("cuCtxGetCurrent", cuCtxGetCurrent(&context));
    say("cuCtxGetDevice", cuCtxGetDevice(&device));
    say("cuCtxGetFlags", cuCtxGetFlags(&flags));
    say("cuCtxGetId", cuCtxGetId(context, &id));
    say("cuStreamIsCapturing", cuStreamIsCapturing(NULL, &status));
    say("cuThreadExchangeStreamCaptureMode", cuThreadExchangeStreamCaptureMode(&mode));
    say("cuPointerGetAttribute", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    say("cuMemGetAddressRange", cuMemGetAddressRange(NULL, &bytes, p));
    say("cuEventQuery", cuEventQuery(event));
    say("cuStreamQuery", cuStreamQuery(NULL));
    say("cuEventRecord", cuEventRecord(event, NULL));
    say("cuCtxRecordEvent", cuCtxRecordEvent(context, event));
    say("cuMemAlloc", cuMemAlloc(&p, 1 * MIB));
    say("cuMemAllocManaged", cuMemAllocManaged(&p, 1 * MIB, CU_MEM_ATTACH_GLOBAL));
    say("cuMemAllocAsync", cuMemAllocAsync(&p, 1 * MIB, NULL));
}

/* --- children --- */

/* A child of a process that uses CUDA asks for memory, and is refused. */
static void fork_asks(void)
{
    pid_t child;
    void *p;

    work(2);
    child = fork();
    if (!child) {
        say("child's alloc", cudaMalloc(&p, 1 * MIB));
        exit(0);
    }
    wait_for(child);
    work(1);
}

static void fork_and_exec(const char *program)
{
    pid_t child;

    work(2);
    child = fork();
    if (!child) {
        execl(program, program, "plain", (char *)NULL);
        _exit(9);
    }
    wait_for(child);
    work(1);
}

/* The parent watches until the daemon, which has closed all other descriptors, is gone. */
static void daemonise(void)
{
    int ends[2];
    char byte;
    pid_t child;

    OK(pipe(ends));
    child = fork();
    if (child) {
        close(ends[1]);
        wait_for(child);
        while (read(ends[0], &byte, 1) > 0)
            ;
        return;
    }
    (void)setsid();
    if (fork())
        _exit(0);
    for (int fd = 3; fd < 256; fd++) {
        if (fd != ends[1])
            close(fd);
    }
    work(2);
}

/* --- libraries --- */

/* The driver by a handle of its own, used and closed, three times. */
static void plug_in(void)
{
    for (int iteration = 0; iteration < 3; iteration++) {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        CUresult (*initialise)(unsigned), (*retain)(CUcontext *, CUdevice), (*set)(CUcontext);
        CUresult (*alloc)(CUdeviceptr *, size_t), (*release)(CUdeviceptr), (*let_go)(CUdevice);
        CUcontext context;
        CUdeviceptr p;

        *(void **)&initialise = dlsym(driver, "cuInit");
        *(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
        *(void **)&set = dlsym(driver, "cuCtxSetCurrent");
        *(void **)&alloc = dlsym(driver, "cuMemAlloc_v2");
        *(void **)&release = dlsym(driver, "cuMemFree_v2");
        *(void **)&let_go = dlsym(driver, "cuDevicePrimaryCtxRelease_v2");
        OK(initialise(0));
        OK(retain(&context, 0));
        OK(set(context));
        say("alloc", alloc(&p, 1 * MIB));
        say("free", release(p));
        say("release", let_go(0));
        say("close", dlclose(driver));
    }
}

/* A library with a runtime of its own, bound past everything that was preloaded. */
static void deep(const char *library)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    int (*plug)(void);

    if (!handle) {
        fprintf(stderr, "%s\n", dlerror());
        exit(EXIT_UNUSABLE);
    }
    *(void **)&plug = dlsym(handle, "plug");
    say("plug", plug());
}

/* This file as a library. */
extern "C" int plug(void)
{
    work(4);
    return 4;
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "";

    if (!strcmp(way, "plain"))
        work(2);
    else if (!strcmp(way, "kill"))
        die(SIGKILL);
    else if (!strcmp(way, "terminate"))
        die(SIGTERM);
    else if (!strcmp(way, "abort"))
        die(SIGABRT);
    else if (!strcmp(way, "broken"))
        stay_broken();
    else if (!strcmp(way, "launched"))
        launch_before();
    else if (!strcmp(way, "facts"))
        facts();
    else if (!strcmp(way, "fork_asks"))
        fork_asks();
    else if (!strcmp(way, "fork_exec"))
        fork_and_exec(argv[0]);
    else if (!strcmp(way, "daemon"))
        daemonise();
    else if (!strcmp(way, "plug_in"))
        plug_in();
    else if (!strcmp(way, "deep") && argc > 2)
        deep(argv[2]);
    else
        return EXIT_UNUSABLE;
    return 0;
}
