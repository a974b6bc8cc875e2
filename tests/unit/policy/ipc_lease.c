/* policy/ipc/ipc_lease.c: a lease is seen by the exporter as long as somebody has it, whoever
 * dies. */
#include "policy/ipc/ipc_lease.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/common/check.h"

static struct ag_ipc_leases ours; /* the exporter's */
static int to_child[2], from_child[2];

static void tell(int end)
{
    CHECK(write(end, "x", 1) == 1);
}

static void hear(int end)
{
    char c;

    CHECK(read(end, &c, 1) == 1);
}

/* In an importer: takes 5 and 6, drops 5, and goes when it is told or killed. */
static void be_importer(void)
{
    struct ag_ipc_leases theirs = ag_ipc_leases_open(ours.fd);

    CHECK(theirs.fd >= 0);
    ag_ipc_lease_take(&theirs, 5);
    ag_ipc_lease_take(&theirs, 6);
    tell(from_child[1]);
    hear(to_child[0]);
    ag_ipc_lease_drop(&theirs, 5);
    tell(from_child[1]);
    hear(to_child[0]);
    ag_ipc_leases_close(&theirs);
    _exit(0);
}

static void one_importer(bool killed)
{
    pid_t child = fork();
    int status;

    if (!child)
        be_importer();
    hear(from_child[0]);
    CHECK(ag_ipc_leased(&ours, 5) && ag_ipc_leased(&ours, 6) && !ag_ipc_leased(&ours, 7));
    tell(to_child[1]);
    hear(from_child[0]);
    CHECK(!ag_ipc_leased(&ours, 5) && ag_ipc_leased(&ours, 6));
    if (killed)
        CHECK(!kill(child, SIGKILL));
    else
        tell(to_child[1]);
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) == killed);
    CHECK(!ag_ipc_leased(&ours, 6));
}

/* Two of them: the lease ends with the last; far numbers are as good as near ones. */
static void several(void)
{
    struct ag_ipc_leases a = ag_ipc_leases_open(ours.fd), b = ag_ipc_leases_open(ours.fd);
    uint64_t far = 1ull << 40;

    CHECK(a.fd > 256 && b.fd > 256 && fcntl(a.fd, F_GETFD) & FD_CLOEXEC);
    ag_ipc_lease_take(&a, far);
    ag_ipc_lease_take(&b, far);
    CHECK(ag_ipc_leased(&ours, far) && !ag_ipc_leased(&ours, far + 1) && !ag_ipc_leased(&ours, 0));
    ag_ipc_lease_drop(&a, far);
    CHECK(ag_ipc_leased(&ours, far));
    ag_ipc_leases_close(&b);
    CHECK(!ag_ipc_leased(&ours, far) && b.fd == -1);
    ag_ipc_leases_close(&a);
    ag_ipc_leases_close(&a);
}

/* The number is a file of the program's: it is left alone. */
static void closed_under_it(void)
{
    struct ag_ipc_leases theirs = ag_ipc_leases_open(ours.fd), none = ag_ipc_leases_open(-1);
    int fd = theirs.fd;

    CHECK(none.fd == -1 && !ag_ipc_leases_there(&none));
    ag_ipc_lease_take(&none, 1);
    CHECK(!ag_ipc_leased(&none, 1));
    CHECK(dup2(to_child[0], fd) == fd);
    CHECK(!ag_ipc_leases_there(&theirs));
    ag_ipc_lease_take(&theirs, 9);
    ag_ipc_leases_close(&theirs);
    CHECK(!ag_ipc_leased(&ours, 9) && fcntl(fd, F_GETFD) >= 0);
}

int main(void)
{
    ours = ag_ipc_leases_make();
    CHECK(ours.fd >= 0 && !pipe(to_child) && !pipe(from_child));
    one_importer(false);
    one_importer(true);
    several();
    closed_under_it();
    return 0;
}
