/* A program without CUDA. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "tests/common/say.h"

/* Functions of the driver's, for which there is none; the last is one that has no hook. */
static void ask_for_driver(void)
{
    static const char names[][20] = {"cuInit", "cuMemAlloc_v2", "cuGetProcAddress_v2",
                                     "cuMemAdvise"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *name = names[i];

        say("%s by default: %s", name, dlsym(RTLD_DEFAULT, name) ? "found" : "NULL");
        say("dlerror: %s", dlerror() ? "a message" : "NULL");
        say("%s next: %s", name, dlsym(RTLD_NEXT, name) ? "found" : "NULL");
        say("%s of the program: %s", name, dlsym(dlopen(NULL, RTLD_NOW), name) ? "found" : "NULL");
        say("dlerror: %s", dlerror() ? "a message" : "NULL");
        say("dlerror again: %s", dlerror() ? "a message" : "NULL");
    }
}

int main(void)
{
    ask_for_driver();
    say("not a name of the driver: %s", dlsym(RTLD_NEXT, "cu_no_such_thing") ? "found" : "NULL");
    say("strlen: %s", dlsym(RTLD_DEFAULT, "strlen") ? "found" : "NULL");
    return 7;
}
