/* output.h: the file that a command writes: never one that it reads, nothing that somebody would
 * miss, and all of it or nothing. */
#ifndef TOOLS_OUTPUT_H
#define TOOLS_OUTPUT_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

/* What is written. A file that begins as one of these may be replaced by another of its kind; so
 * may an empty one. Anything else only with `force`. */
enum output_kind { OUTPUT_PAGE, OUTPUT_PERFETTO, OUTPUT_SETTINGS, OUTPUT_N_KINDS };

struct output {
    const char *command, *option; /* "report", "--html": for what is said */
    const char *path;             /* "-" is standard output */
    enum output_kind kind;
    bool force;

    FILE *file;     /* from output_open() to output_close() */
    bool as_it_is;  /* no file of a folder: a device, a pipe, a descriptor that is open */
    int descriptor; /* the one that the path names, or -1 */
    /* Where the links at the path lead, and what is written beside it until it is whole. */
    char target[PATH_MAX], beside[PATH_MAX];
};

/* What may not be written, whatever the user says: files that the command reads. By their names, or
 * as they are opened. */
void output_keep_path(const char *path);
void output_keep(int fd);
bool output_is_kept(const char *path);

/* Asked before any work is done: could it be written? Nothing is changed. Each returns an exit
 * status, after one line on stderr if it is not STATUS_OK. */
int output_check(struct output *output);
/* Checks it again, and begins to write. */
int output_open(struct output *output);
/* Puts it into its place if it is `whole` and every byte was written; else what was there stays,
 * and nothing else does. */
int output_close(struct output *output, bool whole);
/* The three of a text that is there already. */
int output_write(struct output *output, const char *data, size_t length);

#endif
