/* The program's own executable graphs in a report: see render_graphs.h. */
#include "interpose/core/report/graphs/render_graphs.h"

#include "interpose/core/report/render_parts.h"

/* In the order of enum ag_own_graph_bytes: in JSON, in the text. */
static const struct {
    const char *key, *label;
} rows[AG_N_GRAPH_BYTES] = {
    {"instantiation_bytes", "taken by instantiations"},
    {"first_launch_bytes", "taken by first launches"},
    {"used_bytes", "of memory nodes, in use at exit"},
    {"used_high_bytes", "of memory nodes, most in use"},
    {"reserved_bytes", "of memory nodes, held by the driver at exit"},
    {"reserved_high_bytes", "of memory nodes, most held by the driver"},
};

const char *ag_render_graph_key(enum ag_own_graph_bytes which)
{
    return rows[which].key;
}

const char *ag_render_graph_label(enum ag_own_graph_bytes which)
{
    return rows[which].label;
}

static bool is_level_known(const struct ag_own_graph_stats *device, enum ag_own_graph_bytes which)
{
    return which < AG_GRAPH_USED ? device->is_measured : device->has_levels;
}

bool ag_render_graph_bytes_shown(const struct ag_own_graph_stats *device,
                                 enum ag_own_graph_bytes which)
{
    return is_level_known(device, which) &&
           (which < AG_GRAPH_USED || device->bytes[AG_GRAPH_RESERVED_HIGH]);
}

static bool is_met(const struct ag_own_graph_stats *device)
{
    return device->is_measured || device->has_levels;
}

static void json_device(struct ag_emitter *json, const struct ag_own_graph_stats *device,
                        unsigned ordinal)
{
    ag_emit_line(json, 1);
    ag_emit_object(json, NULL);
    ag_emit_number(json, "device", ordinal);
    for (unsigned i = 0; i < AG_N_GRAPH_BYTES; i++) {
        if (is_level_known(device, i))
            ag_emit_number(json, rows[i].key, device->bytes[i]);
        else
            ag_emit_raw(json, rows[i].key, "null");
    }
    ag_emit_end(json);
}

void ag_render_graphs_json(struct ag_emitter *json, const struct ag_stats *stats)
{
    ag_emit_line(json, 0);
    ag_emit_object(json, "own_graphs");
    ag_render_group_json(json, stats, "own_graphs");
    ag_emit_number(json, "live", stats->own_graphs.current);
    ag_emit_number(json, "live_peak", stats->own_graphs.peak);
    ag_emit_array(json, "devices");
    for (unsigned i = 0; i < AG_STATS_DEVICES; i++) {
        if (is_met(&stats->own_graph_devices[i]))
            json_device(json, &stats->own_graph_devices[i], i);
    }
    ag_emit_end(json);
    ag_emit_end(json);
}

static void text_device(struct ag_text *text, const struct ag_own_graph_stats *device,
                        unsigned ordinal)
{
    char bytes[32];
    bool first = true;

    for (unsigned i = 0; i < AG_N_GRAPH_BYTES; i++) {
        if (!ag_render_graph_bytes_shown(device, i))
            continue;
        if (first)
            ag_text_add(text, "    of device %u\n", ordinal);
        first = false;
        ag_text_add(text, "    %-52s %14s\n", rows[i].label,
                    ag_text_size(bytes, sizeof(bytes), device->bytes[i]));
    }
}

void ag_render_graphs_text(struct ag_text *text, const struct ag_stats *stats)
{
    unsigned long long n = ag_stats_counter_of(stats, AG_STAT_OWN_GRAPHS_INSTANTIATED);
    unsigned long long failed = ag_stats_counter_of(stats, AG_STAT_OWN_GRAPHS_FAILED);

    if (!n && !failed)
        return;
    ag_text_add(text, "  the program's own executable graphs\n");
    ag_text_add(text, "    %-52s %14llu\n", "instantiated", n);
    if (failed)
        ag_text_add(text, "    %-52s %14llu\n", "instantiations that failed", failed);
    ag_text_add(text, "    %-52s %14llu\n", "most at once",
                (unsigned long long)stats->own_graphs.peak);
    ag_text_add(text, "    %-52s %14llu\n", "not destroyed",
                (unsigned long long)stats->own_graphs.current);
    for (unsigned i = 0; i < AG_STATS_DEVICES; i++)
        text_device(text, &stats->own_graph_devices[i], i);
}
