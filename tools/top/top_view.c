/* top_view.c: renders the table of `allograft top` as lines and as JSON: see top.h. */
#include <stdio.h>
#include <string.h>

#include "interpose/core/report/emitter.h"
#include "tools/top/top.h"

/* ---- cells --------------------------------------------------------------------------------- */

static const char *state_of(const struct top_row *row)
{
    if (row->state == AG_RECORD_ELSEWHERE)
        return "elsewhere";
    return row->state == AG_RECORD_RUNNING ? "running" : row->ended_by;
}

/* "12.3k", "4.6M": a rate per second. */
static void rate_text(char *buffer, size_t size, double rate)
{
    static const char units[] = {'\0', 'k', 'M', 'G'};
    unsigned i = 0;

    while (rate >= 999.5 && i + 1 < sizeof(units)) {
        rate /= 1000;
        i++;
    }
    snprintf(buffer, size, rate >= 99.95 || (!i && rate == (double)(int)rate) ? "%.0f%c" : "%.1f%c",
             rate, units[i]);
}

static void share_text(char *buffer, size_t size, bool known, uint64_t part, uint64_t whole)
{
    if (known && whole)
        snprintf(buffer, size, "%.1f%%", 100.0 * (double)part / (double)whole);
    else
        snprintf(buffer, size, "-");
}

enum column {
    PROCESS,
    PROGRAM,
    STATE,
    MEMORY,
    POOL,
    ALLOCS,
    FREES,
    BYTES,
    MANAGED,
    NATIVE,
    CACHED,
    REPLAYED,
    RANK,
    SPILLED,
    HOST_MEMORY,
    PEAK,
    TIME,
    HOST,
    PINNED,
    MOVED_IN,
    MOVED_OUT,
    N_COLUMNS
};

/* In order of importance, which decides what fits; shown in the order of `place`. */
static const struct {
    const char *title;
    unsigned width, place;
} columns_of[N_COLUMNS] = {
    [PROCESS] = {"process", 8, 0},     [PROGRAM] = {"program", 16, 4},
    [STATE] = {"state", 9, 5},         [MEMORY] = {"memory", 11, 6},
    [POOL] = {"pool", 11, 7},          [ALLOCS] = {"alloc/s", 8, 14},
    [FREES] = {"free/s", 8, 15},       [BYTES] = {"bytes/s", 11, 16},
    [MANAGED] = {"managed", 11, 8},    [NATIVE] = {"native", 11, 9},
    [CACHED] = {"cached", 7, 17},      [REPLAYED] = {"replayed", 8, 18},
    [RANK] = {"rank", 5, 1},           [SPILLED] = {"spilled", 11, 10},
    [HOST_MEMORY] = {"host", 11, 11},  [PEAK] = {"peak", 11, 13},
    [TIME] = {"time", 10, 3},          [HOST] = {"on", 16, 2},
    [PINNED] = {"pinned", 11, 12}, /* freed, and kept */
    [MOVED_IN] = {"moved in", 11, 19}, [MOVED_OUT] = {"moved out", 11, 20},
};

static bool is_left_aligned(enum column column)
{
    return column == PROGRAM || column == STATE || column == HOST;
}

static void size_cell(char *cell, size_t size, uint64_t bytes)
{
    if (bytes)
        (void)ag_text_size(cell, size, bytes);
    else
        snprintf(cell, size, "-");
}

/* Damaged counters may have any value. */
static uint64_t whole(double value)
{
    return value < 1.8e19 ? (uint64_t)value : UINT64_MAX;
}

static void memory_cell(char *cell, size_t size, const struct top_row *row, enum column column)
{
    size_cell(cell, size,
              column == MEMORY        ? top_memory(row)
              : column == POOL        ? row->current[AG_PLACE_POOL]
              : column == MANAGED     ? row->current[AG_PLACE_MANAGED]
              : column == NATIVE      ? row->current[AG_PLACE_NATIVE]
              : column == SPILLED     ? row->current[AG_PLACE_SPILLED]
              : column == HOST_MEMORY ? row->current[AG_PLACE_HOST]
              : column == PINNED      ? row->pinned_kept
              : column == MOVED_IN    ? row->moved_in
              : column == MOVED_OUT   ? row->moved_out
                                      : row->peak_all);
}

static void cell_of(char *cell, size_t size, const struct top_row *row, enum column column)
{
    switch (column) {
    case PROCESS:
        snprintf(cell, size, "%d", row->pid);
        break;
    case RANK:
        snprintf(cell, size, row->rank < 0 ? "-" : "%d", row->rank);
        break;
    case PROGRAM:
        snprintf(cell, size, "%s", row->program);
        break;
    case HOST:
        snprintf(cell, size, "%s", row->host);
        break;
    case STATE:
        snprintf(cell, size, "%s", state_of(row));
        break;
    case TIME:
        snprintf(cell, size, "-");
        if (row->elapsed_ns)
            (void)ag_text_duration(cell, size, (double)row->elapsed_ns);
        break;
    case ALLOCS:
        rate_text(cell, size, top_rate(row, row->now.allocs, row->before.allocs));
        break;
    case FREES:
        rate_text(cell, size, top_rate(row, row->now.frees, row->before.frees));
        break;
    case BYTES:
        size_cell(cell, size, whole(top_rate(row, row->now.bytes, row->before.bytes)));
        break;
    case CACHED:
        share_text(cell, size, true, row->cache_hits, row->cache_hits + row->cache_misses);
        break;
    case REPLAYED:
        share_text(cell, size, row->replay_on, row->now.replayed, row->now.operations);
        break;
    default:
        memory_cell(cell, size, row, column);
    }
}

/* ---- lines --------------------------------------------------------------------------------- */

/* Chooses the columns that fit. */
static void choose_columns(bool shown[N_COLUMNS], unsigned columns)
{
    unsigned used = 0;

    for (unsigned i = 0; i < N_COLUMNS; i++) {
        shown[i] = used + columns_of[i].width + (used != 0) <= columns;
        if (shown[i])
            used += columns_of[i].width + (used != 0);
        else
            columns = used; /* no less important column takes its place */
    }
}

/* The number of bytes of a text that fit into `width` columns, one for each character. */
static int cut_to_width(const char *text, unsigned width)
{
    size_t at = 0;

    for (unsigned n = 0; text[at]; n++) {
        if (n == width)
            break;
        at++;
        while (((unsigned char)text[at] & 0xc0) == 0x80)
            at++;
    }
    return (int)at;
}

static unsigned length_of(const char *text)
{
    unsigned n = 0;

    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static void add_top_line(struct ag_text *text, const struct top_row *row,
                         const bool shown[N_COLUMNS], const char *line_end)
{
    bool first = true;

    for (unsigned place = 0; place < N_COLUMNS; place++) {
        unsigned column = 0, length, width;
        char cell[264];

        while (columns_of[column].place != place)
            column++;
        if (!shown[column])
            continue;
        if (row)
            cell_of(cell, sizeof(cell), row, column);
        else
            snprintf(cell, sizeof(cell), "%s", columns_of[column].title);
        width = columns_of[column].width;
        cell[cut_to_width(cell, width)] = '\0';
        length = length_of(cell);
        ag_text_add(text, "%s%*s%s%*s", first ? "" : " ",
                    is_left_aligned(column) ? 0 : (int)(width - length), "", cell,
                    is_left_aligned(column) ? (int)(width - length) : 0, "");
        first = false;
    }
    ag_text_add(text, "%s", line_end);
}

static void add_table_title(struct ag_text *text, const struct top_table *table, unsigned columns,
                            const char *line_end)
{
    char title[160], memory[32];
    unsigned n_running = 0, n_simulated = 0;
    uint64_t sum = 0;

    for (size_t i = 0; i < table->n; i++) {
        n_running += table->rows[i].state != AG_RECORD_DEAD;
        n_simulated += table->rows[i].simulated;
        sum += table->rows[i].state != AG_RECORD_DEAD ? top_memory(&table->rows[i]) : 0;
    }
    snprintf(title, sizeof(title), "allograft top: %u running with %s, %zu dead", n_running,
             ag_text_size(memory, sizeof(memory), sum), table->n - n_running);
    if (table->n_others)
        snprintf(title + strlen(title), sizeof(title) - strlen(title), ", %u from other builds",
                 table->n_others);
    if (n_simulated)
        snprintf(title + strlen(title), sizeof(title) - strlen(title),
                 ", %u simulated: times mean nothing", n_simulated);
    ag_text_add(text, "%.*s%s", cut_to_width(title, columns), title, line_end);
}

void top_render(struct ag_text *text, const struct top_table *table, unsigned columns,
                unsigned lines, const char *line_end)
{
    bool shown[N_COLUMNS];

    choose_columns(shown, columns);
    add_table_title(text, table, columns, line_end);
    if (lines != 1)
        add_top_line(text, NULL, shown, line_end);
    for (size_t i = 0; i < table->n && (!lines || i + 2 < lines); i++)
        add_top_line(text, &table->rows[i], shown, line_end);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void emit_top_row(struct ag_emitter *json, const struct top_row *row)
{
    ag_emit_object(json, NULL);
    ag_emit_raw(json, "pid", "%d", row->pid);
    ag_emit_raw(json, "rank", row->rank < 0 ? "null" : "%d", row->rank);
    ag_emit_string(json, "program", row->program);
    ag_emit_string(json, "host", row->host);
    ag_emit_string(json, "state", state_of(row));
    ag_emit_bool(json, "alive", row->state == AG_RECORD_RUNNING);
    ag_emit_bool(json, "simulated", row->simulated);
    ag_emit_number(json, "elapsed_ns", row->elapsed_ns);
    ag_emit_object(json, "memory");
    for (unsigned place = 0; place < AG_N_PLACEMENTS; place++) {
        ag_emit_object(json, ag_placement_names[place]);
        ag_emit_number(json, "current_bytes", row->current[place]);
        ag_emit_number(json, "peak_bytes", row->peak[place]);
        ag_emit_end(json);
    }
    ag_emit_end(json);
    ag_emit_number(json, "peak_bytes", row->peak_all);
    ag_emit_number(json, "pinned_kept_bytes", row->pinned_kept);
    ag_emit_number(json, "moved_in_bytes", row->moved_in);
    ag_emit_number(json, "moved_out_bytes", row->moved_out);
    ag_emit_number(json, "allocs", row->now.allocs);
    ag_emit_number(json, "frees", row->now.frees);
    ag_emit_number(json, "alloc_bytes", row->now.bytes);
    ag_emit_raw(json, "allocs_per_s", "%.3f", top_rate(row, row->now.allocs, row->before.allocs));
    ag_emit_raw(json, "frees_per_s", "%.3f", top_rate(row, row->now.frees, row->before.frees));
    ag_emit_raw(json, "alloc_bytes_per_s", "%.3f",
                top_rate(row, row->now.bytes, row->before.bytes));
    ag_emit_number(json, "cache_hits", row->cache_hits);
    ag_emit_number(json, "cache_misses", row->cache_misses);
    ag_emit_bool(json, "replay", row->replay_on);
    ag_emit_number(json, "operations", row->now.operations);
    ag_emit_number(json, "replayed", row->now.replayed);
    ag_emit_end(json);
}

void top_render_json(struct ag_text *text, const struct top_table *table)
{
    struct ag_emitter json = {.text = text};

    ag_emit_object(&json, NULL);
    ag_emit_string(&json, "schema", "allograft-top/1");
    ag_emit_number(&json, "other_builds", table->n_others);
    ag_emit_array(&json, "processes");
    for (size_t i = 0; i < table->n; i++) {
        ag_emit_line(&json, 1);
        emit_top_row(&json, &table->rows[i]);
    }
    ag_emit_end(&json);
    ag_emit_end(&json);
    ag_text_add(text, "\n");
}
