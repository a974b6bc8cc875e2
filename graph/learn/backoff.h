/* Back-off: when does a stream stop being sampled because replay gains nothing on it, and for how
 * long? Pure: operations are counted, no clock is read.
 *
 * A stream that is sampled has credit. Each operation costs 1, or 4 while its segment is too short
 * for any graph; each operation launched in a graph earns 8. Without credit the stream backs off:
 * its operations pass uninspected.
 * - The first sampling has 2048 of credit (so 512 operations where the host waits for each), a
 *   later one 512.
 * - A back-off lasts for a quarter of the operations since the stream last gained, at least 4096,
 *   at most 65536. Work that begins to repeat is therefore seen after 65536 operations at the
 *   latest.
 * - Sampling goes on where the stream repeats itself: rolling hashes of 16 operations come again
 *   at one distance, the period. It gets credit for four iterations of that period: history.c needs
 *   two or three to find an anchor, then segments must come often enough for graphs. A period that
 *   got its credit and gained nothing gets credit again only if it is twice as long, or short
 *   beside the back-off.
 * - Hashes are kept during a back-off, so iterations longer than one sampling are found, too.
 *
 * Why this is not the detector of history.c: see backoff.c. */
#ifndef AG_GRAPH_BACKOFF_H
#define AG_GRAPH_BACKOFF_H

#include <stdbool.h>
#include <stdint.h>

struct ag_backoff;

struct ag_backoff *ag_backoff_new(void); /* NULL without memory */
void ag_backoff_free(struct ag_backoff *backoff);
/* Allocates ahead of time what ag_backoff_new() hands out; a few at most. */
void ag_backoff_prepare(void);

/* Charges for one sampled operation, the `place`-th of its segment (from 1; 0: it cannot be
 * recorded). True: the stream should back off, if it withholds nothing. */
bool ag_backoff_sample(struct ag_backoff *backoff, uint64_t hash, uint32_t place);
/* `n_ops` operations were launched in a graph. */
void ag_backoff_gained(struct ag_backoff *backoff, uint32_t n_ops);
/* Sampling is worthwhile for another reason: full credit. */
void ag_backoff_refresh(struct ag_backoff *backoff);
/* The back-off begins. Returns its length in operations. */
uint32_t ag_backoff_begin(struct ag_backoff *backoff);
/* The back-off ends after `passed` operations. */
void ag_backoff_end(struct ag_backoff *backoff, uint32_t passed);

#endif
