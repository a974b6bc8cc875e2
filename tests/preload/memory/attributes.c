/* Pointer attributes of device memory, asked for one by one and several at once.
 *     attributes          what the answers are
 *     attributes calls    how many calls of the driver a question is: one, as natively */
#include <stdlib.h>
#include <string.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

#define MIB   ((size_t)1 << 20)
#define TIMES 100u

/* Room for any attribute; what a query leaves unwritten stays recognisable. */
union value {
    unsigned u;
    int i;
    unsigned long long ull;
    void *pointer;
    CUdeviceptr device_pointer;
    size_t size;
    unsigned char bytes[sizeof(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS) + 16];
};

static CUcontext context;

static void say_pointer_values(CUdeviceptr p, CUdeviceptr inside, size_t size)
{
    union value v = {.ull = 0};

    SAY_CODE("context", cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_CONTEXT, inside));
    say("    %s", v.pointer == context ? "the current one" : v.pointer ? "another" : "NULL");
    SAY_CODE("device pointer",
             cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside));
    say("    %s", v.device_pointer == inside ? "itself" : "another");
    SAY_CODE("range start",
             cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside));
    say("    %s", v.device_pointer == p ? "the start" : "another");
    v.ull = 0;
    SAY_CODE("range size", cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside));
    say("    %s", v.size == size ? "the size asked for" : "another");
    v.ull = 0;
    SAY_CODE("pool", cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, inside));
    say("    %s", v.pointer == NULL ? "none" : "some");
}

/* Lines that begin with "kind:" differ, truthfully, when the placement is managed memory. */
static void say_kind(CUdeviceptr p)
{
    union value v = {.ull = 0};

    SAY_CODE("memory type", cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    say("    %u", v.u);
    v.ull = 77;
    SAY_CODE("ordinal", cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
    say("    %d", v.i);
    v.ull = 0;
    SAY_CODE("kind: managed", cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
    say("kind:     %u", v.u & 0xff);
    v.ull = 0;
    SAY_CODE("kind: host pointer", cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_HOST_POINTER, p));
    SAY_CODE("mapped", cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_MAPPED, p));
}

static void several(const char *what, CUdeviceptr p)
{
    CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_CONTEXT,          CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER,   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,   CU_POINTER_ATTRIBUTE_HOST_POINTER,
    };
    union value v[8];
    void *places[8];

    memset(v, 0, sizeof(v));
    for (int i = 0; i < 8; i++)
        places[i] = &v[i];
    say("%s: %d", what, (int)cuPointerGetAttributes(8, names, places, p));
    say("    context %s, type %u, ordinal %d",
        v[0].pointer == context ? "current"
        : v[0].pointer == NULL  ? "NULL"
                                : "another",
        v[1].u, v[3].i);
    say("    itself %d, start %s, size %zu, pool %s", v[2].device_pointer == p,
        v[4].device_pointer == 0   ? "none"
        : v[4].device_pointer == p ? "itself"
                                   : "another",
        v[5].size, v[6].pointer == NULL ? "none" : "some");
    say("kind:     host pointer %s", v[7].device_pointer == p ? "itself"
                                     : v[7].pointer == NULL   ? "none"
                                                              : "another");
}

static void mistakes(CUdeviceptr p)
{
    union value v = {.ull = 0};
    CUpointer_attribute name = CU_POINTER_ATTRIBUTE_CONTEXT;
    void *place = &v;

    SAY_CODE("no place", cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_CONTEXT, p));
    SAY_CODE("no such attribute", cuPointerGetAttribute(&v, (CUpointer_attribute)9999, p));
    SAY_CODE("none at all", cuPointerGetAttributes(0, &name, &place, p));
    SAY_CODE("no places", cuPointerGetAttributes(1, &name, NULL, p));
    SAY_CODE("no names", cuPointerGetAttributes(1, NULL, &place, p));
}

/* --- calls; each question is asked once before, so that whoever learns from an answer has --- */

static void ask(CUdeviceptr p)
{
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_BUFFER_ID};
    unsigned long long id;
    unsigned type;
    void *places[] = {&type, &id};

    (void)cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
    OK(cuPointerGetAttributes(2, names, places, p));
}

static void count(const char *what, CUdeviceptr p)
{
    unsigned long before;

    ask(p);
    before = sim_calls("*");
    for (unsigned i = 0; i < TIMES; i++)
        ask(p);
    say("%s: %lu calls for %u questions", what, sim_calls("*") - before, 2 * TIMES);
}

static void ask_ranges(const char *what, CUdeviceptr p)
{
    unsigned long before = sim_calls("*");
    CUdeviceptr base;
    size_t size;

    for (unsigned i = 0; i < TIMES; i++)
        (void)cuMemGetAddressRange(&base, &size, p);
    say("%s: %lu calls for %u ranges", what, sim_calls("*") - before, TIMES);
}

static void ask_all(CUdeviceptr large)
{
    static int host;
    CUdeviceptr small;
    void *pinned;

    OK(cuMemAlloc(&small, 5000));
    OK(cuMemHostAlloc(&pinned, 4096, 0));
    count("host", (CUdeviceptr)(uintptr_t)&host);
    count("pinned", (CUdeviceptr)(uintptr_t)pinned);
    count("begins", large);
    count("inside", large + 4096);
    count("far inside", large + 50 * MIB);
    count("small", small);
    count("inside small", small + 4999);
    ask_ranges("host", (CUdeviceptr)(uintptr_t)&host);
    OK(cuMemFreeHost(pinned));
    OK(cuMemFree(small));
}

static void count_all(void)
{
    CUdeviceptr large, p;

    OK(cuMemAlloc(&large, 64 * MIB));
    ask_all(large);
    for (unsigned i = 0; i < 10; i++) {
        OK(cuMemAlloc(&p, 5000));
        launch_fill(NULL, p, 10, i);
        OK(cuMemFree(p));
    }
    ask_all(large);
    OK(cuMemFree(large));
    OK(cuMemAlloc(&large, 64 * MIB));
    ask_all(large);
}

int main(int argc, char **argv)
{
    static char host[64];
    CUdeviceptr p, pitched, gone;
    size_t pitch;

    context = device_open();
    if (argc > 1 && strcmp(argv[1], "calls") == 0) {
        count_all();
        return 0;
    }
    OK(cuMemAlloc(&p, 5000));
    OK(cuMemAllocPitch(&pitched, &pitch, 100, 10, 4));
    say_pointer_values(p, p, 5000);
    say_pointer_values(p, p + 4999, 5000);
    say_pointer_values(pitched, pitched + 5, pitch * 10);
    say_kind(p);
    several("several", p);
    several("several, inside", p + 100);
    several("several of host memory", (CUdeviceptr)(uintptr_t)host);
    mistakes(p);
    OK(cuMemAlloc(&gone, 5000));
    OK(cuMemFree(gone));
    several("several of freed memory", gone);
    SAY_CODE("one of freed memory",
             cuPointerGetAttribute(host, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, gone));
    OK(cuMemFree(p));
    OK(cuMemFree(pitched));
    return 0;
}
