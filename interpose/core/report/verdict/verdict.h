/* What a report says first, in words: what was gained, what held it back, what to try, and what
 * memory it took. Each line says only what the counters of this process say; nothing is estimated.
 * Pure. */
#ifndef AG_VERDICT_H
#define AG_VERDICT_H

#include "interpose/core/base/text.h"
#include "interpose/core/report/emitter.h"
#include "interpose/core/report/render_parts.h"
#include "interpose/core/report/stats.h"

/* One line each, never empty. What is too long is cut. */
struct ag_verdict {
    char gained[480], held_back[480], to_try[240], memory[240];
};

struct ag_verdict ag_verdict_of(const struct ag_stats *stats, const struct ag_moment *moment);
#define AG_VERDICT_LINES 4u
void ag_verdict_text(struct ag_text *text, const struct ag_stats *stats,
                     const struct ag_moment *moment);
/* The member "verdict" of a JSON report, an object. */
void ag_verdict_json(struct ag_emitter *json, const struct ag_stats *stats,
                     const struct ag_moment *moment);

#endif
