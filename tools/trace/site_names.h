/* What functions call sites lie in, looked up in the files that a trace names. */
#ifndef TOOLS_SITE_NAMES_H
#define TOOLS_SITE_NAMES_H

#include <stddef.h>

#include "tools/trace/trace_file.h"

#define SITE_NAME_BYTES 400u

struct site_name {
    char text[SITE_NAME_BYTES]; /* a function, in C++ as it is written there, or why there is none,
                                   in brackets */
};

/* Fills in ret_names[i] for sites[i]. A file counts only if it is the one that ran, as far as its
 * build-id tells. Names of C++ are made readable by c++filt, where that is installed. Printable
 * characters only. */
void site_names(const struct trace *trace, const struct trace_site *sites, size_t n,
                struct site_name *ret_names);

#endif
