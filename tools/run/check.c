/* check.c: checks the settings of the environment, points at mistakes, and prints
 * `options --check`. */
#include "interpose/core/settings/options.h"
#include "tools/base/complain.h"
#include "tools/line/command_line.h"
#include "tools/run/environment.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interpose/core/base/text.h"

#define COLUMN_GAP  2
#define POINT_WIDTH 90 /* how much of a long line is shown around a mistake */

static struct ag_options options;
static size_t n_wrong;

/* ---- mistakes ------------------------------------------------------------------------------ */

static bool is_continuation(char c)
{
    return (c & 0xc0) == 0x80;
}

void settings_point_at(const char *text, size_t column)
{
    size_t length = strlen(text), begin = 0, end, caret = 0;

    if (column < 1 || column > length + 1)
        return;
    if (length > POINT_WIDTH && column > POINT_WIDTH / 2)
        begin = column - POINT_WIDTH / 2;
    while (begin && is_continuation(text[begin]))
        begin--;
    end = begin + POINT_WIDTH < length ? begin + POINT_WIDTH : length;
    fputs("  ", stderr);
    for (size_t i = begin; i < end; i++) {
        bool shown = (unsigned char)text[i] >= 0x20 && text[i] != 0x7f;

        fputc(shown ? text[i] : ' ', stderr);
        caret += i + 1 < column && !is_continuation(text[i]);
    }
    fprintf(stderr, "\n  %*s^\n", (int)caret, "");
}

/* Copies line `number` of the file without its newline, cut at `size`; false when there is none. */
static bool read_numbered_line(const char *path, unsigned long number, char *text, size_t size)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t room = 0;
    bool found = false;

    while (file && number && getline(&line, &room, file) >= 0)
        found = --number == 0;
    if (found)
        snprintf(text, size, "%.*s", (int)strcspn(line, "\n"), line);
    free(line);
    if (file)
        fclose(file);
    return found;
}

/* The value of the variable that a message begins with, or NULL. */
static const char *variable_value(const char *message)
{
    char name[64];

    snprintf(name, sizeof(name), "%.*s", (int)strcspn(message, ":"), message);
    return getenv(name);
}

/* Shows the place that a message names: "ALLOGRAFT_RULES: column 3: ..." or "FILE:7: column 3:
 * ...". Other messages name none. */
static void point_at_place(const char *message)
{
    const char *column = strstr(message, ": column "), *number = column, *text = NULL;
    const char *path = getenv("ALLOGRAFT_CONFIG");
    char line[4096];

    if (!column)
        return;
    while (number > message && number[-1] >= '0' && number[-1] <= '9')
        number--;
    if (number < column && number > message && number[-1] == ':' && path &&
        read_numbered_line(path, strtoul(number, NULL, 10), line, sizeof(line)))
        text = line;
    else
        text = variable_value(message);
    if (text)
        settings_point_at(text, strtoul(column + strlen(": column "), NULL, 10));
}

static void tell_mistake(enum ag_log_level level, const char *line)
{
    (void)level; /* what the library only warns about is a mistake here */
    command_complain("%s", line);
    point_at_place(line);
    n_wrong++;
}

/* The setting whose name is a typo or two away, or NULL. */
static const char *likely_setting(const char *name)
{
    for (size_t i = 0; i < ag_options_count(); i++) {
        const char *setting = ag_option_info(i)->name;

        if (ag_text_distance(name, setting) <= strlen(setting) / 6)
            return setting;
    }
    return NULL;
}

/* The library only looks at variables that begin with ALLOGRAFT_: warns of typos in that prefix. */
static void warn_of_near_names(void)
{
    for (char **variable = environ; variable && *variable; variable++) {
        char name[64];
        const char *likely;

        snprintf(name, sizeof(name), "%.*s", (int)strcspn(*variable, "="), *variable);
        likely = strncmp(name, "ALLOGRAFT_", strlen("ALLOGRAFT_")) ? likely_setting(name) : NULL;
        if (likely)
            command_complain("warning: %s is not a setting; did you mean %s?", name, likely);
    }
}

size_t settings_check_environment(void)
{
    n_wrong = 0;
    warn_of_near_names();
    (void)ag_options_read(environ, &options, tell_mistake);
    return n_wrong;
}

bool settings_name_file(void)
{
    return *options.config.text;
}

const char *settings_report_file(void)
{
    static const char *const words[] = {"off", "stderr", "full"};
    const char *report = options.stats.text;

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (!strcmp(report, words[i]))
            return "";
    }
    return report;
}

const char *settings_trace_file(void)
{
    return options.trace.text;
}

bool settings_ask_for_nvtx(void)
{
    return ag_options_ask_for_nvtx(&options);
}

/* A user who wants no report or no warnings does not want this one. Without a folder nothing is
 * known about children of the program. */
const char *settings_watched_counters(void)
{
    bool silent = options.disable || !strcmp(options.stats.text, "off") ||
                  !strcmp(options.counters.text, "off") || options.log < AG_LOG_WARN;

    return silent ? NULL : options.counters.text;
}

/* ---- the tables ---------------------------------------------------------------------------- */

static int wider(int width, const char *text)
{
    return (int)strlen(text) > width ? (int)strlen(text) : width;
}

/* The value of row i as it is shown; of rules only their number, since they are listed below. */
static const char *shown_value(size_t i)
{
    static char count[32];

    if (i != AG_OPTION_RULES || !options.rules.n)
        return ag_option_value(&options, i);
    snprintf(count, sizeof(count), "%u rule%s", options.rules.n, options.rules.n > 1 ? "s" : "");
    return count;
}

static void print_settings(void)
{
    char origin[AG_TEXT_MAX + 16];
    int name = 0, value = 0;

    for (size_t i = 0; i < ag_options_count(); i++) {
        name = wider(name, ag_option_info(i)->name);
        /* A long path does not widen the column. */
        if (strlen(shown_value(i)) <= 20)
            value = wider(value, shown_value(i));
    }
    for (size_t i = 0; i < ag_options_count(); i++)
        printf("%-*s  %-*s  %s\n", name, ag_option_info(i)->name, value, shown_value(i),
               ag_option_origin(&options, i, origin, sizeof(origin)));
}

static void print_rule(int width, const char *number, const char *conditions, const char *placement,
                       const char *settings)
{
    printf("%4s  %-*s  %-*s%s\n", number, width, conditions,
           *settings ? (int)strlen("placement") + COLUMN_GAP : 0, placement, settings);
}

static void print_user_rule(int width, unsigned i)
{
    const struct ag_rule *rule = &options.rules.rule[i];
    char number[16], conditions[AG_RULE_TEXT], placement[AG_RULE_TEXT], settings[AG_RULE_TEXT];
    int hidden_by = ag_rules_hidden_by(&options.rules, i);

    snprintf(number, sizeof(number), "%u", i + 1);
    ag_rule_conditions(rule, conditions, sizeof(conditions));
    ag_rule_placement(rule, placement, sizeof(placement));
    ag_rule_settings(rule, settings, sizeof(settings));
    print_rule(width, number, conditions, placement, settings);
    if (hidden_by >= 0)
        printf("      rule %u never decides: rule %d applies wherever it does\n", i + 1,
               hidden_by + 1);
}

static void print_rules(void)
{
    char text[AG_RULE_TEXT];
    int width = (int)strlen("conditions");

    for (unsigned i = 0; i < options.rules.n; i++) {
        ag_rule_conditions(&options.rules.rule[i], text, sizeof(text));
        width = wider(width, text);
    }
    for (size_t i = 0; ag_rules_exporter(i); i++) {
        snprintf(text, sizeof(text), "from=%s", ag_rules_exporter(i));
        width = wider(width, text);
    }
    print_rule(width, "rule", "conditions", "placement", "settings");
    for (unsigned i = 0; i < options.rules.n; i++)
        print_user_rule(width, i);
    for (size_t i = 0; ag_rules_exporter(i); i++) {
        snprintf(text, sizeof(text), "from=%s", ag_rules_exporter(i));
        print_rule(width, "-", text, "native", "");
    }
    printf("Rules marked - are built in, for libraries that export their memory; only rules with "
           "from= apply\nto those.\n");
}

int settings_show_checked(void)
{
    if (settings_check_environment())
        return STATUS_USAGE;
    print_settings();
    putchar('\n');
    print_rules();
    return STATUS_OK;
}
