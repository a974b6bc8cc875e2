/* batch.c: diff-program: runs random programs, each in a process of its own.
 *
 *   diff-program [options] SEED          one program; prints its log and how it ended
 *   diff-program [options] --batch A-B --variant 'NAME:VARIABLE=VALUE|...' [--variant ...]
 *                                        every seed under every variant; a line for each
 * Beside the library's: DIFF_MEMORY, the card's memory; DIFF_TWIN=1, memory may run out: compare
 * with a second run (room.c); DIFF_ROOM, bytes there are for allocations; DIFF_CARD, for launches;
 * DIFF_TOTAL, bytes cuMemGetInfo is to tell of. Options: --threads N, --ipc, --iterations,
 * --pageable, --large, --graphs, --pools, --arrays, --lookup linked|dlsym|get-proc, --stats PATH
 * (a report of the library is expected there, and nothing left over in it), --count (what reports
 * of all runs together counted in some groups), --seconds S (begin nothing after that). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "diff.h"

#define MAX_VARIANTS     64
#define HANG_SECONDS     60 /* on any machine, whatever else it does */
#define NO_ROOM_TO_BEGIN 97 /* see op_context.c */
/* The settings of a twin: none of the first run's. */
#define TWIN "ALLOGRAFT_DISABLE=1|DIFF_ROOM=0|DIFF_CARD=0|DIFF_TOTAL=536870912|DIFF_MEMORY=512MiB"

static struct {
    unsigned n_threads, n_variants;
    int lookup;
    bool ipc, batch, iterations, pageable, large, graphs, pools, arrays, count;
    uint64_t first, last;
    const char *variants[MAX_VARIANTS];
    const char *stats;
    double seconds;
} options = {.n_threads = 1, .lookup = -1};

static struct outcome *outcome;
static char *logs;

static void *shared(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) {
        perror("mmap");
        exit(98);
    }
    return p;
}

static void usage(void)
{
    fprintf(stderr,
            "usage: diff-program [--threads N] [--ipc] [--iterations] [--pageable] [--large] "
            "[--graphs] [--pools] [--arrays] [--lookup NAME] [--stats PATH] SEED\n"
            "       diff-program ... [--seconds S] [--count] --batch A-B --variant NAME:SETTINGS "
            "...\n");
    exit(2);
}

static int lookup_named(const char *name)
{
    static const char *const names[N_LOOKUPS] = {"linked", "dlsym", "get-proc"};

    for (int i = 0; i < N_LOOKUPS; i++)
        if (!strcmp(name, names[i]))
            return i;
    usage();
    return 0;
}

static void read_seeds(const char *text)
{
    char *end;

    options.first = options.last = strtoull(text, &end, 10);
    if (end == text)
        usage();
    if (*end == '-')
        options.last = strtoull(end + 1, &end, 10);
    if (*end)
        usage();
}

static bool *flag_named(const char *name)
{
    return !strcmp(name, "--ipc")          ? &options.ipc
           : !strcmp(name, "--iterations") ? &options.iterations
           : !strcmp(name, "--pageable")   ? &options.pageable
           : !strcmp(name, "--large")      ? &options.large
           : !strcmp(name, "--graphs")     ? &options.graphs
           : !strcmp(name, "--pools")      ? &options.pools
           : !strcmp(name, "--arrays")     ? &options.arrays
           : !strcmp(name, "--count")      ? &options.count
                                           : NULL;
}

static void read_options(int argc, char **argv)
{
    int i = 1;

    for (; i < argc && !strncmp(argv[i], "--", 2); i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        bool *flag = flag_named(argv[i]);

        if (flag) {
            *flag = true;
            continue;
        }
        if (!strcmp(argv[i], "--threads"))
            options.n_threads = (unsigned)atoi(value);
        else if (!strcmp(argv[i], "--lookup"))
            options.lookup = lookup_named(value);
        else if (!strcmp(argv[i], "--stats"))
            options.stats = value;
        else if (!strcmp(argv[i], "--seconds"))
            options.seconds = atof(value);
        else if (!strcmp(argv[i], "--variant") && options.n_variants < MAX_VARIANTS)
            options.variants[options.n_variants++] = value;
        else if (!strcmp(argv[i], "--batch"))
            options.batch = (read_seeds(value), true);
        else
            usage();
        i++;
    }
    if (!options.batch && i + 1 == argc)
        read_seeds(argv[i++]);
    if (i != argc || !options.n_threads || options.n_threads > MAX_THREADS ||
        (options.batch && !options.n_variants))
        usage();
}

/* ---- the process of one program ---- */

static void put_number(const char *name, uint64_t value)
{
    char text[32];

    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    (void)setenv(name, text, 1);
}

static void child(uint64_t seed)
{
    static const char *const stalls[] = {"0", "100", "40"};
    struct traits traits;

    clock_restart();
    traits_of(seed, options.n_threads, options.ipc, &traits);
    if (options.iterations)
        traits_with_iterations(&traits);
    if (options.pageable)
        traits_with_pageable(&traits);
    if (options.large)
        traits_with_large(&traits);
    if (options.graphs)
        traits_with_graphs(&traits);
    if (options.pools)
        traits_with_pools(&traits);
    if (options.arrays)
        traits_with_arrays(&traits);
    if (options.lookup >= 0)
        traits.lookup = (enum lookup)options.lookup;
    put_number("SIM_SEED", seed);
    put_number("SIM_DEVICES", traits.second_device ? 2 : 1);
    (void)setenv("SIM_MEMORY", getenv("DIFF_MEMORY") ? getenv("DIFF_MEMORY") : "512MiB", 1);
    (void)setenv("SIM_IDLE_MS", traits.polls ? "1" : "0", 1);
    /* Not by _exit, where a preloaded library may still want to wait for the driver. */
    (void)setenv("SIM_VIOLATION", traits.faults ? "count" : "abort", 1);
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    if (options.n_threads > 1 && seed % 2)
        (void)setenv("SIM_SCHED", traits.relay ? "reluctant" : "thread", 1);
    if (options.n_threads > 1)
        (void)setenv("SIM_STALL", traits.relay ? "12" : stalls[seed % 3], 1);
    if (options.stats)
        (void)setenv("ALLOGRAFT_STATS", options.stats, 1);
    (void)alarm(getenv("DIFF_HANG") ? (unsigned)atoi(getenv("DIFF_HANG")) : HANG_SECONDS);
    program_run(&traits, outcome, logs);
}

/* Waits for it; returns its status as the shell tells it, and cleans up after a crash. */
static int run_seed(uint64_t seed, void (*prepare)(void *), void *data)
{
    pid_t pid;
    int status;

    memset(outcome, 0, offsetof(struct outcome, refused));
    if (!outcome->again)
        memset((void *)outcome->refused, 0, sizeof(outcome->refused));
    if (options.stats)
        (void)unlink(options.stats);
    (void)fflush(NULL);
    pid = fork();
    if (pid < 0) {
        perror("fork");
        exit(98);
    }
    if (!pid) {
        if (prepare)
            prepare(data);
        child(seed);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static unsigned marks_missing(void)
{
    unsigned n = 0;

    for (unsigned i = 0; i < MAX_THREADS * MAX_MARKS; i++)
        n += outcome->due[i] && !outcome->marks[i];
    return n;
}

/* ---- the library's report ---- */

static struct {
    char key[40];
    unsigned long long sum;
} steps[160];

/* What all runs together counted in the group `"name":`; the names of two groups are not the same.
 */
static void add_steps(const char *text, const char *group)
{
    const char *at = strstr(text, group), *end = at ? strchr(at, '}') : NULL;
    char key[40];
    unsigned long long n;
    size_t i;

    if (!options.count || !end || !(at = strchr(at, '{')))
        return;
    while ((at = strchr(at + 1, '"')) && at < end) {
        if (sscanf(at, "\"%39[a-z_]\" : %llu", key, &n) == 2) {
            for (i = 0; steps[i].key[0] && strcmp(steps[i].key, key) != 0; i++)
                if (i + 2 == sizeof(steps) / sizeof(steps[0]))
                    return;
            (void)strcpy(steps[i].key, key);
            steps[i].sum += n;
        }
        at = strchr(at + 1, '"');
    }
}

/* The bytes that the library's report says are still in use; -1 when there is no report. */
static long long bytes_left(void)
{
    static char text[1 << 17];
    static const char key[] = "\"current_bytes\":";
    long long sum = 0;
    ssize_t n;
    int fd = open(options.stats, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return -1;
    n = read(fd, text, sizeof(text) - 1);
    (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    if (!strstr(text, key))
        return -1;
    add_steps(text, "\"copies\":{");
    add_steps(text, "\"pressure\":");
    add_steps(text, "\"async\":{");
    add_steps(text, "\"guard\":{");
    add_steps(text, "\"slabs\":");
    add_steps(text, "\"replay\":"); /* and the flushes inside */
    add_steps(text, "\"staging\":");
    add_steps(text, "\"waiting\":");
    for (const char *at = text; (at = strstr(at, key)); at += sizeof(key) - 1)
        sum += atoll(at + sizeof(key) - 1);
    return sum;
}

/* ---- batches ---- */

struct hashes {
    uint64_t full, soft;
};

/* Over all threads' logs; soft: without the lines that may differ under managed placement. */
static struct hashes hash_logs(void)
{
    struct hashes hashes = {0, 0};

    for (unsigned t = 0; t < MAX_THREADS; t++) {
        const char *at = logs + t * LOG_CAPACITY, *end = at + outcome->log_part[t];
        while (at < end) {
            const char *next = memchr(at, '\n', (size_t)(end - at));
            size_t n = next ? (size_t)(next + 1 - at) : (size_t)(end - at);
            const char *word = memchr(at, ' ', n);
            uint64_t h = hash_of(at, n);

            hashes.full = hashes.full * 31 + h;
            if (!word || strncmp(word, " attr ", 6))
                hashes.soft = hashes.soft * 31 + h;
            at += n;
        }
    }
    return hashes;
}

static void quiet(void *settings)
{
    char *text = strdup(settings), *save = NULL;
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

    (void)dup2(fd, STDERR_FILENO);
    for (char *one = strtok_r(text, "|", &save); one; one = strtok_r(NULL, "|", &save))
        (void)putenv(strdup(one));
}

/* The same program with room for all, where what was refused is refused again. */
static void twin(uint64_t seed)
{
    struct hashes hashes;
    int status;

    outcome->again = true;
    status = run_seed(seed, quiet, TWIN);
    outcome->again = false;
    hashes = hash_logs();
    printf(" %d %u %016llx %016llx", status, outcome->n_ops, (unsigned long long)hashes.full,
           (unsigned long long)hashes.soft);
}

/* "seed variant status operations hash soft-hash left-over marks-missing", then for a twin again
 * "status operations hash soft-hash" */
static void one_variant(uint64_t seed, const char *variant)
{
    const char *colon = strchr(variant, ':');
    size_t name = colon ? (size_t)(colon - variant) : strlen(variant);
    long long left = 0;
    struct hashes hashes;
    int status;

    if ((strstr(variant, "FREE=ordered") && !traits_device_only(seed)) ||
        (strcasestr(variant, "host=fast") && traits_wait_by_host_free(seed))) {
        printf("%llu %.*s skip\n", (unsigned long long)seed, (int)name, variant);
        return;
    }
    status = run_seed(seed, quiet, (void *)(uintptr_t)(colon ? colon + 1 : variant + name));
    hashes = hash_logs();
    if (options.stats && !strstr(variant, "DISABLE=1"))
        left = bytes_left();
    if (left > 0 && !outcome->clean)
        left = 0;
    if (strstr(variant, "DIFF_TWIN=1") && status == NO_ROOM_TO_BEGIN) {
        printf("%llu %.*s skip\n", (unsigned long long)seed, (int)name, variant);
        return;
    }
    printf("%llu %.*s %d %u %016llx %016llx %lld %u", (unsigned long long)seed, (int)name, variant,
           status, outcome->n_ops, (unsigned long long)hashes.full, (unsigned long long)hashes.soft,
           left, marks_missing());
    if (strstr(variant, "DIFF_TWIN=1"))
        twin(seed);
    printf("\n");
}

static double now(void)
{
    struct timespec at;

    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static void run_batch(void)
{
    double until = now() + options.seconds;

    for (uint64_t seed = options.first; seed <= options.last; seed++) {
        if (options.seconds > 0 && now() > until)
            break;
        for (unsigned i = 0; i < options.n_variants; i++)
            one_variant(seed, options.variants[i]);
    }
    for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]) && steps[i].key[0]; i++)
        printf("# %s %llu\n", steps[i].key, steps[i].sum);
}

static int run_and_print(uint64_t seed, void (*prepare)(void *), void *data)
{
    int status = run_seed(seed, prepare, data);

    for (unsigned t = 0; t < options.n_threads; t++) {
        size_t n = outcome->log_part[t];
        if (!outcome->finished)
            n = strnlen(logs + t * LOG_CAPACITY, LOG_CAPACITY);
        (void)fwrite(logs + t * LOG_CAPACITY, 1, n, stdout);
    }
    printf("ended with status %d, %u marks missing", status, marks_missing());
    if (options.stats)
        printf(", %lld bytes left over", outcome->clean ? bytes_left() : 0);
    printf("\n");
    return status;
}

static int run_one(uint64_t seed)
{
    int status = run_and_print(seed, NULL, NULL);

    if (getenv("DIFF_TWIN")) {
        printf("--- its twin\n");
        outcome->again = true;
        (void)run_and_print(seed, quiet, TWIN);
    }
    return status;
}

int main(int argc, char **argv)
{
    clock_start();
    if (argc == 2 && !strcmp(argv[1], "--exec-child"))
        return process_exec_child();
    read_options(argc, argv);
    outcome = shared(sizeof(*outcome));
    logs = shared(MAX_THREADS * LOG_CAPACITY);
    if (!options.batch)
        return run_one(options.first);
    run_batch();
    return 0;
}
