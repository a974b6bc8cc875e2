/* policy/managed/residency.c: what is thought to lie where, who goes when room runs out, and
 * threads. */
#include "policy/managed/residency.h"

#include <pthread.h>
#include <stdatomic.h>

#include "interpose/core/base/clock.h"
#include "tests/common/chance.h"
#include "tests/common/check.h"

#define MIB      (1ull << 20)
#define BLOCK(i) (0x7f0000000000u + ((uint64_t)(i) << 32))

/* What a launch on `device` would bring for a pointer: bytes, or 0. */
static size_t bring(int device, uint64_t pointer)
{
    uint64_t now = ag_clock_ticks(), address = 0;
    size_t bytes = 0;

    if (ag_residency_is_complete(device) || !ag_residency_missing(device, pointer, now) ||
        !ag_residency_claim(device, pointer, now, &address, &bytes))
        return 0;
    CHECK(address <= pointer && (address & 0xffffffffu) == 0);
    return bytes;
}

static void use(int device, uint64_t pointer)
{
    CHECK(!ag_residency_missing(device, pointer, ag_clock_ticks()));
}

static void a_block_is_brought_once(void)
{
    CHECK(ag_residency_is_complete(0));
    CHECK(!ag_residency_missing(0, BLOCK(1), 1));
    ag_residency_add(BLOCK(1), 10 * MIB, AG_RESIDENT_HOST);
    ag_residency_add(BLOCK(2), 20 * MIB, 0);
    CHECK(!ag_residency_is_complete(0) && !ag_residency_is_complete(1));
    CHECK(bring(0, BLOCK(1) + 10 * MIB) == 0 && bring(0, BLOCK(1) - 1) == 0);
    CHECK(bring(0, BLOCK(2) + 5) == 0);
    CHECK(bring(0, BLOCK(1) + 10 * MIB - 1) == 10 * MIB); /* interior */
    CHECK(ag_residency_is_complete(0) && !ag_residency_is_complete(1));
    CHECK(bring(0, BLOCK(1)) == 0);
    CHECK(ag_residency_remove(BLOCK(1) + 8) == AG_RESIDENT_HOST); /* no block begins there */
    CHECK(ag_residency_remove(BLOCK(1)) == 0);
    CHECK(ag_residency_remove(BLOCK(1)) == AG_RESIDENT_HOST);
    CHECK(ag_residency_remove(BLOCK(2)) == 0);
    CHECK(ag_residency_is_complete(0) && ag_residency_is_complete(1));
}

static void devices_take_from_each_other(void)
{
    ag_residency_add(BLOCK(1), MIB, AG_RESIDENT_HOST);
    CHECK(bring(0, BLOCK(1)) == MIB && ag_residency_is_complete(0));
    CHECK(bring(1, BLOCK(1)) == MIB && ag_residency_is_complete(1) && !ag_residency_is_complete(0));
    CHECK(bring(0, BLOCK(1)) == MIB);
    CHECK(ag_residency_remove(BLOCK(1)) == 0);
    CHECK(ag_residency_is_complete(1000) &&
          ag_residency_is_complete(-1)); /* no such device of ours */
    ag_residency_add(BLOCK(1), MIB, 1000);
    CHECK(ag_residency_remove(BLOCK(1)) == AG_RESIDENT_HOST);
}

static void the_oldest_go(void)
{
    ag_residency_set_capacity(0, 30 * MIB);
    CHECK(ag_residency_capacity(0) == 30 * MIB);
    for (unsigned i = 0; i < 4; i++)
        ag_residency_add(BLOCK(i), 10 * MIB, AG_RESIDENT_HOST);
    for (unsigned i = 0; i < 3; i++)
        CHECK(bring(0, BLOCK(i)) == 10 * MIB);
    CHECK(!ag_residency_is_complete(0)); /* more than there is room for */
    use(0, BLOCK(0));
    CHECK(bring(0, BLOCK(3)) == 10 * MIB); /* 1 goes */
    CHECK(bring(0, BLOCK(1)) == 10 * MIB); /* 2 goes */
    use(0, BLOCK(0));
    CHECK(bring(0, BLOCK(2)) == 10 * MIB); /* 3 goes */
    CHECK(ag_residency_remove(BLOCK(3)) == AG_RESIDENT_HOST);
    CHECK(ag_residency_is_complete(0)); /* all that is left fits, and is there */
    ag_residency_set_capacity(0, 15 * MIB);
    CHECK(ag_residency_remove(BLOCK(1)) == AG_RESIDENT_HOST);
    CHECK(ag_residency_remove(BLOCK(0)) == AG_RESIDENT_HOST);
    CHECK(ag_residency_remove(BLOCK(2)) == 0); /* used last */
}

/* One launch that uses more than there is room for does not throw out what it uses itself. */
static void a_launch_keeps_what_it_uses(void)
{
    uint64_t now = ag_clock_ticks(), address;
    size_t bytes;

    ag_residency_set_capacity(0, 25 * MIB);
    for (unsigned i = 0; i < 4; i++)
        ag_residency_add(BLOCK(i), 10 * MIB, AG_RESIDENT_HOST);
    CHECK(ag_residency_claim(0, BLOCK(0), now, &address, &bytes) && bytes == 10 * MIB);
    CHECK(ag_residency_claim(0, BLOCK(1), now, &address, &bytes) && bytes == 10 * MIB);
    CHECK(ag_residency_claim(0, BLOCK(2), now, &address, &bytes) && bytes == 5 * MIB);
    CHECK(!ag_residency_claim(0, BLOCK(3), now, &address, &bytes));
    CHECK(bring(0, BLOCK(3)) == 10 * MIB); /* the next launch does */
    for (unsigned i = 0; i < 4; i++)
        (void)ag_residency_remove(BLOCK(i));
}

static void a_block_larger_than_the_device(void)
{
    ag_residency_set_capacity(0, 25 * MIB);
    ag_residency_add(BLOCK(0), 100 * MIB, AG_RESIDENT_HOST);
    ag_residency_add(BLOCK(1), MIB, 0);
    CHECK(bring(0, BLOCK(0) + 99 * MIB) == 25 * MIB);
    CHECK(bring(0, BLOCK(0)) == 0);
    CHECK(bring(0, BLOCK(1)) == MIB);
    CHECK(bring(0, BLOCK(0)) == 25 * MIB);
    CHECK(ag_residency_remove(BLOCK(0)) == 0 && ag_residency_remove(BLOCK(1)) == AG_RESIDENT_HOST);
    ag_residency_set_capacity(0, 0);
}

static void failures_end(void)
{
    ag_residency_add(BLOCK(0), MIB, AG_RESIDENT_HOST);
    for (unsigned i = 0; i < 3; i++) {
        CHECK(bring(0, BLOCK(0)) == MIB);
        ag_residency_failed(0, BLOCK(0));
    }
    CHECK(bring(0, BLOCK(0)) ==
          0); /* a prefetch that always fails is not asked for at each launch */
    (void)ag_residency_remove(BLOCK(0));
    ag_residency_failed(0, BLOCK(0));
    ag_residency_add(BLOCK(0), MIB, AG_RESIDENT_HOST); /* another block, with all its tries */
    CHECK(bring(0, BLOCK(0)) == MIB);
    ag_residency_failed(0, BLOCK(0));
    CHECK(bring(0, BLOCK(0)) == MIB);
    (void)ag_residency_remove(BLOCK(0));
}

static void a_child_has_none(void)
{
    ag_residency_add(BLOCK(0), MIB, 0);
    ag_residency_add(BLOCK(1), MIB, AG_RESIDENT_HOST);
    ag_residency_begin_child();
    CHECK(ag_residency_is_complete(0) && bring(0, BLOCK(1)) == 0);
    CHECK(ag_residency_remove(BLOCK(0)) == AG_RESIDENT_HOST);
    ag_residency_add(BLOCK(0), MIB, AG_RESIDENT_HOST);
    CHECK(bring(0, BLOCK(0)) == MIB && ag_residency_remove(BLOCK(0)) == 0);
}

/* --- threads --- */

#define THREADS 4u
#define TURNS   4000u

static _Atomic unsigned brought;

/* A launch may find everything complete while another thread's block comes (see residency.h): then
 * one of the next brings the block. */
static size_t bring_soon(int device, uint64_t pointer)
{
    size_t bytes = 0;

    for (unsigned i = 0; i < 100 && !bytes; i++)
        bytes = bring(device, pointer);
    return bytes;
}

/* Each thread's own blocks come and go; one block of all is brought once each time it is on the
 * host. */
static void *come_and_go(void *number)
{
    unsigned mine = 16 + (unsigned)(uintptr_t)number;
    uint64_t state = mine;

    for (unsigned i = 0; i < TURNS; i++) {
        ag_residency_add(BLOCK(mine), (1 + chance_below(&state, 8)) * MIB, AG_RESIDENT_HOST);
        CHECK(bring_soon(0, BLOCK(mine) + 5) > 0);
        atomic_fetch_add(&brought, bring(0, BLOCK(1) + i) > 0);
        CHECK(ag_residency_remove(BLOCK(mine)) == 0);
    }
    return NULL;
}

static void threads(void)
{
    pthread_t each[THREADS];

    ag_residency_add(BLOCK(1), MIB, AG_RESIDENT_HOST);
    for (unsigned i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&each[i], NULL, come_and_go, (void *)(uintptr_t)i));
    for (unsigned i = 0; i < THREADS; i++)
        CHECK(!pthread_join(each[i], NULL));
    CHECK(brought == 1);
    CHECK(ag_residency_is_complete(0) && ag_residency_remove(BLOCK(1)) == 0);
}

int main(void)
{
    a_block_is_brought_once();
    devices_take_from_each_other();
    the_oldest_go();
    a_launch_keeps_what_it_uses();
    a_block_larger_than_the_device();
    failures_end();
    a_child_has_none();
    threads();
    return 0;
}
