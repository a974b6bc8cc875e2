/* command_help.c: prints --help from the table commands.def, for a terminal of 80 columns. */
#include "tools/line/command_line.h"

#include <stdio.h>
#include <string.h>

#include "interpose/core/settings/options.h"

#define WIDTH  79
#define COLUMN 20 /* where the meaning of an option begins */

struct argument {
    enum command_id command;
    const char *name, *help;
};

static const struct argument arguments[] = {
#define COMMAND(...)
#define ARGUMENT(command, name, help) {COMMAND_##command, name, help},
#define OPTION(...)
#include "tools/line/commands.def"
};

void command_wrap(FILE *out, int at, int indent, int width, const char *text)
{
    bool first = true;

    while (*text) {
        int length = (int)strcspn(text, " \n");

        if (!first && at + 1 + length > width) {
            fprintf(out, "\n%*s", indent, "");
            at = indent;
            first = true;
        }
        at += fprintf(out, "%s%.*s", first ? "" : " ", length, text);
        first = false;
        text += length;
        if (*text == '\n') {
            fputs("\n\n", out);
            at = 0;
            first = true;
        }
        text += strspn(text, " \n");
    }
    fputc('\n', out);
}

/* "  name   what it means". */
static void show_row(FILE *out, const char *name, int column, const char *help)
{
    int at = fprintf(out, "  %s", name);

    if (at + 2 > column)
        fprintf(out, "\n%*s", column, "");
    else
        fprintf(out, "%*s", column - at, "");
    command_wrap(out, column, column, WIDTH, help);
}

void command_help_all(FILE *out)
{
    fputs("Makes unmodified CUDA programs faster: keeps the memory that they free, and\n"
          "hands it out again.\n\n"
          "  allograft COMMAND [options] [arguments]\n\n",
          out);
    for (size_t i = 0; i < N_COMMANDS; i++)
        show_row(out, commands[i].name, 12, commands[i].summary);
    fputs("\n`allograft COMMAND --help` describes a command, `allograft --version` prints\n"
          "the version. Examples:\n\n"
          "  allograft run -- ./program args              report when the program ends\n"
          "  allograft run --policy managed -- ./program  use managed memory\n"
          "  allograft options --check                    show the settings in force here\n\n"
          "Without this command: LD_PRELOAD=/path/to/liballograft.so program [args]\n",
          out);
}

/* The settings that commands.def has no row for. */
static void show_setting_rows(const struct command *command)
{
    char text[4096] = "";

    for (const struct command_option *row = NULL; (row = command_option_next(command, row));) {
        size_t end = strlen(text);

        if (row->id >= N_OPTIONS)
            snprintf(text + end, sizeof(text) - end, "%s--%s", end ? " " : "", row->name);
    }
    if (*text) {
        puts("\nThe other settings are options, too; `allograft options` describes them:");
        fputs("  ", stdout);
        command_wrap(stdout, 2, 2, WIDTH, text);
    }
}

void command_help(const struct command *command)
{
    char name[80];

    printf("allograft %s [options]%s%s\n\n", command->name, *command->operands ? " " : "",
           command->operands);
    command_wrap(stdout, 0, 0, WIDTH, command->about);
    putchar('\n');
    for (size_t i = 0; i < sizeof(arguments) / sizeof(arguments[0]); i++) {
        if (arguments[i].command == command->id)
            show_row(stdout, arguments[i].name, COLUMN, arguments[i].help);
    }
    for (const struct command_option *row = NULL; (row = command_option_next(command, row));) {
        snprintf(name, sizeof(name), "--%s%s%s", row->name, row->argument ? " " : "",
                 row->argument ? row->argument : "");
        if (*row->help && row->id < N_OPTIONS)
            show_row(stdout, name, COLUMN, row->help);
    }
    show_setting_rows(command);
    if (*command->end) {
        putchar('\n');
        command_wrap(stdout, 0, 0, WIDTH, command->end);
    }
}
