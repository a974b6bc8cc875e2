/* Marks in a report: see render_marks.h. */
#include "interpose/report/render_marks.h"

#include <stdio.h>
#include <string.h>

static unsigned n_marks(const struct ag_stats *stats)
{
    uint32_t n = atomic_load_explicit(&stats->n_marks, memory_order_acquire);

    return n < AG_MARKS ? n : AG_MARKS;
}

/* The name of a row, which a file of counters may hold without its end. */
static void name_of(const struct ag_mark_stats *mark, char name[sizeof(mark->name)])
{
    memcpy(name, mark->name, sizeof(mark->name));
    name[sizeof(mark->name) - 1] = '\0';
}

void ag_render_marks_json(struct ag_text *text, const struct ag_stats *stats)
{
    char name[sizeof(stats->marks[0].name)];

    ag_text_add(text, "\"marks\":[");
    for (unsigned i = 0; i < n_marks(stats); i++) {
        const struct ag_mark_stats *mark = &stats->marks[i];

        name_of(mark, name);
        ag_text_add(text, "%s\n {\"name\":", i ? "," : "");
        ag_text_add_json(text, name);
        ag_text_add(text, ",\"count\":%llu,\"first_ns\":%llu,\"last_ns\":%llu,\"bytes\":%llu}",
                    (unsigned long long)mark->count, (unsigned long long)mark->first_ns,
                    (unsigned long long)mark->last_ns, (unsigned long long)mark->bytes);
    }
    ag_text_add(text, "],\n");
}

void ag_render_marks_text(struct ag_text *text, const struct ag_stats *stats)
{
    char name[sizeof(stats->marks[0].name)], first[32], last[32], bytes[32];

    if (!n_marks(stats))
        return;
    ag_text_add(text, "  marks of the program %36s %14s %14s\n", "passed", "first at", "last at");
    for (unsigned i = 0; i < n_marks(stats); i++) {
        const struct ag_mark_stats *mark = &stats->marks[i];

        name_of(mark, name);
        ag_text_add(text, "    %-40s %12llu %14s %14s   %s then\n", name,
                    (unsigned long long)mark->count,
                    ag_text_duration(first, sizeof(first), (double)mark->first_ns),
                    ag_text_duration(last, sizeof(last), (double)mark->last_ns),
                    ag_text_size(bytes, sizeof(bytes), mark->bytes));
    }
}
