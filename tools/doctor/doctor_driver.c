/* doctor_driver.c: checks the driver and each device: which features they support, and why not. */
#include "tools/doctor/doctor_driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interpose/core/base/text.h"
#include "interpose/core/driver/driver.h"
#include "tools/doctor/doctor.h"

/* "cuMemAlloc_v2" without its suffix, as cuGetProcAddress takes it. */
static void base_name(const char *symbol, char *base, size_t capacity)
{
    const char *suffix = strrchr(symbol, '_');
    size_t length = suffix && suffix[1] == 'v' ? (size_t)(suffix - symbol) : strlen(symbol);

    if (length >= capacity)
        length = capacity - 1;
    memcpy(base, symbol, length);
    base[length] = '\0';
}

/* The entry point that a CUDA 12 program gets for `symbol`. */
static void *by_get_proc(CUresult (*get)(const char *, void **, int, cuuint64_t),
                         const char *symbol)
{
    void *address = NULL;
    char base[64];

    base_name(symbol, base, sizeof(base));
    return get(base, &address, 12000, 0) == CUDA_SUCCESS ? address : NULL;
}

static bool simulated;

bool doctor_driver_is_simulated(void)
{
    return simulated;
}

const char *doctor_look_up(const char *lookup, const struct doctor_symbol *symbols, size_t n,
                           void *ret)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CUresult (*get)(const char *, void **, int, cuuint64_t) = NULL;
    void *address;

    if (!handle)
        return "libcuda.so.1";
    simulated = dlsym(handle, AG_DRIVER_MARK) != NULL;
    address = dlsym(handle, "cuGetProcAddress");
    memcpy(&get, &address, sizeof(get));
    for (size_t i = 0; i < n; i++) {
        bool asks = !strcmp(lookup, "get-proc") && get;

        address = asks ? by_get_proc(get, symbols[i].name) : dlsym(handle, symbols[i].name);
        if (!address)
            return symbols[i].name;
        memcpy((char *)ret + symbols[i].place, &address, sizeof(address));
    }
    return NULL;
}

const char *doctor_open_driver(const char *lookup, struct doctor_calls *ret)
{
    static const struct doctor_symbol symbols[] = {
#define ROW(symbol) {#symbol, offsetof(struct doctor_calls, symbol)},
        DOCTOR_CALLS(ROW)
#undef ROW
    };

    return doctor_look_up(lookup, symbols, sizeof(symbols) / sizeof(symbols[0]), ret);
}

CUresult doctor_begin(const struct doctor_calls *calls)
{
    CUresult result = calls->cuInit(0);
    CUcontext context;

    if (result == CUDA_SUCCESS)
        result = calls->cuDevicePrimaryCtxRetain(&context, 0);
    return result == CUDA_SUCCESS ? calls->cuCtxPushCurrent_v2(context) : result;
}

/* ---- devices ---- */

static struct doctor_calls cu;

static int attribute_of(CUdevice_attribute which, int device)
{
    int value = 0;

    return cu.cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

bool doctor_finds_host_memory(int device)
{
    return attribute_of(CU_DEVICE_ATTRIBUTE_INTEGRATED, device) ||
           attribute_of(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, device);
}

static const char *error_name(CUresult result)
{
    const char *name = NULL;

    return cu.cuGetErrorName(result, &name) == CUDA_SUCCESS && name ? name : "an unknown error";
}

static const char *const sections[] = {"device 0",  "device 1",  "device 2",  "device 3",
                                       "device 4",  "device 5",  "device 6",  "device 7",
                                       "device 8",  "device 9",  "device 10", "device 11",
                                       "device 12", "device 13", "device 14", "device 15"};
#define MOST_DEVICES ((int)(sizeof(sections) / sizeof(sections[0])))

static void look_at_device(struct findings *findings, int device)
{
    const char *section = sections[device];
    char name[128] = "a device without a name", size[32];
    size_t bytes = 0;

    (void)cu.cuDeviceGetName(name, sizeof(name), device);
    (void)cu.cuDeviceTotalMem_v2(&bytes, device);
    findings_add(findings, VERDICT_INFO, section, "device", "%s, %s, compute capability %d.%d",
                 name, ag_text_size(size, sizeof(size), bytes),
                 attribute_of(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device),
                 attribute_of(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
    if (strstr(name, " MIG "))
        findings_add(findings, VERDICT_TRAP, section, "mig",
                     "a MIG slice: no peer access, and no memory shared with other slices");
    if (!strncmp(name, "GRID ", 5) || strstr(name, "vGPU"))
        findings_add(findings, VERDICT_TRAP, section, "vgpu",
                     "a vGPU: its host may have switched managed memory off");
    if (attribute_of(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, device))
        findings_add(findings, VERDICT_TRAP, section, "pageable",
                     "the device reads pageable host memory: frees wait, as natively");
}

static void look_at_policies(struct findings *findings, int device, int version)
{
    const char *section = sections[device];
    int handles = attribute_of(CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, device);
    bool managed = attribute_of(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device);

    if (attribute_of(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device))
        findings_add(findings, VERDICT_GOOD, section, "pool",
                     "POLICY=pool, and auto when that is worth it");
    else
        findings_add(
            findings, VERDICT_LACK, section, "pool",
            "POLICY=pool: the device has no memory pools; memory stays native, and auto keeps it");
    if (managed)
        findings_add(findings, VERDICT_GOOD, section, "managed",
                     "POLICY=managed, OOM=spill and prefetches");
    else
        findings_add(findings, VERDICT_LACK, section, "managed",
                     "POLICY=managed, OOM=spill: %s; memory stays native",
                     attribute_of(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, device)
                         ? "no concurrent managed access"
                         : "no managed memory");
    if (managed && version >= 13000)
        findings_add(findings, VERDICT_GOOD, section, "managed_pool",
                     "managed pools: MANAGED_BACKEND=pool, async=managed");
    else if (managed)
        findings_add(
            findings, VERDICT_LACK, section, "managed_pool",
            "managed pools need a driver for CUDA 13; MANAGED_BACKEND=plain is used instead");
    if (handles & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        findings_add(findings, VERDICT_GOOD, section, "ipc",
                     "pool memory can be shared with other processes");
    else
        findings_add(
            findings, VERDICT_LACK, section, "ipc",
            "pool memory cannot be shared with other processes: programs that share memory need "
            "POLICY=auto or native");
}

/* "0-1, 0-2": pairs of devices that can access each other's memory. */
static void look_at_peers(struct findings *findings, int n)
{
    char pairs[300] = "";
    size_t length = 0;

    if (n < 2)
        return;
    for (int a = 0; a < n; a++) {
        for (int b = a + 1; b < n; b++) {
            int ab = 0, ba = 0;

            (void)cu.cuDeviceCanAccessPeer(&ab, a, b);
            (void)cu.cuDeviceCanAccessPeer(&ba, b, a);
            if (ab && ba && length + 16 < sizeof(pairs))
                length += (size_t)snprintf(pairs + length, sizeof(pairs) - length, "%s%d-%d",
                                           length ? ", " : "", a, b);
        }
    }
    findings_add(findings, VERDICT_INFO, "driver", "peers", "peer access between devices: %s",
                 length ? pairs : "none");
}

static void look_at_version(struct findings *findings, int version)
{
    findings_add(findings, VERDICT_INFO, "driver", "version", "a driver for CUDA %d.%d",
                 version / 1000, version % 1000 / 10);
    if (version < 11040)
        findings_add(findings, VERDICT_FAIL, "driver", "age",
                     "the driver is older than CUDA 11.4: nothing is redirected");
    if (version < 12040)
        findings_add(findings, VERDICT_LACK, "driver", "replay",
                     "GRAPH needs a driver for CUDA 12.4, which reports the parameters of kernels");
    else
        findings_add(findings, VERDICT_GOOD, "driver", "replay", "GRAPH: streams can be replayed");
}

int doctor_driver(struct findings *findings)
{
    const char *missing = doctor_open_driver("dlsym", &cu);
    int version = 0, n = 0;
    CUresult result;

    if (missing) {
        bool none = !strcmp(missing, "libcuda.so.1");

        findings_add(
            findings, VERDICT_FAIL, "driver", none ? "found" : "complete",
            none ? "no GPU can be used here: there is no NVIDIA driver (%s cannot be loaded). A "
                   "container must be started with access to the GPU (--gpus all, --nv)"
                 : "the driver has no %s",
            missing);
        return 0;
    }
    result = cu.cuInit(0);
    if (result != CUDA_SUCCESS || cu.cuDeviceGetCount(&n) != CUDA_SUCCESS || !n) {
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");

        findings_add(findings, VERDICT_FAIL, "driver", "devices", "no GPU can be used here: %s%s%s",
                     error_name(result), visible ? "; CUDA_VISIBLE_DEVICES=" : "",
                     visible ? visible : "");
        return 0;
    }
    (void)cu.cuDriverGetVersion(&version);
    if (simulated)
        findings_add(
            findings, VERDICT_INFO, "driver", "simulated",
            "the simulated driver: what follows says nothing about a GPU, and times mean nothing");
    look_at_version(findings, version);
    look_at_peers(findings, n);
    for (int i = 0; i < n && i < MOST_DEVICES; i++) {
        look_at_device(findings, i);
        look_at_policies(findings, i, version);
    }
    return n;
}
