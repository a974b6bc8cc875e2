/* The pieces of the command `allograft` and the exit statuses they share. */
#ifndef TOOLS_COMMAND_H
#define TOOLS_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "tools/line/command_line.h"

/* Exit statuses of our own; everything else is the status of the program that was run. The last
 * two are what shells use, so that scripts need not know the command is in between. */
enum {
    STATUS_OK = 0,
    STATUS_FAILED = 1, /* the command could not do its work */
    STATUS_USAGE = 2,  /* bad option, bad setting; nothing was started */
    STATUS_NOT_EXECUTABLE = 126,
    STATUS_NOT_FOUND = 127,
};

/* One line on stderr, "allograft: " in front and a newline behind. */
void command_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The commands; each returns an exit status. */
#define COMMAND(name, ...) int command_##name(const struct command_line *line);
#define ARGUMENT(...)
#define OPTION(...)
#include "tools/line/commands.def"

/* `allograft options --check`; an exit status. */
int command_options_check(void);

/* Checks every ALLOGRAFT_* variable of the environment, and the file that one of them may name; one
 * line on stderr for each mistake, and the place in rules or file below it. Returns how many there
 * are. Warns of variables whose names are nearly those of settings. */
size_t settings_check_environment(void);

/* Do the settings checked last need NVTX? */
bool settings_ask_for_nvtx(void);
/* Where the counters lie by them (as ALLOGRAFT_COUNTERS), or NULL where nothing is to be said of a
 * program that never uses CUDA. */
const char *settings_watched_counters(void);

/* Shows the text on stderr, as one line, with a caret below the byte at `column` (from 1). */
void settings_point_at(const char *text, size_t column);

/* Turns what a person may write for an option ("pool-keep", "POOL_KEEP", "ALLOGRAFT_POOL_KEEP")
 * into the name of its variable. Returns 0, or -ENAMETOOLONG with `name` untouched. */
int settings_full_name(const char *written, size_t written_length, char *name, size_t name_size);

/* Finds liballograft.so and writes its absolute path. Returns STATUS_OK, or STATUS_FAILED after
 * saying on stderr where it was looked for; `path` is then untouched. */
int locate_library(char *path, size_t path_size);

/* Puts the library in front of what LD_PRELOAD names already, once. STATUS_OK, or STATUS_FAILED
 * after saying why. */
int preload_library(const char *library);

/* The path of the simulated driver that lies beside the library (an absolute path); false when none
 * does. */
bool find_simulated_driver(const char *library, char *path, size_t path_size);

/* Has programs started from now on find the simulated driver before any other, and writes its path.
 * STATUS_OK, or STATUS_FAILED after saying why. */
int simulate_driver(const char *library, char *path, size_t path_size);

/* Why the dynamic linker will not preload anything into the program at `path`: a short clause for
 * a warning, or NULL when it will (and when nothing can be told, as for a script). */
const char *preload_obstacle(const char *path);

#endif
