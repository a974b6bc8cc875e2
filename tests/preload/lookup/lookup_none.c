/* A program without CUDA. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "tests/common/say.h"

int main(void)
{
    say("not a name of the driver: %s", dlsym(RTLD_NEXT, "cu_no_such_thing") ? "found" : "NULL");
    say("strlen: %s", dlsym(RTLD_DEFAULT, "strlen") ? "found" : "NULL");
    return 7;
}
