/* The buffer id tells a library that keeps registrations whether an address is still the same
 * allocation: it never comes back in the life of a process. */
#include "tests/common/device.h"
#include "tests/common/say.h"

#define ITERATIONS 20

static unsigned long long id_of(CUdeviceptr p)
{
    unsigned long long id = 0;

    OK(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
    return id;
}

int main(void)
{
    unsigned long long seen[ITERATIONS];
    CUdeviceptr p;
    int repeated = 0;

    device_open();
    for (int i = 0; i < ITERATIONS; i++) {
        OK(cuMemAlloc(&p, 1 << 20));
        seen[i] = id_of(p);
        if (id_of(p + 100) != seen[i])
            say("another id inside the same allocation");
        for (int j = 0; j < i; j++)
            repeated += seen[j] == seen[i];
        OK(cuMemFree(p));
    }
    say("ids that came back: %d", repeated);
    return 0;
}
