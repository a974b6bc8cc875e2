/* The parser of settings: see options.h. */
#include "options.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

#define PREFIX "ALLOGRAFT_"

static const struct ag_option_info rows[] = {
#define AG_OPTION(field, name, type, preset, allowed, help) \
    {PREFIX #name, #type, preset, allowed, help},
#include "options.def"
};

#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

/* Variables of the command and of the tests' set-up that are no settings of the library. */
static const char *const foreign_names[] = {PREFIX "LIBRARY"};

/* The words of `allowed` stand in the order of the enumerations, which unit tests hold to. */
#define PARSE_WORD(type)                                                                      \
    static int parse_##type(const char *value, const char *allowed, ag_type_##type *ret)      \
    {                                                                                         \
        int i = ag_text_choice(value, allowed);                                                     \
                                                                                              \
        if (i < 0)                                                                            \
            return -EINVAL;                                                                   \
        *ret = (ag_type_##type)i;                                                             \
        return 0;                                                                             \
    }

PARSE_WORD(POLICY)
PARSE_WORD(FREE_MODE)
PARSE_WORD(LOG_LEVEL)
PARSE_WORD(MANAGED_BACKEND)
PARSE_WORD(ACCESS)
PARSE_WORD(PREFETCH)
PARSE_WORD(OOM)

static int parse_PREFER(const char *value, const char *allowed, struct ag_prefer *ret)
{
    (void)allowed;
    return ag_prefer_parse(value, ret);
}

static int parse_SWITCH(const char *value, const char *allowed, bool *ret)
{
    int i = ag_text_choice(value, allowed);

    if (i < 0)
        return -EINVAL;
    *ret = i != 0;
    return 0;
}

static int parse_SIZE(const char *value, const char *allowed, struct ag_size *ret)
{
    (void)allowed;
    return ag_text_parse_size(value, &ret->value, &ret->percent);
}

static int parse_TEXT(const char *value, const char *allowed, ag_type_TEXT *ret)
{
    size_t length = strlen(value);

    (void)allowed;
    if (!length || length >= sizeof(ret->text))
        return -EINVAL;
    memcpy(ret->text, value, length + 1);
    return 0;
}

static int parse_row(size_t i, const char *value, struct ag_options *options)
{
    size_t row = 0;

#define AG_OPTION(field, name, type, preset, allowed, help) \
    if (row++ == i)                                         \
        return parse_##type(value, allowed, &options->field);
#include "options.def"
    return -EINVAL;
}

static int find_row(const char *name, size_t length)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        if (strlen(rows[i].name) == length && !strncmp(rows[i].name, name, length))
            return (int)i;
    }
    return -1;
}

static const char *nearest_name(const char *name)
{
    unsigned best = UINT_MAX;
    const char *nearest = rows[0].name;

    for (size_t i = 0; i < N_ROWS; i++) {
        unsigned distance = ag_text_distance(name, rows[i].name);

        if (distance < best) {
            best = distance;
            nearest = rows[i].name;
        }
    }
    return nearest;
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
    snprintf(why, why_size, "unknown setting %s; did you mean %s?", name, nearest_name(name));
    keep_to_one_line(why);
}

static void say_bad(size_t i, const char *value, char *why, size_t why_size)
{
    snprintf(why, why_size, "%s=%s is not allowed; allowed: %s", rows[i].name, value, rows[i].allowed);
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
    struct ag_options scratch;
    int i = find_row(name, strlen(name));

    if (i < 0) {
        say_unknown(name, why, why_size);
        return -ENOENT;
    }
    if (parse_row((size_t)i, value, &scratch)) {
        say_bad((size_t)i, value, why, why_size);
        return -EINVAL;
    }
    return 0;
}

static bool is_foreign(const char *name)
{
    for (size_t i = 0; i < sizeof(foreign_names) / sizeof(foreign_names[0]); i++) {
        if (!strcmp(name, foreign_names[i]))
            return true;
    }
    return false;
}

/* Takes one "NAME=value" in. 0, or -EINVAL for a bad value. */
static int read_one(const char *variable, struct ag_options *options,
                    void (*tell)(enum ag_log_level level, const char *line))
{
    const char *equals = strchr(variable, '=');
    char name[64], line[512];
    int i;

    if (!equals)
        return 0;
    i = find_row(variable, (size_t)(equals - variable));
    if (i < 0) {
        snprintf(name, sizeof(name), "%.*s", (int)(equals - variable), variable);
        if (!is_foreign(name)) {
            say_unknown(name, line, sizeof(line));
            tell(AG_LOG_WARN, line);
        }
        return 0;
    }
    if (!parse_row((size_t)i, equals + 1, options))
        return 0;
    say_bad((size_t)i, equals + 1, line, sizeof(line));
    tell(AG_LOG_ERROR, line);
    return -EINVAL;
}

int ag_options_read(char **environment, struct ag_options *ret_options,
                    void (*tell)(enum ag_log_level level, const char *line))
{
    int result = 0;

    for (size_t i = 0; i < N_ROWS; i++)
        (void)parse_row(i, rows[i].default_text, ret_options);
    for (char **variable = environment; variable && *variable; variable++) {
        if (!strncmp(*variable, PREFIX, strlen(PREFIX)) && read_one(*variable, ret_options, tell))
            result = -EINVAL;
    }
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

uint64_t ag_size_bytes(struct ag_size size, uint64_t total_bytes)
{
    return size.percent ? total_bytes / 100 * size.value : size.value;
}

enum ag_log_level ag_options_log_level(char **environment)
{
    int row = find_row(PREFIX "LOG", strlen(PREFIX "LOG"));
    const char *value = ag_option_text(environment, (size_t)row);
    enum ag_log_level level = AG_LOG_WARN;

    if (value)
        (void)parse_LOG_LEVEL(value, rows[row].allowed, &level);
    return level;
}
