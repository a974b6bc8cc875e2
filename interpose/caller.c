/* Names of calling libraries: see caller.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "caller.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

static const struct {
    const char *prefix; /* of the library's file name */
    enum ag_caller caller;
} libraries[] = {
    {"libcublas", AG_CALLER_CUDA_LIBRARY},   {"libcudnn", AG_CALLER_CUDA_LIBRARY},
    {"libcufft", AG_CALLER_CUDA_LIBRARY},    {"libcurand", AG_CALLER_CUDA_LIBRARY},
    {"libcusolver", AG_CALLER_CUDA_LIBRARY}, {"libcusparse", AG_CALLER_CUDA_LIBRARY},
    {"libnvjitlink", AG_CALLER_CUDA_LIBRARY},
    {"libnccl", AG_CALLER_EXPORTER},         {"libucs", AG_CALLER_EXPORTER},
    {"libuct", AG_CALLER_EXPORTER},          {"libmpi", AG_CALLER_EXPORTER},
    {"libnvshmem", AG_CALLER_EXPORTER},      {"libcufile", AG_CALLER_EXPORTER},
};

/* Address and answer in one word, so that no lock is needed: user addresses have 56 bits or fewer. */
#define KNOWN 512u
static _Atomic uint64_t known[KNOWN];

static enum ag_caller look_up(const void *address)
{
    const char *name;
    Dl_info info;

    if (!dladdr(address, &info) || !info.dli_fname)
        return AG_CALLER_PROGRAM;
    name = strrchr(info.dli_fname, '/');
    name = name ? name + 1 : info.dli_fname;
    for (unsigned i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++) {
        if (!strncmp(name, libraries[i].prefix, strlen(libraries[i].prefix)))
            return libraries[i].caller;
    }
    return AG_CALLER_PROGRAM;
}

enum ag_caller ag_caller_of(const void *address)
{
    uint64_t key = (uint64_t)(uintptr_t)address << 4;
    _Atomic uint64_t *place = &known[(uintptr_t)address * 0x9e3779b97f4a7c15u >> 55];
    uint64_t found = atomic_load_explicit(place, memory_order_relaxed);

    if ((found & ~(uint64_t)15) != key) {
        found = key | look_up(address);
        atomic_store_explicit(place, found, memory_order_relaxed);
    }
    return (enum ag_caller)(found & 15);
}
