/* Address ranges, pitches and memory figures as the program sees them. */
#include "tests/common/device.h"
#include "tests/common/say.h"

#define MIB ((size_t)1 << 20)

static void say_range(const char *what, CUdeviceptr start, CUdeviceptr p)
{
    CUdeviceptr base = 1;
    size_t size = 1;
    CUresult code = cuMemGetAddressRange(&base, &size, p);

    say("%s: %d size %zu base %s", what, (int)code, size, base == start ? "right" : "other");
}

static void ranges(size_t asked)
{
    CUdeviceptr p, base = 0;
    size_t size = 0;

    NEED(cuMemAlloc(&p, asked));
    say("asked %zu", asked);
    say_range("    at the start", p, p);
    say_range("    inside", p, p + asked / 2);
    say_range("    at the last byte", p, p + asked - 1);
    SAY_CODE("    base only", cuMemGetAddressRange(&base, NULL, p));
    SAY_CODE("    size only", cuMemGetAddressRange(NULL, &size, p));
    say("    base %s, size %zu", base == p ? "right" : "wrong", size);
    SAY_CODE("    neither", cuMemGetAddressRange(NULL, NULL, p));
    say("    aligned to 256: %d", p % 256 == 0);
    NEED(cuMemFree(p));
    SAY_CODE("    after the free", cuMemGetAddressRange(&base, &size, p));
}

/* A freed block of another size is often handed out again: the new size must show, not the old. */
static void reuse_shows_new_size(void)
{
    CUdeviceptr p;

    for (size_t size = 5000; size > 4990; size--) {
        NEED(cuMemAlloc(&p, size));
        say_range("reused", p, p + size - 1);
        NEED(cuMemFree(p));
    }
}

static void pitched(size_t width, size_t height, unsigned element)
{
    CUdeviceptr p = 77;
    size_t pitch = 77;
    CUresult code = cuMemAllocPitch(&p, &pitch, width, height, element);

    say("pitched %zu x %zu by %u: %d pitch %zu", width, height, element, (int)code, pitch);
    if (code != CUDA_SUCCESS) {
        say("    pointer %s", p == 77 ? "untouched" : "written");
        return;
    }
    say_range("    at the start", p, p);
    say_range("    at the last byte", p, p + pitch * height - 1);
    SAY_CODE("    free", cuMemFree(p));
}

/* Free memory falls by what is taken and comes back; of a pool's own rounding nothing may show
 * that a program could take for a leak. */
static void figures(void)
{
    CUdeviceptr p[4];
    size_t before, during, after, total, total_after;

    NEED(cuMemAlloc(&p[0], MIB));
    NEED(cuMemFree(p[0]));
    NEED(cuMemGetInfo(&before, &total));
    for (int i = 0; i < 4; i++)
        NEED(cuMemAlloc(&p[i], 16 * MIB));
    NEED(cuMemGetInfo(&during, &total_after));
    say("64 MiB taken: falls enough %d, not too much %d", before - during >= 64 * MIB,
        before - during <= 72 * MIB);
    for (int i = 0; i < 4; i++)
        NEED(cuMemFree(p[i]));
    NEED(cuMemGetInfo(&after, &total_after));
    say("given back: %d", after + 2 * MIB >= before && after <= before + 2 * MIB);
    say("total stays: %d", total == total_after);
    SAY_CODE("info, free only", cuMemGetInfo(&after, NULL));
    SAY_CODE("info, total only", cuMemGetInfo(NULL, &total));
}

/* What cuMemGetInfo calls free can be had: blocks kept for reuse must make room. */
static void all_that_is_free(void)
{
    CUdeviceptr p;
    size_t free_bytes, total;

    for (size_t size = MIB; size <= 64 * MIB; size *= 2) {
        NEED(cuMemAlloc(&p, size));
        NEED(cuMemFree(p));
    }
    NEED(cuMemGetInfo(&free_bytes, &total));
    SAY_CODE("most of it in one piece", cuMemAlloc(&p, free_bytes - 32 * MIB));
    SAY_CODE("    free", cuMemFree(p));
    SAY_CODE("more than all", cuMemAlloc(&p, total + MIB));
}

int main(void)
{
    static const size_t sizes[] = {1, 255, 256, 257, 4096, 1000000, 1 << 20, (3 << 20) + 1};

    device_open();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        ranges(sizes[i]);
    reuse_shows_new_size();
    pitched(1, 1, 4);
    pitched(100, 7, 4);
    pitched(513, 3, 8);
    pitched(2000, 100, 16);
    pitched(0, 4, 4);
    pitched(4, 0, 4);
    pitched(100, 7, 3);
    pitched((size_t)1 << 40, (size_t)1 << 20, 4);
    figures();
    all_that_is_free();
    return 0;
}
