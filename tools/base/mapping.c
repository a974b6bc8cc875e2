/* mapping.c: maps files, and survives when their pages go away: see mapping.h.
 *
 * Reading a page that is gone raises SIGBUS. The handler maps a page of zeros there and makes a
 * note of it: the instruction continues, and mapping_is_torn() tells the reader later. systemd
 * reads its journal in the same way. The command has one thread. */
#include "tools/base/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_FILES 32 /* mapped at once */

static struct {
    volatile uintptr_t begin, end;
    volatile sig_atomic_t torn;
} slots[MOST_FILES];

static uintptr_t page_bytes;

/* A fault outside our mappings ends the process, as it would without this handler. */
static void handle_fault(int signal, siginfo_t *info, void *context)
{
    uintptr_t at = (uintptr_t)info->si_addr;
    int error = errno;

    (void)context;
    for (int i = 0; i < MOST_FILES; i++) {
        if (at < slots[i].begin || at >= slots[i].end)
            continue;
        slots[i].torn = 1;
        if (mmap((void *)(at & ~(page_bytes - 1)), page_bytes, PROT_READ,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
            break;
        errno = error;
        return;
    }
    (void)sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
}

static void install(void)
{
    const struct sigaction action = {.sa_sigaction = handle_fault, .sa_flags = SA_SIGINFO};

    if (page_bytes)
        return;
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    (void)sigaction(SIGBUS, &action, NULL);
}

static int unused_slot(void)
{
    for (int i = 0; i < MOST_FILES; i++) {
        if (!slots[i].begin)
            return i;
    }
    return -EMFILE;
}

int mapping_begin(struct mapping *ret, int fd)
{
    struct mapping mapping = {.bytes = NULL, .fd = -1, .slot = unused_slot()};
    struct stat st;
    void *mapped;
    int error;

    if (fstat(fd, &st))
        return -errno;
    if (st.st_size <= 0) {
        *ret = mapping;
        return 0;
    }
    if (mapping.slot < 0)
        return mapping.slot;
    install();
    mapping.n = (size_t)st.st_size;
    mapping.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    mapped = mapping.fd < 0 ? MAP_FAILED : mmap(NULL, mapping.n, PROT_READ, MAP_PRIVATE, fd, 0);
    if (mapped == MAP_FAILED) {
        error = errno;
        if (mapping.fd >= 0)
            close(mapping.fd);
        return -error;
    }
    mapping.bytes = mapped;
    slots[mapping.slot].torn = 0;
    slots[mapping.slot].end = (uintptr_t)mapped + mapping.n;
    slots[mapping.slot].begin = (uintptr_t)mapped;
    *ret = mapping;
    return 0;
}

bool mapping_is_torn(const struct mapping *mapping)
{
    struct stat st;

    /* Within the last page, bytes after the end of a file read as zeros without a signal. */
    return mapping->bytes &&
           (slots[mapping->slot].torn || fstat(mapping->fd, &st) || st.st_size < (off_t)mapping->n);
}

void mapping_end(struct mapping *mapping)
{
    if (!mapping->bytes)
        return;
    slots[mapping->slot].begin = slots[mapping->slot].end = 0;
    (void)munmap((void *)(uintptr_t)mapping->bytes, mapping->n);
    close(mapping->fd);
    mapping->bytes = NULL;
}
