/* Waiting for another thread (base/wait.h): asleep, errno kept, no point of cancellation; and for
 * the device: awake at first. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/base/threads/wait.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#include "interpose/core/base/clock.h"
#include "tests/common/check.h"

#define WAITED_NS 400000000u

static _Atomic bool done;

static uint64_t processor_ns(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void *finish_late(void *unused)
{
    const struct timespec time = {0, WAITED_NS};

    (void)nanosleep(&time, NULL);
    atomic_store(&done, true);
    return unused;
}

static void test_sleeps(void)
{
    struct ag_wait wait = {0};
    uint64_t began, used, took;
    pthread_t other;

    CHECK(pthread_create(&other, NULL, finish_late, NULL) == 0);
    began = ag_clock_ns();
    used = processor_ns();
    errno = ENOTTY;
    while (!atomic_load(&done))
        ag_wait_pause(&wait);
    used = processor_ns() - used;
    took = ag_clock_ns() - began;
    CHECK(errno == ENOTTY);
    CHECK(took >= WAITED_NS / 2);
    CHECK(used < took / 2); /* a slow machine spends some of each 160 us on waking up */
    CHECK(pthread_join(other, NULL) == 0);
}

/* A short wait is over without the kernel: the first turns give up neither the processor nor time.
 */
static void test_short(void)
{
    uint64_t least = UINT64_MAX;

    for (unsigned i = 0; i < 1000; i++) {
        struct ag_wait wait = {0};
        uint64_t began = ag_clock_ns(), took;

        ag_wait_pause(&wait);
        took = ag_clock_ns() - began;
        least = took < least ? took : least;
    }
    CHECK(least < 10000);
}

static void *wait_cancelled(void *unused)
{
    struct ag_wait wait = {0};

    (void)unused;
    while (!atomic_load(&done))
        ag_wait_pause(&wait);
    for (unsigned i = 0; i < 1000; i++)
        ag_wait_pause(&wait);
    return &done;
}

static void test_not_cancelled(void)
{
    pthread_t other;
    void *result = NULL;

    atomic_store(&done, false);
    CHECK(pthread_create(&other, NULL, wait_cancelled, NULL) == 0);
    CHECK(pthread_cancel(other) == 0);
    atomic_store(&done, true);
    CHECK(pthread_join(other, &result) == 0);
    CHECK(result == &done);
}

/* How often the calling thread has slept. */
static long sleeps(void)
{
    struct rusage usage;

    CHECK(getrusage(RUSAGE_THREAD, &usage) == 0);
    return usage.ru_nvcsw;
}

/* Does the thread wait for the device that long without a sleep? */
static bool is_awake_for(uint64_t ns)
{
    struct ag_wait wait = {0};
    uint64_t until = ag_clock_ns() + ns;
    long slept = sleeps();

    while (ag_wait_for_device_until(&wait, until))
        ;
    return sleeps() == slept;
}

/* An emulator may sleep for reasons of its own: it runs the tests of this processor (tests/arm). */
#ifdef __aarch64__
#define TRIES 10u
#else
#define TRIES 1u
#endif

/* As the driver waits for the device: a sleep would end too late for most of what it waits for. But
 * not for ever, and no longer than it is told. */
static void test_device(void)
{
    const uint64_t ms = 1000000;
    struct ag_wait wait = {0};
    uint64_t until;
    bool is_awake = false;
    long slept;

    for (unsigned i = 0; i < TRIES && !is_awake; i++)
        is_awake = is_awake_for(5 * ms);
    CHECK(is_awake);
    slept = sleeps();
    while (sleeps() == slept) /* some turns later, which on a busy machine take long */
        CHECK(ag_wait_for_device_until(&wait, UINT64_MAX));
    until = ag_clock_ns() + 5 * ms;
    while (ag_wait_for_device_until(&wait, until))
        ;
    CHECK(ag_clock_ns() >= until);
    CHECK(!ag_wait_for_device_until(&wait, ag_clock_ns() - 1));
}

/* --- timer slack --- */

static unsigned long slack_ns = 70000; /* the thread's */
static unsigned long least_slack_ns = 70000;

int prctl(int option, ...)
{
    va_list rest;

    if (option != PR_SET_TIMERSLACK)
        return option == PR_GET_TIMERSLACK ? (int)slack_ns : -1;
    va_start(rest, option);
    slack_ns = va_arg(rest, unsigned long);
    va_end(rest);
    least_slack_ns = slack_ns < least_slack_ns ? slack_ns : least_slack_ns;
    return 0;
}

/* A timer may be late by the thread's slack, but not the one of such a sleep. */
static void test_asleep_without_slack(void)
{
    uint64_t began = ag_clock_ns();

    errno = ENOTTY;
    ag_wait_asleep(1000000);
    CHECK(errno == ENOTTY && ag_clock_ns() - began >= 1000000);
    CHECK(least_slack_ns == 1 && slack_ns == 70000);
}

int main(void)
{
    test_device();
    test_sleeps();
    test_short();
    test_not_cancelled();
    test_asleep_without_slack();
    return 0;
}
