/* The section of a report about work that was launched as graphs, and its warnings. Pure. */
#ifndef AG_RENDER_REPLAY_H
#define AG_RENDER_REPLAY_H

#include <stdbool.h>

#include "interpose/core/base/text.h"
#include "interpose/core/report/emitter.h"
#include "interpose/core/report/stats.h"

/* JSON: a member "replay", always. Text: nothing when it was not asked for. */
void ag_render_replay_json(struct ag_emitter *json, const struct ag_stats *stats);
void ag_render_replay_text(struct ag_text *text, const struct ag_stats *stats);

/* The i-th warning, of memory of the function, or NULL after the last. by_range: iterations begin
 * where NVTX says so. */
const char *ag_render_replay_warning(const struct ag_stats *stats, bool by_range, unsigned i);

#endif
