/* holders.c: each stack is kept once; what it holds is counted, now and at the peak; threads,
 * contexts that end, and forked children. */
#include "interpose/core/report/holders/holders.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>

#include "interpose/core/report/holders/render_holders.h"
#include "tests/common/check.h"

static const char owner_a, owner_b;

static __attribute__((noinline)) void allocate_here(uint64_t address, uint64_t bytes)
{
    ag_holders_add(AG_HELD_DEVICE, address, bytes, &owner_a, 0);
    __asm__ volatile("");
}

static __attribute__((noinline)) void allocate_there(uint64_t address, uint64_t bytes)
{
    ag_holders_add(AG_HELD_DEVICE, address, bytes, &owner_b, 0);
    __asm__ volatile("");
}

static bool release(uint64_t address)
{
    struct ag_held_block block;

    return ag_holders_take(address, &block);
}

static const struct ag_holders *tables(void)
{
    const struct ag_holders *holders = ag_holders_complete_now();

    CHECK(holders && ag_holders_are_sound(holders) && !holders->lost);
    return holders;
}

static uint64_t sum_of(enum ag_held_when when)
{
    const struct ag_holders *holders = tables();
    uint64_t sum = 0;

    for (unsigned i = 0; i < holders->n_stacks; i++)
        sum += holders->stacks[i].held[when].bytes;
    return sum;
}

static uint64_t blocks_of(enum ag_held_when when)
{
    const struct ag_holders *holders = tables();
    uint64_t sum = 0;

    for (unsigned i = 0; i < holders->n_stacks; i++)
        sum += holders->stacks[i].held[when].blocks;
    CHECK(sum % AG_HOLDERS_ONE == 0);
    return sum / AG_HOLDERS_ONE;
}

static void begin(void)
{
    if (ag_holders_on())
        ag_holders_begin_child();
    ag_holders_configure(32, 0, false);
    ag_holders_begin();
    CHECK(ag_holders_on() && tables()->n_stacks == 0);
}

static void keeps_each_stack_once(void)
{
    begin();
    for (uint64_t i = 1; i <= 100; i++)
        allocate_here(i * 64, 10);
    CHECK(tables()->n_stacks == 1 && sum_of(AG_HELD_LIVE) == 1000);
    for (uint64_t i = 101; i <= 200; i++)
        allocate_there(i * 64, 1);
    CHECK(tables()->n_stacks == 2 && sum_of(AG_HELD_LIVE) == 1100);
    CHECK(tables()->stacks[0].n > 1 && !tables()->stacks[0].is_cut);
    ag_holders_add(AG_HELD_HOST, 7, 5, NULL, -1); /* another place */
    CHECK(tables()->n_stacks == 3 && tables()->n_modules > 1);
}

static void counts_what_is_live(void)
{
    struct ag_held_block block;

    begin();
    allocate_here(64, 100);
    allocate_here(128, 50);
    CHECK(!release(192) && !release(0) && release(64) && !release(64));
    CHECK(sum_of(AG_HELD_LIVE) == 50 && blocks_of(AG_HELD_LIVE) == 1);
    CHECK(sum_of(AG_HELD_EVER) == 150 && blocks_of(AG_HELD_EVER) == 2);
    CHECK(ag_holders_take(128, &block));
    CHECK(sum_of(AG_HELD_LIVE) == 0);
    ag_holders_put_back(128, &block); /* the driver refused */
    CHECK(sum_of(AG_HELD_LIVE) == 50 && sum_of(AG_HELD_EVER) == 150);
    allocate_there(128, 9); /* it was freed past us, and given again */
    CHECK(sum_of(AG_HELD_LIVE) == 9 && release(128) && sum_of(AG_HELD_LIVE) == 0);
}

/* Who held what when there was most, though it is long gone. */
static void remembers_the_peak(void)
{
    begin();
    allocate_here(64, 60000);
    allocate_there(128, 30000);
    CHECK(sum_of(AG_HELD_PEAK) == 90000); /* now */
    CHECK(release(64) && release(128));
    allocate_there(64, 40000);
    allocate_there(128, 40000);
    CHECK(sum_of(AG_HELD_PEAK) == 90000 && sum_of(AG_HELD_LIVE) == 80000);
    CHECK(tables()->stacks[0].held[AG_HELD_PEAK].bytes == 60000);
    CHECK(tables()->groups[0].most == 90000 && tables()->groups[0].at_peak == 90000);
    allocate_there(192, 11000);
    CHECK(release(192) && sum_of(AG_HELD_PEAK) == 91000);
    CHECK(tables()->stacks[0].held[AG_HELD_PEAK].bytes == 0);
}

static void tells_what_ended(void)
{
    begin();
    allocate_here(64, 5);
    allocate_there(128, 7);
    ag_holders_add(AG_HELD_POOL, 192, 11, NULL, 1);
    ag_holders_ended(&owner_a, -1);
    CHECK(sum_of(AG_HELD_ENDED) == 5 && sum_of(AG_HELD_LIVE) == 18 && !release(64));
    ag_holders_ended(NULL, 0);
    CHECK(sum_of(AG_HELD_ENDED) == 5);
    ag_holders_ended(NULL, 1);
    CHECK(sum_of(AG_HELD_ENDED) == 16 && sum_of(AG_HELD_LIVE) == 7);
}

static void counts_what_moved(void)
{
    uint32_t row;

    begin();
    row = ag_holders_add(AG_HELD_DEVICE, 64, 4096, &owner_a, 0);
    CHECK(row == 0);
    ag_holders_moved(row, 4096, AG_HELD_CAME, 100);
    ag_holders_moved(row, 4096, AG_HELD_IN_PLACE, 7);
    CHECK(release(64));
    ag_holders_moved(row, 4096, AG_HELD_CAME, 20); /* it is kept, and moves */
    CHECK(tables()->stacks[0].moved[AG_HELD_CAME] == 120);
    CHECK(tables()->stacks[0].moved[AG_HELD_WENT] == 0);
    CHECK(tables()->stacks[0].moved[AG_HELD_IN_PLACE] == 7);
}

#define THREADS 4u
#define TURNS   20000u

static void *work(void *number)
{
    uint64_t base = (uint64_t)(uintptr_t)number << 32;

    for (uint64_t i = 0; i < TURNS; i++) {
        allocate_here(base + 64 * (1 + i % 8), 100);
        allocate_there(base + 64 * (9 + i % 8), 100);
        CHECK(release(base + 64 * (1 + i % 8)));
        CHECK(release(base + 64 * (9 + i % 8)));
    }
    allocate_here(base + 64, 1); /* a leak of a thread that ends */
    return NULL;
}

static void counts_in_threads(void)
{
    pthread_t threads[THREADS];

    begin();
    for (uintptr_t i = 0; i < THREADS; i++)
        OK(pthread_create(&threads[i], NULL, work, (void *)(i + 1)));
    for (unsigned i = 0; i < THREADS; i++)
        OK(pthread_join(threads[i], NULL));
    CHECK(sum_of(AG_HELD_LIVE) == THREADS && blocks_of(AG_HELD_LIVE) == THREADS);
    CHECK(sum_of(AG_HELD_EVER) == THREADS * (TURNS * 200ull + 1));
    CHECK(tables()->n_stacks <= 3);
    CHECK(tables()->groups[0].live == THREADS && tables()->groups[0].most <= THREADS * 200);
}

static void forks(void)
{
    int status;
    pid_t child;

    begin();
    allocate_here(64, 5);
    child = fork();
    CHECK(child >= 0);
    if (!child) {
        ag_holders_begin_child();
        CHECK(!ag_holders_on() && !ag_holders_complete_now());
        ag_holders_begin();
        CHECK(tables()->n_stacks == 0);
        allocate_here(64, 6);
        CHECK(sum_of(AG_HELD_LIVE) == 6);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && !status);
    CHECK(sum_of(AG_HELD_LIVE) == 5);
}

/* A table that is full loses stacks, counts them, and goes on. */
static void counts_what_is_lost(void)
{
    begin();
    for (int device = 0; device < (int)AG_HOLDERS_STACKS + 10; device++)
        ag_holders_add(AG_HELD_DEVICE, (uint64_t)(device + 1) * 64, 1, NULL, device);
    CHECK(ag_holders_complete_now()->n_stacks == AG_HOLDERS_STACKS);
    CHECK(ag_holders_complete_now()->lost == 10 && ag_holders_are_sound(ag_holders_complete_now()));
    CHECK(!release((AG_HOLDERS_STACKS + 5) * 64ull) && release(64));
}

int main(void)
{
    CHECK(!ag_holders_on() && !ag_holders_complete_now());
    keeps_each_stack_once();
    counts_what_is_live();
    remembers_the_peak();
    tells_what_ended();
    counts_what_moved();
    counts_in_threads();
    forks();
    counts_what_is_lost();
    return 0;
}
