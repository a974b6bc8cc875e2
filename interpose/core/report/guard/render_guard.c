/* The findings of guards in a report: see render_guard.h. */
#include "interpose/core/report/guard/render_guard.h"

#include <string.h>

#include "interpose/core/report/render_parts.h"

/* A file of counters may hold anything. */
static bool is_sound_finding(const struct ag_guard_finding *finding)
{
    return finding->used && finding->where <= AG_GUARD_INSIDE &&
           finding->when <= AG_GUARD_WHEN_EXIT;
}

bool ag_render_finding(const struct ag_stats *stats, unsigned i, struct ag_guard_finding *ret)
{
    for (unsigned row = 0; row < AG_GUARD_FINDINGS; row++) {
        memcpy(ret, &stats->guard_findings[row], sizeof(*ret));
        if (!is_sound_finding(ret) || i-- > 0)
            continue;
        ret->allocated_by[sizeof(ret->allocated_by) - 1] = '\0';
        ret->freed_by[sizeof(ret->freed_by) - 1] = '\0';
        return true;
    }
    return false;
}

static void json_finding(struct ag_emitter *json, const struct ag_guard_finding *finding)
{
    ag_emit_line(json, 1);
    ag_emit_object(json, NULL);
    ag_emit_string(json, "written", ag_guard_where_names[finding->where]);
    ag_emit_string(json, "found", ag_guard_occasion_names[finding->when]);
    ag_emit_raw(json, "device", "%d", finding->device);
    ag_emit_raw(json, "address", "\"0x%llx\"", (unsigned long long)finding->address);
    ag_emit_number(json, "bytes", finding->bytes);
    ag_emit_raw(json, "first_offset", "%lld", (long long)finding->offset);
    ag_emit_number(json, "wrong_bytes", finding->wrong);
    ag_emit_string(json, "allocated_by", finding->allocated_by);
    if (*finding->freed_by)
        ag_emit_string(json, "freed_by", finding->freed_by);
    else
        ag_emit_raw(json, "freed_by", "null");
    ag_emit_end(json);
}

void ag_render_guard_json(struct ag_emitter *json, const struct ag_stats *stats)
{
    struct ag_guard_finding finding;

    ag_emit_line(json, 0);
    ag_emit_object(json, "guard");
    ag_render_group_json(json, stats, "guard");
    ag_emit_line(json, 1);
    ag_emit_array(json, "findings");
    for (unsigned i = 0; ag_render_finding(stats, i, &finding); i++)
        json_finding(json, &finding);
    ag_emit_end(json);
    ag_emit_end(json);
}

void ag_render_guard_text(struct ag_text *text, const struct ag_stats *stats)
{
    struct ag_guard_finding finding;
    char bytes[32];

    for (unsigned i = 0; ag_render_finding(stats, i, &finding); i++) {
        if (!i)
            ag_text_add(text, "  what guards found\n");
        ag_text_add(
            text,
            "    %llu bytes written %s a block of %s (%llu bytes), the first at offset %lld\n",
            (unsigned long long)finding.wrong, ag_guard_where_names[finding.where],
            ag_text_size(bytes, sizeof(bytes), finding.bytes), (unsigned long long)finding.bytes,
            (long long)finding.offset);
        ag_text_add(text, "      allocated by %s, %s%s; found %s\n", finding.allocated_by,
                    *finding.freed_by ? "freed by " : "not freed", finding.freed_by,
                    ag_guard_occasion_names[finding.when]);
    }
}
