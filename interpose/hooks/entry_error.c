/* Looks at what calls return that failed: the first sticky error goes into the report, with what
 * was launched before it, and, where ALLOGRAFT_ON_ERROR asks for it, onto stderr at once, and ends
 * the process. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "interpose/core/base/log.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/report/errors/first_error.h"
#include "interpose/core/report/errors/function_names.h"
#include "interpose/core/report/errors/last_launches.h"
#include "interpose/hooks/entry.h"

static enum ag_on_error on_error;

void ag_entry_error_configure(enum ag_on_error what)
{
    on_error = what;
}

/* Our functions do the work of a hook under names that begin with a word of their own. */
static const char *symbol_of(const char *function)
{
    const char *symbol = strstr(function, "_cu");

    return symbol && strncmp(function, "cu", 2) != 0 ? symbol + 1 : function;
}

/* A CUfunction, or a CUkernel cast to one, which the call for kernels alone is sure to take. After
 * the error the driver still tells the names of kernels, but not of functions. */
static void ask_name(uintptr_t handle, char *buffer, size_t size)
{
    const char *name = NULL;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;

    if (ag_cu.cuKernelGetName)
        result = ag_cu.cuKernelGetName(&name, (CUkernel)handle);
    if (result != CUDA_SUCCESS && ag_cu.cuFuncGetName)
        result = ag_cu.cuFuncGetName(&name, (CUfunction)handle);
    if (result == CUDA_SUCCESS && name)
        snprintf(buffer, size, "%s", name);
    else
        (void)ag_function_name((const void *)handle, buffer, size);
}

static void describe_launches(struct ag_first_error *first)
{
    struct ag_last_launch last[AG_LAUNCHED];
    unsigned n = ag_launches_list(last, AG_LAUNCHED);

    for (unsigned i = 0; i < n; i++) {
        struct ag_launched *launched = &first->launched[i];

        launched->handle = last[i].what;
        launched->stream = last[i].stream;
        launched->thread = last[i].thread;
        launched->is_graph = last[i].is_graph;
        *launched->name = '\0';
        if (!last[i].is_graph)
            ask_name(last[i].what, launched->name, sizeof(launched->name));
    }
    first->n_launched = n;
    first->launches_unseen = !ag_entry_sees_launches();
}

/* Prints a line on stderr for each of these. */
static void tell_first_error(void)
{
    char text[256], name[288], stream[64];
    const struct ag_first_error *first = &ag_stats.first_error;

    ag_log_error("%s", ag_first_error_text(&ag_stats, text, sizeof(text)));
    for (uint32_t i = 0; i < first->n_launched; i++)
        ag_log_error("launched before it in thread %d: %s on %s", first->launched[i].thread,
                     ag_launched_name(&first->launched[i], name, sizeof(name)),
                     ag_launched_stream(&first->launched[i], stream, sizeof(stream)));
}

void ag_entry_failed(CUresult result, const char *function)
{
    struct ag_first_error *first;
    int saved_errno = errno;

    if (!ag_first_error_name((int)result))
        return;
    first = ag_first_error_note((int)result, symbol_of(function));
    if (!first)
        return;
    describe_launches(first);
    ag_first_error_complete(first);
    errno = saved_errno;
    if (on_error == AG_ON_ERROR_NOTE)
        return;
    tell_first_error();
    if (on_error == AG_ON_ERROR_EXIT)
        _exit(AG_ON_ERROR_STATUS); /* ours, which writes the report */
}
