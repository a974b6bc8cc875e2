/* The parser of settings: see options.h. Notes of each value where it comes from. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/settings/options.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interpose/core/base/log.h"
#include "interpose/core/base/text.h"
#include "interpose/core/report/audit/audit_memory.h"
#include "interpose/core/report/errors/errors_file.h"
#include "interpose/core/report/unused.h"
#include "interpose/core/settings/config.h"
#include "interpose/core/settings/pattern.h"

#define PREFIX "ALLOGRAFT_"

static const struct ag_option_info rows[] = {
#define AG_OPTION(field, name, type, preset, allowed, help) \
    {PREFIX #name, #type, preset, allowed, help},
#include "interpose/core/settings/options.def"
};

#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

/* Variables of the command and of the tests' set-up that are no settings of the library. */
static const char *const foreign_names[] = {PREFIX "LIBRARY", AG_UNUSED_VARIABLE,
                                            AG_ERRORS_VARIABLE, AG_AUDIT_MEMORY_VARIABLE};

/* Where an error has more to say than value and `allowed`, it goes here. */
struct reason {
    char text[600];
    size_t first_column; /* of the value */
};

/* What the words in capitals of `allowed` stand for, and what numbers are counted in, by type. */
static const struct {
    const char *type, *text;
} hints[] = {
    {"SIZE", " (BYTES as 4096, 64KiB, 512MiB, 1.5GiB or 1TiB; N% of the memory, N a whole number)"},
    {"BYTES", " (as 4096, 64KiB, 512MiB or 1GiB)"},
    {"WORD_OR_BYTES", " (as 4096, 64KiB, 512MiB or 1GiB)"},
    {"COUNT", " (a whole number, without a unit)"},
    {"SEGMENT", " (operations: a whole number, without a unit)"},
    {"PREFER", " (N is the number of a node, as in numa:0)"},
};

/* A parser of each type: 0, or -EINVAL. Few need to know what is allowed, or have more to say. */
#define PARSER(type)                                                                        \
    static int parse_##type(const char *value, __attribute__((unused)) const char *allowed, \
                            ag_type_##type *ret, __attribute__((unused)) struct reason *why)

/* The words of `allowed` stand in the order of the enumerations, which unit tests hold to. */
#define PARSE_WORD(type)                        \
    PARSER(type)                                \
    {                                           \
        int i = ag_text_choice(value, allowed); \
                                                \
        if (i < 0)                              \
            return -EINVAL;                     \
        *ret = (ag_type_##type)i;               \
        return 0;                               \
    }

PARSE_WORD(POLICY)
PARSE_WORD(FREE_MODE)
PARSE_WORD(LOG_LEVEL)
PARSE_WORD(MANAGED_BACKEND)
PARSE_WORD(ACCESS)
PARSE_WORD(PREFETCH)
PARSE_WORD(OOM)
PARSE_WORD(COPY)
PARSE_WORD(HOST_MODE)
PARSE_WORD(GUARD)
PARSE_WORD(ON_ERROR)
PARSE_WORD(WAIT_MODE)
PARSE_WORD(SWITCH)

PARSER(PREFER)
{
    return ag_prefer_parse(value, ret);
}

PARSER(SIZE)
{
    return ag_text_parse_size(value, &ret->value, &ret->percent);
}

/* 0 and the like are what other settings take for it, and no names that a file should have. */
static bool is_off(const char *value)
{
    static const char *const words[] = {"", "off", "0", "no", "none", "false"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (ag_text_same(value, words[i]))
            return true;
    }
    return false;
}

/* Are the placeholders known of a value that is the name of a file for each process? */
static int check_pattern(const char *value, const char *allowed, struct reason *why)
{
    const char *unknown = strstr(allowed, "PATH") ? ag_pattern_unknown(value) : NULL;

    if (!unknown)
        return 0;
    snprintf(why->text, sizeof(why->text),
             "column %zu: %.2s stands for nothing; allowed: %%p (process id), %%h (host), %%n "
             "(program), %%r (rank)",
             why->first_column + (size_t)(unknown - value), unknown);
    return -EINVAL;
}

PARSER(TEXT)
{
    const char *text = *value && is_off(value) && strstr(allowed, "off") ? "off" : value;
    size_t length = strlen(text);

    if (!length || length >= sizeof(ret->text) || check_pattern(text, allowed, why))
        return -EINVAL;
    memcpy(ret->text, text, length + 1);
    return 0;
}

PARSER(PATH)
{
    size_t length = strlen(value);

    if (length >= sizeof(ret->text) || check_pattern(value, allowed, why))
        return -EINVAL;
    if (is_off(value))
        length = 0;
    memcpy(ret->text, value, length);
    ret->text[length] = '\0';
    return 0;
}

PARSER(COUNT)
{
    uint64_t number;

    if (ag_number_in_range_parse(value, allowed, false, &number) || number > UINT32_MAX)
        return -EINVAL;
    *ret = (uint32_t)number;
    return 0;
}

PARSER(WORD_OR_COUNT)
{
    *ret = 0;
    return ag_text_choice(value, allowed) == 0
               ? 0
               : parse_COUNT(value, strchr(allowed, '|') + 1, ret, why);
}

PARSER(BYTES)
{
    return ag_number_in_range_parse(value, allowed, true, ret);
}

PARSER(WORD_OR_BYTES)
{
    *ret = 0;
    return ag_text_choice(value, allowed) == 0
               ? 0
               : parse_BYTES(value, strchr(allowed, '|') + 1, ret, why);
}

PARSER(STREAMS)
{
    return ag_stream_words_parse(value, why->first_column, ret, why->text, sizeof(why->text));
}

PARSER(ITERATION)
{
    return ag_iteration_parse(value, ret);
}

PARSER(SEGMENT)
{
    return ag_segment_parse(value, ret);
}

/* Parses rules, which come after those that *ret has. */
PARSER(RULES)
{
    if (is_off(value))
        return 0;
    return ag_rules_add(value, why->first_column, ret, why->text, sizeof(why->text));
}

static int parse_row(size_t i, const char *value, struct ag_options *options, struct reason *why)
{
    size_t row = 0;

    why->text[0] = '\0';
#define AG_OPTION(field, name, type, preset, allowed, help) \
    if (row++ == i)                                         \
        return parse_##type(value, allowed, &options->field, why);
#include "interpose/core/settings/options.def"
    return -EINVAL;
}

static const char *without_prefix(const char *name)
{
    return name + (ag_text_begins(name, PREFIX) ? strlen(PREFIX) : 0);
}

static int find_row(const char *name, size_t length)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        if (strlen(rows[i].name) == length && !strncmp(rows[i].name, name, length))
            return (int)i;
    }
    return -1;
}

static const char *type_hint(const char *type)
{
    for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++) {
        if (!strcmp(hints[i].type, type))
            return hints[i].text;
    }
    return "";
}

/* "did you mean NAME?", or where the names stand. `prefix` goes before the name. */
static void suggest_name(const char *written, const char *prefix, char *text, size_t size)
{
    struct ag_text_nearest nearest = {.written = without_prefix(written)};

    for (size_t i = 0; i < N_ROWS; i++)
        ag_text_nearest_try(&nearest, rows[i].name + strlen(PREFIX));
    if (nearest.name)
        snprintf(text, size, "did you mean %s%s?", prefix, nearest.name);
    else
        snprintf(text, size, "`allograft options` lists them");
}

/* Adds, after the words that are allowed, what those in capitals stand for, and a word that was
 * likely meant. */
static void explain_allowed(size_t i, const char *value, char *text, size_t size)
{
    char likely[80];

    snprintf(text, size, "%s%s", type_hint(rows[i].type),
             ag_text_suggest(likely, sizeof(likely), value, rows[i].allowed));
}

/* What the user gave must not make a second line of one. */
static void keep_to_one_line(char *line)
{
    for (; *line; line++) {
        if ((unsigned char)*line < 0x20 || *line == 0x7f)
            *line = '?';
    }
}

static void say_unknown(const char *name, char *why, size_t why_size)
{
    char likely[100];

    suggest_name(name, PREFIX, likely, sizeof(likely));
    snprintf(why, why_size, "unknown setting %s; %s", name, likely);
    keep_to_one_line(why);
}

static void say_bad(size_t i, const char *value, const struct reason *reason, char *why,
                    size_t why_size)
{
    char more[160];

    explain_allowed(i, value, more, sizeof(more));
    if (*reason->text)
        snprintf(why, why_size, "%s: %s", rows[i].name, reason->text);
    else
        snprintf(why, why_size, "%s=%.300s is not allowed; allowed: %s%s", rows[i].name, value,
                 rows[i].allowed, more);
    keep_to_one_line(why);
}

size_t ag_options_count(void)
{
    return N_ROWS;
}

const struct ag_option_info *ag_option_info(size_t i)
{
    return &rows[i];
}

int ag_option_check(const char *name, const char *value, char *why, size_t why_size)
{
    struct reason reason = {.first_column = 1};
    struct ag_options scratch;
    int i = find_row(name, strlen(name));

    if (i < 0) {
        say_unknown(name, why, why_size);
        return -ENOENT;
    }
    scratch.rules.n = scratch.rules.needs = 0;
    if (parse_row((size_t)i, value, &scratch, &reason)) {
        say_bad((size_t)i, value, &reason, why, why_size);
        return -EINVAL;
    }
    return 0;
}

/* ---- values and where they come from ------------------------------------------------------- */

static void set_defaults(struct ag_options *options)
{
    struct reason reason;

    options->rules.n = options->rules.needs = 0;
    for (size_t i = 0; i < N_ROWS; i++) {
        (void)parse_row(i, rows[i].default_text, options, &reason);
        options->origins[i] = (struct ag_origin){.kind = AG_ORIGIN_DEFAULT};
    }
    options->texts_used = 0;
}

/* Where the copy of `value` begins in the texts; what has no room is cut. */
static unsigned copy_value(struct ag_options *options, const char *value)
{
    const unsigned last = sizeof(options->texts) - 1;
    unsigned begin = options->texts_used;
    size_t length = strnlen(value, last - begin);

    memcpy(options->texts + begin, value, length);
    options->texts[begin + length] = '\0';
    options->texts_used = begin + length < last ? begin + (unsigned)length + 1 : last;
    return begin;
}

/* Row i has this value now; RULES of several lines of a file are joined. */
static void note_origin(struct ag_options *options, size_t i, enum ag_origin_kind kind,
                        unsigned line, const char *value)
{
    struct ag_origin *origin = &options->origins[i];
    bool joined = i == AG_OPTION_RULES && origin->kind == kind;
    size_t length = joined ? strlen(options->rules_text) : 0;

    if (i == AG_OPTION_RULES)
        snprintf(options->rules_text + length, sizeof(options->rules_text) - length, "%s%s",
                 joined ? "; " : "", value);
    *origin = (struct ag_origin){
        .kind = kind,
        .line = joined ? origin->line : line,
        .text = i == AG_OPTION_RULES ? 0 : copy_value(options, value),
    };
}

const char *ag_option_value(const struct ag_options *options, size_t i)
{
    if (options->origins[i].kind == AG_ORIGIN_DEFAULT)
        return rows[i].default_text;
    return i == AG_OPTION_RULES ? options->rules_text : options->texts + options->origins[i].text;
}

const char *ag_option_origin(const struct ag_options *options, size_t i, char *buffer, size_t size)
{
    const struct ag_origin *origin = &options->origins[i];

    if (origin->kind == AG_ORIGIN_FILE)
        snprintf(buffer, size, "%s:%u", options->config.text, origin->line);
    else
        snprintf(buffer, size, "%s", origin->kind == AG_ORIGIN_DEFAULT ? "default" : "environment");
    return buffer;
}

/* ---- the file ------------------------------------------------------------------------------ */

/* Tells "NAME:LINE: column N: WHY"; of the name no more than leaves room for the rest. */
static void tell_line(const char *name, unsigned line, const char *why, ag_options_tell *tell)
{
    char text[1000];

    snprintf(text, sizeof(text), "%.200s:%u: %s", name, line, why);
    keep_to_one_line(text);
    tell(AG_LOG_ERROR, text);
}

/* The row of a name as people write it in a file: with or without the prefix, in any case. -1. */
static int find_written(const char *name)
{
    name = without_prefix(name);
    for (size_t i = 0; i < N_ROWS; i++) {
        if (ag_text_same(name, rows[i].name + strlen(PREFIX)))
            return (int)i;
    }
    return -1;
}

/* Why the setting cannot stand in a file, or at this place of it; 0 when it can. */
static int refuse_entry(const struct ag_options *options, int i,
                        const struct ag_config_entry *entry, char *why, size_t why_size)
{
    char likely[100];

    if (i < 0) {
        suggest_name(entry->name, "", likely, sizeof(likely));
        snprintf(why, why_size, "column %zu: unknown setting %.60s; %s", entry->name_column,
                 entry->name, likely);
    } else if (i == AG_OPTION_CONFIG) {
        snprintf(why, why_size,
                 "column %zu: CONFIG names another file; allowed: all other settings",
                 entry->name_column);
    } else if (i != AG_OPTION_RULES && options->origins[i].kind == AG_ORIGIN_FILE) {
        snprintf(why, why_size, "column %zu: %s was set in line %u; allowed: once",
                 entry->name_column, rows[i].name + strlen(PREFIX), options->origins[i].line);
    } else if (*entry->value == '"' || *entry->value == '\'') {
        snprintf(why, why_size, "column %zu: a quotation mark; allowed: the value without any",
                 entry->value_column);
    } else {
        return 0;
    }
    return -EINVAL;
}

/* Takes one setting of the file in. 0, or -EINVAL with "column N: ..." in `why`. */
static int apply_entry(struct ag_options *options, unsigned line,
                       const struct ag_config_entry *entry, char *why, size_t why_size)
{
    struct reason reason = {.first_column = entry->value_column};
    int i = find_written(entry->name);
    char more[160];

    if (refuse_entry(options, i, entry, why, why_size))
        return -EINVAL;
    if (!parse_row((size_t)i, entry->value, options, &reason)) {
        note_origin(options, (size_t)i, AG_ORIGIN_FILE, line, entry->value);
        return 0;
    }
    explain_allowed((size_t)i, entry->value, more, sizeof(more));
    if (*reason.text)
        snprintf(why, why_size, "%s", reason.text);
    else
        snprintf(why, why_size, "column %zu: %s=%.300s is not allowed; allowed: %s%s",
                 entry->value_column, rows[i].name + strlen(PREFIX), entry->value, rows[i].allowed,
                 more);
    return -EINVAL;
}

/* The settings of the file's text over those that *options has. */
static int read_setting_text(const char *name, char *text, size_t length,
                             struct ag_options *options, ag_options_tell *tell)
{
    struct ag_config config;
    struct ag_config_entry entry;
    char why[700];
    int found, result = 0;

    ag_config_begin(&config, text, length);
    while ((found = ag_config_next(&config, &entry, why, sizeof(why)))) {
        if (found > 0 && !apply_entry(options, config.line, &entry, why, sizeof(why)))
            continue;
        tell_line(name, config.line, why, tell);
        result = -EINVAL;
    }
    return result;
}

static int read_file(const char *path, struct ag_options *options, ag_options_tell *tell)
{
    static char text[AG_CONFIG_MAX + 1];
    char why[200], line[500];
    size_t length;

    if (ag_config_load(path, text, &length, why, sizeof(why))) {
        snprintf(line, sizeof(line), PREFIX "CONFIG=%.200s %s", path, why);
        keep_to_one_line(line);
        tell(AG_LOG_ERROR, line);
        return -EINVAL;
    }
    return read_setting_text(path, text, length, options, tell);
}

int ag_options_read_text(const char *name, char *text, size_t length,
                         struct ag_options *ret_options, ag_options_tell *tell)
{
    set_defaults(ret_options);
    return read_setting_text(name, text, length, ret_options, tell);
}

/* ---- the environment ----------------------------------------------------------------------- */

static bool is_foreign(const char *name)
{
    for (size_t i = 0; i < sizeof(foreign_names) / sizeof(foreign_names[0]); i++) {
        if (!strcmp(name, foreign_names[i]))
            return true;
    }
    return false;
}

/* Tells of a variable of ours that no row knows. */
static void tell_unknown(const char *variable, size_t length, ag_options_tell *tell)
{
    char name[64], line[512];

    snprintf(name, sizeof(name), "%.*s", (int)length, variable);
    if (is_foreign(name))
        return;
    say_unknown(name, line, sizeof(line));
    tell(AG_LOG_WARN, line);
}

/* Takes row i's variable in, over what a file said. 0, or -EINVAL for a bad value. */
static int read_variable(size_t i, const char *value, struct ag_options *options,
                         ag_options_tell *tell)
{
    struct reason reason = {.first_column = 1};
    char line[1000];

    if (i == AG_OPTION_RULES)
        options->rules.n = options->rules.needs = 0;
    if (!parse_row(i, value, options, &reason)) {
        note_origin(options, i, AG_ORIGIN_ENVIRONMENT, 0, value);
        return 0;
    }
    say_bad(i, value, &reason, line, sizeof(line));
    tell(AG_LOG_ERROR, line);
    return -EINVAL;
}

int ag_options_read(char **environment, struct ag_options *ret_options, ag_options_tell *tell)
{
    const char *path = ag_option_text(environment, AG_OPTION_CONFIG);
    int result = 0;

    set_defaults(ret_options);
    /* A path that is too long is told below, as a bad value. */
    if (path && !is_off(path) && strlen(path) < sizeof(ret_options->config.text)) {
        memcpy(ret_options->config.text, path, strlen(path) + 1);
        result = read_file(path, ret_options, tell);
    }
    for (char **variable = environment; variable && *variable; variable++) {
        const char *equals = strchr(*variable, '=');
        int i;

        if (!equals || strncmp(*variable, PREFIX, strlen(PREFIX)) != 0)
            continue;
        i = find_row(*variable, (size_t)(equals - *variable));
        if (i < 0)
            tell_unknown(*variable, (size_t)(equals - *variable), tell);
        else if (ag_option_text(environment, (size_t)i) == equals + 1 &&
                 read_variable((size_t)i, equals + 1, ret_options, tell))
            result = -EINVAL;
    }
    return result;
}

static void tell_log(enum ag_log_level level, const char *line)
{
    ag_log(level, level == AG_LOG_ERROR ? "%s; nothing is redirected" : "%s", line);
}

int ag_options_read_own(char **environment, struct ag_options *ret_options)
{
    int result;

    ag_log_set_level(ag_options_log_level(environment));
    result = ag_options_read(environment, ret_options, tell_log);
    ag_log_set_level(ret_options->log);
    return result;
}

const char *ag_option_text(char **environment, size_t i)
{
    size_t length = strlen(rows[i].name);

    for (char **variable = environment; variable && *variable; variable++) {
        if (!strncmp(*variable, rows[i].name, length) && (*variable)[length] == '=')
            return *variable + length + 1;
    }
    return NULL;
}

enum ag_log_level ag_options_log_level(char **environment)
{
    const char *text = ag_option_text(environment, AG_OPTION_LOG);
    enum ag_log_level level = AG_LOG_WARN;

    if (text)
        (void)parse_LOG_LEVEL(text, rows[AG_OPTION_LOG].allowed, &level, NULL);
    return level;
}

bool ag_options_are_disabled(char **environment)
{
    const char *text = ag_option_text(environment, AG_OPTION_DISABLE);
    bool disable = false;

    if (text)
        (void)parse_SWITCH(text, rows[AG_OPTION_DISABLE].allowed, &disable, NULL);
    return disable;
}

bool ag_options_watch_launches(const struct ag_options *options)
{
    bool asks = options->prefetch == AG_PREFETCH_LAUNCH;

    for (unsigned i = 0; i < options->rules.n && !asks; i++)
        asks = ag_rule_watches_launches(&options->rules.rule[i]);
    return asks;
}

bool ag_options_ask_for_nvtx(const struct ag_options *options)
{
    bool by_name = false;

    for (unsigned i = 0; i < options->graph.n && !by_name; i++)
        by_name = options->graph.word[i].kind == AG_STREAMS_NAME;
    return !options->disable && options->graph.n &&
           (by_name || options->graph_iteration.kind == AG_ITERATION_NVTX);
}

uint64_t ag_size_bytes(struct ag_size size, uint64_t total_bytes)
{
    return size.percent ? total_bytes / 100 * size.value + total_bytes % 100 * size.value / 100
                        : size.value;
}
