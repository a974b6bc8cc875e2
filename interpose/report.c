/* Writes the report: see report.h. One traversal of the lists for text, one for JSON. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "report.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "context.h"
#include "driver.h"
#include "lifecycle.h"
#include "report_pools.h"
#include "stats.h"
#include "version.h"

static bool in_child;

struct stat_row {
    const char *group, *key, *label;
};

static const struct stat_row stat_rows[] = {
#define AG_STAT(id, group, key, label) {#group, #key, label},
#include "stats.def"
};

static const char *const place_names[] = {"native", "pool", "managed", "host", "spilled"};

/* The sum over slots of one member of a device's placement row. */
#define PLACE_SUM(device, place, member) \
    ag_stats_sum(offsetof(struct ag_stats_slot, places[device][place].member))

#define RULE_SUM(rule, member) ag_stats_sum(offsetof(struct ag_stats_slot, rules[rule].member))

void ag_report_in_child(void)
{
    in_child = true;
}

bool ag_report_gpu_is_open(void)
{
    DIR *directory = opendir("/proc/self/fd");
    const struct dirent *entry;
    char target[64];
    bool found = false;

    while (directory && !found && (entry = readdir(directory))) {
        ssize_t length = readlinkat(dirfd(directory), entry->d_name, target, sizeof(target) - 1);

        target[length > 0 ? length : 0] = '\0';
        found = !strcmp(target, "/dev/nvidiactl") || !strncmp(target, "/dev/nvidia-uvm", 15);
    }
    if (directory)
        closedir(directory);
    return found;
}

/* Nanoseconds for ticks of the counters' clock. */
static double ticks_to_ns(uint64_t ticks)
{
    const struct ag_run *run = ag_lifecycle_run();
    uint64_t passed = ag_clock_ticks() - run->started_ticks;

    return passed ? (double)ticks * (double)(ag_clock_ns() - run->started_ns) / (double)passed : 0;
}

static const char *rank_text(void)
{
    static const char *const names[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *text = getenv(names[i]);
        size_t digits = text ? strspn(text, "0123456789") : 0;

        if (digits && digits < 10 && !text[digits])
            return text;
    }
    return NULL;
}

static const char *host_name(void)
{
    static char name[65];

    if (gethostname(name, sizeof(name) - 1))
        snprintf(name, sizeof(name), "unknown");
    return name;
}

static uint64_t group_sum(const char *group)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < AG_N_STATS; i++) {
        if (!strcmp(stat_rows[i].group, group))
            sum += ag_stats_counter((enum ag_stat)i);
    }
    return sum;
}

/* The row of the counters' tables that stands for a device. */
static unsigned stats_row(const struct ag_device *device)
{
    unsigned ordinal = (unsigned)device->ordinal;

    return ordinal < AG_STATS_DEVICES ? ordinal : AG_STATS_DEVICES - 1;
}

static bool intercepted(void)
{
    for (unsigned i = 0; i < AG_N_HOOKS; i++) {
        if (ag_stats_hits((enum ag_hook)i))
            return true;
    }
    return false;
}

/* --- warnings, in both forms --- */

/* The i-th warning, or NULL behind the last; memory of the function. */
static const char *warning(unsigned i)
{
    static char text[256];
    unsigned n = 0;

    if (ag_lifecycle_run()->trouble && n++ == i) {
        snprintf(text, sizeof(text), "nothing was redirected: %s", ag_lifecycle_run()->trouble);
        return text;
    }
    if (!ag_lifecycle_run()->trouble && ag_context_count() && n++ == i &&
        !ag_stats_counter(AG_STAT_REDIRECTED) && !ag_stats_counter(AG_STAT_PASSED))
        return "the program allocated nothing through cudaMalloc or cuMemAlloc";
    if (ag_stats_counter(AG_STAT_DOOR_UNMATCHED) && n++ == i)
        return "cuGetProcAddress returned addresses that belong to no exported symbol: those calls "
               "were not intercepted";
    if (ag_stats_counter(AG_STAT_FALLBACK_NO_IPC) && n++ == i)
        return "the program asked for an IPC handle of pool memory, which the driver refuses; set "
               "ALLOGRAFT_POLICY=native for it";
    return NULL;
}

/* --- JSON --- */

static void json_group(struct ag_text *text, const char *group)
{
    bool first = true;

    for (unsigned i = 0; i < AG_N_STATS; i++) {
        if (strcmp(stat_rows[i].group, group))
            continue;
        ag_text_add(text, "%s\"%s\":%llu", first ? "" : ",", stat_rows[i].key,
                    (unsigned long long)ag_stats_counter((enum ag_stat)i));
        first = false;
    }
}

static void json_process(struct ag_text *text)
{
    const struct ag_run *run = ag_lifecycle_run();
    const char *rank = rank_text();

    ag_text_add(text, "\"process\":{\"pid\":%d,\"program\":", run->pid);
    ag_text_add_json(text, program_invocation_short_name);
    ag_text_add(text, ",\"host\":");
    ag_text_add_json(text, host_name());
    ag_text_add(text, ",\"rank\":");
    if (rank)
        ag_text_add(text, "%d", atoi(rank));
    else
        ag_text_add(text, "null");
    ag_text_add(text, ",\"elapsed_ns\":%llu,\"ended_by\":\"%s\"},\n",
                (unsigned long long)(ag_clock_ns() - run->started_ns), run->ended_by);
}

static void json_settings(struct ag_text *text, const struct ag_options *options)
{
    static const char *const sources[] = {"default", "file", "environment"};
    char origin[AG_TEXT_MAX + 16];

    ag_text_add(text, "\"settings\":[");
    for (size_t i = 0; i < ag_options_count(); i++) {
        enum ag_origin_kind kind = options->origins[i].kind;

        ag_text_add(text, "%s\n {\"name\":\"%s\",\"value\":", i ? "," : "",
                    ag_option_info(i)->name);
        ag_text_add_json(text, ag_option_value(options, i));
        ag_text_add(text, ",\"source\":\"%s\"", sources[kind]);
        if (kind == AG_ORIGIN_FILE) {
            ag_text_add(text, ",\"place\":");
            ag_text_add_json(text, ag_option_origin(options, i, origin, sizeof(origin)));
        }
        ag_text_add(text, "}");
    }
    ag_text_add(text, "],\n");
}

static void json_rules(struct ag_text *text, const struct ag_rules *rules)
{
    if (!rules->n)
        return;
    ag_text_add(text, "\"rules\":[");
    for (unsigned i = 0; i < rules->n; i++) {
        ag_text_add(text, "%s\n {\"text\":", i ? "," : "");
        ag_text_add_json(text, rules->rule[i].text);
        ag_text_add(text, ",\"hits\":%llu,\"bytes\":%llu}", (unsigned long long)RULE_SUM(i, hits),
                    (unsigned long long)RULE_SUM(i, bytes));
    }
    ag_text_add(text, "],\n");
}

static void json_coverage(struct ag_text *text)
{
    bool first = true;

    ag_text_add(text, "\"coverage\":{\"intercepted\":%s,\"redirecting\":%s,\"libcuda\":",
                intercepted() ? "true" : "false", ag_lifecycle_run()->trouble ? "false" : "true");
    ag_text_add_json(text, ag_driver_path());
    ag_text_add(text, ",\n \"doors\":{");
    json_group(text, "doors");
    ag_text_add(text, "},\n \"hooks\":{");
    for (unsigned i = 0; i < AG_N_HOOKS; i++) {
        uint64_t hits = ag_stats_hits((enum ag_hook)i);

        if (hits)
            ag_text_add(text, "%s\"%s\":%llu", first ? "" : ",",
                        ag_hook_info((enum ag_hook)i)->symbol, (unsigned long long)hits);
        first = first && !hits;
    }
    ag_text_add(text, "},\n ");
    json_group(text, "calls");
    ag_text_add(text, ",\n \"fallbacks\":{");
    json_group(text, "fallbacks");
    ag_text_add(text, "}},\n");
}

static void json_placement(struct ag_text *text, unsigned device, unsigned place)
{
    uint64_t allocs = PLACE_SUM(device, place, allocs), frees = PLACE_SUM(device, place, frees);
    bool first = true;

    ag_text_add(text,
                "\"%s\":{\"allocs\":%llu,\"frees\":%llu,\"failed\":%llu,\"alloc_bytes\":%llu,"
                "\"current_bytes\":%llu,\"current_blocks\":%llu,\"peak_bytes\":%llu,"
                "\"alloc_ns\":%.0f,\"free_ns\":%.0f,\"size_histogram\":[",
                place_names[place], (unsigned long long)allocs, (unsigned long long)frees,
                (unsigned long long)PLACE_SUM(device, place, failed),
                (unsigned long long)PLACE_SUM(device, place, alloc_bytes),
                (unsigned long long)ag_level_current(&ag_stats.bytes[device][place]),
                (unsigned long long)(allocs - frees),
                (unsigned long long)atomic_load(&ag_stats.bytes[device][place].peak),
                ticks_to_ns(PLACE_SUM(device, place, alloc_ticks)),
                ticks_to_ns(PLACE_SUM(device, place, free_ticks)));
    for (unsigned i = 0; i < AG_SIZE_CLASSES; i++) {
        uint64_t count = PLACE_SUM(device, place, sizes[i]);

        if (count)
            ag_text_add(text, "%s{\"up_to_bytes\":%llu,\"count\":%llu}", first ? "" : ",",
                        1ull << (i + 9), (unsigned long long)count);
        first = first && !count;
    }
    ag_text_add(text, "]}");
}

static void json_devices(struct ag_text *text)
{
    ag_text_add(text, "\"devices\":[");
    for (unsigned i = 0; ag_device_met(i); i++) {
        const struct ag_device *device = ag_device_met(i);

        ag_text_add(text, "%s\n {\"ordinal\":%d,\"name\":", i ? "," : "", device->ordinal);
        ag_text_add_json(text, device->name);
        ag_text_add(text, ",\"total_bytes\":%llu,\"placements\":{",
                    (unsigned long long)device->total_bytes);
        for (unsigned place = 0; place < AG_N_PLACEMENTS; place++) {
            ag_text_add(text, place ? ",\n  " : "\n  ");
            json_placement(text, stats_row(device), place);
        }
        ag_text_add(text, "}}");
    }
    ag_text_add(text, "],\n");
}

static void write_json(struct ag_text *text, const struct ag_options *options)
{
    ag_text_add(text, "{\"schema\":\"allograft-stats/1\",\"version\":\"%s\",\n", AG_VERSION);
    json_process(text);
    json_settings(text, options);
    json_rules(text, &options->rules);
    json_coverage(text);
    json_devices(text);
    ag_text_add(text, "\"frees\":{");
    json_group(text, "frees");
    ag_text_add(text, ",\n \"drain_reasons\":{");
    json_group(text, "drains");
    ag_text_add(text, "},\n \"barriers_paid\":{");
    json_group(text, "paid");
    ag_text_add(text, "},\n \"pending_peak_bytes\":%llu},\n\"cache\":{",
                (unsigned long long)atomic_load(&ag_stats.pending_bytes.peak));
    json_group(text, "cache");
    ag_text_add(text, ",\"peak_bytes\":%llu},\n\"managed\":{",
                (unsigned long long)atomic_load(&ag_stats.cached_peak));
    json_group(text, "managed");
    ag_text_add(text, "},\n\"pressure\":{");
    json_group(text, "pressure");
    ag_text_add(text, "},\n\"async\":{");
    json_group(text, "async");
    ag_text_add(text, "},\n");
    ag_report_pools_json(text);
    ag_text_add(text, "\"warnings\":[");
    for (unsigned i = 0; warning(i); i++) {
        ag_text_add(text, i ? "," : "");
        ag_text_add_json(text, warning(i));
    }
    ag_text_add(text, "]}\n");
}

/* --- text --- */

/* The lines of a group whose counters are not zero. */
static void text_group(struct ag_text *text, const char *group, const char *title)
{
    if (!group_sum(group))
        return;
    ag_text_add(text, "  %s\n", title);
    for (unsigned i = 0; i < AG_N_STATS; i++) {
        uint64_t count = ag_stats_counter((enum ag_stat)i);

        if (count && !strcmp(stat_rows[i].group, group))
            ag_text_add(text, "    %-52s %14llu\n", stat_rows[i].label, (unsigned long long)count);
    }
}

static void text_placement(struct ag_text *text, unsigned device, unsigned place)
{
    uint64_t allocs = PLACE_SUM(device, place, allocs), frees = PLACE_SUM(device, place, frees);
    char total[32], current[32], peak[32], per_alloc[32], per_free[32];

    if (!allocs && !PLACE_SUM(device, place, failed))
        return;
    ag_text_size(total, sizeof(total), PLACE_SUM(device, place, alloc_bytes));
    ag_text_size(current, sizeof(current), ag_level_current(&ag_stats.bytes[device][place]));
    ag_text_size(peak, sizeof(peak), atomic_load(&ag_stats.bytes[device][place].peak));
    ag_text_duration(per_alloc, sizeof(per_alloc),
                     allocs ? ticks_to_ns(PLACE_SUM(device, place, alloc_ticks)) / (double)allocs
                            : 0);
    ag_text_duration(per_free, sizeof(per_free),
                     frees ? ticks_to_ns(PLACE_SUM(device, place, free_ticks)) / (double)frees : 0);
    ag_text_add(text, "    %-8s %10llu %10llu %12s %12s %12s %10s %10s\n", place_names[place],
                (unsigned long long)allocs, (unsigned long long)frees, total, peak, current,
                per_alloc, per_free);
}

/* One line of "<=size: count" for the sizes asked for on a device. */
static void text_sizes(struct ag_text *text, unsigned device)
{
    bool first = true;

    for (unsigned i = 0; i < AG_SIZE_CLASSES; i++) {
        uint64_t count = 0;
        char size[32];

        for (unsigned place = 0; place < AG_N_PLACEMENTS; place++)
            count += PLACE_SUM(device, place, sizes[i]);
        if (!count)
            continue;
        ag_text_size(size, sizeof(size), 1ull << (i + 9));
        ag_text_add(text, "%s%s: %llu", first ? "    sizes up to " : ", ", size,
                    (unsigned long long)count);
        first = false;
    }
    if (!first)
        ag_text_add(text, "\n");
}

static void text_devices(struct ag_text *text)
{
    for (unsigned i = 0; ag_device_met(i); i++) {
        const struct ag_device *device = ag_device_met(i);
        char total[32];

        ag_text_size(total, sizeof(total), device->total_bytes);
        ag_text_add(text, "  device %d, %s, %s\n", device->ordinal, device->name, total);
        ag_text_add(text, "    %-8s %10s %10s %12s %12s %12s %10s %10s\n", "memory", "allocs",
                    "frees", "total", "peak", "at exit", "per alloc", "per free");
        for (unsigned place = 0; place < AG_N_PLACEMENTS; place++)
            text_placement(text, stats_row(device), place);
        text_sizes(text, stats_row(device));
    }
}

static void text_coverage(struct ag_text *text)
{
    ag_text_add(text, "  coverage\n");
    for (unsigned i = 0; i < AG_N_STATS; i++) {
        uint64_t count = ag_stats_counter((enum ag_stat)i);

        if (count && (!strcmp(stat_rows[i].group, "doors") || !strcmp(stat_rows[i].group, "calls")))
            ag_text_add(text, "    %-52s %14llu\n", stat_rows[i].label, (unsigned long long)count);
    }
}

/* Wrapped at 100 columns; what is no default is marked. Rules stand below by themselves. */
static void text_settings(struct ag_text *text, const struct ag_options *options)
{
    static const char *const marks[] = {"", "+", "*"};
    size_t column = 100;

    ag_text_add(text, "  settings");
    for (size_t i = 0; i < ag_options_count(); i++) {
        const char *name = ag_option_info(i)->name + strlen("ALLOGRAFT_");
        const char *value = ag_option_value(options, i);
        const char *mark = marks[options->origins[i].kind];
        char number[16];
        size_t length;

        snprintf(number, sizeof(number), "%u", options->rules.n);
        if (i == AG_OPTION_RULES && options->rules.n)
            value = number;
        length = 2 + strlen(name) + strlen(value) + strlen(mark);
        if (column + length > 100) {
            ag_text_add(text, "\n   ");
            column = 3;
        }
        ag_text_add(text, " %s=%s%s", name, value, mark);
        column += length;
    }
    ag_text_add(text, "\n    (* set by you");
    if (*options->config.text)
        ag_text_add(text, ", + by %s", options->config.text);
    ag_text_add(text, ")\n");
}

static void text_rule(struct ag_text *text, unsigned i, const char *what)
{
    char bytes[32];

    ag_text_size(bytes, sizeof(bytes), RULE_SUM(i, bytes));
    ag_text_add(text, "    %10llu %12s  %s\n", (unsigned long long)RULE_SUM(i, hits), bytes, what);
}

static void text_rules(struct ag_text *text, const struct ag_rules *rules)
{
    if (!rules->n)
        return;
    ag_text_add(text, "  rules\n    %10s %12s\n", "allocs", "total");
    for (unsigned i = 0; i < rules->n; i++)
        text_rule(text, i, rules->rule[i].text);
    text_rule(text, AG_MAX_RULES, "(no rule)");
}

static void write_text(struct ag_text *text, const struct ag_options *options)
{
    const struct ag_run *run = ag_lifecycle_run();
    char elapsed[32], cached[32];

    ag_text_duration(elapsed, sizeof(elapsed), (double)(ag_clock_ns() - run->started_ns));
    ag_text_add(text, "allograft %s: %s (process %d) after %s\n", AG_VERSION,
                program_invocation_short_name, run->pid, elapsed);
    for (unsigned i = 0; warning(i); i++)
        ag_text_add(text, "  warning: %s\n", warning(i));
    text_settings(text, options);
    text_rules(text, &options->rules);
    text_devices(text);
    text_group(text, "frees", "frees");
    text_group(text, "drains", "why frees drained the context");
    text_group(text, "paid", "waits that ordered frees owed, paid");
    text_group(text, "cache", "cache of freed blocks");
    if (atomic_load(&ag_stats.cached_peak))
        ag_text_add(text, "    %-52s %14s\n", "most bytes held",
                    ag_text_size(cached, sizeof(cached), atomic_load(&ag_stats.cached_peak)));
    text_group(text, "managed", "managed memory");
    text_group(text, "pressure", "want of memory");
    ag_report_pools_text(text);
    text_group(text, "async", "the program's own stream-ordered calls");
    text_group(text, "fallbacks", "left to the driver because");
    text_coverage(text);
}

/* --- where it goes --- */

/* `pattern` with %p %h %n %r filled in. */
static void expand(const char *pattern, char *path, size_t capacity)
{
    size_t length = 0;
    bool has_pid = false;

    path[0] = '\0';
    for (; *pattern && length + 1 < capacity; pattern++) {
        const char *rank = rank_text();
        char letter = '\0';
        int added;

        if (*pattern == '%')
            letter = pattern[1];
        if (letter == 'p')
            added = snprintf(path + length, capacity - length, "%d", ag_lifecycle_run()->pid);
        else if (letter == 'h')
            added = snprintf(path + length, capacity - length, "%s", host_name());
        else if (letter == 'n')
            added = snprintf(path + length, capacity - length, "%s", program_invocation_short_name);
        else if (letter == 'r')
            added = snprintf(path + length, capacity - length, "%s", rank ? rank : "0");
        else
            added = snprintf(path + length, capacity - length, "%c", *pattern);
        has_pid = has_pid || letter == 'p';
        pattern += letter && strchr("phnr", letter);
        length += added > 0 ? (size_t)added : 0;
    }
    if (in_child && !has_pid && length + 1 < capacity)
        snprintf(path + length, capacity - length, ".%d", ag_lifecycle_run()->pid);
}

/* To `fd`, or to the file; one line on stderr when that does not work. */
static void deliver(const struct ag_text *text, const char *path)
{
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : STDERR_FILENO;
    int result = fd < 0 ? -errno : 0;

    if (!result && (path || ag_log_stderr_is_ours()))
        result = ag_text_write(text, fd);
    if (path && fd >= 0 && close(fd) && !result)
        result = -errno;
    if (result && path)
        ag_log_error("the report could not be written to %s: %s", path, strerror(-result));
}

void ag_report_write(const struct ag_options *options)
{
    struct ag_text text = {0};
    size_t length = strlen(options->stats.text);
    char path[4096];
    bool to_file = strcmp(options->stats.text, "stderr") != 0;

    if (!strcmp(options->stats.text, "off"))
        return;
    if (length > 5 && !strcmp(options->stats.text + length - 5, ".json"))
        write_json(&text, options);
    else
        write_text(&text, options);
    if (text.truncated)
        ag_log_error("no memory for the whole report");
    if (to_file)
        expand(options->stats.text, path, sizeof(path));
    deliver(&text, to_file ? path : NULL);
    ag_text_finish(&text);
}
