/* Locks itself in when it is done with CUDA: a filter of system calls lets it write and end, and
 * nothing else. */
#include <cuda.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define ALLOW(number)                                    \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* Of the simulated driver's own end, futex. */
static struct sock_filter rules[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    ALLOW(SYS_write),
    ALLOW(SYS_exit_group),
    ALLOW(SYS_futex),
    ALLOW(SYS_getpid),
    ALLOW(SYS_clock_gettime),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
};

int main(void)
{
    struct sock_fprog filter = {sizeof(rules) / sizeof(rules[0]), rules};
    CUdeviceptr p;

    device_open();
    NEED(cuMemAlloc(&p, 4096));
    launch_fill(NULL, p, 100, 1);
    NEED(cuMemFree(p));
    NEED(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        return 77;
    say("locked in");
    return 3;
}
