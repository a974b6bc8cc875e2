/* locale NAME: a program that speaks the user's language allocates a little. */
#include <locale.h>
#include <strings.h>

#include <cuda.h>

#include "tests/common/context.h"
#include "tests/common/say.h"

int main(int argc, char **argv)
{
    CUdeviceptr p;

    OK(argc != 2 || !setlocale(LC_ALL, argv[1]));
    (void)context_open();
    for (int i = 0; i < 3; i++) {
        OK(cuMemAlloc(&p, 1500000));
        OK(cuMemFree(p));
    }
    say("the point: %.1f, capital I: %d", 0.5, strcasecmp("I", "i"));
    return 0;
}
