/* The section of a report about the program's own stream-ordered pools. Pure. */
#ifndef AG_RENDER_POOLS_H
#define AG_RENDER_POOLS_H

#include "interpose/core/base/text.h"
#include "interpose/core/report/emitter.h"
#include "interpose/core/report/stats.h"

/* Nothing when the program used none. JSON: a member "app_pools", an array. */
void ag_render_pools_json(struct ag_emitter *json, const struct ag_stats *stats);
void ag_render_pools_text(struct ag_text *text, const struct ag_stats *stats);

#endif
