/* Which libraries bypass us, that is, reach the driver without our hooks? Those opened with
 * RTLD_DEEPBIND are bound to their own dependencies first: their `dlsym` is libc's, their
 * `cuMemAlloc` the driver's. */
#ifndef AG_BYPASS_H
#define AG_BYPASS_H

#include <stdbool.h>

/* Looks at what every loaded library is bound to and keeps the names in ag_stats.bypassing. Makes
 * no driver call; libraries that were closed before are not seen. Not for two threads at once. */
void ag_bypass_look(void);

enum ag_bypass_verdict {
    AG_BYPASS_HARMLESS, /* may be called without us */
    AG_BYPASS_BOUND,    /* must not be bound to the driver's own function */
    AG_BYPASS_NAMED,    /* in no list: must not be bound by this name if the driver has it */
};

/* A library, and the symbol by which it bypasses us: a driver function, or dlsym. */
struct ag_bypass_found {
    char file[96], symbol[96];
};

/* Is a library that was loaded since the last call bound to a driver function that `judge` does not
 * allow? `judge` gets names that begin cu[A-Z]. False, too, while another thread is at it. */
bool ag_bypass_find(enum ag_bypass_verdict (*judge)(const char *symbol),
                    struct ag_bypass_found *ret_found);

#endif
