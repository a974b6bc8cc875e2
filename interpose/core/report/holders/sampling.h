/* Which allocations count, where ALLOGRAFT_STACKS_SAMPLE asks for some of them only, and what one
 * that counts stands for.
 *
 * As tcmalloc does ("Sampling" of its design documents, google/tcmalloc docs/sampling.md): samples
 * are a Poisson process over the bytes allocated, one in `mean` bytes. The distance to the next one
 * is -ln(u) * mean, for u evenly distributed in (0, 1]. A block of s bytes thus counts with the
 * probability p = 1 - exp(-s / mean). It stands for 1 / p blocks and s / p bytes, which makes the
 * sums unbiased: p * (s / p) = s. */
#ifndef AG_SAMPLING_H
#define AG_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

/* One sample in `mean` bytes; 0: every block counts. */
void ag_sampling_configure(uint64_t mean);
uint64_t ag_sampling_mean(void);
/* The calling thread has allocated `bytes`: does that block count? */
bool ag_sampling_takes(uint64_t bytes);
/* What a block of `bytes` stands for: blocks, and by that number bytes. */
double ag_sampling_weight(uint64_t bytes);

#endif
