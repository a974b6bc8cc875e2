/* Programs that print from the device, wait by freeing something, and print from the host. */
#include "tests/common/device.h"
#include "tests/common/say.h"

/* A fat binary with one entry: PTX, or a cubin. */
static void load(uint16_t kind, uint64_t flags)
{
    static uint64_t image[16] = {0, 112};
    CUmodule module;

    image[0] = 0xba55ed50u | (uint64_t)1 << 32 | (uint64_t)16 << 48;
    image[2] = kind | (uint64_t)64 << 32;
    image[3] = 48; /* bytes of code, behind 64 of the entry's header */
    image[7] = flags;
    OK(cuModuleLoadData(&module, image));
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "ptx";
    CUdeviceptr p, other;
    CUstream stream;

    device_open();
    load(strcmp(way, "ptx") ? 2 : 1, strcmp(way, "ptx") ? 0x11 : 0x8011);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&p, 4096));
    OK(cuMemAlloc(&other, 4096));
    OK(cuMemFree(other));
    for (uint32_t i = 0; i < 10; i++) {
        OK(cuMemAlloc(&other, 4096));
        launch_fill(stream, p, 1000, i);
        if (strcmp(way, "ptx") == 0)
            launch_speak(stream, i);
        OK(cuMemFree(other));
        say("host: %u", i);
    }
    return 0;
}
