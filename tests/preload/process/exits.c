/* Ends in the way its first argument names, its last calls being a kernel and a free. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

/* A free natively waits for the kernel before it: what the device says must come out however the
 * process ends after it. */
static void last_calls(void)
{
    CUdeviceptr p;
    CUstream stream;

    device_open();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&p, 1 << 20));
    launch_fill(stream, p, 100, 1);
    launch_speak(stream, 42);
    OK(cuMemFree(p));
}

static void at_exit(void)
{
    say("the program's own exit handler");
}

static void *exit_in_a_thread(void *unused)
{
    (void)unused;
    exit(5);
}

/* The child of a fork is a stranger to the driver; it ends in its own way, or becomes another
 * program. The parent goes on. */
static void fork_and(const char *what)
{
    CUdeviceptr p;
    pid_t child = fork();

    if (child < 0)
        _exit(98);
    if (child == 0) {
        say("child speaks");
        if (strcmp(what, "exec") == 0)
            execl("/bin/echo", "echo", "another program", (char *)NULL);
        if (strcmp(what, "exit") == 0)
            exit(6);
        if (strcmp(what, "abort") == 0)
            abort();
        _exit(7);
    }
    say_child(child);
    OK(cuMemAlloc(&p, 4096));
    OK(cuMemFree(p));
}

/* As execveat, which libc has since 2.34: a path, one below a folder, or what is open. */
static void exec_at(const char *how, char *const args[], char *const environment[])
{
#if __GLIBC_PREREQ(2, 34)
    if (strcmp(how, "") == 0)
        execveat(AT_FDCWD, "/bin/echo", args, environment, 0);
    if (strcmp(how, "_folder") == 0)
        execveat(open("/bin/", O_PATH | O_DIRECTORY), "echo", args, environment, 0);
    if (strcmp(how, "_open") == 0)
        execveat(open("/bin/echo", O_PATH | O_CLOEXEC), "", args, environment, AT_EMPTY_PATH);
#else
    (void)how;
    execve("/bin/echo", args, environment);
#endif
}

static void exec_by(const char *what)
{
    char *const args[] = {"echo", "another program", NULL};
    char *const environment[] = {"LANG=C", NULL};

    if (strcmp(what, "execv") == 0)
        execv("/bin/echo", args);
    if (strcmp(what, "execve") == 0)
        execve("/bin/echo", args, environment);
    if (strcmp(what, "execvp") == 0)
        execvp("echo", args);
    if (strcmp(what, "execvpe") == 0)
        execvpe("echo", args, environment);
    if (strcmp(what, "execl") == 0)
        execl("/bin/echo", "echo", "another program", (char *)NULL);
    if (strcmp(what, "execlp") == 0)
        execlp("echo", "echo", "another program", (char *)NULL);
    if (strcmp(what, "execle") == 0)
        execle("/bin/echo", "echo", "another program", (char *)NULL, environment);
    if (strcmp(what, "fexecve") == 0)
        fexecve(open("/bin/echo", O_RDONLY | O_CLOEXEC), args, environment);
    if (strncmp(what, "execveat", 8) == 0)
        exec_at(what + 8, args, environment);
    if (strcmp(what, "exec_fails") == 0) {
        execv("/no/such/program", args);
        say("still here: %d", execl("/no/such/program", "x", (char *)NULL));
    }
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "return";
    pthread_t thread;

    atexit(at_exit);
    if (strcmp(way, "early") == 0)
        return 4;
    last_calls();
    if (strncmp(way, "fork_", 5) == 0)
        fork_and(way + 5);
    if (strncmp(way, "exec", 4) == 0 || strcmp(way, "fexecve") == 0)
        exec_by(way);
    if (strcmp(way, "exit") == 0)
        exit(3);
    if (strcmp(way, "_exit") == 0)
        _exit(3);
    if (strcmp(way, "_Exit") == 0)
        _Exit(3);
    if (strcmp(way, "quick_exit") == 0)
        quick_exit(3);
    if (strcmp(way, "abort") == 0)
        abort();
    if (strcmp(way, "kill") == 0)
        (void)raise(SIGKILL);
    if (strcmp(way, "terminate") == 0)
        (void)raise(SIGTERM);
    if (strcmp(way, "thread") == 0) {
        OK(pthread_create(&thread, NULL, exit_in_a_thread, NULL));
        OK(pthread_join(thread, NULL));
    }
    return 2;
}
