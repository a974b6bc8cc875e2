/* Asks a library that only looks like the driver for its functions: the answers must be its own. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "tests/common/say.h"

static const char *const names[] = {
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
    "cuMemGetInfo_v2",
    "cuStreamCreate",
    "cuNoDriverHasThis",
    "cublasCreate_v2",
    "cudnnCreate",
    "cufftPlan1d",
    "curl_easy_init",
    "cuda_like",
    "cu",
};

static void ask_all(const char *how, void *where)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        int (*found)(void) = (int (*)(void))dlsym(where, names[i]);
        say("%s: %s says %d", how, names[i], found != NULL ? found() : -1);
    }
}

int main(int argc, char **argv)
{
    /* With "both", the driver is in the process as well, opened before. */
    if (argc > 2 && strcmp(argv[2], "both") == 0 && dlopen("libcuda.so.1", RTLD_NOW) == NULL) {
        say("no libcuda.so.1: %s", dlerror());
        return 97;
    }
    void *handle = dlopen(argc > 1 ? argv[1] : "", RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        say("dlopen: %s", dlerror());
        return 97;
    }
    ask_all("by handle", handle);
    return 0;
}
