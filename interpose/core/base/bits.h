/* Functions of the bits of a word. */
#ifndef AG_BASE_BITS_H
#define AG_BASE_BITS_H

#include <stdint.h>

/* The place of the highest bit that is set; `value` is not 0. Written so that it is one
 * instruction. */
static inline unsigned ag_log2(uint64_t value)
{
    return (unsigned)__builtin_clzll(value) ^ 63u;
}

#endif
