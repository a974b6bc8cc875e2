/*
 * Whose function does the program call when it launches a kernel? Prints, for each lookup path, the
 * library that the pointer lies in; cuMemAlloc beside it shows that the question can be answered
 * with something else than libcuda. What dlsym gives before the settings have been read is what a
 * linked program has, so cuGetProcAddress, which reads them, comes first here, as in the runtime.
 */
#define _GNU_SOURCE
#include "tests/gpu/check.h"

#include <cuda.h>
#include <dlfcn.h>

static void print_owner(const char *lookup, const char *name, void *function)
{
    Dl_info info;
    const char *file = "nowhere";
    if (function && dladdr(function, &info) && info.dli_fname) {
        const char *slash = strrchr(info.dli_fname, '/');
        file = slash ? slash + 1 : info.dli_fname;
    }
    printf("%s %s %.*s\n", lookup, name, (int)strcspn(file, "."), file);
}

static void print_by_version(const char *name, int version, cuuint64_t flags, const char *lookup)
{
    void *function = NULL;
    CUdriverProcAddressQueryResult found;
    OK(cuGetProcAddress(name, &function, version, flags, &found));
    print_owner(lookup, name, function);
}

int main(void)
{
    void *libcuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!libcuda)
        return EXIT_UNUSABLE;
    OK(cuInit(0));
    print_owner("linked", "cuLaunchKernel", (void *)cuLaunchKernel);
    print_by_version("cuLaunchKernel", 4000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, "legacy");
    print_by_version("cuLaunchKernel", 7000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
                     "per-thread");
    print_by_version("cuLaunchKernelEx", 11060, CU_GET_PROC_ADDRESS_DEFAULT, "legacy");
    print_owner("dlsym", "cuLaunchKernel", dlsym(libcuda, "cuLaunchKernel"));
    print_owner("dlsym", "cuLaunchKernel_ptsz", dlsym(libcuda, "cuLaunchKernel_ptsz"));
    print_owner("dlsym", "cuLaunchKernelEx", dlsym(libcuda, "cuLaunchKernelEx"));
    print_owner("dlsym", "cuCtxGetDevice", dlsym(libcuda, "cuCtxGetDevice"));
    print_owner("linked", "cuMemAlloc", (void *)cuMemAlloc);
    print_owner("dlsym", "cuMemAlloc", dlsym(libcuda, "cuMemAlloc_v2"));
    print_by_version("cuMemAlloc", 3020, CU_GET_PROC_ADDRESS_DEFAULT, "legacy");
    return 0;
}
