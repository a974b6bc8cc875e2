/*
 * What the library costs a program that has nothing to do with CUDA: starts /bin/true with and
 * without it in turn and prints both medians in microseconds.
 * usage: startup LIBRARY RUNS
 */
#define _GNU_SOURCE
#include "tests/gpu/check.h"

#include <spawn.h>
#include <sys/wait.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double run_us(char **environment)
{
    char *argv[] = {"true", NULL};
    pid_t pid;
    int status;
    double start = now_s();
    OK(posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environment));
    OK(waitpid(pid, &status, 0) != pid);
    OK(status);
    return 1e6 * (now_s() - start);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return EXIT_UNUSABLE;
    int n_runs = atoi(argv[2]);
    char preload[4096];
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", argv[1]);
    char *plain[] = {"PATH=/usr/bin:/bin", NULL};
    char *with[] = {"PATH=/usr/bin:/bin", preload, NULL};
    double *times[2] = {calloc(n_runs, sizeof(double)), calloc(n_runs, sizeof(double))};
    for (int i = 0; i < 5; i++) {
        run_us(plain);
        run_us(with);
    }
    for (int i = 0; i < n_runs; i++) {
        times[0][i] = run_us(plain);
        times[1][i] = run_us(with);
    }
    for (int i = 0; i < 2; i++)
        qsort(times[i], n_runs, sizeof(double), by_value);
    double without = times[0][n_runs / 2], added = times[1][n_runs / 2] - without;
    printf("%.0f us without, %.0f us added\n", without, added);
    return added < 1000 ? 0 : EXIT_BROKEN;
}
