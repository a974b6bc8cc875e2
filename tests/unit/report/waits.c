/* waits.c: short waits are summed, longer ones by their stack and call, in a bounded table;
 * threads, and forked children. */
#include "interpose/core/report/waits/waits.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>

#include "interpose/core/report/holders/render_holders.h"
#include "interpose/core/report/waits/render_waits.h"
#include "tests/common/check.h"

#define MS        1000000ull
#define N_THREADS 4u
#define TURNS     300u

/* A call that has taken so long. */
static __attribute__((noinline)) void wait_here(enum ag_wait_kind kind, const char *call,
                                                uint64_t ns)
{
    struct ag_waiting wait = ag_waiting_begin();

    if (wait.began_ns)
        wait.began_ns -= ns;
    ag_waiting_end(&wait, kind, call);
    __asm__ volatile("");
}

static __attribute__((noinline)) void wait_there(void)
{
    wait_here(AG_WAIT_SYNC, "sync", MS);
    __asm__ volatile("");
}

static const struct ag_holders *tables(void)
{
    const struct ag_holders *holders = ag_holders_complete_now();

    CHECK(holders && ag_holders_are_sound(holders));
    return holders;
}

static void begin(unsigned frames, bool waits)
{
    ag_holders_begin_child();
    ag_holders_configure(frames, 0, waits);
    if (ag_holders_wanted())
        ag_holders_begin();
    ag_waits_begin();
    CHECK(ag_waits_on() == waits && ag_holders_on() == (frames != 0));
}

static void counts_nothing_unasked(void)
{
    begin(0, false);
    wait_here(AG_WAIT_COPY, "copy", MS);
    CHECK(!ag_holders_complete_now());
    begin(8, false);
    wait_here(AG_WAIT_COPY, "copy", MS);
    CHECK(tables()->n_stacks == 0 && !tables()->wait_bound_ns);
}

static void sums_up_by_stack_and_call(void)
{
    const struct ag_held_stack *stack;

    begin(0, true);
    for (uint64_t i = 1; i <= 10; i++) /* one place */
        wait_here(i % 2 ? AG_WAIT_COPY : AG_WAIT_SYNC, i % 2 ? "copy" : "sync", i * MS);
    wait_there();
    wait_here(AG_WAIT_SYNC, "sync", 7 * MS);
    CHECK(tables()->n_stacks == 4 && tables()->wait_bound_ns == AG_WAIT_BOUND_NS);
    stack = &tables()->stacks[0];
    CHECK(ag_held_is_wait(stack) && stack->device == AG_WAIT_COPY && stack->n > 1);
    CHECK(!strcmp(tables()->text + stack->call, "copy") && stack->waited.times == 5);
    CHECK(stack->waited.ns >= 25 * MS && stack->waited.longest_ns >= 9 * MS);
    CHECK(stack->waited.longest_ns < stack->waited.ns);
    CHECK(tables()->stacks[3].waited.times == 1 && !tables()->waits_lost.times);
}

static void leaves_memory_alone(void)
{
    struct ag_held_block block;

    begin(8, true);
    wait_here(AG_WAIT_FREE, "free", 1000 * MS);
    ag_holders_add(AG_HELD_DEVICE, 64, 100, NULL, 0);
    ag_holders_add(AG_HELD_DEVICE, 128, 50, NULL, 0);
    CHECK(ag_holders_take(64, &block));
    CHECK(tables()->groups[0].at_peak == 150); /* not what lies where the wait's sums do */
    CHECK(tables()->stacks[0].waited.times == 1 && tables()->stacks[0].waited.ns < 2000 * MS);
}

static void sums_up_short_ones(void)
{
    struct ag_waited_short few;

    begin(0, true);
    for (unsigned i = 0; i < 1000; i++)
        wait_here(AG_WAIT_SYNC, "sync", 0);
    few = ag_waits_short(tables());
    /* Those during which the thread was not let run are long. */
    for (uint32_t i = 0; i < tables()->n_stacks; i++)
        few.times += tables()->stacks[i].waited.times;
    CHECK(few.times == 1000 && few.ns < 1000 * AG_WAIT_BOUND_NS);
}

static void stays_within_its_table(void)
{
    static char calls[AG_HOLDERS_WAITS + 100][12];
    struct ag_text text = {0};
    struct ag_holders_view view = {.holders = NULL};
    const struct ag_holders *all;
    uint64_t times = 0;

    begin(1, true);
    for (unsigned i = 0; i < AG_HOLDERS_WAITS + 100; i++) {
        snprintf(calls[i], sizeof(calls[i]), "call%u", i);
        wait_here(AG_WAIT_SYNC, calls[i], MS);
    }
    wait_here(AG_WAIT_SYNC, calls[0], MS); /* this one has its row */
    CHECK(tables()->n_stacks == AG_HOLDERS_WAITS);
    CHECK(tables()->waits_lost.times == 100 && tables()->waits_lost.ns >= 100 * MS);
    all = tables();
    for (uint32_t i = 0; i < all->n_stacks; i++)
        times += all->stacks[i].waited.times;
    CHECK(times == AG_HOLDERS_WAITS + 1);
    ag_holders_add(AG_HELD_HOST, 64, 100, NULL, -1); /* there is room for others */
    CHECK(tables()->n_stacks == AG_HOLDERS_WAITS + 1 && !tables()->lost);
    view.holders = tables();
    ag_render_waits_text(&text, &view);
    CHECK(strstr(text.data, "in 100 waits without a stack: the table is full"));
    ag_text_finish(&text);
}

static void *work(void *unused)
{
    for (unsigned i = 0; i < TURNS; i++) {
        wait_here(AG_WAIT_SYNC, "sync", MS);
        wait_here(AG_WAIT_SYNC, "sync", i == TURNS / 2 ? 90 * 1000 * MS : 0);
    }
    return unused;
}

static void keeps_up_with_threads(void)
{
    pthread_t threads[N_THREADS];
    uint64_t times, longest = 0, most = 0;
    struct ag_waited_short few;

    begin(0, true);
    for (unsigned i = 0; i < N_THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, work, NULL));
    for (unsigned i = 0; i < N_THREADS; i++) /* whoever looks meanwhile */
        few = ag_waits_short(tables());
    for (unsigned i = 0; i < N_THREADS; i++)
        CHECK(!pthread_join(threads[i], NULL));
    few = ag_waits_short(tables());
    times = few.times;
    for (uint32_t i = 0; i < tables()->n_stacks; i++) {
        uint64_t its = tables()->stacks[i].waited.longest_ns;

        times += tables()->stacks[i].waited.times;
        longest = its > longest ? its : longest;
        if (tables()->stacks[i].waited.times > most)
            most = tables()->stacks[i].waited.times;
    }
    /* The compiler may have made several calls of one. */
    CHECK(times == 2 * N_THREADS * TURNS && most >= N_THREADS * (TURNS - 2));
    CHECK(longest >= 90 * 1000 * MS);
}

/* A wait that the parent had begun is none of the child's. */
static void forgets_in_child(void)
{
    struct ag_waiting wait;
    int status;
    pid_t child;

    begin(0, true);
    wait_there();
    wait = ag_waiting_begin();
    child = fork();
    CHECK(child >= 0);
    if (!child) {
        ag_holders_begin_child();
        ag_waiting_end(&wait, AG_WAIT_SYNC, "sync");
        wait_there();
        _exit(ag_waits_on() || ag_holders_complete_now());
    }
    CHECK(waitpid(child, &status, 0) == child && !status);
    CHECK(tables()->n_stacks == 1 && tables()->stacks[0].waited.times == 1);
}

int main(void)
{
    counts_nothing_unasked();
    sums_up_by_stack_and_call();
    leaves_memory_alone();
    sums_up_short_ones();
    stays_within_its_table();
    keeps_up_with_threads();
    forgets_in_child();
    return 0;
}
