/* A program whose allocations are known exactly, so that the report can be checked to the byte. */
#include "tests/gpu/check.h"

#include "tests/common/context.h"

int main(void)
{
    static const size_t sizes[] = {1, 512, 513, 65536, 1 << 20, 3 * (1 << 20) + 1, 64 << 20};
    CUdeviceptr all[7];

    (void)context_open();
    for (int i = 0; i < 7; i++)
        OK(cuMemAlloc(&all[i], sizes[i]));
    for (int i = 1; i < 6; i++)
        OK(cuMemFree(all[i]));
    printf("7 taken, 5 freed\n");
    return 0;
}
