/* command_line.c: parses a command's options and operands by the table commands.def. It does not
 * use getopt_long(), which accepts abbreviations and cannot suggest the option that was meant. */
#include "tools/line/command_line.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "interpose/core/base/text.h"
#include "interpose/core/settings/options.h"
#include "tools/base/complain.h"

const struct command commands[N_COMMANDS] = {
#define COMMAND(name, ...) {COMMAND_##name, #name, __VA_ARGS__},
#define ARGUMENT(...)
#define OPTION(...)
#include "tools/line/commands.def"
};

int settings_full_name(const char *written, size_t written_length, char *name, size_t name_size)
{
    const size_t prefix_length = strlen("ALLOGRAFT_");
    bool prefixed =
        written_length >= prefix_length && !strncasecmp(written, "ALLOGRAFT_", prefix_length);
    size_t at = prefixed ? 0 : prefix_length;

    if (at + written_length >= name_size)
        return -ENAMETOOLONG;
    memcpy(name, "ALLOGRAFT_", at);
    for (size_t i = 0; i < written_length; i++)
        name[at + i] = (char)(written[i] == '-' ? '_' : toupper((unsigned char)written[i]));
    name[at + written_length] = '\0';
    return 0;
}

/* ---- the table of options ------------------------------------------------------------------ */

#define LONGEST_NAME 40
#define N_ROWS       (N_OPTIONS + AG_N_OPTIONS)

static struct command_option rows[N_ROWS] = {
#define COMMAND(...)
#define ARGUMENT(...)
#define OPTION(command, name, letter, ...) \
    {OPTION_##command##_##name, COMMAND_##command, letter, #name, __VA_ARGS__},
#include "tools/line/commands.def"
    {OPTION_help, N_COMMANDS, 'h', "help", NULL, NULL, "this text"},
};

/* The name of a row or setting as people write it: small letters, dashes for '_'. */
static const char *dashed(const char *name)
{
    static char names[N_ROWS][LONGEST_NAME];
    static size_t n;
    char *text = names[n++];

    for (size_t i = 0; name[i] && i + 1 < LONGEST_NAME; i++)
        text[i] = (char)(name[i] == '_' ? '-' : tolower((unsigned char)name[i]));
    return text;
}

static const struct command_option *find_option_row(int command, const char *name, size_t length)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        if ((rows[i].command == command || rows[i].id == OPTION_help) && rows[i].name &&
            strlen(rows[i].name) == length && !strncmp(rows[i].name, name, length))
            return &rows[i];
    }
    return NULL;
}

/* Adds a row for each setting. A setting that has a row in commands.def gives its values to it. */
static void add_setting_rows(void)
{
    for (size_t i = 0; i < ag_options_count(); i++) {
        const struct ag_option_info *info = ag_option_info(i);
        const char *name = dashed(info->name + strlen("ALLOGRAFT_"));
        const struct command_option *shown = find_option_row(COMMAND_run, name, strlen(name));

        rows[N_OPTIONS + i] = (struct command_option){
            N_OPTIONS + (int)i, COMMAND_run, 0, name, info->allowed, info->allowed, info->help};
        if (!shown)
            continue;
        rows[shown->id].values = info->allowed;
        rows[N_OPTIONS + i].command = N_COMMANDS;
    }
}

static void make_table(void)
{
    static bool made;

    if (made)
        return;
    made = true;
    for (size_t i = 0; i < N_OPTIONS; i++)
        rows[i].name = dashed(rows[i].name);
    add_setting_rows();
}

const struct command_option *command_option_next(const struct command *command,
                                                 const struct command_option *previous)
{
    make_table();
    for (size_t i = previous ? (size_t)(previous - rows) + 1 : 0; i < N_ROWS; i++) {
        if (rows[i].command == (int)command->id || rows[i].id == OPTION_help)
            return &rows[i];
    }
    return NULL;
}

const struct command_option *command_option_find(const struct command *command, const char *word,
                                                 size_t length)
{
    make_table();
    if (length > 2 && !strncmp(word, "--", 2))
        return find_option_row((int)command->id, word + 2, length - 2);
    for (const struct command_option *row = NULL; (row = command_option_next(command, row));) {
        if (length == 2 && row->letter && row->letter == word[1])
            return row;
    }
    return NULL;
}

/* ---- mistakes ------------------------------------------------------------------------------ */

const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (!strcmp(commands[i].name, name))
            return &commands[i];
    }
    return NULL;
}

void command_complain_of(const char *word)
{
    struct ag_text_nearest nearest = {.written = word};
    size_t length = strcspn(word, "=");

    for (size_t i = 0; i < N_COMMANDS; i++)
        ag_text_nearest_try(&nearest, commands[i].name);
    ag_text_nearest_try(&nearest, "--version");
    ag_text_nearest_try(&nearest, "--help");
    if (nearest.name)
        command_complain("no command '%s'; did you mean %s?", word, nearest.name);
    else if ((*word == '-' && command_option_find(&commands[COMMAND_run], word, length)) ||
             (strchr(word, '/') && !access(word, X_OK)))
        command_complain("no command '%s'; did you mean `allograft run %s`?", word, word);
    else
        command_complain("no command '%s'; `allograft --help` lists them", word);
}

static int complain_of_option(const struct command *command, const char *word, size_t length)
{
    char written[LONGEST_NAME];
    struct ag_text_nearest nearest = {.written = written};
    const char *name = word + strspn(word, "-");

    snprintf(written, sizeof(written), "%.*s", (int)(length - (size_t)(name - word)), name);
    for (const struct command_option *row = NULL; (row = command_option_next(command, row));) {
        if (*row->help)
            ag_text_nearest_try(&nearest, row->name);
    }
    if (nearest.name)
        command_complain("%s: no option '%s'; did you mean --%s?", command->name, word,
                         nearest.name);
    else
        command_complain("%s: no option '%s'; `allograft %s --help` lists them", command->name,
                         word, command->name);
    return STATUS_USAGE;
}

/* Is the value one of these words, or in this range of numbers? The command itself checks what is
 * named in capitals. */
static bool is_allowed(const char *values, const char *value)
{
    char part[64];
    uint64_t number;

    for (; *values; values += *values == '|') {
        size_t length = strcspn(values, "|");

        snprintf(part, sizeof(part), "%.*s", (int)length, values);
        values += length;
        if (strpbrk(part, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") || !strcasecmp(part, value) ||
            (strstr(part, "..") && !ag_number_in_range_parse(value, part, false, &number)))
            return true;
    }
    return false;
}

static void complain_of_value(const struct command *command, const struct command_option *option,
                              const char *value)
{
    char likely[80];

    command_complain("%s: --%s=%s is not allowed; allowed: %s%s", command->name, option->name,
                     value, option->values,
                     ag_text_suggest(likely, sizeof(likely), value, option->values));
}

/* ---- reading ------------------------------------------------------------------------------- */

/* Parses the option at argv[*i]; advances *i if its value is a word of its own. */
static int read_option(const struct command *command, char **argv, int *i,
                       struct command_line *line)
{
    const char *word = argv[*i], *value = NULL;
    size_t length = strncmp(word, "--", 2) ? strlen(word) : strcspn(word, "=");
    const struct command_option *option = command_option_find(command, word, length);
    int width = (int)length;

    if (!option)
        return complain_of_option(command, word, length);
    if (word[length])
        value = word + length + 1;
    if (value && !option->argument) {
        command_complain("%s: %.*s takes no value, not '%s'", command->name, width, word, value);
        return STATUS_USAGE;
    }
    if (option->argument && !value) {
        value = argv[*i + 1];
        if (!value || !strncmp(value, "--", 2)) {
            command_complain("%s: %.*s needs a value: %.*s %s", command->name, width, word, width,
                             word, option->argument);
            return STATUS_USAGE;
        }
        ++*i;
    }
    /* ag_option_check() checks settings, with better messages. */
    if (value && option->values && command->id != COMMAND_run &&
        !is_allowed(option->values, value)) {
        complain_of_value(command, option, value);
        return STATUS_USAGE;
    }
    line->given[line->n_given++] = (struct given){option->id, option->name, value};
    return STATUS_OK;
}

static int check_number(const struct command *command, const struct command_line *line)
{
    const char *gap = *command->operands ? " " : "";

    if (line->n_words < command->least)
        command_complain("%s: too few arguments; usage: allograft %s [options]%s%s", command->name,
                         command->name, gap, command->operands);
    else if (line->n_words > command->most && command->most != PROGRAM)
        command_complain("%s: '%s' is one argument too many; usage: allograft %s [options]%s%s",
                         command->name, line->words[command->most], command->name, gap,
                         command->operands);
    else
        return STATUS_OK;
    return STATUS_USAGE;
}

int command_line_read(const struct command *command, int argc, char **argv,
                      struct command_line *ret)
{
    bool options = true;
    int i;

    *ret = (struct command_line){.words = argv + 1};
    ret->given = calloc((size_t)argc, sizeof(*ret->given));
    if (!ret->given) {
        command_complain("out of memory for %d words", argc);
        return STATUS_FAILED;
    }
    for (i = 1; i < argc && (options || command->most != PROGRAM); i++) {
        bool is_option = options && argv[i][0] == '-' && argv[i][1];

        if (is_option && !strcmp(argv[i], "--")) {
            options = false;
        } else if (is_option) {
            int status = read_option(command, argv, &i, ret);

            if (status || ret->given[ret->n_given - 1].option == OPTION_help)
                return status;
        } else if (command->most == PROGRAM) {
            break;
        } else {
            ret->words[ret->n_words++] = argv[i];
        }
    }
    if (command->most == PROGRAM) {
        ret->words = argv + i;
        ret->n_words = argc - i;
    }
    ret->words[ret->n_words] = NULL;
    return check_number(command, ret);
}
