/* frame_names.h: names the frames of stacks, from the files of the modules that they lie in: by
 * libdw the functions, those inlined, files and lines; without it, or without information for
 * debuggers, the functions in the symbol tables. */
#ifndef TOOLS_FRAME_NAMES_H
#define TOOLS_FRAME_NAMES_H

#include "interpose/core/report/holders/render_holders.h"

struct frame_namer;

/* NULL when memory runs out. Modules are opened when a frame asks for them. */
struct frame_namer *frame_namer_new(void);
void frame_namer_free(struct frame_namer *namer);

/* `namer` is a struct frame_namer, for the tables of one process. */
ag_frame_names frame_names;

/* A file counts only if its build-id is that of the file that ran. NULL, or why it does not. */
const char *frame_names_mismatch(const char *build_id, const char *id_of_file);

#endif
