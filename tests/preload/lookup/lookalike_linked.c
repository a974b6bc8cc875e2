/* Linked with a library that only looks like the driver, in a process without the driver. */
#include "tests/common/say.h"

extern int cuMemAlloc_v2(void);
extern int cuMemGetInfo_v2(void);

int main(void)
{
    say("cuMemAlloc_v2 says %d", cuMemAlloc_v2());
    say("cuMemGetInfo_v2 says %d", cuMemGetInfo_v2());
    return 0;
}
