/* What nvcc registers at program start: fat binaries, their kernels and variables.
 * A binary is given to the driver when the first of its kernels or variables is needed. */
#include "mini.h"

#include <pthread.h>
#include <stdlib.h>

#include "binary.h"

struct kernel {
    struct kernel *next;
    struct binary *binary; /* NULL: found by name in a library of the program's own */
    const void *host_stub;
    const char *name;
    CUkernel handle; /* NULL until needed */
};

struct variable {
    struct variable *next;
    struct binary *binary;
    const void *host_variable;
    void **host_pointer; /* of a __managed__ variable: where the program keeps its address */
    const char *name;
    size_t n_bytes;
    CUdeviceptr address; /* 0 until needed */
};

struct binary {
    const void *image;
    CUlibrary library; /* NULL until needed */
};

/* The strings belong to the program and live as long as the binary is registered. */
static struct {
    pthread_mutex_t lock; /* guards everything here */
    struct kernel *kernels;
    struct variable *variables;
    unsigned n_binaries;
} registry = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Also called by the functions below, all with the lock held. */
static cudaError_t load_binary(struct binary *binary)
{
    if (binary->library != NULL)
        return cudaSuccess;
    return (cudaError_t)DRV(LibraryLoadData, 12000)(&binary->library, binary->image, NULL, NULL, 0,
                                                    NULL, NULL, 0);
}

static cudaError_t load_kernel(struct kernel *kernel)
{
    if (kernel->handle != NULL)
        return cudaSuccess;
    cudaError_t error = load_binary(kernel->binary);
    if (error != cudaSuccess)
        return error;
    if (!mr_driver_offer_kernel(kernel->name))
        return cudaErrorInvalidDeviceFunction;
    CUresult result =
        DRV(LibraryGetKernel, 12000)(&kernel->handle, kernel->binary->library, kernel->name);
    if (result == CUDA_ERROR_NOT_FOUND)
        return cudaErrorInvalidDeviceFunction;
    return (cudaError_t)result;
}

static cudaError_t load_variable(struct variable *variable)
{
    if (variable->address != 0)
        return cudaSuccess;
    cudaError_t error = load_binary(variable->binary);
    if (error != cudaSuccess)
        return error;
    bool managed = variable->host_pointer != NULL;
    mr_driver_offer_variable(variable->name, variable->n_bytes, managed);
    size_t n_bytes;
    CUlibrary library = variable->binary->library;
    CUresult result =
        managed
            ? DRV(LibraryGetManaged, 12000)(&variable->address, &n_bytes, library, variable->name)
            : DRV(LibraryGetGlobal, 12000)(&variable->address, &n_bytes, library, variable->name);
    if (result == CUDA_ERROR_NOT_FOUND)
        return cudaErrorInvalidSymbol;
    if (result == CUDA_SUCCESS && managed)
        *variable->host_pointer = (void *)variable->address;
    return (cudaError_t)result;
}

void **__cudaRegisterFatBinary(void *wrapper)
{
    const struct fat_binary_wrapper *fat = wrapper;
    struct binary *binary = calloc(1, sizeof(*binary));
    if (binary == NULL)
        abort();
    binary->image = fat->data;
    pthread_mutex_lock(&registry.lock);
    registry.n_binaries++;
    pthread_mutex_unlock(&registry.lock);
    return (void **)binary;
}

/* The real runtime ends the registration here; ours needs no such mark. */
void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

static void add_kernel(struct binary *binary, const void *host_stub, const char *name,
                       CUkernel handle)
{
    struct kernel *kernel = calloc(1, sizeof(*kernel));
    if (kernel == NULL)
        abort();
    *kernel = (struct kernel){registry.kernels, binary, host_stub, name, handle};
    registry.kernels = kernel;
}

void __cudaRegisterFunction(void **handle, const char *host_stub, char *device_stub,
                            const char *name, int thread_limit, uint3 *thread_index,
                            uint3 *block_index, dim3 *block_size, dim3 *grid_size, int *warp_size)
{
    (void)device_stub, (void)thread_limit, (void)thread_index, (void)block_index;
    (void)block_size, (void)grid_size, (void)warp_size;
    pthread_mutex_lock(&registry.lock);
    add_kernel((struct binary *)handle, host_stub, name, NULL);
    pthread_mutex_unlock(&registry.lock);
}

static void add_variable(const struct variable *like)
{
    struct variable *variable = malloc(sizeof(*variable));
    if (variable == NULL)
        abort();
    *variable = *like;
    pthread_mutex_lock(&registry.lock);
    variable->next = registry.variables;
    registry.variables = variable;
    pthread_mutex_unlock(&registry.lock);
}

void __cudaRegisterVar(void **handle, char *host_variable, char *device_address, const char *name,
                       int is_extern, size_t n_bytes, int is_constant, int is_global)
{
    (void)device_address, (void)is_extern, (void)is_constant, (void)is_global;
    add_variable(&(struct variable){.binary = (struct binary *)handle,
                                    .host_variable = host_variable,
                                    .name = name,
                                    .n_bytes = n_bytes});
}

void __cudaRegisterManagedVar(void **handle, void **host_pointer, char *device_address,
                              const char *name, int is_extern, size_t n_bytes, int is_constant,
                              int is_global)
{
    (void)device_address, (void)is_extern, (void)is_constant, (void)is_global;
    add_variable(&(struct variable){.binary = (struct binary *)handle,
                                    .host_variable = host_pointer,
                                    .host_pointer = host_pointer,
                                    .name = name,
                                    .n_bytes = n_bytes});
}

/* Called before the host reads a __managed__ variable of this binary. */
char __cudaInitModule(void **handle)
{
    cudaError_t error = mr_enter();
    pthread_mutex_lock(&registry.lock);
    for (struct variable *v = registry.variables; error == cudaSuccess && v != NULL; v = v->next) {
        if (v->binary == (struct binary *)handle && v->host_pointer != NULL) {
            error = load_variable(v);
        }
    }
    pthread_mutex_unlock(&registry.lock);
    return mr_finish(error) == cudaSuccess;
}

static void forget_binary(const struct binary *binary)
{
    for (struct kernel **k = &registry.kernels; *k != NULL;) {
        struct kernel *kernel = *k;
        if (kernel->binary != binary) {
            k = &kernel->next;
            continue;
        }
        *k = kernel->next;
        free(kernel);
    }
    for (struct variable **v = &registry.variables; *v != NULL;) {
        struct variable *variable = *v;
        if (variable->binary != binary) {
            v = &variable->next;
            continue;
        }
        *v = variable->next;
        free(variable);
    }
}

/* Runs at exit (nvcc registers it with atexit) and when a shared library is closed. As with the
 * real runtime, the driver may have gone before and answers then with an error. */
void __cudaUnregisterFatBinary(void **handle)
{
    struct binary *binary = (struct binary *)handle;
    pthread_mutex_lock(&registry.lock);
    forget_binary(binary);
    bool last = --registry.n_binaries == 0;
    pthread_mutex_unlock(&registry.lock);
    if (binary->library != NULL)
        (void)DRV(LibraryUnload, 12000)(binary->library);
    free(binary);
    if (last)
        mr_release_contexts();
}

cudaError_t mr_kernel_of(const void *func, CUkernel *ret_kernel)
{
    if (func == NULL)
        return cudaErrorInvalidDeviceFunction;
    cudaError_t error = cudaErrorInvalidDeviceFunction;
    pthread_mutex_lock(&registry.lock);
    for (struct kernel *k = registry.kernels; k != NULL; k = k->next) {
        if (k->host_stub != func && (const void *)k->handle != func)
            continue;
        error = load_kernel(k);
        if (error == cudaSuccess)
            *ret_kernel = k->handle;
        break;
    }
    pthread_mutex_unlock(&registry.lock);
    return error;
}

const void *mr_host_stub_of(CUkernel handle)
{
    const void *host_stub = NULL;
    pthread_mutex_lock(&registry.lock);
    for (struct kernel *k = registry.kernels; k != NULL; k = k->next) {
        if (k->handle == handle)
            host_stub = k->host_stub;
    }
    pthread_mutex_unlock(&registry.lock);
    return host_stub;
}

cudaError_t mr_variable_of(const void *host_variable, CUdeviceptr *ret_address, size_t *ret_bytes)
{
    cudaError_t error = cudaErrorInvalidSymbol;
    pthread_mutex_lock(&registry.lock);
    for (struct variable *v = registry.variables; v != NULL; v = v->next) {
        if (v->host_variable != host_variable)
            continue;
        error = load_variable(v);
        *ret_address = v->address;
        *ret_bytes = v->n_bytes;
        break;
    }
    pthread_mutex_unlock(&registry.lock);
    return error;
}

cudaError_t mr_library_kernel(CUlibrary library, const char *name, CUkernel *ret_kernel)
{
    if (!mr_driver_offer_kernel(name))
        return cudaErrorSymbolNotFound;
    CUresult result = DRV(LibraryGetKernel, 12000)(ret_kernel, library, name);
    if (result != CUDA_SUCCESS)
        return (cudaError_t)result;
    if (mr_host_stub_of(*ret_kernel) == NULL) {
        pthread_mutex_lock(&registry.lock);
        add_kernel(NULL, NULL, NULL, *ret_kernel);
        pthread_mutex_unlock(&registry.lock);
    }
    return cudaSuccess;
}

cudaError_t cudaGetSymbolAddress(void **devPtr, const void *symbol)
{
    CUdeviceptr address = 0;
    size_t n_bytes;
    cudaError_t error = MR_RUN(mr_variable_of(symbol, &address, &n_bytes));
    if (error == cudaSuccess)
        *devPtr = (void *)address;
    return error;
}

cudaError_t cudaGetSymbolSize(size_t *size, const void *symbol)
{
    CUdeviceptr address;
    return MR_RUN(mr_variable_of(symbol, &address, size));
}
