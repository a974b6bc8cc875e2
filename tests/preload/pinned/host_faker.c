/* A host of the test's: what the kernel says of memory lies below FAKE_HOST, without which it says
 * nothing; and time passes when the program has it pass. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int open64(const char *path, int flags, ...);
EXPORT int clock_gettime(clockid_t which, struct timespec *now);
EXPORT void fake_pass(int seconds);

static atomic_int passed;

static int is_of_host(const char *path)
{
    static const char *const begin[] = {"/proc/meminfo", "/proc/pressure/", "/proc/self/cgroup",
                                        "/sys/fs/cgroup"};

    for (size_t i = 0; i < sizeof(begin) / sizeof(begin[0]); i++) {
        if (!strncmp(path, begin[i], strlen(begin[i])))
            return 1;
    }
    return 0;
}

/* Only who reads what the host says passes no mode. */
int open64(const char *path, int flags, ...)
{
    const char *host = getenv("FAKE_HOST");
    char fake[4096];

    if (!is_of_host(path))
        return (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0600);
    if (!host) {
        errno = ENOENT;
        return -1;
    }
    snprintf(fake, sizeof(fake), "%s%s", host, path);
    return (int)syscall(SYS_openat, AT_FDCWD, fake, flags, 0);
}

int clock_gettime(clockid_t which, struct timespec *now)
{
    long result = syscall(SYS_clock_gettime, which, now);

    now->tv_sec += atomic_load(&passed);
    return (int)result;
}

void fake_pass(int seconds)
{
    atomic_fetch_add(&passed, seconds);
}
