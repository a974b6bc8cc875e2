/* The calls of workload.h in a program built with AddressSanitizer; `overflow`: then an error of
 * its own that the sanitizer finds. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

int lookup_main(int argc, char **argv);

#define main lookup_main
#include "tests/preload/lookup/lookup_get_proc.c"
#undef main

int main(int argc, char **argv)
{
    static char legacy[] = "legacy";
    char *words[] = {argv[0], legacy, NULL};
    int status = lookup_main(2, words);
    volatile int end = 10; /* more than the compiler can see */
    volatile char *own = malloc(10);

    if (argc > 1 && !strcmp(argv[1], "overflow"))
        own[end] = 1;
    free((void *)own);
    return status;
}
