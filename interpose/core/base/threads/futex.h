/* Sleeping on a 32-bit word of this process until another thread wakes the sleepers. */
#ifndef AG_FUTEX_H
#define AG_FUTEX_H

#include <linux/futex.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define AG_FUTEX_FOR_EVER UINT64_MAX

/* Returns when the word is not `value`, when somebody wakes it, after `ns`, or for no reason: the
 * caller looks again. */
static inline void ag_futex_wait(const void *word, uint32_t value, uint64_t ns)
{
    const struct timespec pause = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value,
                  ns == AG_FUTEX_FOR_EVER ? NULL : &pause, NULL, 0);
}

/* Wakes `n` of the threads that sleep on the word, or all if there are fewer. */
static inline void ag_futex_wake_some(const void *word, int n)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

/* Wakes every thread that sleeps on the word. */
static inline void ag_futex_wake(const void *word)
{
    ag_futex_wake_some(word, INT32_MAX);
}

#endif
