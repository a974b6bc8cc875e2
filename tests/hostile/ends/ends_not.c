/* Tries to become other programs, in vain each time, as a search along a list of folders does; then
 * goes on allocating and freeing. The argument is a folder to write to. */
#define _GNU_SOURCE
#include <cuda.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

static void allocate_and_free(void)
{
    for (int i = 0; i < 100; i++) {
        CUdeviceptr p;

        OK(cuMemAlloc(&p, 4096));
        launch_fill(NULL, p, 100, 1);
        OK(cuMemFree(p));
    }
}

static void make_file(const char *name, const char *text, mode_t mode)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, mode);

    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) || close(fd))
        _exit(98);
}

#define IN_VAIN(call)                            \
    do {                                         \
        int result = (call);                     \
                                                 \
        say("%s: %d, %d", #call, result, errno); \
    } while (0)

int main(int argc, char **argv)
{
    char *const args[] = {"x", NULL}, *const environment[] = {NULL};

    if (argc < 2 || chdir(argv[1]))
        return 98;
    make_file("no_interpreter", "#! /nonexistent/sh -e\n", 0755);
    make_file("not_executable", "#! /bin/sh\n", 0644);
    if (symlink("/bin/true", "link") && errno != EEXIST)
        return 98;
    setenv("PATH", "/nonexistent/bin::/etc", 1);
    device_open();
    allocate_and_free();
    IN_VAIN(execv("/nonexistent/a", args));
    IN_VAIN(execv("/tmp", args));
    IN_VAIN(execv("", args));
    IN_VAIN(execve("not_executable/b", args, environment));
    IN_VAIN(execve("./not_executable", args, environment));
    IN_VAIN(execl("./no_interpreter", "x", (char *)NULL));
    IN_VAIN(execvp("nonexistent", args));
    IN_VAIN(execvpe("not_executable", args, environment));
    IN_VAIN(execlp("no_interpreter", "x", (char *)NULL));
    IN_VAIN(fexecve(open("not_executable", O_RDONLY), args, environment));
    IN_VAIN(fexecve(-1, args, environment));
#if __GLIBC_PREREQ(2, 34)
    IN_VAIN(execveat(AT_FDCWD, "./no_interpreter", args, environment, 0));
    IN_VAIN(execveat(-1, "not_executable", args, environment, 0));
    IN_VAIN(execveat(open(".", O_PATH), "link", args, environment, AT_SYMLINK_NOFOLLOW));
    IN_VAIN(execveat(open(".", O_PATH), "", args, environment, AT_EMPTY_PATH));
    IN_VAIN(execveat(AT_FDCWD, "", args, environment, 0));
#endif
    allocate_and_free();
    return 3;
}
