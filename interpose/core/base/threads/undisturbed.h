/* While a thread has something that it must give back, nothing makes it leave: neither a handler
 * that jumps out, or that comes back to us and waits for what the thread has, nor a cancellation.
 *
 *     struct ag_undisturbed undisturbed;
 *
 *     ag_undisturbed_begin(&undisturbed);
 *     ... claim, work, release: ends by itself, and waits for nothing of the program's ...
 *     ag_undisturbed_end(&undisturbed);
 *
 * Signals of faults still come. Where the thread touches memory of the program's, a fault is the
 * program's to handle; and the kernel ends a process whose fault is held back. */
#ifndef AG_BASE_UNDISTURBED_H
#define AG_BASE_UNDISTURBED_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

struct ag_undisturbed {
    sigset_t signals; /* that were held back before */
    int cancels;      /* the state of cancellation before */
};

static inline void ag_undisturbed_begin(struct ag_undisturbed *before)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    sigset_t held;

    (void)sigfillset(&held);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        (void)sigdelset(&held, faults[i]);
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before->cancels);
    (void)pthread_sigmask(SIG_BLOCK, &held, &before->signals);
}

static inline void ag_undisturbed_end(const struct ag_undisturbed *before)
{
    (void)pthread_sigmask(SIG_SETMASK, &before->signals, NULL);
    (void)pthread_setcancelstate(before->cancels, NULL);
}

#endif
