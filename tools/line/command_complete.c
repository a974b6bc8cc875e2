/* command_complete.c: `allograft --complete` prints what a word of the command line may become: see
 * command_line.h. Shells call it, so that they need not know the table. */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interpose/core/settings/options.h"
#include "tools/base/complain.h"
#include "tools/base/folder.h"
#include "tools/line/command_line.h"

/* The word that is completed. The part before `rest`, such as "--policy=", stays as it is. */
struct word {
    const char *whole, *rest;
};

static int length_before(const struct word *word)
{
    return (int)(word->rest - word->whole);
}

/* The word without the first `length` bytes of `rest`. */
static struct word word_after(const struct word *word, size_t length)
{
    return (struct word){word->whole, word->rest + length};
}

/* Prints the first `length` bytes of `text` if the word is a prefix of them. */
static void offer_text(const struct word *word, const char *text, size_t length,
                       const char *meaning)
{
    size_t written = strlen(word->rest);

    if (length && written <= length && !strncmp(text, word->rest, written))
        printf("%.*s%.*s\t%s\n", length_before(word), word->whole, (int)length, text, meaning);
}

/* ---- values -------------------------------------------------------------------------------- */

static void offer_processes(const struct word *word)
{
    static const char *const states[] = {"running", "dead", "of another container"};
    struct folder_files files = {.folder = -1};
    char path[PATH_MAX], text[16];
    struct ag_record_owner owner;

    if (folder_open_own(&files.folder, path, sizeof(path)) || files.folder < 0)
        return;
    if (!folder_list(&files, 0, true)) {
        for (size_t i = 0; i < files.n; i++) {
            if (!ag_record_parse_name(files.names[i], &owner))
                continue;
            snprintf(text, sizeof(text), "%d", owner.pid);
            offer_text(word, text, strlen(text), states[ag_record_state(&owner)]);
        }
    }
    free(files.names);
    close(files.folder);
}

static void offer_values(const struct word *word, const char *values);

/* One of STREAM[,STREAM...]. */
static void offer_streams(const struct word *word)
{
    const char *comma = strrchr(word->rest, ',');
    struct word last = word_after(word, comma ? (size_t)(comma + 1 - word->rest) : 0);

    offer_values(&last, AG_STREAM_WORDS);
}

/* NAME=VALUE; in small letters if the word begins with one. */
static void offer_settings(const struct word *word)
{
    size_t length = strcspn(word->rest, "=");
    char name[128], text[160];

    for (size_t i = 0; i < ag_options_count(); i++) {
        const struct ag_option_info *info = ag_option_info(i);

        if (!word->rest[length]) {
            snprintf(text, sizeof(text), "%s=", info->name + strlen("ALLOGRAFT_"));
            for (char *c = text; islower((unsigned char)*word->rest) && *c; c++)
                *c = (char)tolower((unsigned char)*c);
            offer_text(word, text, strlen(text), info->help);
        } else if (!settings_full_name(word->rest, length, name, sizeof(name)) &&
                   !strcmp(name, info->name)) {
            struct word value = word_after(word, length + 1);

            offer_values(&value, info->allowed);
        }
    }
}

/* Completes what a name in capitals stands for. */
static void offer_kind(const struct word *word, const char *kind, size_t length)
{
    static const struct {
        const char *kind, *line;
    } lines[] = {{"FILE", "files"}, {"PATH", "files"}, {"DIR", "folders"}};

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        if (!strncmp(kind, lines[i].kind, length))
            printf(":%s %.*s\n", lines[i].line, length_before(word), word->whole);
    }
    if (!strncmp(kind, "PID", length))
        offer_processes(word);
    if (!strncmp(kind, "SETTING", length))
        offer_settings(word);
    if (!strncmp(kind, "STREAM[,STREAM...]", length))
        offer_streams(word);
}

/* Values such as "a|b:NAME|FILE|1..9": offers a, b: and what may follow it, and files. */
static void offer_values(const struct word *word, const char *values)
{
    while (*values) {
        size_t length = strcspn(values, "|"), fixed;

        fixed = strcspn(values, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
        fixed = fixed < length ? fixed : length;
        if (isdigit((unsigned char)*values) && memmem(values, length, "..", 2))
            ; /* a range of numbers */
        else if (fixed < length && !strncmp(word->rest, values, fixed)) {
            struct word rest = word_after(word, fixed);

            offer_kind(&rest, values + fixed, length - fixed);
        } else {
            offer_text(word, values, fixed, "");
        }
        values += length + (values[length] == '|');
    }
}

/* ---- words --------------------------------------------------------------------------------- */

static void offer_commands(const struct word *word)
{
    for (size_t i = 0; i < N_COMMANDS; i++)
        offer_text(word, commands[i].name, strlen(commands[i].name), commands[i].summary);
    if (*word->rest == '-') {
        offer_text(word, "--help", 6, "what there is");
        offer_text(word, "--version", 9, "the version");
    }
}

static void offer_options(const struct command *command, const struct word *word)
{
    char text[80];

    for (const struct command_option *row = NULL; (row = command_option_next(command, row));) {
        snprintf(text, sizeof(text), "--%s", row->name);
        if (*row->help)
            offer_text(word, text, strlen(text), row->help);
    }
}

/* The last of n words after the command. */
static void complete_last(const struct command *command, int n, char **words)
{
    const struct command_option *option = NULL; /* the one whose value comes next */
    struct word word = {words[n - 1], words[n - 1]};
    bool options = true;

    for (int i = 0; i < n - 1; i++) {
        if (option) {
            option = NULL;
        } else if (options && !strcmp(words[i], "--")) {
            options = false;
        } else if (options && words[i][0] == '-') {
            option = command_option_find(command, words[i], strlen(words[i]));
            option = option && option->argument ? option : NULL;
        } else if (command->most == PROGRAM) {
            printf(":program %d\n", i + 1);
            return;
        }
    }
    if (!option && options && *word.rest == '-') {
        size_t length = strcspn(word.rest, "=");

        if (!word.rest[length]) {
            offer_options(command, &word);
            return;
        }
        option = command_option_find(command, word.rest, length);
        if (!option)
            return;
        word = word_after(&word, length + 1);
    }
    if (option)
        offer_values(&word, option->values ? option->values : "");
    else if (command->most == PROGRAM)
        printf(":program %d\n", n);
    else if (command->values)
        offer_values(&word, command->values);
}

int command_complete(int argc, char **argv)
{
    const struct command *command = argc > 1 ? command_find(argv[0]) : NULL;

    if (command)
        complete_last(command, argc - 1, argv + 1);
    else if (argc == 1 || (argc == 2 && !strcmp(argv[0], "help")))
        offer_commands(&(struct word){argv[argc - 1], argv[argc - 1]});
    return STATUS_OK;
}
