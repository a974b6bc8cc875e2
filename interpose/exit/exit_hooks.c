/* Hooks of the exits that run no atexit handlers: _exit, _Exit, and libc's exec family.
 *
 * A native cudaFree has waited before the program gets here. The wait that an ordered one left
 * pending is completed first. Each hook ends in libc's own function. When exec fails, the program
 * goes on; where that can be told beforehand (leave_exec.c), nothing is done. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/exit/exit_hooks.h"

#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "interpose/core/driver/real_dlsym.h"
#include "interpose/exit/leave_exec.h"
#include "interpose/exit/leaving.h"
#include "interpose/exit/own_stack.h"
#include "interpose/hooks/entry.h"

#if !__GLIBC_PREREQ(2, 34)
int execveat(int folder, const char *path, char *const argv[], char *const envp[], int flags);
#endif

#define NEXT(name) ((__typeof__(&name))next(NEXT_##name, #name))

enum {
    NEXT_execve,
    NEXT_execv,
    NEXT_execvp,
    NEXT_execvpe,
    NEXT_fexecve,
    NEXT_execveat,
    N_NEXT,
};

/* libc's own, found as the library is loaded: a child by vfork, or in a signal handler, may exec
 * while another thread has the loader's lock. */
static void *found_early[N_NEXT];

void ag_exit_hooks_begin(void)
{
    static const char *const names[N_NEXT] = {"execve",  "execv",   "execvp",
                                              "execvpe", "fexecve", "execveat"};

    for (unsigned i = 0; i < N_NEXT; i++)
        found_early[i] = ag_real_dlsym(RTLD_NEXT, names[i]);
}

struct search {
    const char *name;
    void *found;
};

static void search_on(void *argument)
{
    struct search *search = argument;

    search->found = ag_real_dlsym(RTLD_NEXT, search->name);
}

/* Finds a function of libc's that a hook ends in, before our constructor has done so. Who leaves
 * may be a signal handler with less stack than the loader takes for a look-up. */
static void *find_real(const char *name)
{
    struct search search = {name, NULL};

    ag_own_stack_run(search_on, &search);
    if (!search.found)
        search_on(&search);
    return search.found;
}

static void *next(unsigned which, const char *name)
{
    return found_early[which] ? found_early[which] : find_real(name);
}

/* Completes the pending wait and reports, before an exec that may start something. */
static bool go(bool may_start)
{
    if (may_start)
        ag_leaving_go("exec");
    return may_start;
}

/* exec only returns when it failed. */
static int stay(bool went, int result)
{
    if (went)
        ag_leaving_stay();
    return result;
}

struct find {
    const char *file;
    bool may_start;
};

static void find_on(void *find_)
{
    struct find *find = find_;

    find->may_start = ag_leave_may_find(find->file);
}

/* The path of a file takes more stack than the handler of a signal may have left. */
static bool may_find(const char *file)
{
    struct find find = {file, true};

    ag_own_stack_run(find_on, &find);
    return find.may_start;
}

/* Is there something to do before? Else a child by vfork is on its way. */
#define GO(may_start) (ag_leaving_would() && go(may_start))

__attribute__((noreturn)) static void leave_at_once(int status)
{
    ag_leaving_go("_exit");
    for (;;)
        syscall(SYS_exit_group, status);
}

AG_ENTRY __attribute__((noreturn)) void _exit(int status)
{
    leave_at_once(status);
}

AG_ENTRY __attribute__((noreturn)) void _Exit(int status)
{
    leave_at_once(status);
}

AG_ENTRY int execve(const char *path, char *const argv[], char *const envp[])
{
    bool went = GO(ag_leave_may_start(path));

    return stay(went, NEXT(execve)(path, argv, envp));
}

AG_ENTRY int execv(const char *path, char *const argv[])
{
    bool went = GO(ag_leave_may_start(path));

    return stay(went, NEXT(execv)(path, argv));
}

AG_ENTRY int execvp(const char *file, char *const argv[])
{
    bool went = GO(may_find(file));

    return stay(went, NEXT(execvp)(file, argv));
}

AG_ENTRY int execvpe(const char *file, char *const argv[], char *const envp[])
{
    bool went = GO(may_find(file));

    return stay(went, NEXT(execvpe)(file, argv, envp));
}

AG_ENTRY int fexecve(int fd, char *const argv[], char *const envp[])
{
    bool went = GO(ag_leave_may_start_open(fd));

    return stay(went, NEXT(fexecve)(fd, argv, envp));
}

AG_ENTRY int execveat(int folder, const char *path, char *const argv[], char *const envp[],
                      int flags)
{
    bool went = GO(ag_leave_may_start_at(folder, path, flags));
    __typeof__(&execveat) libcs = NEXT(execveat);

    if (libcs)
        return stay(went, libcs(folder, path, argv, envp, flags));
    /* glibc before 2.34 has none */
    return stay(went, (int)syscall(SYS_execveat, folder, path, argv, envp, flags));
}

/* Number of arguments up to and with the closing NULL. */
static size_t count_arguments(const char *first, va_list args)
{
    size_t n = 1;

    for (const char *arg = first; arg; n++)
        arg = va_arg(args, const char *);
    return n;
}

/* The variable arguments of execl and its kin, with the NULL, into argv[]; returns what follows the
 * NULL when `with_envp` (execle's environment), else NULL. */
static char *const *collect(char **argv, size_t n, const char *first, va_list args, bool with_envp)
{
    argv[0] = (char *)first;
    for (size_t i = 1; i < n; i++)
        argv[i] = va_arg(args, char *);
    return with_envp ? va_arg(args, char *const *) : NULL;
}

/* An array for the arguments, on the stack of the caller: nothing may fail between here and
 * exec. */
#define COLLECT(first, argv, envp, with_envp)              \
    do {                                                   \
        va_list args;                                      \
        size_t n;                                          \
                                                           \
        va_start(args, first);                             \
        n = count_arguments(first, args);                  \
        va_end(args);                                      \
        (argv) = alloca(n * sizeof(char *));               \
        va_start(args, first);                             \
        (envp) = collect(argv, n, first, args, with_envp); \
        va_end(args);                                      \
    } while (0)

AG_ENTRY int execl(const char *path, const char *arg, ...)
{
    char *const *envp;
    char **argv;

    COLLECT(arg, argv, envp, false);
    (void)envp;
    return execv(path, argv);
}

AG_ENTRY int execlp(const char *file, const char *arg, ...)
{
    char *const *envp;
    char **argv;

    COLLECT(arg, argv, envp, false);
    (void)envp;
    return execvp(file, argv);
}

AG_ENTRY int execle(const char *path, const char *arg, ...)
{
    char *const *envp;
    char **argv;

    COLLECT(arg, argv, envp, true);
    return execve(path, argv, envp);
}
