/* debug_lines.h: functions, files and lines of addresses, by elfutils' libdw. Only debug_lines.c
 * uses that library; without it nothing is found. */
#ifndef TOOLS_DEBUG_LINES_H
#define TOOLS_DEBUG_LINES_H

#include "interpose/core/report/holders/render_holders.h"

struct debug_lines;

/* Is there a libdw, and was the command built to use it? */
bool debug_lines_available(void);
/* The debug information of a file, or of the separate file that its build-id or its debug link
 * names; NULL where there is none. */
struct debug_lines *debug_lines_open(const char *path);
void debug_lines_close(struct debug_lines *lines);
/* The functions that the code at `offset` (from where the file's first segment is mapped) belongs
 * to: those inlined there, innermost first, and the one that has the code. How many of `most`. */
unsigned debug_lines_find(struct debug_lines *lines, uint64_t offset, struct ag_frame_name *ret,
                          unsigned most);

#endif
