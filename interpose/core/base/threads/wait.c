/* Waits for another thread: see wait.h.
 *
 * A real-time thread that only yields never lets a thread of lower priority on its core run, and
 * that may be the one it waits for. So after some ten microseconds, in which most waits are over,
 * it sleeps. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/base/threads/wait.h"

#include <errno.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "interpose/core/base/clock.h"

#define TURNS_AWAKE 256u
#define YIELD_EVERY 16u
#define FIRST_NS    20000u
#define DOUBLINGS   3u       /* so the longest sleep is 160 us */
#define SLICE_NS    1000000u /* a late end included, on a busy machine */

#define AWAKE_FOR_DEVICE_NS 20000000u /* most work of a device is done by then */
#define PAUSES_FOR_DEVICE   8u        /* the driver that is asked between may be in use by others */

static void pause_processor(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#else
    __asm__ volatile("" ::: "memory");
#endif
}

static void sleep_for(uint64_t ns)
{
    const struct timespec time = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    int error = errno;

    (void)syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &time, NULL);
    errno = error;
}

/* The kernel may wake a thread later than it asked for by what is its slack, 50 us if nobody has
 * set it. */
void ag_wait_asleep(uint64_t ns)
{
    int error = errno, slack = prctl(PR_GET_TIMERSLACK);

    if (slack > 1)
        (void)prctl(PR_SET_TIMERSLACK, 1ul);
    sleep_for(ns);
    if (slack > 1)
        (void)prctl(PR_SET_TIMERSLACK, (unsigned long)slack);
    errno = error;
}

static void pause_awake(unsigned turn)
{
    if (turn % YIELD_EVERY == 0)
        (void)sched_yield();
    else
        pause_processor();
}

void ag_wait_pause(struct ag_wait *wait)
{
    unsigned turn = ++wait->turns;

    if (turn > TURNS_AWAKE) {
        unsigned slept = turn - TURNS_AWAKE - 1;

        sleep_for((uint64_t)FIRST_NS << (slept < DOUBLINGS ? slept : DOUBLINGS));
    } else {
        pause_awake(turn);
    }
}

void ag_wait_pause_awake(struct ag_wait *wait)
{
    pause_awake(++wait->turns);
}

bool ag_wait_pause_until(struct ag_wait *wait, uint64_t until_ns)
{
    if (until_ns != UINT64_MAX && ag_clock_ns() > until_ns)
        return false;
    ag_wait_pause(wait);
    return true;
}

bool ag_wait_pause_within(struct ag_wait *wait, uint64_t *left_ns)
{
    uint64_t took;

    if (!*left_ns)
        return false;
    took = ag_clock_ns();
    ag_wait_pause(wait);
    took = ag_clock_ns() - took;
    took = took < SLICE_NS ? took : SLICE_NS;
    *left_ns -= took < *left_ns ? took : *left_ns;
    return true;
}

bool ag_wait_for_device_until(struct ag_wait *wait, uint64_t until_ns)
{
    uint64_t now = ag_clock_ns();

    if (now > until_ns)
        return false;
    if (!wait->asleep_from)
        wait->asleep_from = now + AWAKE_FOR_DEVICE_NS;
    if (now >= wait->asleep_from) {
        ag_wait_pause(wait);
        return true;
    }
    for (unsigned i = 0; i < PAUSES_FOR_DEVICE; i++)
        pause_awake(++wait->turns);
    return true;
}
