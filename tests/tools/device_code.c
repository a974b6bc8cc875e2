/* Asks for kernels of code that it loads, which only a GPU runs, and says what it is told. With the
 * path of a file: allocates, makes the file, and waits to be killed. */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void *handle;

static void *find(const char *name)
{
    void *address = dlsym(handle, name);

    if (!address) {
        fprintf(stderr, "no %s\n", name);
        _exit(2);
    }
    return address;
}

#define CALL(symbol, ...)                      \
    do {                                       \
        __typeof__(&symbol) call;              \
        void *address = find(#symbol);         \
                                               \
        memcpy(&call, &address, sizeof(call)); \
        result = call(__VA_ARGS__);            \
    } while (0)

/* The context, and some memory in it. */
static CUresult begin(void)
{
    CUdeviceptr memory;
    CUcontext context;
    CUresult result;

    CALL(cuInit, 0);
    if (result == CUDA_SUCCESS)
        CALL(cuDevicePrimaryCtxRetain, &context, 0);
    if (result == CUDA_SUCCESS)
        CALL(cuCtxSetCurrent, context);
    if (result == CUDA_SUCCESS)
        CALL(cuMemAlloc_v2, &memory, 1 << 20);
    return result;
}

int main(int argc, char **argv)
{
    CUfunction function;
    CUmodule module;
    CUresult result;
    FILE *file;

    handle = dlopen("libcuda.so.1", RTLD_NOW);
    if (!handle || begin() != CUDA_SUCCESS)
        return 1;
    if (argc > 1) {
        file = fopen(argv[1], "we");
        if (!file || fclose(file))
            return 1;
        for (;;)
            (void)pause();
    }
    CALL(cuModuleLoadData, &module, "an image of device code");
    if (result != CUDA_SUCCESS)
        return 1;
    CALL(cuModuleGetFunction, &function, module, "first");
    printf("%d ", (int)result);
    CALL(cuModuleGetFunction, &function, module, "second");
    printf("%d\n", (int)result);
    return 0;
}
