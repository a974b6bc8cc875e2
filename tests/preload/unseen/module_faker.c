/* Says of kernel modules that they are loaded: those that FAKE_MODULES names, with a blank before
 * and after each, and no others. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODULES "/sys/module/"

__attribute__((visibility("default"))) int access(const char *path, int mode);

int access(const char *path, int mode)
{
    const char *loaded = getenv("FAKE_MODULES");
    static int (*real)(const char *, int);
    char name[80];

    if (!loaded || strncmp(path, "/sys/module", strlen("/sys/module"))) {
        if (!real)
            *(void **)&real = dlsym(RTLD_NEXT, "access");
        return real(path, mode);
    }
    if (strncmp(path, MODULES, strlen(MODULES)))
        return 0;
    snprintf(name, sizeof(name), " %s ", path + strlen(MODULES));
    if (strstr(loaded, name))
        return 0;
    errno = ENOENT;
    return -1;
}
