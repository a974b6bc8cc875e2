/* Preloaded before Allograft: writes down what the program gets from dlsym for cu[A-Z]* names and
 * from cuGetProcAddress, as it gets it.
 *
 * OBSERVER_LOG=PATH: one line an answer: lookup path, name, version, flags, library (file name) and
 * symbol of what was returned, its offset in that library.
 * OBSERVER_NEXT=PATH: the library whose dlsym comes next; without it libc's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#define OBSERVER_EXPORT __attribute__((visibility("default")))

typedef void *(*dlsym_fn)(void *handle, const char *name);
typedef __typeof__(cuGetProcAddress) *ask_fn;
typedef __typeof__(cuGetProcAddress_v2) *ask_v2_fn;

static struct {
    dlsym_fn next;
    FILE *log;
    ask_fn ask;       /* what the program was to get as cuGetProcAddress */
    ask_v2_fn ask_v2; /* and as cuGetProcAddress_v2 */
} observer;

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static void write_down(const char *lookup, const char *name, int version, cuuint64_t flags,
                       void *got)
{
    Dl_info info = {.dli_fname = "-", .dli_sname = NULL};
    if (got != NULL && dladdr(got, &info) == 0)
        info.dli_fname = "-";
    const char *symbol = info.dli_saddr == got ? info.dli_sname : NULL;
    if (observer.log == NULL)
        observer.log = fopen(getenv("OBSERVER_LOG"), "w");
    if (observer.log == NULL)
        abort();
    fprintf(observer.log, "%s \"%s\" %d %llu %s %s %zx\n", lookup, name, version,
            (unsigned long long)flags, file_name(info.dli_fname), symbol != NULL ? symbol : "-",
            got != NULL ? (size_t)((char *)got - (char *)info.dli_fbase) : 0);
    (void)fflush(observer.log);
}

static void *stand_between(const char *name, void *got, int version);

static CUresult observed_ask(const char *name, void **pfn, int version, cuuint64_t flags)
{
    CUresult result = observer.ask(name, pfn, version, flags);
    write_down("get_proc_address", name, version, flags, *pfn);
    *pfn = stand_between(name, *pfn, version);
    return result;
}

static CUresult observed_ask_v2(const char *name, void **pfn, int version, cuuint64_t flags,
                                CUdriverProcAddressQueryResult *status)
{
    CUresult result = observer.ask_v2(name, pfn, version, flags, status);
    write_down("get_proc_address", name, version, flags, *pfn);
    *pfn = stand_between(name, *pfn, version);
    return result;
}

/* A look-up function is replaced by one of the above, so that the next look-up is seen too. */
static void *stand_between(const char *name, void *got, int version)
{
    if (got == NULL)
        return got;
    if (strcmp(name, "cuGetProcAddress_v2") == 0 ||
        (strcmp(name, "cuGetProcAddress") == 0 && version >= 12000)) {
        observer.ask_v2 = (ask_v2_fn)got;
        return (void *)observed_ask_v2;
    }
    if (strcmp(name, "cuGetProcAddress") == 0) {
        observer.ask = (ask_fn)got;
        return (void *)observed_ask;
    }
    return got;
}

/* libc's own, whatever stands between. */
static dlsym_fn find_libc_dlsym(void)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    for (size_t i = 0; i < sizeof(versions) / sizeof(*versions); i++) {
        dlsym_fn found = (dlsym_fn)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
        if (found != NULL)
            return found;
    }
    abort();
}

static dlsym_fn next_dlsym(void)
{
    if (observer.next != NULL)
        return observer.next;
    dlsym_fn found = find_libc_dlsym();
    const char *path = getenv("OBSERVER_NEXT");
    if (path != NULL) {
        void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
        if (library == NULL)
            abort();
        found = (dlsym_fn)found(library, "dlsym");
        if (found == NULL)
            abort();
    }
    observer.next = found;
    return found;
}

/* Other names leave by a tail call (this file is always optimised), as RTLD_NEXT needs it. */
OBSERVER_EXPORT void *dlsym(void *restrict handle, const char *restrict name)
{
    bool of_driver = name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
    dlsym_fn next = next_dlsym();
    if (!of_driver || handle == RTLD_NEXT || handle == RTLD_DEFAULT)
        return next(handle, name);
    void *got = next(handle, name);
    write_down("dlsym", name, 0, 0, got);
    return stand_between(name, got, 0);
}
