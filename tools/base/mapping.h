/* mapping.h: files mapped to be read, which others may shorten meanwhile. */
#ifndef TOOLS_MAPPING_H
#define TOOLS_MAPPING_H

#include <stdbool.h>
#include <stddef.h>

/* The bytes of a file. Those that are not to be had any more when they are looked at, since
 * somebody cut the file short or the disk failed, read as zeros: they are checked as any others of
 * a file. */
struct mapping {
    const char *bytes; /* NULL: none, as of an empty file */
    size_t n;
    int fd; /* to ask the file how long it is by now */
    int slot;
};

/* Maps the regular file that is open there; fd stays the caller's. 0, or -errno. Mapping more files
 * at a time than there is room for is -EMFILE. */
int mapping_begin(struct mapping *ret, int fd);
/* Was a byte of it gone, or may one have been? */
bool mapping_is_torn(const struct mapping *mapping);
void mapping_end(struct mapping *mapping);

#endif
