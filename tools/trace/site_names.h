/* site_names.h: finds the functions that contain call sites, in the files that a trace names. */
#ifndef TOOLS_SITE_NAMES_H
#define TOOLS_SITE_NAMES_H

#include <stddef.h>

#include "tools/trace/trace_file.h"

#define SITE_NAME_BYTES 400u

struct site_name {
    char text[SITE_NAME_BYTES]; /* a function, demangled, or in brackets why it is not known */
};

/* Fills in ret_names[i] for sites[i], in printable characters. A file counts only if its build-id,
 * as far as there is one, is that of the file that ran. c++filt demangles C++ names, if it is
 * installed. */
void site_names(const struct trace *trace, const struct trace_site *sites, size_t n,
                struct site_name *ret_names);

#endif
