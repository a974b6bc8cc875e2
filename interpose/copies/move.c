/* Moves bytes: see move.h.
 *
 * A fault of a thread of ours would be one that the program cannot know: its handler would run in a
 * thread that it never made. madvise() gets the pages and says what a fault would have said. Memory
 * that is unmapped or protected between that and the copy faults here all the same; natively, such
 * a program races with the driver's own copy. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/copies/move.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "interpose/core/base/pages.h"
#include "interpose/core/base/threads/once.h"

#ifdef __x86_64__
#include <emmintrin.h>
#endif

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

bool ag_move_reach(const void *memory, size_t bytes, bool for_writing)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)memory & ~(page - 1);

    return !madvise((void *)first, (uintptr_t)memory + bytes - first,
                    for_writing ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

bool ag_move_can_reach(void)
{
    static _Atomic int state;
    size_t page;
    void *memory;

    if (ag_once_begin(&state)) {
        page = (size_t)sysconf(_SC_PAGESIZE);
        memory = ag_pages_get(page);
        ag_once_end(&state,
                    memory && ag_move_reach(memory, page, true) ? AG_ONCE_DONE : AG_ONCE_FAILED);
        if (memory)
            ag_pages_free(memory, page);
    }
    return ag_once_is_done(&state);
}

#ifdef __x86_64__
/* Bytes before the first address from `to` on that streaming stores can have. */
static size_t to_alignment(const void *to, size_t bytes)
{
    size_t before = (16 - ((uintptr_t)to & 15)) & 15;

    return before < bytes ? before : bytes;
}

void ag_move_bytes(void *to, const void *from, size_t bytes)
{
    size_t at = to_alignment(to, bytes);
    unsigned char *target = to;
    const unsigned char *source = from;

    memcpy(target, source, at);
    for (; bytes - at >= 64; at += 64) {
        const __m128i *in = (const __m128i *)(const void *)(source + at);
        __m128i *out = (__m128i *)(void *)(target + at);
        __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
        __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);

        _mm_stream_si128(out, a);
        _mm_stream_si128(out + 1, b);
        _mm_stream_si128(out + 2, c);
        _mm_stream_si128(out + 3, d);
    }
    _mm_sfence();
    memcpy(target + at, source + at, bytes - at);
}
#else
void ag_move_bytes(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}
#endif
