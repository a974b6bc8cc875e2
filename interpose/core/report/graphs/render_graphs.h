/* The program's own executable graphs in a report: how many, and what they took of each device. */
#ifndef AG_RENDER_GRAPHS_H
#define AG_RENDER_GRAPHS_H

#include <stdbool.h>

#include "interpose/core/base/text.h"
#include "interpose/core/report/emitter.h"
#include "interpose/core/report/stats.h"

void ag_render_graphs_json(struct ag_emitter *json, const struct ag_stats *stats);
/* Nothing of a program without any. */
void ag_render_graphs_text(struct ag_text *text, const struct ag_stats *stats);
/* The name of such bytes in the JSON, and in texts. */
const char *ag_render_graph_key(enum ag_own_graph_bytes which);
const char *ag_render_graph_label(enum ag_own_graph_bytes which);
/* Is it known, and of interest: of memory nodes, were there any? */
bool ag_render_graph_bytes_shown(const struct ag_own_graph_stats *device,
                                 enum ag_own_graph_bytes which);

#endif
