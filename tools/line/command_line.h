/* The words behind `allograft`, read by the table commands.def. */
#ifndef TOOLS_COMMAND_LINE_H
#define TOOLS_COMMAND_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* The ends of how many operands there may be. */
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
    N_OPTIONS,   /* those of `run` that are settings follow, in the order of options.def */
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
    char **words; /* what is no option; of a program all that is its own; NULL at the end */
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
/* Complains of a word that is no command. */
void command_complain_of(const char *word);

/* The option behind `previous` (NULL: the first) that the command has, or NULL. Settings come last.
 */
const struct command_option *command_option_next(const struct command *command,
                                                 const struct command_option *previous);
/* The option that the word's first `length` bytes name, dashes included, or NULL. */
const struct command_option *command_option_find(const struct command *command, const char *word,
                                                 size_t length);

/* Reads argv[1] and what follows; words of argv change places. STATUS_OK, or STATUS_USAGE after a
 * line on stderr. With --help nothing behind it is read, and it stands last. The caller frees
 * `given`, in any case. */
int command_line_read(const struct command *command, int argc, char **argv,
                      struct command_line *ret);

/* Turns what a person may write for a setting ("pool-keep", "POOL_KEEP", "ALLOGRAFT_POOL_KEEP")
 * into the name of its variable. Returns 0, or -ENAMETOOLONG with `name` untouched. */
int settings_full_name(const char *written, size_t written_length, char *name, size_t name_size);

/* --help: of all, and of one command. */
void command_help_all(FILE *out);
void command_help(const struct command *command);
/* Prints the words of `text`, from column `at` on; lines that follow are indented. */
void command_wrap(FILE *out, int at, int indent, int width, const char *text);

/* `allograft --complete WORD...`, for the shells' completion: prints what the last word, of those
 * behind `allograft`, may become, one a line, with a tab and what it means behind it. A line that
 * begins with a colon says what the shell has to find itself:
 *     :files BEFORE    names of files, behind these letters of the word
 *     :folders BEFORE  names of folders
 *     :program N       words N and the following are a command line of their own (0: the first)
 */
int command_complete(int argc, char **argv);

#endif
