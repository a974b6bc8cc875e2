/* The end of a segment: submitted as a graph or one by one, learnt, built. The stream is owned and
 * its context current in every function here. */
#ifndef AG_GRAPH_SEGMENT_H
#define AG_GRAPH_SEGMENT_H

#include <stdbool.h>

#include "graph/replayer.h"

struct ag_stream;
struct ag_options;

void ag_segment_configure(const struct ag_options *options);
/* Bytes of the devices' memory that all graphs take. */
uint64_t ag_segment_bytes(void);
/* The first operation on the stream that is inspected: allocates what recording needs. False
 * without memory. */
bool ag_segment_init_resources(struct ag_stream *stream);
/* All of the segment is withheld from now on. False: it cannot be. */
bool ag_segment_hold(struct ag_stream *stream);
/* Submits what is withheld: the longest part that has a graph as that, the rest one by one. */
void ag_segment_submit(struct ag_stream *stream);
/* Ends the segment: submits, learns, may build a graph. `flushed`: for the reason `why`; else at an
 * end that the history chose, and `why` counts for nothing. */
void ag_segment_end(struct ag_stream *stream, bool flushed, enum ag_flush why);
/* Counts a flush of what the stream withholds, and traces it. */
void ag_segment_note_flush(struct ag_stream *stream, enum ag_flush why);
/* An iteration ends here: the host waits, or (free_running) the next one begins and nobody waits.
 */
void ag_segment_end_iteration(struct ag_stream *stream, bool free_running);
/* The host waits: what the next iteration will probably ask for is done now. */
void ag_segment_foresee(struct ag_stream *stream);
/* Is all done that comes before the stream's next work? False, too, where the driver must not be
 * asked. */
bool ag_segment_is_idle(const struct ag_stream *stream);
/* Makes a per-thread stream wait for the work that other threads submitted to its proxy. */
void ag_segment_join_proxy(struct ag_stream *stream);
/* Drops all graphs and all that was learnt. context_gone: without driver calls. */
void ag_segment_forget(struct ag_stream *stream, bool context_gone);
/* Does what ag_segment_forget() does, and destroys the proxy. */
void ag_segment_release(struct ag_stream *stream, bool context_gone);
/* The context's ring of pinned slots, made on first need; NULL: there is none to be had. */
struct ag_ring *ag_segment_ring(struct ag_stream *stream);

#endif
