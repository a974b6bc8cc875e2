/* module.c: modules and libraries. Their images are not looked at: what they contain is what the
 * test has registered by name. */
#include "tests/sim/sim_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct global {
    char *name;
    size_t bytes;
    bool managed;
    void *init;
    struct global *next;
};

/* A registered variable as it exists in one module. */
struct variable {
    struct global *global;
    struct sim_block *block;
    struct variable *next;
};

#define CODE_BYTES   ((size_t)64 << 10) /* of the card, for each module */
#define CARD_THREADS (16u * 2048u)      /* that run at a time: attributes in device.c */

struct CUmod_st {
    CUcontext ctx;
    int card; /* that holds its code; -1: none does */
    CUfunction functions;
    struct variable *variables;
    CUlibrary library;
    CUmodule next; /* of the same library */
    CUmodule next_any;
    bool has_references; /* to textures or surfaces, which somebody asked for */
};

struct CUlib_st {
    CUkernel kernels;
    CUmodule modules; /* one per context that asked */
};

static struct sim_kernel_entry *entries;
static struct global *globals;
static CUmodule modules;

static uint64_t last_code;

/* ---- registry ---- */

static void lay_out(struct sim_kernel_entry *entry)
{
    entry->params_bytes = 0;
    for (unsigned i = 0; i < entry->n_params; i++) {
        size_t size = entry->sizes[i], align = size & -size;
        /* Parameters are aligned as their types are; a size tells the type's alignment well
         * enough, up to that of a pointer. */
        align = SIM_MIN(SIM_MAX(align, 1u), 8u);
        entry->params_bytes = (entry->params_bytes + align - 1) / align * align;
        entry->offsets[i] = entry->params_bytes;
        entry->params_bytes += size;
    }
}

static struct sim_kernel_entry *find_entry(const char *name)
{
    for (struct sim_kernel_entry *entry = entries; entry; entry = entry->next)
        if (!strcmp(entry->name, name))
            return entry;
    return NULL;
}

/* Of the first kernel only: the others of the program are as this one. */
static void tell_of_device_code(const char *name)
{
    static bool told;

    if (!told)
        sim_say("the simulated driver runs no device code: no function of the host is registered "
                "for the kernel \"%.200s\"",
                name);
    told = true;
}

void sim_register_kernel(const char *name, sim_kernel_fn fn, unsigned n_params,
                         const size_t *param_sizes)
{
    sim_lock();
    struct sim_kernel_entry *entry = find_entry(name);
    if (!entry) {
        entry = calloc(1, sizeof(*entry));
        if (!entry)
            abort();
        entry->name = strdup(name);
        entry->next = entries;
        entries = entry;
    }
    free(entry->sizes);
    free(entry->offsets);
    entry->fn = fn;
    entry->n_params = n_params;
    entry->sizes = calloc(n_params + 1, sizeof(size_t));
    entry->offsets = calloc(n_params + 1, sizeof(size_t));
    if (!entry->sizes || !entry->offsets || n_params > SIM_MAX_PARAMS)
        abort();
    if (n_params)
        memcpy(entry->sizes, param_sizes, n_params * sizeof(size_t));
    lay_out(entry);
    sim_unlock();
}

void sim_kernel_local(const char *name, size_t bytes)
{
    sim_lock();
    find_entry(name)->local_bytes = bytes;
    sim_unlock();
}

void sim_register_global(const char *name, size_t bytes, bool managed, const void *init)
{
    struct global *global = calloc(1, sizeof(*global));

    if (!global)
        abort();
    global->name = strdup(name);
    global->bytes = bytes;
    global->managed = managed;
    if (init) {
        global->init = malloc(bytes);
        if (!global->init)
            abort();
        memcpy(global->init, init, bytes);
    }
    sim_lock();
    global->next = globals;
    globals = global;
    sim_unlock();
}

static void default_attributes(int *attributes, const struct sim_kernel_entry *entry)
{
    attributes[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES] = (int)entry->local_bytes;
    attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024;
    attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] = 32;
    attributes[CU_FUNC_ATTRIBUTE_PTX_VERSION] = 90;
    attributes[CU_FUNC_ATTRIBUTE_BINARY_VERSION] = 90;
    attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 49152;
    attributes[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
}

/* ---- modules ---- */

static CUmodule module_new(CUcontext ctx, CUlibrary library)
{
    CUmodule module = sim_handle_new(SIM_MODULE, sizeof(*module));

    module->ctx = ctx;
    module->card = -1;
    module->library = library;
    module->next_any = modules;
    modules = module;
    return module;
}

static void module_delete(CUmodule module)
{
    CUmodule *link = &modules;

    while (*link != module)
        link = &(*link)->next_any;
    *link = module->next_any;
    while (module->functions) {
        CUfunction next = module->functions->next;
        if (module->functions->loaded)
            sim_overhead_give(module->ctx->device, sim_settings()->lazy_bytes);
        sim_handle_free(module->functions);
        module->functions = next;
    }
    while (module->variables) {
        struct variable *variable = module->variables;
        struct sim_block *block = sim_block_starting_at(variable->block->base);
        module->variables = variable->next;
        if (block == variable->block && block->kind == SIM_BLOCK_MANAGED)
            sim_managed_free(block);
        else if (block == variable->block)
            sim_native_free(block, "the end of its module");
        free(variable);
    }
    if (module->card >= 0)
        sim_overhead_give(module->card, CODE_BYTES);
    sim_handle_free(module);
}

/* Modules end with their context; libraries stay, without what they had there. */
void sim_free_context_modules(CUcontext ctx)
{
    CUmodule next;

    for (CUmodule module = modules; module; module = next) {
        next = module->next_any;
        if (module->ctx != ctx)
            continue;
        CUmodule *link = module->library ? &module->library->modules : NULL;
        while (link && *link != module)
            link = &(*link)->next;
        if (link)
            *link = module->next;
        module_delete(module);
    }
}

static CUresult load(CUcontext ctx, CUmodule *ret_module, const void *image)
{
    if (!ret_module || !image)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_overhead_take(ctx->device, CODE_BYTES))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ret_module = module_new(ctx, NULL);
    (*ret_module)->card = ctx->device;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    FILE *file = path ? fopen(path, "re") : NULL;

    if (!path)
        return CUDA_ERROR_INVALID_VALUE;
    if (!file)
        return CUDA_ERROR_FILE_NOT_FOUND;
    (void)fclose(file);
    return load(call.ctx, module, path);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return load(call.ctx, module, image);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int n_options,
                            CUjit_option *options, void **values)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (n_options && (!options || !values))
        return CUDA_ERROR_INVALID_VALUE;
    return load(call.ctx, module, image);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return load(call.ctx, module, image);
}

CUresult cuModuleUnload(CUmodule module)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!sim_handle_is(module, SIM_MODULE) || module->library)
        return CUDA_ERROR_INVALID_HANDLE;
    (void)sim_context_drain(module->ctx);
    if (sim_handle_is(module, SIM_MODULE))
        module_delete(module);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    SIM_ENTER(SIM_NEEDS_NOTHING);
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

static CUresult get_function(CUmodule module, const char *name, CUkernel kernel,
                             CUfunction *ret_function)
{
    struct sim_kernel_entry *entry = find_entry(name);

    if (!entry) {
        tell_of_device_code(name);
        return CUDA_ERROR_NOT_FOUND;
    }
    for (CUfunction function = module->functions; function; function = function->next) {
        if (function->entry == entry) {
            *ret_function = function;
            return CUDA_SUCCESS;
        }
    }
    CUfunction function = sim_handle_new(SIM_FUNCTION, sizeof(*function));
    function->id = ++last_code;
    function->entry = entry;
    function->module = module;
    function->kernel = kernel;
    default_attributes(function->attributes, entry);
    function->next = module->functions;
    module->functions = function;
    *ret_function = function;
    return CUDA_SUCCESS;
}

bool sim_function_load(CUfunction function)
{
    size_t bytes = sim_settings()->lazy_bytes;

    if (function->loaded || !bytes || !function->module)
        return true;
    function->loaded = sim_overhead_take(function->module->ctx->device, bytes);
    return function->loaded;
}

bool sim_local_take(CUcontext ctx, const struct sim_kernel_entry *entry)
{
    size_t wanted = entry->local_bytes * CARD_THREADS;

    if (wanted <= ctx->local_bytes)
        return true;
    if (!sim_overhead_take(ctx->device, wanted - ctx->local_bytes))
        return false;
    ctx->local_bytes = wanted;
    return true;
}

CUresult cuModuleGetFunction(CUfunction *ret_function, CUmodule module, const char *name)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!ret_function || !name || !*name)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_handle_is(module, SIM_MODULE))
        return CUDA_ERROR_INVALID_HANDLE;
    return get_function(module, name, NULL, ret_function);
}

static CUresult make_variable(CUmodule module, struct global *global, struct variable **ret)
{
    struct sim_block *block;
    CUresult result = global->managed ? sim_managed_alloc(module->ctx, global->bytes,
                                                          CU_MEM_ATTACH_GLOBAL, &block)
                                      : sim_native_alloc(module->ctx, global->bytes, &block);

    if (result != CUDA_SUCCESS)
        return result;
    memset(block->bytes, 0, global->bytes);
    if (global->init)
        memcpy(block->bytes, global->init, global->bytes);
    struct variable *variable = calloc(1, sizeof(*variable));
    if (!variable)
        abort();
    variable->global = global;
    variable->block = block;
    variable->next = module->variables;
    module->variables = variable;
    *ret = variable;
    return CUDA_SUCCESS;
}

static CUresult get_global(CUmodule module, const char *name, CUdeviceptr *ret_p, size_t *ret_bytes)
{
    struct global *global = globals;
    struct variable *variable = module->variables;

    while (global && strcmp(global->name, name) != 0)
        global = global->next;
    if (!global)
        return CUDA_ERROR_NOT_FOUND;
    while (variable && variable->global != global)
        variable = variable->next;
    if (!variable) {
        CUresult result = make_variable(module, global, &variable);
        if (result != CUDA_SUCCESS)
            return result;
    }
    if (ret_p)
        *ret_p = variable->block->base;
    if (ret_bytes)
        *ret_bytes = global->bytes;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *p, size_t *bytes, CUmodule module, const char *name)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!name || !*name)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_handle_is(module, SIM_MODULE))
        return CUDA_ERROR_INVALID_HANDLE;
    return get_global(module, name, p, bytes);
}

/* Textures and surfaces by reference: any name is one. What they are bound to is not modelled. */
static CUresult get_reference(void **ret_reference, CUmodule module, const char *name)
{
    if (!ret_reference || !name)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_handle_is(module, SIM_MODULE))
        return CUDA_ERROR_INVALID_HANDLE;
    module->has_references = true;
    *ret_reference = module;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetTexRef(CUtexref *ret_reference, CUmodule module, const char *name)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return get_reference((void **)ret_reference, module, name);
}

CUresult cuModuleGetSurfRef(CUsurfref *ret_reference, CUmodule module, const char *name)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return get_reference((void **)ret_reference, module, name);
}

bool sim_code_has_references(const struct sim_kernel_work *work)
{
    return work->function && sim_handle_is(work->function, SIM_FUNCTION) &&
           work->function->module->has_references;
}

/* ---- libraries ---- */

CUresult cuLibraryLoadData(CUlibrary *ret_library, const void *image, CUjit_option *jit_options,
                           void **jit_values, unsigned int n_jit, CUlibraryOption *options,
                           void **values, unsigned int n_options)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!ret_library || !image)
        return CUDA_ERROR_INVALID_VALUE;
    if ((n_jit && (!jit_options || !jit_values)) || (n_options && !options))
        return CUDA_ERROR_INVALID_VALUE;
    (void)values; /* may be NULL where the options need no value */
    *ret_library = sim_handle_new(SIM_LIBRARY, sizeof(struct CUlib_st));
    return CUDA_SUCCESS;
}

CUresult cuLibraryLoadFromFile(CUlibrary *ret_library, const char *path, CUjit_option *jit_options,
                               void **jit_values, unsigned int n_jit, CUlibraryOption *options,
                               void **values, unsigned int n_options)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    FILE *file = path ? fopen(path, "re") : NULL;

    (void)values;
    if (!ret_library || !path || (n_jit && (!jit_options || !jit_values)) ||
        (n_options && !options)) {
        if (file)
            (void)fclose(file);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!file)
        return CUDA_ERROR_FILE_NOT_FOUND;
    (void)fclose(file);
    *ret_library = sim_handle_new(SIM_LIBRARY, sizeof(struct CUlib_st));
    return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int n, CUlibrary library)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!kernels)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_handle_is(library, SIM_LIBRARY))
        return CUDA_ERROR_INVALID_HANDLE;
    for (CUkernel kernel = library->kernels; kernel && n; kernel = kernel->next, n--)
        *kernels++ = kernel;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule module)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_handle_is(module, SIM_MODULE))
        return CUDA_ERROR_INVALID_HANDLE;
    *count = 0;
    for (CUfunction function = module->functions; function; function = function->next)
        ++*count;
    return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int n, CUmodule module)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!functions)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_handle_is(module, SIM_MODULE))
        return CUDA_ERROR_INVALID_HANDLE;
    for (CUfunction function = module->functions; function && n; function = function->next, n--)
        *functions++ = function;
    return CUDA_SUCCESS;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!state)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_entry_of(function))
        return CUDA_ERROR_INVALID_HANDLE;
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return sim_entry_of(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLibraryUnload(CUlibrary library)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!sim_handle_is(library, SIM_LIBRARY))
        return CUDA_ERROR_INVALID_HANDLE;
    while (library->modules) {
        CUmodule next = library->modules->next;
        if (library->modules->ctx->alive)
            (void)sim_context_drain(library->modules->ctx);
        module_delete(library->modules);
        library->modules = next;
    }
    while (library->kernels) {
        CUkernel next = library->kernels->next;
        sim_handle_free(library->kernels);
        library->kernels = next;
    }
    sim_handle_free(library);
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *ret_kernel, CUlibrary library, const char *name)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!ret_kernel || !name || !*name)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_handle_is(library, SIM_LIBRARY))
        return CUDA_ERROR_INVALID_HANDLE;
    struct sim_kernel_entry *entry = find_entry(name);
    if (!entry) {
        tell_of_device_code(name);
        return CUDA_ERROR_NOT_FOUND;
    }
    CUkernel kernel = library->kernels;
    while (kernel && kernel->entry != entry)
        kernel = kernel->next;
    if (!kernel) {
        kernel = sim_handle_new(SIM_KERNEL, sizeof(*kernel));
        kernel->id = ++last_code;
        kernel->entry = entry;
        kernel->library = library;
        default_attributes(kernel->attributes, entry);
        kernel->next = library->kernels;
        library->kernels = kernel;
    }
    *ret_kernel = kernel;
    return CUDA_SUCCESS;
}

static CUmodule module_in(CUlibrary library, CUcontext ctx)
{
    CUmodule module = library->modules;

    while (module && (module->ctx != ctx))
        module = module->next;
    if (!module) {
        module = module_new(ctx, library);
        module->next = library->modules;
        library->modules = module;
    }
    return module;
}

CUresult cuLibraryGetModule(CUmodule *ret_module, CUlibrary library)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!ret_module)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_handle_is(library, SIM_LIBRARY))
        return CUDA_ERROR_INVALID_HANDLE;
    *ret_module = module_in(library, call.ctx);
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *p, size_t *bytes, CUlibrary library, const char *name)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!name || !*name)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_handle_is(library, SIM_LIBRARY))
        return CUDA_ERROR_INVALID_HANDLE;
    return get_global(module_in(library, call.ctx), name, p, bytes);
}

CUresult cuLibraryGetManaged(CUdeviceptr *p, size_t *bytes, CUlibrary library, const char *name)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    CUcontext ctx = sim_current();

    if (!name || !*name)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_handle_is(library, SIM_LIBRARY))
        return CUDA_ERROR_INVALID_HANDLE;
    for (struct global *global = globals; global; global = global->next)
        if (global->managed && !strcmp(global->name, name) && ctx)
            return get_global(module_in(library, ctx), name, p, bytes);
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary library)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_handle_is(library, SIM_LIBRARY))
        return CUDA_ERROR_INVALID_HANDLE;
    *count = 0;
    for (CUkernel kernel = library->kernels; kernel; kernel = kernel->next)
        ++*count;
    return CUDA_SUCCESS;
}

/* ---- functions and kernels ---- */

CUresult cuKernelGetFunction(CUfunction *ret_function, CUkernel kernel)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!ret_function)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_handle_is(kernel, SIM_KERNEL))
        return CUDA_ERROR_INVALID_HANDLE;
    return get_function(module_in(kernel->library, call.ctx), kernel->entry->name, kernel,
                        ret_function);
}

CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!library)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_handle_is(kernel, SIM_KERNEL))
        return CUDA_ERROR_INVALID_HANDLE;
    *library = kernel->library;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction function)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!module)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_handle_is(function, SIM_FUNCTION))
        return CUDA_ERROR_INVALID_HANDLE;
    *module = function->module;
    return CUDA_SUCCESS;
}

CUcontext sim_function_context(CUfunction function)
{
    return function->module ? function->module->ctx : sim_current();
}

bool sim_function_in(CUfunction function, CUcontext ctx)
{
    return function->module->ctx == ctx;
}

struct sim_kernel_entry *sim_entry_of(CUfunction handle)
{
    CUkernel kernel = (CUkernel)(void *)handle;

    if (sim_handle_is(handle, SIM_FUNCTION))
        return handle->entry;
    return sim_handle_is(kernel, SIM_KERNEL) ? kernel->entry : NULL;
}

bool sim_code_loaded(const struct sim_kernel_work *work)
{
    if (work->function)
        return sim_handle_is(work->function, SIM_FUNCTION) && work->function->id == work->code;
    return sim_handle_is(work->kernel, SIM_KERNEL) && work->kernel->id == work->code;
}

static CUresult get_name(const char **name, const struct sim_kernel_entry *entry)
{
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    if (!entry)
        return CUDA_ERROR_INVALID_HANDLE;
    *name = entry->name;
    return CUDA_SUCCESS;
}

/* Not after an error that stays: then only kernels are named, as on an H100 (580). */
CUresult cuFuncGetName(const char **name, CUfunction function)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    return get_name(name, sim_entry_of(function));
}

CUresult cuKernelGetName(const char **name, CUkernel kernel)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return get_name(name, sim_handle_is(kernel, SIM_KERNEL) ? kernel->entry : NULL);
}

static CUresult get_param(const struct sim_kernel_entry *entry, size_t i, size_t *offset,
                          size_t *size)
{
    if (!entry)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!offset || i >= entry->n_params)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = entry->offsets[i];
    if (size)
        *size = entry->sizes[i];
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t i, size_t *offset, size_t *size)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return get_param(sim_entry_of(function), i, offset, size);
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t i, size_t *offset, size_t *size)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return get_param(sim_handle_is(kernel, SIM_KERNEL) ? kernel->entry : NULL, i, offset, size);
}

/* The attributes of a handle that may be a kernel in disguise. */
static int *attributes_of(CUfunction handle)
{
    CUkernel kernel = (CUkernel)(void *)handle;

    if (sim_handle_is(handle, SIM_FUNCTION))
        return handle->attributes;
    return sim_handle_is(kernel, SIM_KERNEL) ? kernel->attributes : NULL;
}

bool sim_grid_fits(CUfunction handle, const unsigned grid[3])
{
    const int *attributes = attributes_of(handle);

    for (int i = 0; i < 3; i++) {
        int size = attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + i];

        if (size > 0 && grid[i] % (unsigned)size)
            return false;
    }
    return true;
}

static CUresult get_attribute(int *value, CUfunction_attribute attribute, const int *attributes)
{
    if (!value || (unsigned)attribute >= CU_FUNC_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (!attributes)
        return CUDA_ERROR_INVALID_HANDLE;
    *value = attributes[attribute];
    return CUDA_SUCCESS;
}

static CUresult set_attribute(int *attributes, CUfunction_attribute attribute, int value)
{
    if ((unsigned)attribute < CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
        (unsigned)attribute >= CU_FUNC_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (!attributes)
        return CUDA_ERROR_INVALID_HANDLE;
    attributes[attribute] = value;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return get_attribute(value, attribute, attributes_of(function));
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    return set_attribute(attributes_of(function), attribute, value);
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel,
                              CUdevice dev)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!sim_device_ok(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    return get_attribute(value, attribute,
                         sim_handle_is(kernel, SIM_KERNEL) ? kernel->attributes : NULL);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                              CUdevice dev)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    if (!sim_device_ok(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    return set_attribute(sim_handle_is(kernel, SIM_KERNEL) ? kernel->attributes : NULL, attribute,
                         value);
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    (void)config;
    return sim_entry_of(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig config)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    (void)config;
    return sim_entry_of(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev)
{
    SIM_ENTER(SIM_NEEDS_INIT);
    (void)config;
    if (!sim_device_ok(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    return sim_handle_is(kernel, SIM_KERNEL) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- occupancy: a card on which every kernel fits as well as any other ---- */

static CUresult max_blocks(int *blocks, CUfunction function, int block_size)
{
    if (!blocks || block_size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_entry_of(function))
        return CUDA_ERROR_INVALID_HANDLE;
    *blocks = block_size > 1024 ? 0 : SIM_MIN(32, 2048 / block_size);
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function,
                                                     int block_size, size_t shared_bytes)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    (void)shared_bytes;
    return max_blocks(blocks, function, block_size);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function,
                                                              int block_size, size_t shared_bytes,
                                                              unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    (void)shared_bytes;
    (void)flags;
    return max_blocks(blocks, function, block_size);
}

static CUresult potential(int *min_grid, int *block_size, CUfunction function, int limit)
{
    if (!min_grid || !block_size)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_entry_of(function))
        return CUDA_ERROR_INVALID_HANDLE;
    *block_size = limit > 0 ? SIM_MIN(limit, 1024) : 1024;
    *min_grid = 2 * 16;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *min_grid, int *block_size, CUfunction function,
                                          CUoccupancyB2DSize shared_of, size_t shared_bytes,
                                          int limit)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    (void)shared_of;
    (void)shared_bytes;
    return potential(min_grid, block_size, function, limit);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *min_grid, int *block_size,
                                                   CUfunction function,
                                                   CUoccupancyB2DSize shared_of,
                                                   size_t shared_bytes, int limit,
                                                   unsigned int flags)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    (void)shared_of;
    (void)shared_bytes;
    (void)flags;
    return potential(min_grid, block_size, function, limit);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function, int n_blocks,
                                                 int block_size)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!bytes || n_blocks <= 0 || block_size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_entry_of(function))
        return CUDA_ERROR_INVALID_HANDLE;
    *bytes = 49152 / (size_t)n_blocks;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialClusterSize(int *size, CUfunction function,
                                            const CUlaunchConfig *config)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!size || !config)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_entry_of(function))
        return CUDA_ERROR_INVALID_HANDLE;
    *size = 8;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveClusters(int *count, CUfunction function, const CUlaunchConfig *config)
{
    SIM_ENTER(SIM_NEEDS_CONTEXT);
    if (!count || !config)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_entry_of(function))
        return CUDA_ERROR_INVALID_HANDLE;
    *count = 16;
    return CUDA_SUCCESS;
}
