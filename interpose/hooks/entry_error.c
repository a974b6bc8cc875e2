/* Looks at what calls return that failed: the first sticky error goes into the report and, where
 * ALLOGRAFT_ON_ERROR asks for it, onto stderr at once, and ends the process. */
#include <string.h>
#include <unistd.h>

#include "interpose/base/log.h"
#include "interpose/hooks/entry.h"
#include "interpose/report/errors/first_error.h"

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

void ag_entry_failed(CUresult result, const char *function)
{
    char text[256];

    if (!ag_first_error_name((int)result) ||
        !ag_first_error_note((int)result, symbol_of(function)) || on_error == AG_ON_ERROR_NOTE)
        return;
    ag_log_error("%s", ag_first_error_text(&ag_stats, text, sizeof(text)));
    if (on_error == AG_ON_ERROR_EXIT)
        _exit(AG_ON_ERROR_STATUS); /* ours, which writes the report */
}
