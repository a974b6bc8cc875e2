/* The file of settings, ALLOGRAFT_CONFIG, as lines of NAME=value. Knows no setting and no CUDA.
 *
 *     # what the solver wants
 *     POLICY = managed
 *     RULES = size>=1GiB:managed,prefer=host
 *     RULES = *:pool
 *
 * A line is a setting, empty, or a comment that begins with '#'. Blanks around name and value do
 * not matter; the value is everything else up to the end of the line. */
#ifndef AG_CONFIG_H
#define AG_CONFIG_H

#include <stddef.h>

#define AG_CONFIG_MAX 65536u /* bytes of the longest file */

/* Where the walk through a file's text is. */
struct ag_config {
    char *next, *end; /* what is still to be read; *end may be written over */
    unsigned line;    /* the one read last, from 1 */
};

/* One setting, each text ended by a NUL in place. */
struct ag_config_entry {
    char *name, *value;
    size_t name_column, value_column; /* of the line, in bytes from 1 */
};

/* Reads the regular file at `path`. 0, with its length in *ret_length and a NUL after it; or
 * -errno, with one line in `why`: no such file, no regular file, larger than AG_CONFIG_MAX, ... */
int ag_config_load(const char *path, char buffer[AG_CONFIG_MAX + 1], size_t *ret_length, char *why,
                   size_t why_size);

/* `text`, which is written into, has a NUL after its `length` bytes. */
void ag_config_begin(struct ag_config *config, char *text, size_t length);

/* The next setting: 1, or 0 after the last, or -EINVAL where a line is none: `why` is then one
 * line that begins with "column N: ", and the walk goes on after it. */
int ag_config_next(struct ag_config *config, struct ag_config_entry *ret, char *why,
                   size_t why_size);

#endif
