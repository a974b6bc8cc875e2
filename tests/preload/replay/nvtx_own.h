/* nvtx_own.h: the part of NVTX (version 3) that nvtx.c needs, as NVIDIA's headers have it: so that
 * a library injected into NVTX is tested where those are not. */
#ifndef NVTX_OWN_H
#define NVTX_OWN_H

#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "interpose/hooks/nvtx/nvtx_abi.h"

typedef struct ag_nvtx_event nvtxEventAttributes_t;
typedef struct ag_nvtx_resource nvtxResourceAttributes_t;
typedef const void *nvtxDomainHandle_t, *nvtxStringHandle_t, *nvtxResourceHandle_t;

#define NVTX_VERSION                   3
#define NVTX_MESSAGE_TYPE_ASCII        AG_NVTX_MESSAGE_ASCII
#define NVTX_MESSAGE_TYPE_UNICODE      AG_NVTX_MESSAGE_UNICODE
#define NVTX_MESSAGE_TYPE_REGISTERED   AG_NVTX_MESSAGE_REGISTERED
#define NVTX_RESOURCE_TYPE_CUDA_STREAM AG_NVTX_RESOURCE_CU_STREAM
#define messageType                    message_type
#define identifierType                 type

/* The functions of each module, and the tables of pointers to them that an injection is shown. */
enum { NVTX_OWN_MODULES = 7, NVTX_OWN_PLACES = 16 };
static ag_nvtx_function nvtx_own[NVTX_OWN_MODULES][NVTX_OWN_PLACES];
static ag_nvtx_function *nvtx_own_tables[NVTX_OWN_MODULES][NVTX_OWN_PLACES + 1];

static int nvtx_own_get_table(enum ag_nvtx_module module, ag_nvtx_function ***ret_table,
                              unsigned *ret_size)
{
    static const unsigned sizes[NVTX_OWN_MODULES] = {0, 16, 9, 15, 7, 16, 7};

    if ((int)module < 1 || (int)module >= NVTX_OWN_MODULES)
        return 0;
    for (unsigned i = 1; i < sizes[module]; i++)
        nvtx_own_tables[module][i] = &nvtx_own[module][i];
    *ret_table = nvtx_own_tables[module];
    *ret_size = sizes[module];
    return 1;
}

static const void *nvtx_own_get_export(uint32_t id)
{
    static const struct ag_nvtx_callbacks callbacks = {sizeof(callbacks), nvtx_own_get_table};

    return id == AG_NVTX_EXPORT_CALLBACKS ? &callbacks : NULL;
}

static void nvtx_own_open(void)
{
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_LAZY) : NULL;
    int (*begin)(ag_nvtx_get_export *) =
        library ? (int (*)(ag_nvtx_get_export *))dlsym(library, "InitializeInjectionNvtx2") : NULL;

    if (begin && begin(nvtx_own_get_export))
        return;
    memset(nvtx_own, 0, sizeof(nvtx_own));
    if (library)
        dlclose(library);
}

static ag_nvtx_function nvtx_own_function(enum ag_nvtx_module module, unsigned place)
{
    static int opened;

    if (!opened)
        nvtx_own_open();
    opened = 1;
    return nvtx_own[module][place];
}

/* A function of NVTX: calls what was filled in, else answers `otherwise`. */
#define NVTX_OWN(type, name, module, place, otherwise, parameters, ...)               \
    static inline type name parameters                                                \
    {                                                                                 \
        type(*function) parameters =                                                  \
            (type(*) parameters)nvtx_own_function(AG_NVTX_##module, AG_NVTX_##place); \
                                                                                      \
        return function ? function(__VA_ARGS__) : (type)otherwise;                    \
    }
#define NVTX_OWN_VOID(name, module, place, parameters, ...)                           \
    static inline void name parameters                                                \
    {                                                                                 \
        void(*function) parameters =                                                  \
            (void(*) parameters)nvtx_own_function(AG_NVTX_##module, AG_NVTX_##place); \
                                                                                      \
        if (function)                                                                 \
            function(__VA_ARGS__);                                                    \
    }

NVTX_OWN_VOID(nvtxMarkEx, CORE, MARK_EX, (const nvtxEventAttributes_t *event), event)
NVTX_OWN_VOID(nvtxMarkA, CORE, MARK_A, (const char *name), name)
NVTX_OWN_VOID(nvtxMarkW, CORE, MARK_W, (const wchar_t *name), name)
NVTX_OWN(uint64_t, nvtxRangeStartEx, CORE, RANGE_START_EX, 0, (const nvtxEventAttributes_t *event),
         event)
NVTX_OWN(uint64_t, nvtxRangeStartA, CORE, RANGE_START_A, 0, (const char *name), name)
NVTX_OWN(uint64_t, nvtxRangeStartW, CORE, RANGE_START_W, 0, (const wchar_t *name), name)
NVTX_OWN(int, nvtxRangePushEx, CORE, RANGE_PUSH_EX, -2, (const nvtxEventAttributes_t *event), event)
NVTX_OWN(int, nvtxRangePushA, CORE, RANGE_PUSH_A, -2, (const char *name), name)
NVTX_OWN(int, nvtxRangePushW, CORE, RANGE_PUSH_W, -2, (const wchar_t *name), name)
NVTX_OWN_VOID(nvtxDomainMarkEx, CORE2, DOMAIN_MARK_EX,
              (nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event), domain, event)
NVTX_OWN(uint64_t, nvtxDomainRangeStartEx, CORE2, DOMAIN_RANGE_START_EX, 0,
         (nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event), domain, event)
NVTX_OWN(int, nvtxDomainRangePushEx, CORE2, DOMAIN_RANGE_PUSH_EX, -2,
         (nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event), domain, event)
NVTX_OWN(nvtxResourceHandle_t, nvtxDomainResourceCreate, CORE2, DOMAIN_RESOURCE_CREATE, 0,
         (nvtxDomainHandle_t domain, nvtxResourceAttributes_t *resource), domain, resource)
NVTX_OWN(nvtxStringHandle_t, nvtxDomainRegisterStringA, CORE2, DOMAIN_REGISTER_STRING_A, 0,
         (nvtxDomainHandle_t domain, const char *name), domain, name)
NVTX_OWN(nvtxStringHandle_t, nvtxDomainRegisterStringW, CORE2, DOMAIN_REGISTER_STRING_W, 0,
         (nvtxDomainHandle_t domain, const wchar_t *name), domain, name)
NVTX_OWN(nvtxDomainHandle_t, nvtxDomainCreateA, CORE2, DOMAIN_CREATE_A, 0, (const char *name), name)
NVTX_OWN(nvtxDomainHandle_t, nvtxDomainCreateW, CORE2, DOMAIN_CREATE_W, 0, (const wchar_t *name),
         name)
NVTX_OWN_VOID(nvtxNameCuStreamA, CUDA, NAME_CU_STREAM_A, (CUstream stream, const char *name),
              stream, name)
NVTX_OWN_VOID(nvtxNameCuStreamW, CUDA, NAME_CU_STREAM_W, (CUstream stream, const wchar_t *name),
              stream, name)
NVTX_OWN_VOID(nvtxNameCudaStreamA, CUDART, NAME_CUDA_STREAM_A, (CUstream stream, const char *name),
              stream, name)
NVTX_OWN_VOID(nvtxNameCudaStreamW, CUDART, NAME_CUDA_STREAM_W,
              (CUstream stream, const wchar_t *name), stream, name)

#endif
