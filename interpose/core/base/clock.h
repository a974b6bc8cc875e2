/* Time for statistics: a raw counter that costs a few nanoseconds, and the wall clock. */
#ifndef AG_BASE_CLOCK_H
#define AG_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Monotonic time in nanoseconds. */
static inline uint64_t ag_clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Monotonic time as of the kernel's last tick, some milliseconds ago at most: no clock is read. */
static inline uint64_t ag_clock_tick_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The time `timeout_ns` from now; UINT64_MAX, which never comes, where that lies beyond it. */
static inline uint64_t ag_clock_after(uint64_t timeout_ns)
{
    uint64_t now = ag_clock_ns();

    return timeout_ns < UINT64_MAX - now ? now + timeout_ns : UINT64_MAX;
}

/* Ticks of a constant-rate counter; the report scales them by the time that passed between two
 * readings of both clocks, so their unit never matters elsewhere. */
static inline uint64_t ag_clock_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;

    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return ag_clock_ns();
#endif
}

#endif
