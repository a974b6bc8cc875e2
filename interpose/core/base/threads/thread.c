/* Starts threads of our own: see thread.h.
 *
 * Our threads inherit neither the scheduling class nor the cores of the thread that starts them.
 * That one may be a real-time thread bound to one core, which polls there for work that our
 * watchdog is to submit: on the same core the watchdog would never run. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/base/threads/thread.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>

#define LARGE_STACK_BYTES (8u * 1024u * 1024u)

/* Sets the usual scheduling class, and every core: the kernel leaves out those that are not the
 * process's. */
static void set_apart(pthread_attr_t *attributes)
{
    const struct sched_param usual = {.sched_priority = 0};
    cpu_set_t every;

    memset(&every, 0xff, sizeof(every));
    (void)pthread_attr_setinheritsched(attributes, PTHREAD_EXPLICIT_SCHED);
    (void)pthread_attr_setschedpolicy(attributes, SCHED_OTHER);
    (void)pthread_attr_setschedparam(attributes, &usual);
    (void)pthread_attr_setaffinity_np(attributes, sizeof(every), &every);
}

static int start_thread(void *(*run)(void *), size_t stack_bytes, bool apart)
{
    pthread_attr_t attributes;
    pthread_t thread;
    int error = pthread_attr_init(&attributes);

    if (error)
        return error;
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attributes, stack_bytes);
    if (apart)
        set_apart(&attributes);
    error = pthread_create(&thread, &attributes, run, NULL);
    (void)pthread_attr_destroy(&attributes);
    return error;
}

int ag_thread_start(void *(*run)(void *), size_t stack_bytes)
{
    sigset_t all, before;
    int error = EINVAL;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    /* Where it may not be set apart (a sandbox, a program of the class SCHED_IDLE), as its starter
     * is. */
    for (unsigned i = 0; i < 4 && error; i++)
        error = start_thread(run, i % 2 ? LARGE_STACK_BYTES : stack_bytes, i < 2);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
