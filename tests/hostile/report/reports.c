/* Leaves the report in a bad place: the way its first argument names. Further arguments are the
 * way's. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cuda.h>

#include "interpose/api/allograft.h"
#include "tests/common/context.h"
#include "tests/common/say.h"

#define GUARD (64u << 10)

/* Takes a block, writes into it, reads back what was written and frees it. */
static void use_cuda(void)
{
    char text[16] = "as it was before";
    CUdeviceptr p;

    (void)context_open();
    OK(cuMemAlloc(&p, 4096));
    OK(cuMemcpyHtoD(p, text, sizeof(text)));
    memset(text, 0, sizeof(text));
    OK(cuMemcpyDtoH(text, p, sizeof(text)));
    OK(cuMemFree(p));
    say("read back: %.16s", text);
}

/* --- standard error is another file --- */

/* A file of data that is opened first; where a standard descriptor is closed, it gets its number.
 */
static void data_file(char **paths)
{
    int fd = open(paths[0], O_WRONLY | O_CREAT | O_TRUNC, 0666);

    use_cuda();
    OK(write(fd, "12345678\n", 9) != 9);
    say("the data have descriptor %d", fd);
}

/* The same, opened after standard error was closed in the middle. */
static void data_file_later(char **paths)
{
    use_cuda();
    (void)close(STDERR_FILENO);
    data_file(paths);
}

/* A service that, once it is up, sends its standard error to a log of its own. */
static void moved_stderr(char **paths)
{
    int fd;

    use_cuda();
    fd = open(paths[0], O_WRONLY | O_CREAT | O_TRUNC, 0666);
    OK(dup2(fd, STDERR_FILENO) != STDERR_FILENO);
    OK(close(fd));
    OK(write(STDERR_FILENO, "up\n", 3) != 3);
}

/* --- little stack --- */

static const char *crash_end;

/* As handlers that start a debugger: a child becomes it, and its status is the process's. */
static void crash_in_child(void)
{
    int status = 0;
    pid_t child = fork();

    if (!child) {
        (void)execlp("sh", "sh", "-c", "exit 42", (char *)NULL);
        _exit(1);
    }
    (void)waitpid(child, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 43);
}

static void on_crash(int number)
{
    (void)number;
    if (*crash_end == 'q')
        quick_exit(42);
    if (*crash_end == 'x')
        (void)execl("/bin/sh", "sh", "-c", "exit 42", (char *)NULL);
    if (*crash_end == 'p')
        (void)execlp("sh", "sh", "-c", "exit 42", (char *)NULL);
    if (*crash_end == 'c')
        crash_in_child();
    if (*crash_end == 'f')
        (void)execl("/no/such/program", "none", (char *)NULL);
    if (*crash_end == 'e')
        exit(42);
    _exit(42);
}

/* Uses CUDA and crashes; the handler runs on `stack`. */
static void crash(const stack_t *stack)
{
    struct sigaction action = {.sa_handler = on_crash, .sa_flags = SA_ONSTACK};

    use_cuda();
    OK(sigaltstack(stack, NULL));
    OK(sigaction(SIGSEGV, &action, NULL));
    OK(raise(SIGSEGV));
}

/* The least that the kernel takes, in bytes. */
static size_t least_stack(void)
{
    size_t least = getauxval(AT_MINSIGSTKSZ);

    return least > 2048 ? least : 2048;
}

/* Memory below `top`, GUARD bytes and `bytes`. `whose`: MAP_SHARED for what children share. */
static char *stack_top(size_t bytes, int whose)
{
    char *low = mmap(NULL, GUARD + bytes, PROT_READ | PROT_WRITE, whose | MAP_ANONYMOUS, -1, 0);

    OK(low == MAP_FAILED);
    return low + GUARD + bytes;
}

/* words: how it ends, and the size of the stack; "+N": N more than the least. A guard lies below.
 */
static void little_stack(char **words)
{
    size_t bytes = *words[1] == '+' ? least_stack() + strtoul(words[1] + 1, NULL, 0)
                                    : strtoul(words[1], NULL, 0);
    char *top = stack_top(bytes, MAP_PRIVATE);

    crash_end = words[0];
    OK(mprotect(top - bytes - GUARD, GUARD, PROT_NONE));
    crash(&(stack_t){.ss_sp = top - bytes, .ss_size = bytes});
}

/* How much of 60 KiB the end of the process needs. A child does it, its parent looks at what is
 * left. */
static void depth(char **words)
{
    const size_t bytes = 60u << 10;
    char *top = stack_top(bytes, MAP_SHARED), *low = top - bytes;
    int status = 0;
    pid_t child;

    crash_end = words[0];
    child = fork();
    if (!child)
        crash(&(stack_t){.ss_sp = low, .ss_size = bytes});
    OK(waitpid(child, &status, 0) != child);
    while (low < top && !*low)
        low++;
    say("ended with %d", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    say("depth beyond the least: %ld", (long)(top - low) - (long)least_stack());
}

/* --- others --- */

/* Goes to another folder, as daemons do. */
static void moved_away(char **unused)
{
    (void)unused;
    use_cuda();
    OK(chdir("/"));
}

/* Says that it is up, and ends once its input does. */
static void until_told(char **unused)
{
    char byte;

    (void)unused;
    use_cuda();
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
}

/* The same; then it has its report written to paths[0], as it is by then. */
static void dumps(char **paths)
{
    until_told(NULL);
    OK(allograft_dump(paths[0]) != ALLOGRAFT_OK);
}

/* The same; then it tries to become paths[0], which is no program, and goes on. */
static void execs(char **paths)
{
    until_told(NULL);
    OK(execl(paths[0], paths[0], (char *)NULL) != -1);
}

/* From then on no file may have more than 512 bytes. */
static void small_files(char **unused)
{
    const struct rlimit limit = {512, 512};

    (void)unused;
    use_cuda();
    OK(setrlimit(RLIMIT_FSIZE, &limit));
}

static void killed(char **unused)
{
    (void)unused;
    use_cuda();
    (void)raise(SIGKILL);
}

static void returns(char **unused)
{
    (void)unused;
    use_cuda();
}

static const struct {
    const char *name;
    void (*go)(char **words);
    int n_words;
} ways[] = {
    {"data_file", data_file, 1},
    {"data_file_later", data_file_later, 1},
    {"depth", depth, 1},
    {"dumps", dumps, 1},
    {"execs", execs, 1},
    {"killed", killed, 0},
    {"little_stack", little_stack, 2},
    {"moved_away", moved_away, 0},
    {"moved_stderr", moved_stderr, 1},
    {"returns", returns, 0},
    {"small_files", small_files, 0},
    {"until_told", until_told, 0},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof(ways) / sizeof(ways[0]); i++) {
        if (!strcmp(argv[1], ways[i].name) && argc == 2 + ways[i].n_words) {
            ways[i].go(argv + 2);
            return 0;
        }
    }
    return 97;
}
