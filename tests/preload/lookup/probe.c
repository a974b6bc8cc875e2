/* A library of which several copies are loaded: says what RTLD_NEXT and RTLD_DEFAULT mean to it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

/* PROBE_NAME, one letter, and PROBE_SYMBOL(x), x with that letter behind it, come from the build.
 */
#define JOIN2(a, b) a##b
#define JOIN(a, b)  JOIN2(a, b)
#define TEXT2(a)    #a
#define TEXT(a)     TEXT2(a)

__attribute__((visibility("default"))) char probe(void);
__attribute__((visibility("default"))) char JOIN(probe_next_, PROBE_NAME)(void);
__attribute__((visibility("default"))) char JOIN(probe_default_, PROBE_NAME)(void);
__attribute__((visibility("default"))) int JOIN(probe_own_, PROBE_NAME)(void);

static char ask(char (*found)(void))
{
    return found != NULL ? found() : '-';
}

/* This library's letter; every copy defines the same symbol. */
char probe(void)
{
    return TEXT(PROBE_NAME)[0];
}

/* The letter of the library that comes after this one in the search order. */
char JOIN(probe_next_, PROBE_NAME)(void)
{
    return ask((char (*)(void))dlsym(RTLD_NEXT, "probe"));
}

/* The letter of the library that this one's own search order begins with. */
char JOIN(probe_default_, PROBE_NAME)(void)
{
    return ask((char (*)(void))dlsym(RTLD_DEFAULT, "probe"));
}

/* A symbol that a library loaded with RTLD_LOCAL sees only by its own scope. */
int JOIN(probe_own_, PROBE_NAME)(void)
{
    return dlsym(RTLD_DEFAULT, "probe_own_" TEXT(PROBE_NAME)) != NULL;
}
