/* Which libraries reach the driver past us? Those opened with RTLD_DEEPBIND are bound to their own
 * dependencies first: their `dlsym` is libc's, their `cuMemAlloc` the driver's. */
#ifndef AG_BYPASS_H
#define AG_BYPASS_H

/* Looks at what every loaded library is bound to and keeps the names in ag_stats.bypassing. Makes
 * no driver call; libraries that were closed before are not seen. Not for two threads at once. */
void ag_bypass_look(void);

#endif
