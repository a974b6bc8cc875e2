/* Stands before the C library's mmap: anonymous mappings that Allograft asks for fail, from the
 * FAIL_MMAP-th on; with FAIL_MMAP_ONCE only so many of them. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Atomic long n_mappings;

/* Mappings made so far, for who asks "how many are there to fail?", into the file
 * FAIL_MMAP_COUNT. */
__attribute__((destructor)) static void tell(void)
{
    const char *path = getenv("FAIL_MMAP_COUNT");
    FILE *file = path ? fopen(path, "w") : NULL;

    if (file) {
        fprintf(file, "%ld\n", n_mappings);
        fclose(file);
    }
}

static int is_allograft(const void *address)
{
    Dl_info info;

    return dladdr(address, &info) && info.dli_fname && strstr(info.dli_fname, "liballograft");
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    if (flags & MAP_ANONYMOUS && is_allograft(__builtin_return_address(0))) {
        const char *text = getenv("FAIL_MMAP"), *times = getenv("FAIL_MMAP_ONCE");
        long n = ++n_mappings, fails = text ? atol(text) : 0;

        if (fails && n >= fails && (!times || n < fails + atol(times))) {
            errno = ENOMEM;
            return MAP_FAILED;
        }
    }
    return (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
}
