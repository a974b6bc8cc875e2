/* When does a stream's stream get out of the way because nothing comes of looking on, and for how
 * long? Pure: operations are counted, no clock is read.
 *
 * A stream that looks on has credit. Each operation takes 1 of it, or 4 while its segment is
 * shorter than any graph; each that is launched in a graph gives 8 back. Without credit the stream
 * sleeps:
 * - the first look is 2048 operations (512 where the host waits for each), a later one 512 (128);
 * - it sleeps for a quarter of the operations since it last gained something, at least 4096, at
 * most 65536. So work that begins to repeat is looked at again after that at the latest;
 * - a look goes on where the stream repeats itself: contexts, hashes of 16 operations in a row,
 * come again at one distance. It gets the time for four rounds of it, since history.c needs two or
 * three and graphs some more. What was found so and came to nothing gets it again only if twice as
 * long, or short beside the sleep. Contexts are kept while it sleeps, so rounds longer than a look
 * are met, too. */
#ifndef AG_GRAPH_BACKOFF_H
#define AG_GRAPH_BACKOFF_H

#include <stdbool.h>
#include <stdint.h>

/* Operations of a segment that becomes a graph: fewer are as fast one by one. */
#define AG_BACKOFF_LEAST 4u

struct ag_backoff;

struct ag_backoff *ag_backoff_new(void); /* NULL without memory */
void ag_backoff_free(struct ag_backoff *backoff);
/* Makes what the next ag_backoff_new() hands out; a few at most. */
void ag_backoff_prepare(void);

/* An operation was looked at, the `place`-th of its segment (from 1; 0: it cannot be recorded).
 * True: the stream should sleep, if it withholds nothing. */
bool ag_backoff_sample(struct ag_backoff *backoff, uint64_t hash, uint32_t place);
/* So many were launched in a graph. */
void ag_backoff_gained(struct ag_backoff *backoff, uint32_t n_ops);
/* Looking on is worth while for other reasons. */
void ag_backoff_refresh(struct ag_backoff *backoff);
/* It falls asleep: for how many operations? */
uint32_t ag_backoff_begin(struct ag_backoff *backoff);
/* It wakes after `passed` operations. */
void ag_backoff_end(struct ag_backoff *backoff, uint32_t passed);

#endif
