/* The program's marks in a report: see render_marks.h. */
#include "interpose/core/report/render_marks.h"

#include <stdio.h>
#include <string.h>

static unsigned n_marks(const struct ag_stats *stats)
{
    uint32_t n = atomic_load_explicit(&stats->n_marks, memory_order_acquire);

    return n < AG_MARKS ? n : AG_MARKS;
}

/* The name of a row, which a file of counters may hold without its end. */
static void mark_name(const struct ag_mark_stats *mark, char name[sizeof(mark->name)])
{
    memcpy(name, mark->name, sizeof(mark->name));
    name[sizeof(mark->name) - 1] = '\0';
}

void ag_render_marks_json(struct ag_emitter *json, const struct ag_stats *stats)
{
    char name[sizeof(stats->marks[0].name)];

    ag_emit_line(json, 0);
    ag_emit_array(json, "marks");
    for (unsigned i = 0; i < n_marks(stats); i++) {
        const struct ag_mark_stats *mark = &stats->marks[i];

        mark_name(mark, name);
        ag_emit_line(json, 1);
        ag_emit_object(json, NULL);
        ag_emit_string(json, "name", name);
        ag_emit_number(json, "count", mark->count);
        ag_emit_number(json, "first_ns", mark->first_ns);
        ag_emit_number(json, "last_ns", mark->last_ns);
        ag_emit_number(json, "bytes", mark->bytes);
        ag_emit_end(json);
    }
    ag_emit_end(json);
}

void ag_render_marks_text(struct ag_text *text, const struct ag_stats *stats)
{
    char name[sizeof(stats->marks[0].name)], first[32], last[32], bytes[32];

    if (!n_marks(stats))
        return;
    ag_text_add(text, "  marks of the program %36s %14s %14s\n", "passed", "first at", "last at");
    for (unsigned i = 0; i < n_marks(stats); i++) {
        const struct ag_mark_stats *mark = &stats->marks[i];

        mark_name(mark, name);
        ag_text_add(text, "    %-40s %12llu %14s %14s   %s then\n", name,
                    (unsigned long long)mark->count,
                    ag_text_duration(first, sizeof(first), (double)mark->first_ns),
                    ag_text_duration(last, sizeof(last), (double)mark->last_ns),
                    ag_text_size(bytes, sizeof(bytes), mark->bytes));
    }
}
