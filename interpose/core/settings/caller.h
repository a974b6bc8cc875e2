/* Who called: the library that a return address lies in. */
#ifndef AG_CALLER_H
#define AG_CALLER_H

#include <stdbool.h>
#include <stddef.h>

enum ag_caller {
    AG_CALLER_PROGRAM = 1,
    AG_CALLER_CUDA_LIBRARY, /* CUDA's own mathematics: what it keeps for itself nobody else reads */
    AG_CALLER_EXPORTER, /* hands its memory to other processes or devices: NCCL, UCX, MPI, ... */
};

/* Whom the return address of a hook belongs to. For an address met before, a few nanoseconds in the
 * program and what it is linked with, some tens in a library that may be closed. */
enum ag_caller ag_caller_of(const void *address);

/* The last address that the calling thread asked ag_caller_is_exporter() about, if it lies in what
 * is no exporter and never unloaded. */
extern _Thread_local const void *ag_caller_harmless;

bool ag_caller_look_exporter(const void *address);

/* Does it lie in an exporter? Of the same place in the program as before, a comparison. */
static inline bool ag_caller_is_exporter(const void *address)
{
    return address != ag_caller_harmless && ag_caller_look_exporter(address);
}

/* Gets ready to be asked for the first time: finds out what is needed once, and of the module that
 * the address lies in. */
void ag_caller_prepare(const void *address);

/* The file name, without its folder, of the library or program that the return address lies in; the
 * program's is its program_invocation_short_name. NULL when unknown, or when more modules called
 * than are kept. Valid until the process ends. As fast as ag_caller_of(). */
const char *ag_caller_module(const void *address);
void ag_caller_begin_child(void);

/* "libfoo.so+0x1234", as `allograft trace` names callers; the address alone where it lies in
 * nothing that is loaded. Cut at `size`. */
void ag_caller_text(const void *address, char *text, size_t size);

#endif
