/* preload.c: puts the library in front of what LD_PRELOAD names already. */
#include "tools/base/complain.h"
#include "tools/run/environment.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool preload_can_name(const char *library)
{
    return !strpbrk(library, ": ");
}

/* 0, or why there is no header to be read; -ENOEXEC where the file is none of code. */
static int read_elf_header(const char *path, Elf64_Ehdr *ret)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : pread(fd, ret, sizeof(*ret), 0);
    int error = n < 0 ? errno : 0;

    if (fd >= 0)
        close(fd);
    if (!error && (n < (ssize_t)sizeof(*ret) || memcmp(ret->e_ident, ELFMAG, SELFMAG) != 0))
        error = ENOEXEC;
    return -error;
}

/* Why the loader would leave the library out, which it says and goes on without; NULL: nothing is
 * known of it. */
static const char *fault_of_library(const char *library)
{
    Elf64_Ehdr header = {0}, own = {0};
    int error = read_elf_header(library, &header);

    if (error == -ENOEXEC || (!error && header.e_type != ET_DYN))
        return "it is no shared library";
    if (error)
        return strerror(-error);
    if (!read_elf_header("/proc/self/exe", &own) && header.e_machine != own.e_machine)
        return "it is for another kind of processor";
    return NULL;
}

int preload_check(const char *library)
{
    const char *fault = preload_can_name(library) ? fault_of_library(library) : PRELOAD_CANNOT_NAME;

    if (!fault)
        return STATUS_OK;
    command_complain("%s: %s", library, fault);
    return STATUS_FAILED;
}

int preload_library(const char *library)
{
    const char *old = getenv("LD_PRELOAD");
    size_t length = strlen(library);
    char *joined;
    int failed;

    if (preload_check(library) != STATUS_OK)
        return STATUS_FAILED;
    if (!old || !*old)
        return setenv("LD_PRELOAD", library, 1) ? STATUS_FAILED : STATUS_OK;
    if (!strncmp(old, library, length) && (!old[length] || strchr(": ", old[length])))
        return STATUS_OK;
    if (asprintf(&joined, "%s:%s", library, old) < 0)
        return STATUS_FAILED;
    failed = setenv("LD_PRELOAD", joined, 1);
    free(joined);
    return failed ? STATUS_FAILED : STATUS_OK;
}
