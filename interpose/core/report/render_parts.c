/* The parts of a report's forms: see render_parts.h. */
#include "interpose/core/report/render_parts.h"

#include <string.h>

void ag_render_group_json(struct ag_emitter *json, const struct ag_stats *stats, const char *group)
{
    for (unsigned i = 0; i < AG_N_STATS; i++) {
        if (!strcmp(ag_stat_rows[i].group, group))
            ag_emit_number(json, ag_stat_rows[i].key, ag_stats_counter_of(stats, (enum ag_stat)i));
    }
}

void ag_render_object_json(struct ag_emitter *json, const struct ag_stats *stats, unsigned indent,
                           const char *key, const char *group)
{
    ag_emit_line(json, indent);
    ag_emit_object(json, key);
    ag_render_group_json(json, stats, group);
    ag_emit_end(json);
}

const char *ag_render_next_text(const struct ag_stats *stats, size_t *at)
{
    const char *settings = stats->head.settings;
    const size_t capacity = sizeof(stats->head.settings);
    size_t begin = *at, length = begin < capacity ? strnlen(settings + begin, capacity - begin) : 0;

    if (begin + length >= capacity)
        return "";
    *at += length + 1;
    return settings + begin;
}

const char *ag_render_setting(const struct ag_stats *stats, unsigned row)
{
    const char *value = "";
    size_t at = 0;

    for (unsigned i = 0; i <= row; i++) {
        (void)ag_render_next_text(stats, &at);
        value = ag_render_next_text(stats, &at);
    }
    return value;
}

double ag_render_ticks(const struct ag_stats *stats, const struct ag_moment *moment, uint64_t ticks)
{
    const struct ag_stats_head *head = &stats->head;

    if (moment->ticks <= head->started_ticks || moment->ns <= head->started_ns)
        return 0;
    return (double)ticks * (double)(moment->ns - head->started_ns) /
           (double)(moment->ticks - head->started_ticks);
}

double ag_render_ns(const struct ag_stats *stats, const struct ag_moment *moment, uint64_t ticks)
{
    return (double)(uint64_t)(ag_render_ticks(stats, moment, ticks) + 0.5);
}
