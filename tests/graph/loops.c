/* Loops and short programs on the machine of machine.h: how long they take one by one, as a graph
 * captured by hand, and replayed, learning included; as a table, and with bounds. It is a model:
 * what it charges was fitted to what an H200 took (docs/performance.md, "A model of loops"), and
 * its figures are of the model.
 *
 * loops plain: only host, name and us of what is replayed, for ablation.py. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "machine.h"
#include "tests/common/check.h"

/* The host on which replay was measured has slow phases, so there are two. */
static const struct host {
    const char *name;
    uint64_t program, withheld;
} hosts[] = {{"quick", 60, 120}, {"slow", 150, 160}};

static const struct machine_costs h200 = {
    .inspected = 60,
    .prepared = 1500,
    .launch = 3020,
    .copy = 1100,
    .graph_launch = 1800,
    .update = 850,
    .add = 1100,
    .instantiate = 5000,
    .upload = 1400,
    .destroy = 5000,
    .create = 5000,
    .end = 5000,
    .wait = 2000,
    .first = 2200,
    .kernel = 2000,
    .node = 920,
    .graph = 2400,
    .updated = 50,
};

static unsigned n_missed;
static bool is_plain;

/* A bound does not hold: all of them are told before the test fails. */
__attribute__((format(printf, 1, 2))) static void miss(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    if (!is_plain)
        vprintf(format, args);
    va_end(args);
    n_missed++;
}

static void use(const struct host *host)
{
    machine.costs = h200;
    machine.costs.program = host->program;
    machine.costs.withheld = host->withheld;
}

/* --- loops --- */

#define WARM 5u /* iterations before those that are measured */

/* n launches of one kernel an iteration, and a wait; the parameters are one of `sets` in turns, 0:
 * always the same. */
struct loop {
    uint32_t n, iterations, sets;
    double most[N_OF(hosts)]; /* times a graph captured by hand, on each host */
};

static void iterate(CUstream stream, const struct loop *loop, uint32_t i)
{
    uint64_t set = loop->sets ? i % loop->sets : 0;

    for (uint32_t k = 0; k < loop->n; k++)
        machine_launch(stream, 0, 0, set, 3 * set);
    machine_wait(stream);
}

/* us an iteration */
static double measured(const struct loop *loop, const char *const *settings, bool past)
{
    uint64_t began;
    CUstream stream;
    double us;

    machine_begin(settings);
    machine_go_past(past);
    stream = machine_stream();
    for (uint32_t i = 0; i < WARM; i++)
        iterate(stream, loop, i);
    began = machine.now;
    for (uint32_t i = 0; i < loop->iterations; i++)
        iterate(stream, loop, WARM + i);
    us = (double)(machine.now - began) / 1000 / loop->iterations;
    machine_end();
    return us;
}

static double by_hand(const struct loop *loop)
{
    uint64_t began = machine.now;

    for (uint32_t i = 0; i < loop->iterations; i++) {
        machine_launch_own(loop->n);
        machine_wait(NULL);
    }
    return (double)(machine.now - began) / 1000 / loop->iterations;
}

static void measure(const struct loop *loop, unsigned host)
{
    static const char *const unguarded[] = {"PROFIT=0", NULL};
    double eager = measured(loop, NULL, true), hand = by_hand(loop);
    double off = measured(loop, unguarded, false), now = measured(loop, NULL, false);

    if (is_plain) {
        printf("%s\t%u x %u, %u sets\t%.1f\n", hosts[host].name, loop->n, loop->iterations,
               loop->sets, now);
        return;
    }
    printf("%5u x %4u %7u  %8.1f %8.1f %8.1f %6.2f %6.2f %7.3f  %6lu %7lu\n", loop->n,
           loop->iterations, loop->sets, eager, hand, now, now / hand, loop->most[host], now / off,
           (unsigned long)machine.nodes_built, (unsigned long)machine.launches);
    if (now > loop->most[host] * hand)
        miss("      more than %.2f times a graph by hand\n", loop->most[host]);
    if (now > 1.011 * off)
        miss("      the guard takes more than a hundredth\n");
    if (now > eager)
        miss("      slower than one by one\n");
}

static void loops(unsigned host)
{
    static const struct loop all[] = {
        {1000, 40, 0, {1.03, 1.03}},        {200, 50, 0, {1.05, 1.06}},
        {20, 200, 0, {1.14, 1.18}},         {1000, 400, 0, {1.03, 1.03}},
        {200, 2000, 0, {1.05, 1.06}},       {20, 5000, 0, {1.14, 1.18}},
        {1000, 40, 13, {1.10, 1.10}},       {200, 50, 13, {1.35, 1.55}},
        {20, 200, 13, {1.25, 1.27}},        {1000, 400, 13, {1.06, 1.06}},
        {200, 2000, 13, {1.16, 1.15}},      {20, 5000, 13, {1.19, 1.23}},
        {1000, 400, 1000000, {1.13, 1.18}}, {200, 2000, 1000000, {1.29, 1.42}},
        {20, 5000, 1000000, {1.57, 1.65}},
    };

    if (!is_plain)
        printf("\n%s host, us an iteration:\n"
               "      loop        sets  one by one  by hand replayed times  bound  guard   nodes "
               "launches\n",
               hosts[host].name);
    for (unsigned i = 0; i < N_OF(all); i++)
        measure(&all[i], host);
}

/* --- programs that are short, or have nothing to replay --- */

/* 2000 streams, for three launches and a copy each. */
static void streams_in_turns(void)
{
    for (uint32_t i = 0; i < 2000; i++) {
        CUstream stream = machine_stream();

        machine_copy(stream, 4096, 65536 + i, 4096);
        for (uint32_t k = 0; k < 3; k++)
            machine_launch(stream, k, i, 0, 0);
        machine_wait(stream);
        machine_destroy(stream);
    }
}

/* 200 streams, for 100 launches each: longer than what a stream passes without a look. */
static void longer_streams_in_turns(void)
{
    for (uint32_t i = 0; i < 200; i++) {
        CUstream stream = machine_stream();

        for (uint32_t k = 0; k < 100; k++)
            machine_launch(stream, k % 7, i, k, 0);
        machine_wait(stream);
        machine_destroy(stream);
    }
}

static void frees_between(void)
{
    CUstream stream = machine_stream();

    for (uint32_t i = 0; i < 600; i++) {
        machine_launch(stream, 0, i, 0, 0);
        machine_launch(stream, 1, i, 0, 0);
        machine_free();
    }
    machine_wait(stream);
}

static void waits_between(void)
{
    CUstream stream = machine_stream();

    for (uint32_t i = 0; i < 6000; i++) {
        machine_launch(stream, i % 3, i, 0, 0);
        if (i % 3 == 2)
            machine_wait(stream);
    }
}

static void one_kernel_after_the_other(void)
{
    CUstream stream = machine_stream();

    for (uint32_t i = 0; i < 200; i++)
        machine_launch(stream, 0, i, 0, 0);
    machine_wait(stream);
}

/* As lulesh does. */
static void few_iterations(void)
{
    CUstream stream = machine_stream();

    for (uint32_t i = 0; i < 13; i++) {
        for (uint32_t k = 0; k < 30; k++)
            machine_launch(stream, k, i, 0, 0);
        machine_wait(stream);
    }
}

static void nothing_repeats(void)
{
    CUstream stream = machine_stream();
    uint64_t random = 1;

    for (uint32_t i = 0; i < 20000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        machine_launch(stream, random >> 58, i, 0, 0);
        if (random >> 33 & 1 && i % 64 == 0)
            machine_wait(stream);
    }
}

static void copies(void)
{
    CUstream stream = machine_stream();

    for (uint32_t i = 0; i < 500; i++) {
        for (uint32_t k = 0; k < 3; k++)
            machine_copy(stream, 4096 + k, 65536 * (i + 1ul), 65536);
        machine_launch(stream, 0, i, 0, 0);
        machine_wait(stream);
    }
}

static void frees_inside_iterations(void)
{
    CUstream stream = machine_stream();

    for (uint32_t i = 0; i < 300; i++) {
        for (uint32_t k = 0; k < 20; k++) {
            machine_launch(stream, k, i, 0, 0);
            if (k % 5 == 4)
                machine_free();
        }
        machine_wait(stream);
    }
}

/* --- loops of other forms --- */

static void launch_body(CUstream stream, uint32_t first, uint32_t n, uint64_t a)
{
    for (uint32_t k = 0; k < n; k++)
        machine_launch(stream, first + k, a, k, 0);
}

static void unwaited(uint32_t n, uint32_t iterations)
{
    CUstream stream = machine_stream();

    for (uint32_t i = 0; i < iterations; i++)
        launch_body(stream, 0, n, 0);
    machine_wait(stream);
}

static void unwaited_short(void)
{
    unwaited(13, 1000);
}

static void unwaited_long(void)
{
    unwaited(300, 60);
}

static void one_kernel_unwaited(void)
{
    unwaited(1, 20000);
}

static void unwaited_nested(void)
{
    CUstream stream = machine_stream();

    for (uint32_t i = 0; i < 100; i++) {
        for (uint32_t k = 0; k < 20; k++)
            launch_body(stream, 0, 7, 0);
        launch_body(stream, 100, 30, 0);
    }
    machine_wait(stream);
}

/* One launch more in every fourth iteration. */
static void unwaited_irregular(void)
{
    CUstream stream = machine_stream();

    for (uint32_t i = 0; i < 200; i++) {
        launch_body(stream, 0, 60, 0);
        if (i % 4 == 3)
            machine_launch(stream, 999, 0, 0, 0);
        launch_body(stream, 60, 40, 0);
    }
    machine_wait(stream);
}

static void irregular(void)
{
    CUstream stream = machine_stream();

    for (uint32_t i = 0; i < 400; i++) {
        launch_body(stream, 0, 60, 0);
        if (i % 4 == 3)
            machine_launch(stream, 999, 0, 0, 0);
        launch_body(stream, 60, 40, 0);
        machine_wait(stream);
    }
}

static void begins_late(void)
{
    CUstream stream = machine_stream();

    for (uint32_t i = 0; i < 3000; i++) {
        machine_launch(stream, i % 3, i, 0, 0);
        machine_wait(stream);
    }
    for (uint32_t i = 0; i < 2000; i++)
        launch_body(stream, 0, 13, 0);
    machine_wait(stream);
}

/* As many launches of which nothing comes again, then what comes again. */
static void repeats_late(void)
{
    CUstream stream = machine_stream();
    uint64_t random = 1;

    for (uint32_t i = 0; i < 20000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        machine_launch(stream, random >> 58, i, 0, 0);
    }
    for (uint32_t i = 0; i < 300; i++) {
        launch_body(stream, 0, 200, 0);
        machine_wait(stream);
    }
}

/* The program takes so long for each launch, as a Python one does. */
static void slow_program(uint64_t ns, uint32_t n)
{
    uint64_t usual = machine.costs.program;
    CUstream stream = machine_stream();

    machine.costs.program = ns;
    for (uint32_t i = 0; i < 300; i++) {
        launch_body(stream, 0, n, 0);
        machine_wait(stream);
    }
    machine.costs.program = usual;
}

static void python(void)
{
    slow_program(8000, 60);
}

static void slow_python(void)
{
    slow_program(25000, 24);
}

/* Training steps, and steps of another kind between them. */
static void in_kinds(uint32_t train, uint32_t times, uint32_t other)
{
    CUstream stream = machine_stream();

    for (uint32_t i = 0; i < 200; i++) {
        for (uint32_t k = 0; k < times; k++) {
            launch_body(stream, 0, train, i);
            machine_wait(stream);
        }
        launch_body(stream, 500, other, 0);
        machine_wait(stream);
    }
}

static void two_kinds(void)
{
    in_kinds(120, 1, 30);
}

static void rare_kind(void)
{
    in_kinds(100, 9, 300);
}

/* Of the second kind one launch a wait: replay only adds to it. */
static void uneven_kinds(void)
{
    CUstream stream = machine_stream();

    for (uint32_t i = 0; i < 400; i++) {
        launch_body(stream, 0, 100, 0);
        machine_wait(stream);
        for (uint32_t k = 0; k < 20; k++) {
            launch_body(stream, 200, 2, k);
            machine_wait(stream);
        }
    }
}

/* As many of one kind as a turn of the profit guard has, and as many of the other. */
static void four_and_four(void)
{
    CUstream stream = machine_stream();

    for (uint32_t i = 0; i < 600; i++) {
        launch_body(stream, i & 4 ? 0 : 500, i & 4 ? 120 : 30, i);
        machine_wait(stream);
    }
}

static void long_iterations(void)
{
    CUstream stream = machine_stream();

    for (uint32_t i = 0; i < 20; i++) {
        launch_body(stream, 0, 3000, 0);
        machine_wait(stream);
    }
}

static void twelve(void)
{
    CUstream stream = machine_stream();

    for (uint32_t i = 0; i < 2000; i++) {
        launch_body(stream, 0, 12, 0);
        machine_wait(stream);
    }
}

static void launch_at_random(CUstream stream, uint32_t n)
{
    uint64_t random = 1;

    for (uint32_t i = 0; i < n; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        machine_launch(stream, random >> 58, i, 0, 0);
    }
}

static void unwaited_late(void)
{
    CUstream stream = machine_stream();

    launch_at_random(stream, 1500);
    for (uint32_t i = 0; i < 1000; i++)
        launch_body(stream, 0, 13, 0);
    machine_wait(stream);
}

/* The same body, at first not waited for, then after every fifth. */
static void waited_late(void)
{
    CUstream stream = machine_stream();

    for (uint32_t i = 0; i < 200; i++)
        launch_body(stream, 0, 20, 0);
    for (uint32_t i = 0; i < 500; i++) {
        launch_body(stream, 0, 20, 0);
        launch_body(stream, 0, 20, 0);
        launch_body(stream, 30, 23, 0);
        machine_wait(stream);
    }
}

/* For long enough that anchors end segments within the iteration. */
static void long_inner_loop(void)
{
    CUstream stream = machine_stream();

    for (uint32_t i = 0; i < 10; i++) {
        for (uint32_t k = 0; k < 300; k++)
            launch_body(stream, 0, 13, 0);
        launch_body(stream, 100, 50, 0);
    }
    machine_wait(stream);
}

static void frees_anywhere(void)
{
    CUstream stream = machine_stream();
    uint64_t random = 1;

    for (uint32_t i = 0; i < 1500; i++) {
        launch_body(stream, 0, 13, 0);
        random = random * 6364136223846793005u + 1442695040888963407u;
        if (random >> 61 == 0) {
            launch_body(stream, 0, random >> 33 & 7, 0);
            machine_free();
            launch_body(stream, random >> 33 & 7, 13 - (random >> 33 & 7), 0);
        }
    }
    machine_wait(stream);
}

static void sets_by_lot(uint32_t sets)
{
    CUstream stream = machine_stream();
    uint64_t random = 1;

    for (uint32_t i = 0; i < 1000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        launch_body(stream, 0, 60, (random >> 33) % sets);
        machine_wait(stream);
    }
}

static void seven_sets(void)
{
    sets_by_lot(7);
}

/* More than a segment has graphs. */
static void forty_sets(void)
{
    sets_by_lot(40);
}

/* Sets in turns, and a seed that counts up. */
static void seed_counts(void)
{
    CUstream stream = machine_stream();

    for (uint32_t i = 0; i < 1000; i++) {
        machine_launch(stream, 99, i, 0, 0);
        launch_body(stream, 0, 60, i % 5);
        machine_wait(stream);
    }
}

/* A body that runs over four pieces of memory between two waits. */
static void pieces(void)
{
    CUstream stream = machine_stream();

    for (uint32_t i = 0; i < 300; i++) {
        for (uint32_t k = 0; k < 4; k++)
            launch_body(stream, 0, 64, k);
        machine_wait(stream);
    }
}

/* Kernels of 20 us: the device is the slower side. */
static void long_kernels(void)
{
    struct machine_costs usual = machine.costs;
    CUstream stream = machine_stream();

    machine.costs.kernel = 21000;
    machine.costs.node = 20500;
    for (uint32_t i = 0; i < 300; i++) {
        launch_body(stream, 0, 16, i);
        machine_wait(stream);
    }
    machine.costs = usual;
}

static double took(void (*program)(void), bool past)
{
    uint64_t began;
    double us;

    machine_begin(NULL);
    machine_go_past(past);
    began = machine.now;
    program();
    us = (double)(machine.now - began) / 1000;
    machine_end();
    return us;
}

/* What is lost, where something is: a share of the program, or a time that its start hides (a
 * process that uses CUDA takes 100 ms and more to begin). */
static void programs(unsigned host)
{
    static const struct {
        const char *name;
        void (*run)(void);
        double most; /* times as long as without replay */
        double us;   /* or longer by so much, at most */
    } rows[] = {
        {"2000 streams of 4 operations", streams_in_turns, 1.005, 0},
        {"200 streams of 100 operations", longer_streams_in_turns, 1.005, 0},
        {"a free after every 2 launches", frees_between, 1.01, 0},
        {"a wait after every 3 launches", waits_between, 1.01, 0},
        {"200 launches of one kernel", one_kernel_after_the_other, 1.02, 15},
        {"13 iterations of 30 launches", few_iterations, 1.0, 0},
        {"nothing repeats", nothing_repeats, 1.01, 0},
        {"3 copies and a launch", copies, 1.01, 0},
        {"a free after every 5 launches", frees_inside_iterations, 1.0, 0},
        {"13 launches, unwaited", unwaited_short, 1.0, 0},
        {"300 launches, unwaited", unwaited_long, 1.0, 0},
        {"one kernel, unwaited", one_kernel_unwaited, 1.0, 0},
        {"a loop in a loop, unwaited", unwaited_nested, 1.0, 0},
        {"one more of 100, unwaited", unwaited_irregular, 1.0, 0},
        {"one more of 100, now and then", irregular, 1.0, 0},
        {"a loop behind waits", begins_late, 1.0, 0},
        {"a loop behind what is random", repeats_late, 1.0, 0},
        {"60 launches, 8 us each", python, 1.0, 0},
        {"24 launches, 25 us each", slow_python, 1.01, 0},
        {"120 and 30 launches in turns", two_kinds, 1.0, 0},
        {"9 times 100, and 300 launches", rare_kind, 1.0, 0},
        {"100 and 20 times 2 launches", uneven_kinds, 1.0, 0},
        {"4 times 120, 4 times 30 launches", four_and_four, 1.0, 0},
        {"20 iterations of 3000 launches", long_iterations, 1.0, 0},
        {"12 launches", twelve, 1.0, 0},
        {"13, unwaited, behind 1500 others", unwaited_late, 1.0, 0},
        {"a long loop in a loop, unwaited", long_inner_loop, 1.0, 0},
        {"63 launches, waited for late", waited_late, 1.0, 0},
        {"frees anywhere in 13, unwaited", frees_anywhere, 1.0, 0},
        {"60 launches, 7 sets by lot", seven_sets, 1.0, 0},
        {"60 launches, 40 sets by lot", forty_sets, 1.0, 0},
        {"60 launches, 5 sets, and a seed", seed_counts, 1.0, 0},
        {"4 times 64 launches", pieces, 1.0, 0},
        {"16 kernels of 20 us", long_kernels, 1.01, 0},
    };

    if (!is_plain)
        printf("\nprograms, us:\n%-32s one by one  replayed  times\n", "");
    for (unsigned i = 0; i < N_OF(rows); i++) {
        double eager = took(rows[i].run, true), now = took(rows[i].run, false);

        if (is_plain) {
            printf("%s\t%s\t%.1f\n", hosts[host].name, rows[i].name, now);
            continue;
        }
        printf("%-32s %10.1f %9.1f %6.3f\n", rows[i].name, eager, now, now / eager);
        if (now > rows[i].most * eager && now > eager + rows[i].us)
            miss("      more than %.3f times\n", rows[i].most);
    }
}

int main(int argc, char **argv)
{
    is_plain = argc > 1 && !strcmp(argv[1], "plain");
    if (!is_plain)
        printf("A model: host and device are two clocks, charged with measured costs.\n");
    for (unsigned i = 0; i < N_OF(hosts); i++) {
        use(&hosts[i]);
        loops(i);
        programs(i);
    }
    CHECK_SAID(is_plain || !n_missed, "%u bounds", n_missed);
    return 0;
}
