/* A library's own way to the driver, opened so that a preloaded dlsym is passed by. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "tests/common/say.h"

int main(void)
{
    /* Glibc's own dlsym by its version: what a library bound with RTLD_DEEPBIND gets. */
    void *(*find)(void *, const char *) = NULL;
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    for (int i = 0; libc != NULL && find == NULL && i < 3; i++)
        find = (void *(*)(void *, const char *))dlvsym(libc, "dlsym", versions[i]);
    if (library == NULL || find == NULL) {
        say("no way past the preloaded dlsym: %s", dlerror());
        return 97;
    }
    int (*init)(unsigned) = (int (*)(unsigned))find(library, "cuInit");
    SAY_CODE("cuInit", init != NULL ? init(0) : -1);
    return 0;
}
