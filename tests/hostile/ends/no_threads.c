/* No thread can be started any more, as where the user may have no more processes: memory is
 * allocated and freed nevertheless, and the last free's wait is made however the process ends. */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

static bool refused;

/* In place of libc's, for libraries as well. */
__attribute__((visibility("default"))) int pthread_create(pthread_t *thread,
                                                          const pthread_attr_t *attributes,
                                                          void *(*run)(void *), void *argument)
{
    __typeof__(&pthread_create) next =
        (__typeof__(&pthread_create))dlsym(RTLD_NEXT, "pthread_create");

    return refused ? EAGAIN : next(thread, attributes, run, argument);
}

int main(void)
{
    refused = true;
    device_open();
    for (unsigned i = 0; i < 10; i++) {
        CUdeviceptr p;

        NEED(cuMemAlloc(&p, 4096));
        launch_fill(NULL, p, 100, i);
        if (count_wrong(p, 100, i))
            say("wrong words");
        launch_speak(NULL, i);
        NEED(cuMemFree(p));
        say("freed");
    }
    _exit(3);
}
