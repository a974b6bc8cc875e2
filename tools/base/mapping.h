/* mapping.h: maps files for reading that other processes may shorten at the same time. */
#ifndef TOOLS_MAPPING_H
#define TOOLS_MAPPING_H

#include <stdbool.h>
#include <stddef.h>

/* The bytes of a file. Bytes that have gone by the time they are read, since the file was truncated
 * or the disk failed, read as zeros; readers check them like any other bytes of a file. */
struct mapping {
    const char *bytes; /* NULL: none, as of an empty file */
    size_t n;
    int fd; /* tells how long the file is by now */
    int slot;
};

/* Maps the regular file of fd, which stays the caller's. Returns 0 or -errno; -EMFILE when too
 * many files are mapped at once. */
int mapping_begin(struct mapping *ret, int fd);
/* Was the file truncated while it was mapped? */
bool mapping_is_torn(const struct mapping *mapping);
void mapping_end(struct mapping *mapping);

#endif
