/* The graphs of one segment: one for each set of payloads that comes again and again.
 *
 * A node whose payload changed costs 0.2 to 0.5 us of the host's time, a tenth of a launch or more.
 * Where the same operations have other addresses every time, nothing helps. But double buffers,
 * batches that are used again, and one loop body that runs over several pieces of memory bring a
 * few sets of payloads in turns. While the host waits for the device, it can do what the next
 * iteration will ask for: the graph is updated for the set that came after this one before. Where
 * several sets come between two waits, each gets its graph, of which nothing must be updated.
 *
 * Which graph is picked decides what a launch costs, never what it does: every node is compared and
 * updated in any case. Not locked: belongs to a stream, whose owner calls. Makes no driver call. */
#ifndef AG_GRAPH_VARIANTS_H
#define AG_GRAPH_VARIANTS_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/record/op.h"

struct ag_graph;
struct ag_variants;

/* The variants of a segment of `n_ops` operations, which has no graph yet. NULL without memory. */
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

/* The graph that needs the fewest updates for `ops`, as far as the probes tell. */
struct ag_graph *ag_variants_pick(struct ag_variants *variants, const struct ag_op *ops);
/* The graph picked was launched, after `updated` of its nodes were updated. is_first: for the first
 * time since the host waited. */
void ag_variants_launched(struct ag_variants *variants, const struct ag_op *ops, uint32_t updated,
                          bool is_first);
/* The host waits, and has launched one of them. The graph that will probably be launched first
 * after that wait, and *ret_payloads, which it will be launched with: for ag_graph_prepare().
 * NULL: nothing can be told. */
struct ag_graph *ag_variants_foresee(struct ag_variants *variants,
                                     const unsigned char **ret_payloads);
/* `updated` nodes were updated for that, and the device did nothing any more before it was done. */
void ag_variants_waited(struct ag_variants *variants, uint32_t updated);
/* Is another graph worth building, of the operations launched last? */
bool ag_variants_wants(const struct ag_variants *variants);

#endif
