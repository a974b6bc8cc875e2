/* environment.h: what a command does to the environment before it starts a program: it checks the
 * settings there, finds the library, and has the loader preload it. */
#ifndef TOOLS_ENVIRONMENT_H
#define TOOLS_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* ---- check.c: the settings in force -------------------------------------------------------- */

/* Checks every ALLOGRAFT_* variable of the environment, and the configuration file that one of them
 * may name. Prints a line on stderr for each mistake and, where it can, the text with a caret below
 * the mistake. Warns of variables whose names are nearly those of settings. Returns the number of
 * mistakes. */
size_t settings_check_environment(void);

/* `allograft options --check`; an exit status. */
int settings_show_checked(void);

/* Do the settings checked last name a file of settings? */
bool settings_name_file(void);

/* The files that the settings checked last put the report and the trace into, perhaps with
 * placeholders; "" where there is none. */
const char *settings_report_file(void);
const char *settings_trace_file(void);
/* Do the settings checked last need NVTX? */
bool settings_ask_for_nvtx(void);
/* Where the settings checked last put the counters (a value of ALLOGRAFT_COUNTERS); NULL where the
 * user wants no warning about a program that never uses CUDA. */
const char *settings_watched_counters(void);

/* Shows the text on stderr, as one line, with a caret below the byte at `column` (from 1). */
void settings_point_at(const char *text, size_t column);

/* ---- locate.c, preload.c, simulate.c ------------------------------------------------------- */

/* Finds liballograft.so and writes its absolute path. Returns STATUS_OK, or STATUS_FAILED after
 * listing on stderr where it was looked for; `path` is then untouched. */
int locate_library(char *path, size_t path_size);

/* Can LD_PRELOAD name the library at this path? It separates its paths by colons and by spaces. */
bool preload_can_name(const char *library);
/* What to say where it cannot. */
#define PRELOAD_CANNOT_NAME                                                                     \
    "LD_PRELOAD cannot name a path with a colon or a space in it; move the library, or make a " \
    "symbolic link to its folder and name the library through that by ALLOGRAFT_LIBRARY"
/* STATUS_OK where it can, and the file is such a library as far as its head tells, or STATUS_FAILED
 * after a line on stderr. */
int preload_check(const char *library);
/* Puts the library in front of what LD_PRELOAD names already, once. STATUS_OK, or STATUS_FAILED
 * after a line on stderr. */
int preload_library(const char *library);

/* Makes programs started from now on find the simulated driver before any other, and writes its
 * path. It lies beside the library, whose path is absolute. STATUS_OK, or STATUS_FAILED after a
 * message on stderr. */
int simulate_driver(const char *library, char *path, size_t path_size);

/* ---- find_program.c, outputs.c -------------------------------------------------------------- */

/* The file that execvp() will find for `program`: the first match in PATH that is executable, else
 * the first match. False when there is none. */
bool run_find_program(const char *program, char *path, size_t path_size);

/* Can the report and the trace be written, and is neither the program itself nor a file that it is
 * given? An exit status, after a line on stderr if it is not STATUS_OK. */
int outputs_check(char **argv);

/* ---- run.c: for programs that are started from now on --------------------------------------- */

/* Options that are not settings. */
struct run_extras {
    bool audit, simulate;
    bool may_audit;     /* by itself: see audit_choice.c */
    int error_exitcode; /* of `run`; 0: the program's own */
};

/* These return an exit status, after a line on stderr if it is not STATUS_OK. */

/* Checks "NAME=VALUE" as of --set, and puts it into the environment. */
int run_set_pair(const char *pair);
/* Checks all settings, and makes the environment one in which the library is preloaded. */
int run_prepare(char **argv, struct run_extras extras);
/* Becomes the program; returns only where that failed. */
int run_execute(char **argv);

/* ---- audit_choice.c ------------------------------------------------------------------------ */

/* Does the program need the audit, as earlier runs have found? If not, its processes are asked to
 * note it. */
bool run_choose_audit(char **argv);

/* ---- last_word.c --------------------------------------------------------------------------- */

/* Starts a process that ends with the program which this one is about to become: where a signal
 * ends that, it says how to see what the counters in the folder (a value of ALLOGRAFT_COUNTERS)
 * hold. Its id, or 0 where there is none. */
pid_t last_word_start(char **argv, const char *counters);

/* ---- preload_obstacle.c -------------------------------------------------------------------- */

/* Why the dynamic linker will not preload anything into the program at `path`: a short clause for
 * a warning; NULL when it will, or when the file does not tell (a script). */
const char *preload_obstacle(const char *path);

#endif
