/* Which libraries reach the driver past us? Those opened with RTLD_DEEPBIND are bound to their own
 * dependencies first: their `dlsym` is libc's, their `cuMemAlloc` the driver's. */
#ifndef AG_BYPASS_H
#define AG_BYPASS_H

#include <stdbool.h>

/* Looks at what every loaded library is bound to and keeps the names in ag_stats.bypassing. Makes
 * no driver call; libraries that were closed before are not seen. Not for two threads at once. */
void ag_bypass_look(void);

enum ag_bypass_verdict {
    AG_BYPASS_HARMLESS, /* may well be called past us */
    AG_BYPASS_BOUND,    /* must not be bound to the driver's own */
    AG_BYPASS_NAMED,    /* nobody knows it: must not be called by name, if it is the driver's */
};

/* What a library is found to call, or to call others by. */
struct ag_bypass_found {
    char file[96], symbol[96];
};

/* Is anything, of what was loaded since this was last asked, bound past us to what `judge` says
 * must not be? `judge` gets names that begin cu[A-Z]. */
bool ag_bypass_find(enum ag_bypass_verdict (*judge)(const char *symbol),
                    struct ag_bypass_found *ret_found);

#endif
