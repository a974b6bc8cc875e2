/* The graphs of one segment: one for each set of payloads that comes again and again.
 *
 * A node that has to change costs 0.2 to 0.5 us of the host's time, as much as a tenth of a launch.
 * Where the same operations come with other addresses every time nothing helps; but buffers that
 * take turns, batches that come round again, and pieces of one long loop over different memory
 * bring a few sets of payloads in turns: then each has its graph, of which nothing has to change.
 *
 * Which graph is taken decides what it costs, never what is done: the launch brings every node up
 * to date. Not locked: belongs to a stream, whose owner calls. Makes no driver call. */
#ifndef AG_GRAPH_VARIANTS_H
#define AG_GRAPH_VARIANTS_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/record/op.h"

struct ag_graph;
struct ag_variants;

/* Of a segment of `n_ops` operations, without a graph. NULL without memory. */
struct ag_variants *ag_variants_new(uint32_t n_ops);
/* The graphs are the caller's again: to be destroyed or forgotten. */
void ag_variants_free(struct ag_variants *variants);

/* The graph, built of the operations launched last (or the first one), is one of them from now on:
 * there must have been room, as ag_variants_wants says. */
void ag_variants_add(struct ag_variants *variants, struct ag_graph *graph);
/* Takes out the graph that was not picked for longest: the caller's again. There must be one. */
struct ag_graph *ag_variants_take(struct ag_variants *variants);
uint32_t ag_variants_count(const struct ag_variants *variants);
struct ag_graph *ag_variants_at(const struct ag_variants *variants, uint32_t i);

/* The graph of which the least has to change for it to become `ops`, as far as some of them tell.
 */
struct ag_graph *ag_variants_pick(struct ag_variants *variants, const struct ag_op *ops);
/* The graph picked was launched, with `updated` of its nodes changed. */
void ag_variants_launched(struct ag_variants *variants, const struct ag_op *ops, uint32_t updated);
/* Is one more worth building, of the operations launched last? */
bool ag_variants_wants(const struct ag_variants *variants);

#endif
