/* What guards found, in a report. Pure. */
#ifndef AG_RENDER_GUARD_H
#define AG_RENDER_GUARD_H

#include "interpose/core/base/text.h"
#include "interpose/core/report/emitter.h"
#include "interpose/core/report/stats.h"

/* The i-th complete finding with its texts ended, or false after the last. */
bool ag_render_finding(const struct ag_stats *stats, unsigned i, struct ag_guard_finding *ret);
/* The member "guard" of a JSON report, an object. */
void ag_render_guard_json(struct ag_emitter *json, const struct ag_stats *stats);
/* The findings in a text report; nothing when there are none. */
void ag_render_guard_text(struct ag_text *text, const struct ag_stats *stats);

#endif
