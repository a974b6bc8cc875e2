/* output.h: the file that a command writes. It never replaces a file that the command reads, nor a
 * file of another kind unless the user says so, and it appears whole or not at all. */
#ifndef TOOLS_OUTPUT_H
#define TOOLS_OUTPUT_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

/* What is written. A file may be replaced by one of the same kind, which its first bytes tell; so
 * may an empty file. Any other file is replaced only with `force`. */
enum output_kind {
    OUTPUT_PAGE,
    OUTPUT_PERFETTO,
    OUTPUT_SETTINGS,
    OUTPUT_METRICS,
    OUTPUT_TORCH,
    OUTPUT_N_KINDS
};

struct output {
    const char *command, *option; /* "report", "--html": for messages */
    const char *path;             /* "-" is standard output */
    enum output_kind kind;
    bool force;

    FILE *file;     /* from output_open() to output_close() */
    bool in_place;  /* written directly: a device, a pipe, or an open descriptor */
    int descriptor; /* the open descriptor that the path names, or -1 */
    int error;      /* of what was written so far, where that is known; 0 */
    /* Where symbolic links at the path lead, and the temporary file beside it. */
    char target[PATH_MAX], beside[PATH_MAX];
};

/* Protects a file that the command reads, by its name or its descriptor: it is never written,
 * whatever the user says. */
void output_keep_path(const char *path);
void output_keep(int fd);
bool output_is_kept(const char *path);

/* These return an exit status, after a line on stderr if it is not STATUS_OK. */

/* Can it be written? Called before any work is done; changes nothing. */
int output_check(struct output *output);
/* Two outputs that have been checked, or have no path, are refused if they go to one place. */
int output_check_apart(const struct output *output, const struct output *other);
/* Does it go to standard output? */
bool output_is_stdout(const struct output *output);
/* Standard output is refused where the option `printed` prints there. */
int output_check_alone(const struct output *output, const char *printed);
/* Checks again and opens the file to be written. */
int output_open(struct output *output);
/* If the file is `whole` and every byte was written, moves it into place; else removes it, and what
 * was there before stays. */
int output_close(struct output *output, bool whole);
/* Opens, writes `data` and closes. */
int output_write(struct output *output, const char *data, size_t length);

#endif
