/* The hashes of our tables: words by Fibonacci hashing, bytes by FNV-1a. Not for what an attacker
 * chooses. */
#ifndef AG_BASE_HASH_H
#define AG_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define AG_HASH_FNV 0xcbf29ce484222325u /* what ag_hash_bytes() begins with */

/* Spreads `word` over 64 bits, of which the upper ones are the good ones: a table with 2^n entries
 * takes `>> (64 - n)`. */
static inline uint64_t ag_hash_spread(uint64_t word)
{
    return word * 0x9e3779b97f4a7c15u; /* 2^64 / the golden ratio */
}

/* `hash` of some words, continued by one more. */
static inline uint64_t ag_hash_word(uint64_t hash, uint64_t word)
{
    return ag_hash_spread(hash ^ word);
}

/* The entry of `key` in a table of `capacity`, a power of two. */
static inline size_t ag_hash_entry(uint64_t key, size_t capacity)
{
    return (size_t)(ag_hash_spread(key) >> 32) & (capacity - 1);
}

/* `hash` of some bytes, continued by `n` more. */
static inline uint64_t ag_hash_bytes(uint64_t hash, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
    return hash;
}

#endif
