/* doctor_child.c: runs what uses CUDA in a process of its own, where a driver that crashes or hangs
 * does the doctor no harm. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/base/complain.h"
#include "tools/doctor/doctor.h"

static void exec_child(int out, const char *work, bool (*prepare)(const void *), const void *with)
{
    if (prepare(with) && dup2(out, STDOUT_FILENO) >= 0)
        execl("/proc/self/exe", "allograft", "doctor", "--work", work, (char *)NULL);
    _exit(STATUS_FAILED);
}

static void read_all(int in, char *text, size_t size)
{
    size_t length = 0;
    ssize_t n;

    while (length + 1 < size &&
           ((n = read(in, text + length, size - 1 - length)) > 0 || (n < 0 && errno == EINTR)))
        length += n > 0 ? (size_t)n : 0;
    text[length] = '\0';
}

bool doctor_prepare_alone(const void *with)
{
    (void)with;
    return !setenv("ALLOGRAFT_DISABLE", "1", 1);
}

int doctor_compare_times(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

bool doctor_run_child(const char *work, bool (*prepare)(const void *with), const void *with,
                      char *text, size_t size)
{
    int ends[2], status = 0;
    pid_t child;

    snprintf(text, size, "could not be started");
    fflush(stdout);
    if (pipe(ends))
        return false;
    child = fork();
    if (!child)
        exec_child(ends[1], work, prepare, with);
    close(ends[1]);
    if (child > 0) {
        read_all(ends[0], text, size);
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
        if (WIFSIGNALED(status))
            snprintf(text, size, "ended by signal %d", WTERMSIG(status));
    }
    close(ends[0]);
    return child > 0 && !WIFSIGNALED(status);
}
