/* Moves bytes: see move.h. */
#include "interpose/copies/move.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>

#include "interpose/core/base/threads/once.h"

#define LINE            ((size_t)64)
#define STRIDE          ((size_t)4096)
#define ABREAST         4u
#define FEATURES        7u /* the leaf of cpuid, and the bit of its ecx */
#define FEATURE_DEMOTES (1u << 25)

/* Four pages abreast: a processor fetches ahead within each of them, and one alone does not keep it
 * busy (Sapphire Rapids, one thread: 15 GB/s instead of 8). */
struct mover {
    void (*line)(unsigned char *to, const unsigned char *from);
    void (*pages)(unsigned char *to, const unsigned char *from);
};

static void stream_line(unsigned char *to, const unsigned char *from)
{
    const __m128i *in = (const __m128i *)(const void *)from;
    __m128i *out = (__m128i *)(void *)to;
    __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
    __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);

    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
}

static void stream_pages(unsigned char *to, const unsigned char *from)
{
    for (size_t at = 0; at < STRIDE; at += LINE)
        for (size_t page = 0; page < ABREAST; page++)
            stream_line(to + page * STRIDE + at, from + page * STRIDE + at);
}

/* Each line at once: all of them at the end took a fifth longer (Emerald Rapids). A device reads a
 * line that a processor still has to itself at less than half of the bus's rate. */
__attribute__((target("cldemote"))) static void share_line(unsigned char *to,
                                                           const unsigned char *from)
{
    const __m128i *in = (const __m128i *)(const void *)from;
    __m128i *out = (__m128i *)(void *)to;
    __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
    __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);

    _mm_store_si128(out, a);
    _mm_store_si128(out + 1, b);
    _mm_store_si128(out + 2, c);
    _mm_store_si128(out + 3, d);
    _cldemote(to);
}

__attribute__((target("cldemote"))) static void share_pages(unsigned char *to,
                                                            const unsigned char *from)
{
    for (size_t at = 0; at < STRIDE; at += LINE)
        for (size_t page = 0; page < ABREAST; page++)
            share_line(to + page * STRIDE + at, from + page * STRIDE + at);
}

static void move_by(const struct mover *mover, void *to, const void *from, size_t bytes)
{
    size_t before = (LINE - ((uintptr_t)to & (LINE - 1))) & (LINE - 1);
    size_t at = before < bytes ? before : bytes;
    unsigned char *target = to;
    const unsigned char *source = from;

    memcpy(target, source, at);
    for (; bytes - at >= ABREAST * STRIDE; at += ABREAST * STRIDE)
        mover->pages(target + at, source + at);
    for (; bytes - at >= LINE; at += LINE)
        mover->line(target + at, source + at);
    _mm_sfence();
    memcpy(target + at, source + at, bytes - at);
}

void ag_move_past_cache(void *to, const void *from, size_t bytes)
{
    static const struct mover streaming = {stream_line, stream_pages};

    move_by(&streaming, to, from, bytes);
}

/* Asked once: inside a virtual machine the question takes some 20 us. */
bool ag_move_can_share(void)
{
    static _Atomic int state;
    unsigned a, b, c = 0, d;

    if (ag_once_begin(&state))
        ag_once_end(&state, __get_cpuid_count(FEATURES, 0, &a, &b, &c, &d) && c & FEATURE_DEMOTES
                                ? AG_ONCE_DONE
                                : AG_ONCE_FAILED);
    return ag_once_is_done(&state);
}

void ag_move_to_shared_cache(void *to, const void *from, size_t bytes)
{
    static const struct mover sharing = {share_line, share_pages};

    if (ag_move_can_share())
        move_by(&sharing, to, from, bytes);
    else
        ag_move_past_cache(to, from, bytes);
}
#else
void ag_move_past_cache(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

bool ag_move_can_share(void)
{
    return false;
}

void ag_move_to_shared_cache(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}
#endif
