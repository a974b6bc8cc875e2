/* Linked with a library that only looks like the driver, in a process without the driver. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "tests/common/say.h"

extern int cuMemAlloc_v2(void);
extern int cuMemGetInfo_v2(void);

static void ask(const char *how, void *where)
{
    int (*found)(void) = (int (*)(void))dlsym(where, "cuMemAlloc_v2");

    say("%s: it says %d", how, found ? found() : -1);
    say("%s: no driver has %s", how, dlsym(where, "cuMemAdvise") ? "one" : "none");
}

int main(void)
{
    ask("by default", RTLD_DEFAULT);
    ask("next", RTLD_NEXT);
    ask("of the program", dlopen(NULL, RTLD_NOW));
    say("cuMemAlloc_v2 says %d", cuMemAlloc_v2());
    say("cuMemGetInfo_v2 says %d", cuMemGetInfo_v2());
    return 0;
}
