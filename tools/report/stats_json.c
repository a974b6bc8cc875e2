/* stats_json.c: reads a JSON report back into counters: see process.h. Only this file uses the JSON
 * library; a build without it says so when it is given a JSON report. */
#include "tools/report/process.h"

#include <stdio.h>
#include <string.h>

#ifndef HAVE_JANSSON

bool stats_from_json(const char *text, size_t length, struct process *process, char *why,
                     size_t why_size)
{
    (void)text, (void)length, (void)process;
    snprintf(why, why_size,
             "is a JSON report, which this command cannot read: it was made without jansson "
             "(libjansson-dev)");
    return false;
}

#else

#include "interpose/core/report/graphs/render_graphs.h"
#include "interpose/core/settings/options.h"
#include "tools/report/json_library.h"

/* Keeps the first fault; reading continues with zeros after it. */
struct reader {
    struct ag_stats *stats;
    char *why;
    size_t why_size;
    bool bad;
};

static const char *const hook_names[] = {
#define AG_HOOK(base, symbol, since, flavour, need, flush) #symbol,
#include "interpose/core/driver/hooks.def"
};

static void fault(struct reader *reader, const char *key, const char *what)
{
    if (!reader->bad)
        snprintf(reader->why, reader->why_size, "is JSON, but not a report of Allograft: %s %s",
                 key, what);
    reader->bad = true;
}

/* Later versions of the format have a higher number, and other meanings. */
static void judge_schema(struct reader *reader, const json_t *root)
{
    const json_t *value = json_object_get(root, "schema");
    const char *schema = json_is_string(value) ? json_string_value(value) : "";
    unsigned version = 0;

    if (!strcmp(schema, "allograft-stats/1"))
        return;
    if (sscanf(schema, "allograft-stats/%u", &version) == 1 && version > 1) {
        snprintf(reader->why, reader->why_size,
                 "is JSON of a newer version of Allograft, whose command reads it (%.40s; this "
                 "one reads allograft-stats/1)",
                 schema);
        reader->bad = true;
        return;
    }
    fault(reader, "schema", "is not \"allograft-stats/1\"");
}

/* ---- one value ----------------------------------------------------------------------------- */

/* A count; 0 if it is missing. */
static uint64_t read_count(struct reader *reader, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    if (!value || json_is_null(value))
        return 0;
    if (json_is_integer(value) && json_integer_value(value) >= 0)
        return (uint64_t)json_integer_value(value);
    fault(reader, key, "is not a count");
    return 0;
}

static int small_number(struct reader *reader, const json_t *object, const char *key, int none)
{
    const json_t *value = json_object_get(object, key);
    uint64_t n = read_count(reader, object, key);

    if (n > INT32_MAX)
        fault(reader, key, "is too large");
    return !value || json_is_null(value) || n > INT32_MAX ? none : (int)n;
}

static bool truth(struct reader *reader, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    if (value && !json_is_boolean(value))
        fault(reader, key, "is neither true nor false");
    return json_is_true(value);
}

/* A string; "" if it is missing. */
static const char *text_of(struct reader *reader, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    if (value && !json_is_string(value))
        fault(reader, key, "is not a string");
    return json_is_string(value) ? json_string_value(value) : "";
}

static void copy_member(struct reader *reader, const json_t *object, const char *key, char *copy,
                        size_t capacity)
{
    snprintf(copy, capacity, "%s", text_of(reader, object, key));
}

/* An object; NULL if it is missing. Values of NULL read as missing. */
static const json_t *part(struct reader *reader, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    if (value && !json_is_object(value))
        fault(reader, key, "is not an object");
    return json_is_object(value) ? value : NULL;
}

static const json_t *member_array(struct reader *reader, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    if (value && !json_is_array(value))
        fault(reader, key, "is not an array");
    return json_is_array(value) ? value : NULL;
}

/* ---- the parts of a report ----------------------------------------------------------------- */

/* The object with the counters of a group. Most groups have one of their own name; the others are
 * listed here. */
static const json_t *part_of_group(struct reader *reader, const json_t *root, const char *group)
{
    static const struct {
        const char *group, *outer, *inner;
    } rows[] = {
        {"lookups", "coverage", "lookups"},     {"calls", "coverage", NULL},
        {"fallbacks", "coverage", "fallbacks"}, {"drains", "frees", "drain_reasons"},
        {"fences", "frees", "fences"},          {"late_waits", "frees", "late_waits"},
        {"flushes", "replay", "flushes"},       {"staging", "replay", "staging"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strcmp(rows[i].group, group))
            continue;
        root = part(reader, root, rows[i].outer);
        return rows[i].inner ? part(reader, root, rows[i].inner) : root;
    }
    return part(reader, root, group);
}

static void read_counters(struct reader *reader, const json_t *root)
{
    for (unsigned i = 0; i < AG_N_STATS; i++)
        reader->stats->slots[0].counters[i] = read_count(
            reader, part_of_group(reader, root, ag_stat_rows[i].group), ag_stat_rows[i].key);
}

static void read_process_member(struct reader *reader, const json_t *root, struct ag_moment *moment)
{
    struct ag_stats_head *head = &reader->stats->head;
    const json_t *process = part(reader, root, "process");
    uint64_t elapsed = read_count(reader, process, "elapsed_ns");

    if (!process)
        fault(reader, "process", "is missing");
    copy_member(reader, root, "version", head->version, sizeof(head->version));
    head->simulated = truth(reader, root, "simulated") ? AG_SIMULATED : AG_NOT_SIMULATED;
    copy_member(reader, process, "program", head->program, sizeof(head->program));
    copy_member(reader, process, "host", head->host, sizeof(head->host));
    copy_member(reader, process, "ended_by", head->ended_by, sizeof(head->ended_by));
    head->pid = small_number(reader, process, "pid", 0);
    head->rank = small_number(reader, process, "rank", -1);
    if (head->pid <= 0)
        fault(reader, "process.pid", "is not a process id");
    *moment = (struct ag_moment){.alive = elapsed != 0};
    moment->ns = moment->ticks = elapsed ? elapsed : 1;
}

/* Appends `value` and its NUL if they fit. Returns where the next one begins. */
static size_t append_if_fits(char *text, size_t at, size_t capacity, const char *value)
{
    size_t length = strlen(value);

    if (at + length + 1 > capacity)
        return at;
    memcpy(text + at, value, length + 1);
    return at + length + 1;
}

static const json_t *setting_named(const json_t *settings, const char *name)
{
    const json_t *row, *value;
    size_t i;

    json_array_foreach(settings, i, row)
    {
        value = json_object_get(row, "name");
        if (json_is_string(value) && !strcmp(json_string_value(value), name))
            return row;
    }
    return NULL;
}

/* Reads the settings, in the order of this build; those that the report lacks get their
 * defaults. */
static void read_settings(struct reader *reader, const json_t *root)
{
    const json_t *settings = member_array(reader, root, "settings");
    struct ag_stats_head *head = &reader->stats->head;
    size_t at = 0;

    for (size_t i = 0; i < ag_options_count(); i++) {
        const json_t *row = setting_named(settings, ag_option_info(i)->name);
        const char *source = text_of(reader, row, "source");
        const char *value = text_of(reader, row, "value");

        if (!strcmp(source, "file"))
            source = text_of(reader, row, "place");
        at = append_if_fits(head->settings, at, sizeof(head->settings),
                            *source ? source : "default");
        at = append_if_fits(head->settings, at, sizeof(head->settings),
                            row ? value : ag_option_info(i)->default_text);
    }
}

static void read_rules(struct reader *reader, const json_t *root)
{
    const json_t *rules = member_array(reader, root, "rules"), *row;
    struct ag_stats *stats = reader->stats;
    size_t i;

    json_array_foreach(rules, i, row)
    {
        if (i >= AG_MAX_RULES)
            break;
        copy_member(reader, row, "text", stats->head.rules[i], sizeof(stats->head.rules[i]));
        stats->slots[0].rules[i].hits = read_count(reader, row, "hits");
        stats->slots[0].rules[i].bytes = read_count(reader, row, "bytes");
        stats->slots[0].rules[i].held = read_count(reader, row, "held");
        stats->slots[0].rules[i].failed = read_count(reader, row, "failed");
        stats->head.n_rules = (uint32_t)i + 1;
    }
    row = part(reader, root, "no_rule");
    stats->slots[0].rules[AG_MAX_RULES].hits = read_count(reader, row, "hits");
    stats->slots[0].rules[AG_MAX_RULES].bytes = read_count(reader, row, "bytes");
}

/* The reason why nothing was redirected is among the warnings. */
static void read_trouble(struct reader *reader, const json_t *root, bool redirecting)
{
    static const char begin[] = "nothing was redirected: ";
    struct ag_stats_head *head = &reader->stats->head;
    const json_t *warnings = member_array(reader, root, "warnings"), *warning;
    size_t i;

    json_array_foreach(warnings, i, warning)
    {
        const char *text = json_is_string(warning) ? json_string_value(warning) : "";

        if (!redirecting && !strncmp(text, begin, strlen(begin)))
            snprintf(head->trouble, sizeof(head->trouble), "%s", text + strlen(begin));
    }
    if (!redirecting && !*head->trouble)
        snprintf(head->trouble, sizeof(head->trouble), "the reason is not known");
}

static void read_coverage(struct reader *reader, const json_t *root)
{
    const json_t *coverage = part(reader, root, "coverage"), *hooks, *libraries, *library;
    struct ag_stats *stats = reader->stats;
    size_t i;

    if (!coverage)
        fault(reader, "coverage", "is missing");
    copy_member(reader, coverage, "libcuda", stats->head.driver, sizeof(stats->head.driver));
    hooks = part(reader, coverage, "hooks");
    for (unsigned k = 0; k < AG_N_HOOKS; k++)
        stats->slots[0].hits[k] = read_count(reader, hooks, hook_names[k]);
    libraries = member_array(reader, coverage, "bypassing");
    json_array_foreach(libraries, i, library)
    {
        if (i >= AG_STATS_BYPASSING)
            break;
        snprintf(stats->bypassing[i], sizeof(stats->bypassing[i]), "%s",
                 json_is_string(library) ? json_string_value(library) : "?");
        stats->n_bypassing = (uint32_t)i + 1;
    }
    libraries = member_array(reader, coverage, "unseen");
    json_array_foreach(libraries, i, library)
    {
        if (i < AG_STATS_UNSEEN)
            snprintf(stats->unseen[i], sizeof(stats->unseen[i]), "%s",
                     json_is_string(library) ? json_string_value(library) : "?");
    }
    read_trouble(reader, root, truth(reader, coverage, "redirecting"));
}

static unsigned class_up_to(uint64_t up_to)
{
    unsigned power = up_to > 1 ? 64 - (unsigned)__builtin_clzll(up_to - 1) : 0;

    if (power < 9)
        return 0;
    return power - 9 < AG_SIZE_CLASSES ? power - 9 : AG_SIZE_CLASSES - 1;
}

static void read_placement(struct reader *reader, const json_t *object, unsigned row,
                           unsigned place)
{
    struct ag_place_stats *stats = &reader->stats->slots[0].places[row][place];
    const json_t *sizes = member_array(reader, object, "size_histogram"), *size;
    size_t i;

    memset(stats, 0, sizeof(*stats));
    stats->allocs = read_count(reader, object, "allocs");
    stats->frees = read_count(reader, object, "frees");
    stats->failed = read_count(reader, object, "failed");
    stats->alloc_bytes = read_count(reader, object, "alloc_bytes");
    stats->alloc_ticks = read_count(reader, object, "alloc_ns");
    stats->free_ticks = read_count(reader, object, "free_ns");
    stats->freed_bytes = stats->alloc_bytes - read_count(reader, object, "current_bytes");
    reader->stats->peak_bytes[row][place] = read_count(reader, object, "peak_bytes");
    json_array_foreach(sizes, i, size)
    {
        stats->sizes[class_up_to(read_count(reader, size, "up_to_bytes"))] +=
            read_count(reader, size, "count");
    }
}

static void read_devices(struct reader *reader, const json_t *root)
{
    const json_t *devices = member_array(reader, root, "devices"), *device, *placements;
    size_t i;

    if (!devices)
        fault(reader, "devices", "is missing");
    json_array_foreach(devices, i, device)
    {
        struct ag_stats_device *met;
        unsigned row;

        if (i >= AG_STATS_DEVICES_MET)
            break;
        met = &reader->stats->devices[i];
        met->ordinal = small_number(reader, device, "ordinal", 0);
        met->total_bytes = read_count(reader, device, "total_bytes");
        copy_member(reader, device, "name", met->name, sizeof(met->name));
        reader->stats->n_devices = (uint32_t)i + 1;
        row = (unsigned)met->ordinal < AG_STATS_DEVICES ? (unsigned)met->ordinal
                                                        : AG_STATS_DEVICES - 1;
        reader->stats->peak_all[row] = read_count(reader, device, "peak_bytes");
        reader->stats->given_peak[row] = read_count(reader, device, "given_peak_bytes");
        placements = part(reader, device, "placements");
        for (unsigned place = 0; place < AG_N_PLACEMENTS; place++)
            read_placement(reader, part(reader, placements, ag_placement_names[place]), row, place);
    }
}

static enum ag_app_pool_kind kind_named(const char *name)
{
    static const char *const names[] = {"unknown",  "default", "created",
                                        "imported", "managed", "others"};

    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (!strcmp(name, names[i]))
            return (enum ag_app_pool_kind)i;
    }
    return AG_APP_POOL_UNUSED;
}

static void read_pools(struct reader *reader, const json_t *root)
{
    const json_t *pools = member_array(reader, root, "app_pools"), *pool;
    size_t i;

    json_array_foreach(pools, i, pool)
    {
        struct ag_app_pool_stats *row;
        _Atomic uint64_t *counts;

        if (i >= AG_APP_POOLS)
            break;
        row = &reader->stats->app_pools[i];
        counts = reader->stats->slots[0].app_pools[i];
        row->kind = (int32_t)kind_named(text_of(reader, pool, "kind"));
        row->device = small_number(reader, pool, "device", -1);
        row->destroyed = truth(reader, pool, "destroyed");
        row->raised = truth(reader, pool, "threshold_raised");
        row->has_levels = json_is_integer(json_object_get(pool, "reserved_high_bytes"));
        row->reserved_high = read_count(reader, pool, "reserved_high_bytes");
        row->used_high = read_count(reader, pool, "used_high_bytes");
        counts[AG_APP_ALLOCS] = read_count(reader, pool, "allocs");
        counts[AG_APP_BYTES] = read_count(reader, pool, "alloc_bytes");
        counts[AG_APP_FAILED] = read_count(reader, pool, "failed");
        counts[AG_APP_CALLS] = read_count(reader, pool, "other_calls");
    }
}

static void read_graphs(struct reader *reader, const json_t *root)
{
    const json_t *graphs = part(reader, root, "own_graphs"), *device;
    size_t i;

    reader->stats->own_graphs.current = read_count(reader, graphs, "live");
    reader->stats->own_graphs.peak = read_count(reader, graphs, "live_peak");
    json_array_foreach(member_array(reader, graphs, "devices"), i, device)
    {
        int ordinal = small_number(reader, device, "device", -1);
        struct ag_own_graph_stats *row;

        if (ordinal < 0 || ordinal >= (int)AG_STATS_DEVICES)
            continue;
        row = &reader->stats->own_graph_devices[ordinal];
        row->is_measured = json_is_integer(json_object_get(device, ag_render_graph_key(0)));
        row->has_levels =
            json_is_integer(json_object_get(device, ag_render_graph_key(AG_GRAPH_USED)));
        for (unsigned which = 0; which < AG_N_GRAPH_BYTES; which++)
            row->bytes[which] = read_count(reader, device, ag_render_graph_key(which));
    }
}

static void read_marks(struct reader *reader, const json_t *root)
{
    const json_t *marks = member_array(reader, root, "marks"), *row;
    size_t i;

    json_array_foreach(marks, i, row)
    {
        struct ag_mark_stats *mark;

        if (i >= AG_MARKS)
            break;
        mark = &reader->stats->marks[i];
        copy_member(reader, row, "name", mark->name, sizeof(mark->name));
        mark->count = read_count(reader, row, "count");
        mark->first_ns = read_count(reader, row, "first_ns");
        mark->last_ns = read_count(reader, row, "last_ns");
        mark->bytes = read_count(reader, row, "bytes");
        reader->stats->n_marks = (uint32_t)i + 1;
    }
}

static uint32_t word_of(const char *word, const char *const *words, unsigned n)
{
    unsigned i = 0;

    while (i < n && strcmp(word, words[i]) != 0)
        i++;
    return i;
}

/* Where and when are out of range for words of a later version: such rows are left out. */
static void read_findings(struct reader *reader, const json_t *root)
{
    const json_t *findings = member_array(reader, part(reader, root, "guard"), "findings"), *row;
    size_t i;

    json_array_foreach(findings, i, row)
    {
        struct ag_guard_finding *finding;

        if (i >= AG_GUARD_FINDINGS)
            break;
        finding = &reader->stats->guard_findings[i];
        finding->used = 1;
        finding->where = word_of(text_of(reader, row, "written"), ag_guard_where_names, 3);
        finding->when = word_of(text_of(reader, row, "found"), ag_guard_occasion_names, 4);
        finding->device = small_number(reader, row, "device", 0);
        finding->address = strtoull(text_of(reader, row, "address"), NULL, 16);
        finding->bytes = read_count(reader, row, "bytes");
        finding->offset = json_integer_value(json_object_get(row, "first_offset"));
        finding->wrong = read_count(reader, row, "wrong_bytes");
        copy_member(reader, row, "allocated_by", finding->allocated_by,
                    sizeof(finding->allocated_by));
        if (!json_is_null(json_object_get(row, "freed_by")))
            copy_member(reader, row, "freed_by", finding->freed_by, sizeof(finding->freed_by));
    }
}

static void read_launched(struct reader *reader, const json_t *row, struct ag_first_error *first)
{
    const json_t *launched;
    size_t i;

    first->launches_unseen = json_is_true(json_object_get(row, "launches_unseen"));
    json_array_foreach(json_object_get(row, "launched"), i, launched)
    {
        struct ag_launched *into = &first->launched[i];

        if (i == AG_LAUNCHED)
            break;
        into->handle = strtoull(text_of(reader, launched, "handle"), NULL, 16);
        into->stream = strtoull(text_of(reader, launched, "stream"), NULL, 16);
        into->thread = (int32_t)json_integer_value(json_object_get(launched, "thread"));
        into->is_graph = !strcmp(text_of(reader, launched, "kind"), "graph");
        if (json_object_get(launched, "name"))
            copy_member(reader, launched, "name", into->name, sizeof(into->name));
        first->n_launched = (uint32_t)i + 1;
    }
}

static void read_first_error(struct reader *reader, const json_t *root)
{
    const json_t *row = json_object_get(root, "first_error");
    struct ag_first_error *first = &reader->stats->first_error;

    if (!json_is_object(row))
        return;
    first->code = (int32_t)json_integer_value(json_object_get(row, "code"));
    first->thread = (int32_t)json_integer_value(json_object_get(row, "thread"));
    first->after_ns = read_count(reader, row, "after_ns");
    copy_member(reader, row, "call", first->call, sizeof(first->call));
    read_launched(reader, row, first);
    first->claimed = first->used = 1;
}

static void read_replay(struct reader *reader, const json_t *root)
{
    const json_t *replay = part(reader, root, "replay");
    struct ag_stats_head *head = &reader->stats->head;
    const char *state = text_of(reader, replay, "state");

    if (!strcmp(state, "on"))
        snprintf(head->replay, sizeof(head->replay), "on");
    else if (!strcmp(state, "unavailable"))
        copy_member(reader, replay, "reason", head->replay, sizeof(head->replay));
    reader->stats->eager_ns = read_count(reader, replay, "eager_ns");
    reader->stats->replayed_ns = read_count(reader, replay, "replayed_ns");
    reader->stats->compared_unwaited = truth(reader, replay, "compared_unwaited");
}

static void read_report(struct reader *reader, const json_t *root, struct ag_moment *ret_moment)
{
    judge_schema(reader, root);
    if (reader->bad)
        return;
    read_process_member(reader, root, ret_moment);
    read_settings(reader, root);
    read_rules(reader, root);
    read_coverage(reader, root);
    read_devices(reader, root);
    read_pools(reader, root);
    read_graphs(reader, root);
    read_marks(reader, root);
    read_findings(reader, root);
    read_first_error(reader, root);
    read_replay(reader, root);
    read_counters(reader, root);
    reader->stats->pending_bytes.peak =
        read_count(reader, part(reader, root, "frees"), "pending_peak_bytes");
    reader->stats->cached_peak = read_count(reader, part(reader, root, "cache"), "peak_bytes");
    reader->stats->slab_bytes.current =
        read_count(reader, part(reader, root, "slabs"), "held_bytes");
    reader->stats->slab_bytes.peak = read_count(reader, part(reader, root, "slabs"), "peak_bytes");
    reader->stats->pinned_bytes.current =
        read_count(reader, part(reader, root, "pinned"), "held_bytes");
    reader->stats->pinned_bytes.peak =
        read_count(reader, part(reader, root, "pinned"), "peak_bytes");
    reader->stats->bus_gib_ns = read_count(reader, part(reader, root, "pressure"), "bus_gib_ns");
}

/* ---- who held memory, and who waited ------------------------------------------------------- */

/* Where the copy of the text stands; 0 when there is no room. `n` bytes with its NUL. */
static uint32_t add_holders_text(struct ag_holders *holders, const char *text, size_t n)
{
    uint32_t at = holders->n_text;

    if (n > AG_HOLDERS_TEXT - at)
        return 0;
    memcpy(holders->text + at, text, n);
    holders->n_text = at + (uint32_t)n;
    return at;
}

static void read_modules(struct reader *reader, const json_t *root, struct ag_holders *holders)
{
    const json_t *modules = member_array(reader, root, "modules"), *row;
    size_t i;

    json_array_foreach(modules, i, row)
    {
        const char *path = text_of(reader, row, "path"), *id = text_of(reader, row, "build_id");

        if (i + 1 >= AG_HOLDERS_MODULES)
            break;
        holders->modules[i + 1] = (struct ag_held_module){
            .base = read_count(reader, row, "base"),
            .path = add_holders_text(holders, path, strlen(path) + 1),
            .build_id = *id ? add_holders_text(holders, id, strlen(id) + 1) : 0,
        };
        holders->n_modules = (uint32_t)i + 2;
    }
}

static uint64_t read_frame(struct reader *reader, const json_t *frame, struct ag_holders *holders)
{
    const char *function = text_of(reader, frame, "function"), *file;
    uint64_t module = read_count(reader, frame, "module");
    uint32_t text;

    if (!json_object_get(frame, "function")) {
        if (module >= holders->n_modules)
            fault(reader, "module", "is not in the list");
        return module << 48 | (read_count(reader, frame, "offset") & ((1ull << 48) - 1));
    }
    file = text_of(reader, frame, "file");
    text = add_holders_text(holders, function, strlen(function) + 1);
    if (!add_holders_text(holders, file, strlen(file) + 1) || !text)
        fault(reader, "function", "has no room");
    return ag_frame_python(text, (uint32_t)read_count(reader, frame, "line"));
}

static void read_held(struct reader *reader, const json_t *row, const char *key,
                      struct ag_held *ret)
{
    const json_t *held = part(reader, row, key), *blocks = json_object_get(held, "blocks");
    double n = json_is_number(blocks) ? json_number_value(blocks) : 0;

    if (n < 0 || n > 1e15)
        fault(reader, "blocks", "is not a count");
    else
        ret->blocks = (uint64_t)(n * AG_HOLDERS_ONE + .5);
    ret->bytes = read_count(reader, held, "bytes");
}

static uint8_t read_kind(struct reader *reader, const json_t *row, const char *key)
{
    uint32_t kind = word_of(text_of(reader, row, key), ag_held_names, AG_N_HELD_KINDS);

    if (kind < AG_N_HELD_KINDS)
        return (uint8_t)kind;
    fault(reader, key, "is no kind of memory");
    return 0;
}

static void read_frames(struct reader *reader, const json_t *row, struct ag_holders *holders,
                        struct ag_held_stack *stack)
{
    const json_t *frames = member_array(reader, row, "frames"), *frame;
    size_t i;

    stack->first = holders->n_frames;
    json_array_foreach(frames, i, frame)
    {
        if (i >= 2 * AG_HOLDERS_MOST || holders->n_frames >= AG_HOLDERS_FRAMES)
            break;
        holders->frames[holders->n_frames++] = read_frame(reader, frame, holders);
    }
    stack->n = holders->n_frames - stack->first;
}

/* A row that nothing was read into: a wait that never was, which nobody shows. */
static bool is_unused(const struct ag_held_stack *stack)
{
    return ag_held_is_wait(stack) && !stack->waited.times;
}

/* The row of that number, by which a trace names it: there are all before it, too. NULL: another
 * stack has it. */
static struct ag_held_stack *claim_row(struct ag_holders *holders, uint64_t number)
{
    if (number >= AG_HOLDERS_STACKS)
        return NULL;
    for (; holders->n_stacks <= number; holders->n_stacks++)
        holders->stacks[holders->n_stacks].kind = AG_HELD_WAIT;
    return is_unused(&holders->stacks[number]) ? &holders->stacks[number] : NULL;
}

static void read_stacks(struct reader *reader, const json_t *root, struct ag_holders *holders)
{
    static const char *const keys[AG_N_HELD_WHEN] = {"live", "ever", "peak", "ended", "failed"};
    const json_t *stacks = member_array(reader, root, "stacks"), *row;
    size_t i;

    json_array_foreach(stacks, i, row)
    {
        bool has_number = json_object_get(row, "number"); /* earlier reports have none */
        struct ag_held_stack *stack =
            claim_row(holders, has_number ? read_count(reader, row, "number") : holders->n_stacks);

        if (!stack) {
            if (has_number)
                fault(reader, "number", "is not of one stack alone");
            break;
        }
        stack->kind = read_kind(reader, row, "kind");
        stack->device = (int16_t)small_number(reader, row, "device", -1);
        stack->is_cut = truth(reader, row, "cut");
        for (unsigned when = 0; when < AG_N_HELD_WHEN; when++)
            read_held(reader, row, keys[when], &stack->held[when]);
        for (unsigned what = 0; what < AG_N_HELD_MOVES; what++)
            stack->moved[what] =
                read_count(reader, part(reader, row, "moved"), ag_held_move_keys[what]);
        read_frames(reader, row, holders, stack);
    }
}

static void read_peaks(struct reader *reader, const json_t *root, struct ag_holders *holders)
{
    const json_t *peaks = member_array(reader, root, "peaks"), *row;
    size_t i;

    json_array_foreach(peaks, i, row)
    {
        int kind = read_kind(reader, row, "memory");
        struct ag_held_group *group = &holders->groups[ag_held_group(
            (enum ag_held_kind)kind, small_number(reader, row, "device", 0))];

        group->live = read_count(reader, row, "live_bytes");
        group->most = read_count(reader, row, "most_bytes");
        group->at_peak = read_count(reader, row, "peak_bytes");
    }
}

static void read_failure(struct reader *reader, const json_t *failure, struct ag_held_failure *ret)
{
    const json_t *device = json_object_get(failure, "device");

    if (!failure)
        return;
    ret->n = read_count(reader, failure, "times");
    ret->bytes = read_count(reader, failure, "bytes");
    ret->kind = read_kind(reader, failure, "kind");
    ret->device = (int16_t)json_integer_value(device);
    ret->free_bytes = read_count(reader, failure, "free_bytes");
    ret->total_bytes = read_count(reader, failure, "total_bytes");
    ret->cached_bytes = read_count(reader, failure, "cached_bytes");
    ret->pool_reserved = read_count(reader, failure, "pool_reserved_bytes");
    ret->pool_used = read_count(reader, failure, "pool_used_bytes");
}

static void read_holders_member(struct reader *reader, const json_t *root,
                                struct ag_holders *holders)
{
    if (!root)
        return;
    holders->most_frames = (uint32_t)small_number(reader, root, "most_frames", 0);
    holders->sample_bytes = read_count(reader, root, "sample_bytes");
    holders->lost = read_count(reader, root, "without_stack");
    /* Each stack counts as if it had been timed, which makes the same estimate. */
    holders->taken = holders->timed = read_count(reader, root, "taken");
    holders->timed_ns = read_count(reader, root, "taking_ns");
    read_peaks(reader, root, holders);
    read_failure(reader, part(reader, root, "failure"), &holders->failure);
    read_modules(reader, root, holders);
    read_stacks(reader, root, holders);
}

/* Rows between those that hold memory were of waits. */
static struct ag_held_stack *claim_free_row(struct ag_holders *holders, uint32_t *at)
{
    while (*at < holders->n_stacks && !is_unused(&holders->stacks[*at]))
        ++*at;
    return claim_row(holders, *at);
}

static void read_wait(struct reader *reader, const json_t *row, struct ag_holders *holders,
                      struct ag_held_stack *stack)
{
    uint32_t kind = word_of(text_of(reader, row, "kind"), ag_wait_names, AG_N_WAIT_KINDS);
    const char *call = text_of(reader, row, "call");

    if (kind == AG_N_WAIT_KINDS) /* of a later version */
        return;
    stack->device = (int16_t)kind;
    stack->call = add_holders_text(holders, call, strlen(call) + 1);
    stack->is_cut = truth(reader, row, "cut");
    stack->waited.times = read_count(reader, row, "times");
    stack->waited.ns = read_count(reader, row, "ns");
    stack->waited.longest_ns = read_count(reader, row, "longest_ns");
    read_frames(reader, row, holders, stack);
}

static void read_waits(struct reader *reader, const json_t *root, struct ag_holders *holders)
{
    const json_t *row;
    uint32_t at = 0;
    size_t i;

    if (!root)
        return;
    holders->wait_bound_ns = read_count(reader, root, "bound_ns");
    row = part(reader, root, "shorter");
    holders->short_waits[0].times = read_count(reader, row, "times");
    holders->short_waits[0].ns = read_count(reader, row, "ns");
    row = part(reader, root, "without_stack");
    holders->waits_lost.times = read_count(reader, row, "times");
    holders->waits_lost.ns = read_count(reader, row, "ns");
    if (holders->n_modules == 1) /* else they are those of who held memory */
        read_modules(reader, root, holders);
    json_array_foreach(member_array(reader, root, "stacks"), i, row)
    {
        struct ag_held_stack *stack = claim_free_row(holders, &at);

        if (stack)
            read_wait(reader, row, holders, stack);
    }
}

/* Who held memory, and who waited. */
static void read_holders_and_waits(struct reader *reader, const json_t *root,
                                   struct ag_holders *holders)
{
    const json_t *held = part(reader, root, "holders"), *waits = part(reader, root, "waits");

    if (!held && !waits)
        return;
    memcpy(holders->magic, AG_HOLDERS_MAGIC, sizeof(AG_HOLDERS_MAGIC));
    holders->bytes = sizeof(*holders);
    holders->n_text = holders->n_modules = 1;
    read_holders_member(reader, held, holders);
    read_waits(reader, waits, holders);
    if (!reader->bad && !ag_holders_are_sound(holders))
        fault(reader, held ? "holders" : "waits", "are damaged");
}

bool stats_from_json(const char *text, size_t length, struct process *process, char *why,
                     size_t why_size)
{
    struct reader reader = {.stats = process->stats, .why = why, .why_size = why_size};
    json_error_t error;
    json_t *root;

    if (!json_library_open()) {
        snprintf(why, why_size,
                 "is a JSON report, and there is no jansson here to read it with "
                 "(libjansson.so.4)");
        return false;
    }
    root = json_loadb(text, length, 0, &error);
    if (!root) {
        snprintf(why, why_size, "is not valid JSON: line %d, column %d: %.120s", error.line,
                 error.column, error.text);
        return false;
    }
    read_report(&reader, root, &process->moment);
    if (!reader.bad && process->holders)
        read_holders_and_waits(&reader, root, process->holders);
    json_delete(root); /* nobody else has it */
    return !reader.bad;
}

#endif
