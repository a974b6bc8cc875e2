/* How the mini runtime gets hold of the driver: one dlopen, one dlsym, the rest by look-up. */
#define _GNU_SOURCE
#include "mini.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim_kernel.h"

/* What this runtime calls cudaErrorCallRequiresNewerDriver has no name among the driver's codes. */
#define REQUIRES_NEWER_DRIVER ((CUresult)cudaErrorCallRequiresNewerDriver)

static struct {
    pthread_once_t once;
    cudaError_t result;
    void *handle;
    PFN_cuGetProcAddress_v12000 ask;
    /* NULL unless the driver is the simulated one. */
    __typeof__(sim_register_kernel) *register_kernel;
    __typeof__(sim_register_global) *register_global;
} driver = {.once = PTHREAD_ONCE_INIT};

mr_function mr_calls[MR_N_LOOKUPS];

static const struct {
    const char *name;
    int version;
    cuuint64_t flags;
} questions[MR_N_LOOKUPS] = {
#define LEGACY(base, since)     {"cu" #base, since, 0},
#define PER_THREAD(base, since) {"cu" #base, since, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM},
#include "driver.def"
#undef LEGACY
#undef PER_THREAD
};

/* Stands in for a function that the driver does not have, so that callers need no NULL check.
 * Its caller passes arguments that it does not look at. */
static CUresult missing(void)
{
    return REQUIRES_NEWER_DRIVER;
}

static void ask_all(void)
{
    CUdriverProcAddressQueryResult status;
    void *found = NULL;
    /* The real runtime's first question has no name; an interposer must survive it. */
    (void)driver.ask("", &found, 0, 0, &status);
    for (size_t i = 0; i < MR_N_LOOKUPS; i++) {
        found = NULL;
        if (driver.ask(questions[i].name, &found, questions[i].version, questions[i].flags,
                       &status) != CUDA_SUCCESS ||
            found == NULL) {
            found = (void *)missing;
        }
        mr_calls[i] = (mr_function)found;
        /* From here on the driver's own answer is asked, as the real runtime does. */
        if (i == MR_GetProcAddress_12000 && found != (void *)missing) {
            driver.ask = (PFN_cuGetProcAddress_v12000)found;
        }
    }
}

static void load(void)
{
    driver.result = cudaErrorInsufficientDriver;
    driver.handle = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver.handle == NULL)
        return;
    driver.ask = (PFN_cuGetProcAddress_v12000)dlsym(driver.handle, "cuGetProcAddress_v2");
    if (driver.ask == NULL)
        return;
    driver.register_kernel = dlsym(driver.handle, "sim_register_kernel");
    driver.register_global = dlsym(driver.handle, "sim_register_global");
    ask_all();
    int version = 0;
    if (DRV(DriverGetVersion, 2020)(&version) != CUDA_SUCCESS)
        return;
    if (version / 1000 < CUDART_VERSION / 1000)
        return;
    driver.result = cudaSuccess;
}

cudaError_t mr_driver_load(void)
{
    (void)pthread_once(&driver.once, load);
    return driver.result;
}

PFN_cuGetProcAddress_v12000 mr_driver_asker(void)
{
    return driver.ask;
}

/* The program's own symbol <prefix><kernel name>, or NULL. */
static void *program_symbol(const char *prefix, const char *kernel_name)
{
    char *symbol = NULL;
    if (asprintf(&symbol, "%s%s", prefix, kernel_name) < 0)
        return NULL;
    void *found = dlsym(RTLD_DEFAULT, symbol);
    free(symbol);
    return found;
}

bool mr_driver_offer_kernel(const char *kernel_name)
{
    if (driver.register_kernel == NULL)
        return true;
    sim_kernel_fn function = (sim_kernel_fn)program_symbol("sim_kernel_", kernel_name);
    if (function == NULL) {
        fprintf(stderr,
                "mini runtime: the program has no host function sim_kernel_%s "
                "(is it linked with -rdynamic?)\n",
                kernel_name);
        return false;
    }
    const struct sim_kernel_params *params = program_symbol("sim_params_", kernel_name);
    driver.register_kernel(kernel_name, function, params == NULL ? 0 : params->n,
                           params == NULL ? NULL : params->sizes);
    return true;
}

void mr_driver_offer_variable(const char *name, size_t n_bytes, bool managed)
{
    if (driver.register_global != NULL)
        driver.register_global(name, n_bytes, managed, NULL);
}
