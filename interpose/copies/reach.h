/* Can threads of ours touch memory of the program's without a fault that the program would see? */
#ifndef AG_COPIES_REACH_H
#define AG_COPIES_REACH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Can the kernel get pages for us without a fault (Linux 5.14)? Asks it once. */
bool ag_reach_can(void);
/* The parts of some memory that are plain: of one anonymous mapping each, which may be read, or
 * written. The first few; by their addresses. */
#define AG_REACH_PARTS 8u
struct ag_reach {
    unsigned n;
    bool for_writing;
    struct {
        uintptr_t begin, end;
    } parts[AG_REACH_PARTS];
};

/* Finds them, as far as the kernel says so cheaply (Linux 6.11). Opens a file; changes errno. */
void ag_reach_look(struct ag_reach *ret, const void *memory, size_t bytes, bool for_writing);
/* Does this memory lie in plain parts, are all its pages there, and may this thread touch them?
 * Takes a tenth of the time of ag_reach_get(). Changes errno. */
bool ag_reach_is_present(const struct ag_reach *reach, const void *memory, size_t bytes);
/* May this thread touch those parts, as far as the rights to them go? Changes errno. */
bool ag_reach_may_touch(const struct ag_reach *reach);
/* Are the pages there, as far as a few of them say? Nobody checks that they may be touched. Changes
 * errno. */
bool ag_reach_seems_present(const void *memory, size_t bytes);
/* Gets the pages of `bytes` at `memory`, for reading or for writing. False: some cannot be touched,
 * or not in that way; then whoever touches them faults, which must be the thread that the program
 * called from. Changes errno. */
bool ag_reach_get(const void *memory, size_t bytes, bool for_writing);

#endif
