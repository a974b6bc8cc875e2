/* A program whose allocations are walked: see walk.py. It runs by itself as well, and says nothing
 * then. */
#include "tests/common/check.h"
#include "tests/common/device.h"

#define MIB ((size_t)1 << 20)

/* Of recorder.c; not there without the library that is instrumented. */
void walk_begin(void);
void walk_end(const char *name);
#pragma weak walk_begin
#pragma weak walk_end

/* One place calls, as in a loop: who calls from another place is looked up once. */
__attribute__((noinline, noclone)) static CUresult allocate(CUdeviceptr *address, size_t bytes)
{
    CUresult result = cuMemAlloc_v2(address, bytes);

    __asm__ volatile("" ::: "memory"); /* no jump: then its own caller would be the one */
    return result;
}

/* `name`: what it is walked as; NULL: it is not. */
static CUdeviceptr take(size_t bytes, const char *name)
{
    CUdeviceptr address = 0;
    CUresult result;

    if (name && walk_begin)
        walk_begin();
    result = allocate(&address, bytes);
    if (name && walk_end)
        walk_end(name);
    OK(result);
    return address;
}

static void give_back(CUdeviceptr address)
{
    OK(cuMemFree_v2(address));
}

int main(void)
{
    device_open();
    give_back(take(256 * MIB, NULL)); /* goes back to the driver: nothing was freed before */
    /* More than are timed one by one (interpose/core/report/timing.h). */
    for (int i = 0; i < 400; i++)
        give_back(take(MIB, NULL));
    /* Many, since one of some is timed. */
    for (int i = 0; i < 64; i++)
        give_back(take(MIB, "hit"));
    /* The program has had more at a time than it has in what follows, and has some. */
    give_back(take(128 * MIB, NULL));
    (void)take(64 * MIB, NULL);
    (void)take(5 * MIB, "native");
    (void)take(200 * MIB, "peak");
    return 0;
}
