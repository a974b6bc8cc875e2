/* Starts threads of our own: see thread.h. */
#include "thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

#define LARGE_STACK_BYTES (8u * 1024u * 1024u)

int ag_thread_start(void *(*run)(void *), size_t stack_bytes)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t thread;
    int error = pthread_attr_init(&attributes);

    if (error)
        return error;
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attributes, stack_bytes);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&thread, &attributes, run, NULL);
    if (error == EINVAL) {
        (void)pthread_attr_setstacksize(&attributes, LARGE_STACK_BYTES);
        error = pthread_create(&thread, &attributes, run, NULL);
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    return error;
}
