/* process.c: the end of a process, fork, faults, and the host in device memory (R920 on). */
#include "tests/gpu/sim_truth/truth.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void early_handler(void)
{
    row("R922", "cuCtxSynchronize in an exit handler from before cuInit", "code %d",
        D(cuCtxSynchronize)());
}

static void late_handler(void)
{
    CUcontext now = NULL;
    CUresult code = D(cuCtxGetCurrent)(&now);

    row("R920", "current context in an exit handler from after the context", "code %d, %s", code,
        now == context ? "the same" : "another");
    code = D(cuCtxSynchronize)();
    row("R921", "cuCtxSynchronize there", "%s, code %d", *flag ? "waits" : "does not wait", code);
}

void group_exit(void)
{
    atexit(early_handler);
    open_device();
    atexit(late_handler);
    arm(nonblocking);
    exit(0);
}

void group_fork(void)
{
    CUdeviceptr p;

    open_device();
    pid_t child = fork();
    if (child == 0) {
        row("R925", "cuMemAlloc in a forked child", "code %d", D(cuMemAlloc)(&p, 4096));
        row("R926", "cuInit in a forked child", "code %d", D(cuInit)(0));
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

void group_fault(void)
{
    static uint32_t plain;
    CUcontext second;
    CUdeviceptr p;
    CUresult code;

    open_device();
    int pageable = 0;
    OK(D(cuDeviceGetAttribute)(&pageable, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0));
    if (pageable)
        return;
    OK(D(cuCtxCreate)(&second, NULL, 0, 0));
    OK(D(cuCtxSetCurrent)(context));
    OK(launch_store(nonblocking, (CUdeviceptr)(uintptr_t)&plain, 1, 0));
    code = D(cuStreamSynchronize)(nonblocking);
    row("R930", "a kernel on pageable memory", "code %d", code);
    row("R931", "cuMemAlloc after a fault", "code %d", D(cuMemAlloc)(&p, 4096));
    row("R932", "cuStreamQuery of another stream after a fault", "code %d",
        D(cuStreamQuery)(other_nonblocking));
    OK(D(cuCtxSetCurrent)(second));
    row("R934", "cuMemAlloc in another context of the device then", "code %d",
        D(cuMemAlloc)(&p, 4096));
    OK(D(cuCtxSetCurrent)(context));
    row("R933", "cuCtxGetDevice after a fault", "code %d", D(cuCtxGetDevice)(&(CUdevice){0}));
}

/* The host looks into device memory: ends with a signal, told by the parent. */
void group_host_access(void)
{
    open_device();
    CUdeviceptr p = device_memory(4096);
    pid_t child = fork();
    int status = 0;
    if (child == 0) {
        (void)signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would make an exit of it */
        (void)signal(SIGBUS, SIG_DFL);
        _exit(*(volatile uint32_t *)(uintptr_t)p ? 1 : 0);
    }
    waitpid(child, &status, 0);
    row("R935", "a host that reads device memory", "%s",
        WIFSIGNALED(status) ? "faults" : "goes on");
}
