/* Threads of our own. */
#ifndef AG_BASE_THREAD_H
#define AG_BASE_THREAD_H

#include <stddef.h>

/* The stack of a thread that calls the driver, in bytes. The driver is made for the stacks of
 * programs' threads, 8 MiB, and says nowhere what it needs of them. What is not touched takes no
 * memory. */
#define AG_THREAD_DRIVER_STACK_BYTES ((size_t)1 << 20)

/* Starts a detached thread that takes no signals: those of the process are the program's. It is of
 * the usual scheduling class and may run on every core of the process's, whatever the calling
 * thread may. Its stack is `stack_bytes`, or larger where thread-local memory of the program's
 * libraries takes all of that. 0 or an error number. */
int ag_thread_start(void *(*run)(void *), size_t stack_bytes);

#endif
