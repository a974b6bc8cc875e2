/* command_line.h: parses the command line by the table commands.def. */
#ifndef TOOLS_COMMAND_LINE_H
#define TOOLS_COMMAND_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Special values of the largest number of operands. */
enum { MANY = 1 << 20, PROGRAM };

enum command_id {
#define COMMAND(name, ...) COMMAND_##name,
#define ARGUMENT(...)
#define OPTION(...)
#include "tools/line/commands.def"
    N_COMMANDS
};

enum option_id {
#define COMMAND(...)
#define ARGUMENT(...)
#define OPTION(command, name, ...) OPTION_##command##_##name,
#include "tools/line/commands.def"
    OPTION_help, /* of every command */
    N_OPTIONS,   /* the settings follow as options of `run`, in the order of options.def */
};

/* An option as it was given. */
struct given {
    int option;        /* OPTION_... */
    const char *name;  /* without its dashes */
    const char *value; /* NULL where it takes none */
};

/* What follows the name of a command. */
struct command_line {
    struct given *given; /* in their order */
    size_t n_given;
    char **words; /* the operands, or a program and its arguments; NULL at the end */
    int n_words;
};

struct command {
    enum command_id id;
    const char *name, *operands;
    int least, most;
    const char *values, *summary, *about, *end;
};

/* The commands, for allograft.c alone; each returns an exit status. */
#define COMMAND(name, ...) int command_##name(const struct command_line *line);
#define ARGUMENT(...)
#define OPTION(...)
#include "tools/line/commands.def"

struct command_option {
    int id, command; /* OPTION_..., COMMAND_... */
    char letter;
    const char *name, *argument, *values, *help;
};

extern const struct command commands[N_COMMANDS];

/* The command of that name, or NULL. */
const struct command *command_find(const char *name);
/* Says on stderr that there is no such command, and which one may have been meant. */
void command_complain_of(const char *word);

/* The command's option after `previous` (NULL: its first one), or NULL. Settings come last. */
const struct command_option *command_option_next(const struct command *command,
                                                 const struct command_option *previous);
/* The option that the word's first `length` bytes name, dashes included, or NULL. */
const struct command_option *command_option_find(const struct command *command, const char *word,
                                                 size_t length);

/* Parses argv[1] and what follows, and reorders argv. Returns STATUS_OK, or STATUS_USAGE after a
 * line on stderr. Parsing stops at --help, which is then the last option given. The caller frees
 * `given` in any case. */
int command_line_read(const struct command *command, int argc, char **argv,
                      struct command_line *ret);

/* Turns what a person may write for a setting ("pool-keep", "POOL_KEEP", "ALLOGRAFT_POOL_KEEP")
 * into the name of its variable. Returns 0, or -ENAMETOOLONG with `name` untouched. */
int settings_full_name(const char *written, size_t written_length, char *name, size_t name_size);

/* Print --help of all commands, and of one. */
void command_help_all(FILE *out);
void command_help(const struct command *command);
/* Prints `text` wrapped to `width` columns, starting in column `at`; further lines are indented. */
void command_wrap(FILE *out, int at, int indent, int width, const char *text);

/* `allograft --complete WORD...`, for completion in shells. WORD... is what follows `allograft` on
 * the command line; the last word is completed. Prints one candidate per line, followed by a tab
 * and its meaning. A line that begins with a colon tells the shell to complete by itself:
 *     :files BEFORE    with names of files, after these letters of the word
 *     :folders BEFORE  with names of folders
 *     :program N       words N (from 0) and following are another program's command line
 */
int command_complete(int argc, char **argv);

#endif
