/* The calls of workload.h in a program built with AddressSanitizer; `overflow`: then an error of
 * its own that the sanitizer finds. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

int door_main(int argc, char **argv);

#define main door_main
#include "tests/preload/lookup/door_get_proc.c"
#undef main

int main(int argc, char **argv)
{
    static char legacy[] = "legacy";
    char *words[] = {argv[0], legacy, NULL};
    int status = door_main(2, words);
    volatile int end = 10; /* more than the compiler can see */
    volatile char *own = malloc(10);

    if (argc > 1 && !strcmp(argv[1], "overflow"))
        own[end] = 1;
    free((void *)own);
    return status;
}
