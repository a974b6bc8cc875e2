/* Pointer attributes of device memory, asked for one by one and several at once. */
#include <stdlib.h>

#include "tests/common/device.h"
#include "tests/common/say.h"

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
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
    };
    union value v[7];
    void *places[7];

    memset(v, 0, sizeof(v));
    for (int i = 0; i < 7; i++)
        places[i] = &v[i];
    say("%s: %d", what, (int)cuPointerGetAttributes(7, names, places, p));
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

int main(void)
{
    static char host[64];
    CUdeviceptr p, pitched, gone;
    size_t pitch;

    context = device_open();
    NEED(cuMemAlloc(&p, 5000));
    NEED(cuMemAllocPitch(&pitched, &pitch, 100, 10, 4));
    say_pointer_values(p, p, 5000);
    say_pointer_values(p, p + 4999, 5000);
    say_pointer_values(pitched, pitched + 5, pitch * 10);
    say_kind(p);
    several("several", p);
    several("several, inside", p + 100);
    several("several of host memory", (CUdeviceptr)(uintptr_t)host);
    mistakes(p);
    NEED(cuMemAlloc(&gone, 5000));
    NEED(cuMemFree(gone));
    several("several of freed memory", gone);
    SAY_CODE("one of freed memory",
             cuPointerGetAttribute(host, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, gone));
    NEED(cuMemFree(p));
    NEED(cuMemFree(pitched));
    return 0;
}
