/* Walks the calling thread's stack: the return addresses of who called.
 *
 * By the call frame information of each library (frame_rule.h), which tells of code with and
 * without frame pointers; code of which nothing is said is taken to have them, as code generators'
 * mostly has. No address outside of the thread's stack is read, whatever lies in it. Takes no lock
 * but the loader's for its count of libraries, and gets no memory, once a thread has walked. */
#ifndef AG_STACK_WALK_H
#define AG_STACK_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/base/loaded.h"

/* A frame: where in which library. Module 0: in none, and the offset is the address. */
#define AG_FRAME_OFFSET_BITS 48
#define AG_FRAME_MODULES     1024u /* numbers of modules are below */

static inline uint64_t ag_frame(unsigned module, uint64_t offset)
{
    return (uint64_t)module << AG_FRAME_OFFSET_BITS | offset;
}
static inline unsigned ag_frame_module(uint64_t frame)
{
    return (unsigned)(frame >> AG_FRAME_OFFSET_BITS);
}
static inline uint64_t ag_frame_offset(uint64_t frame)
{
    return frame & ((1ull << AG_FRAME_OFFSET_BITS) - 1);
}

/* Where a walk begins. */
struct ag_walk_start {
    uintptr_t place; /* a return address */
    uintptr_t stack; /* the stack pointer after the return there */
    uintptr_t frame; /* the frame pointer then */
};

struct ag_walk {
    unsigned n;       /* frames */
    bool is_cut;      /* there are more, or nobody can tell */
    uint64_t changes; /* ag_loaded_changes() when it began */
};

/* What numbers a library that is met for the first time: 1 to AG_FRAME_MODULES - 1, or 0 for no
 * room. Numbers of libraries that are gone are never given again. Everything known before is
 * forgotten. */
void ag_walk_begin(unsigned (*number_of)(const struct ag_loaded *loaded));

/* The frames of the calling thread, from the caller of this function outwards. `most` frames, not
 * counting the first ones, which lie in the module `skip` (0: count all). */
struct ag_walk ag_walk(unsigned skip, uint64_t *ret_frames, unsigned most);

/* Walks from `start`, on a stack of which [low, high) may be read. */
struct ag_walk ag_walk_from(const struct ag_walk_start *start, uintptr_t low, uintptr_t high,
                            unsigned skip, uint64_t *ret_frames, unsigned most);

#endif
