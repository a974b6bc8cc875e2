/* Reaches memory of the program's: see reach.h.
 *
 * A fault of a thread of ours would be one that the program cannot know: its handler would run in a
 * thread that it never made. madvise() gets the pages and says what a fault would have said. Memory
 * that is unmapped or protected between that and the copy faults here all the same; natively, such
 * a program races with the driver's own copy.
 *
 * madvise() takes a lock for each page, which all pages of 2 MiB share. Where a mapping is known to
 * be anonymous and allowed, it is enough that its pages are there, and mincore() says that at once.
 * What may yet forbid them to one thread, a protection key, holds for the whole mapping: one page
 * tells. A buffer may well be of several mappings: advice about a part of it, as numpy gives of all
 * pages but the first, makes two of one. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/copies/reach.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "interpose/core/base/advice.h"
#include "interpose/core/base/pages.h"
#include "interpose/core/base/threads/once.h"

#define MOST_PAGES 1024u
#define SAMPLES    8u

/* struct procmap_query of linux/fs.h, which older headers lack. */
struct mapping {
    uint64_t size, wanted, address;
    uint64_t start, end, flags, page_size, offset, inode;
    uint32_t device_major, device_minor, name_size, build_id_size;
    uint64_t name, build_id;
};
#define QUERY_MAPPING _IOWR('f', 17, struct mapping)
#define IS_READABLE   1u
#define IS_WRITABLE   2u

static uintptr_t page_size(void)
{
    return (uintptr_t)sysconf(_SC_PAGESIZE);
}

bool ag_reach_get(const void *memory, size_t bytes, bool for_writing)
{
    uintptr_t first = (uintptr_t)memory & ~(page_size() - 1);

    return !madvise((void *)first, (uintptr_t)memory + bytes - first,
                    for_writing ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

bool ag_reach_can(void)
{
    static _Atomic int state;
    int error = errno;
    size_t page;
    void *memory;

    if (ag_once_begin(&state)) {
        page = page_size();
        memory = ag_pages_get(page);
        ag_once_end(&state,
                    memory && ag_reach_get(memory, page, true) ? AG_ONCE_DONE : AG_ONCE_FAILED);
        if (memory)
            ag_pages_free(memory, page);
        errno = error;
    }
    return ag_once_is_done(&state);
}

/* The mapping that holds the address, of the file that lists them. */
static bool find_mapping(int maps, uintptr_t address, struct mapping *ret)
{
    *ret = (struct mapping){.size = sizeof(*ret), .address = address};
    return !ioctl(maps, QUERY_MAPPING, ret);
}

void ag_reach_look(struct ag_reach *ret, const void *memory, size_t bytes, bool for_writing)
{
    uintptr_t at = (uintptr_t)memory, end = at + bytes;
    uint64_t allowed = for_writing ? IS_WRITABLE : IS_READABLE;
    int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    struct mapping mapping;

    ret->n = 0;
    ret->for_writing = for_writing;
    if (maps < 0)
        return;
    for (unsigned i = 0; i < AG_REACH_PARTS && at < end && find_mapping(maps, at, &mapping); i++) {
        if (!mapping.inode && mapping.flags & allowed) {
            ret->parts[ret->n].begin = at;
            ret->parts[ret->n++].end = mapping.end;
        }
        at = mapping.end;
    }
    (void)close(maps);
}

/* Are the pages of one plain part's memory there? */
static bool is_present(uintptr_t at, size_t bytes, bool for_writing)
{
    uintptr_t page = page_size(), first = at & ~(page - 1);
    size_t length = at + bytes - first, n = (length + page - 1) / page;
    unsigned char is_there[MOST_PAGES];

    return n <= MOST_PAGES && ag_reach_get((const void *)at, 1, for_writing) &&
           !mincore((void *)first, length, is_there) && !memchr(is_there, 0, n);
}

bool ag_reach_is_present(const struct ag_reach *reach, const void *memory, size_t bytes)
{
    uintptr_t at = (uintptr_t)memory, end = at + bytes;

    for (unsigned i = 0; i < reach->n && at < end; i++) {
        uintptr_t part_end = reach->parts[i].end < end ? reach->parts[i].end : end;

        if (at >= reach->parts[i].end)
            continue;
        if (at < reach->parts[i].begin || !is_present(at, part_end - at, reach->for_writing))
            return false;
        at = part_end;
    }
    return at >= end;
}

bool ag_reach_may_touch(const struct ag_reach *reach)
{
    bool may = true;

    for (unsigned i = 0; i < reach->n && may; i++)
        may = ag_reach_get((const void *)reach->parts[i].begin, 1, reach->for_writing);
    return may;
}

bool ag_reach_seems_present(const void *memory, size_t bytes)
{
    uintptr_t page = page_size(), at;
    unsigned char is_there = 1;

    for (size_t i = 0; i < SAMPLES && is_there & 1; i++) {
        at = ((uintptr_t)memory + bytes / SAMPLES * i) & ~(page - 1);
        if (mincore((void *)at, page, &is_there))
            is_there = 0;
    }
    return is_there & 1;
}
