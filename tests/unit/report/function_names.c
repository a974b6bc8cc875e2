/* report/errors/function_names.c: a function's name, by its handle; the later one of two. */
#include <stdint.h>
#include <string.h>

#include "interpose/core/report/errors/function_names.h"
#include "tests/common/check.h"

#define N 4096u

static char long_name[300], buffer[256];

static const void *handle(uintptr_t n)
{
    return (const void *)(0x563891e00000 + n * 0x40);
}

static const char *name_of(const void *function)
{
    return ag_function_name(function, buffer, sizeof(buffer));
}

int main(void)
{
    unsigned known = 0;

    CHECK(!strcmp(name_of(handle(1)), ""));
    ag_function_note(handle(1), "fill");
    ag_function_note(handle(2), "add");
    CHECK(!strcmp(name_of(handle(1)), "fill"));
    CHECK(!strcmp(name_of(handle(2)), "add"));
    ag_function_note(handle(1), "another module's");
    CHECK(!strcmp(name_of(handle(1)), "another module's"));

    memset(long_name, 'x', sizeof(long_name) - 1);
    ag_function_note(handle(3), long_name);
    CHECK(strlen(name_of(handle(3))) == 119);
    CHECK(strlen(ag_function_name(handle(3), buffer, 8)) == 7);

    /* More than there are rows for: none has another's name, and the last one is there. */
    for (unsigned i = 0; i < N; i++) {
        char name[16] = {(char)('a' + i % 16), (char)('a' + i / 16 % 16), (char)('a' + i / 256)};

        ag_function_note(handle(i), name);
        CHECK(!strcmp(name_of(handle(i)), name));
    }
    for (unsigned i = 0; i < N; i++) {
        const char *name = name_of(handle(i));

        known += *name != '\0';
        CHECK(!*name || (name[0] == (char)('a' + i % 16) && name[1] == (char)('a' + i / 16 % 16) &&
                         name[2] == (char)('a' + i / 256)));
    }
    CHECK(known > N / 16);
    return 0;
}
