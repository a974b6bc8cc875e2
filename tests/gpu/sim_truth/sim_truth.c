/* sim_truth.c: asks a driver the questions that the simulation's rules answer, one line a rule; the
 * questions of a subject lie in the file of its name.
 *
 * The same program runs on a GPU and on the simulated driver (tests/sim); tests/sim/RULES.md says
 * which rule each line is about, and the two outputs are to be the same, line by line:
 *
 *     gcc -O1 -I. -I$CUDA_HOME/include tests/gpu/sim_truth/[a-z]*.c -o sim_truth -ldl -lpthread
 *     ./sim_truth > gpu.txt
 *     LD_LIBRARY_PATH=build/tests/sim SIM_SCHED=lazy SIM_VIOLATION=count SIM_DEVICES=2 \
 *         SIM_MEMORY=8GiB ./sim_truth > sim.txt
 *
 * The driver API only, every call looked up by its exported name. Each group of questions begins
 * with a line "= NAME", and has a process of its own, forked before cuInit, so that a fault or a
 * hang costs no more than its group. "Waits" means: a kernel that takes SPIN_NS and then writes a
 * word of pinned memory had written it when the call returned. */
#define _GNU_SOURCE
#include "tests/gpu/sim_truth/truth.h"

#include <sys/wait.h>
#include <unistd.h>

#define GROUP_SEC 120

#define ROW_OF_GROUP(name, function) {name, function},

static const struct {
    const char *name;
    void (*run)(void);
} groups[] = {GROUPS(ROW_OF_GROUP)};

/* Takes all memory that is free, which others may need. */
static const char greedy[] = "managed room";

static void run_group(size_t i)
{
    int status;

    printf("= %s\n", groups[i].name);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(GROUP_SEC);
        groups[i].run();
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
        printf("# %s: ended by signal %d\n", groups[i].name, WTERMSIG(status));
    else if (WEXITSTATUS(status))
        printf("# %s: ended with status %d\n", groups[i].name, WEXITSTATUS(status));
}

/* Without arguments: all groups; with --beside-others those that take no memory from others; else
 * those whose names contain one of the arguments. */
static bool is_wanted(const char *name, int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--beside-others"))
        return strcmp(name, greedy) != 0;
    for (int i = 1; i < argc; i++)
        if (strstr(name, argv[i]))
            return true;
    return argc == 1;
}

int main(int argc, char **argv)
{
    if (!open_driver())
        return 77;
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
        if (is_wanted(groups[i].name, argc, argv))
            run_group(i);
    return 0;
}
