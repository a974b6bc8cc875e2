/* Runs a function on a stack of our own: see own_stack.h and own_stack_<arch>.S.
 *
 * Delicate, because it runs in signal handlers of programs that are about to end. The rules of this
 * file:
 * - it makes system calls only, and uses few bytes of the caller's stack;
 * - while we are away from an alternate stack, the kernel believes that it is free, and would put
 *   the next signal over the frames of the handler that we return to. So the thread has no
 *   alternate stack meanwhile. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/exit/own_stack.h"

#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>

#define STACK_BYTES (512u << 10)
#define GUARD_BYTES (64u << 10) /* the largest page there is */

#ifndef __has_feature /* gcc has none */
#define __has_feature(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ONLY_THE_THREADS_STACK 1 /* a sanitizer knows of no other */
#else
#define ONLY_THE_THREADS_STACK 0
#endif

struct errand {
    void (*work)(void *argument);
    void *argument;
};

/* Assembly: calls function(argument) with the stack pointer at `top`, which is a multiple of 16. */
__attribute__((visibility("hidden"))) void ag_own_stack_call(void (*function)(void *argument),
                                                             void *argument, void *top);

bool ag_own_stack_is_alternate(void)
{
    stack_t now;

    return !sigaltstack(NULL, &now) && (now.ss_flags & SS_ONSTACK);
}

/* Runs the errand; on the new stack. */
static void run_errand(void *argument)
{
    const struct errand *errand = argument;
    const stack_t none = {.ss_flags = SS_DISABLE};
    stack_t before;
    bool had = !sigaltstack(&none, &before) && !(before.ss_flags & SS_DISABLE);

    errand->work(errand->argument);
    if (had)
        (void)sigaltstack(&before, NULL);
}

void ag_own_stack_run(void (*work)(void *argument), void *argument)
{
    struct errand errand = {work, argument};
    char *low;

    if (ONLY_THE_THREADS_STACK) {
        work(argument);
        return;
    }
    low = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (low == MAP_FAILED || mprotect(low + GUARD_BYTES, STACK_BYTES, PROT_READ | PROT_WRITE)) {
        if (!ag_own_stack_is_alternate())
            work(argument);
    } else {
        ag_own_stack_call(run_errand, &errand, low + GUARD_BYTES + STACK_BYTES);
    }
    if (low != MAP_FAILED)
        (void)munmap(low, GUARD_BYTES + STACK_BYTES);
}
