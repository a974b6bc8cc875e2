/* What attributes of functions were last set to. Libraries set the same ones before every launch;
 * only what changes them makes graphs stale. Any thread. */
#ifndef AG_GRAPH_TUNED_H
#define AG_GRAPH_TUNED_H

#include <stdbool.h>
#include <stdint.h>

enum ag_tuned_kind { AG_TUNED_ATTRIBUTE, AG_TUNED_CACHE, AG_TUNED_BANKS };

struct ag_tuned {
    const void *function; /* a CUfunction or CUkernel */
    enum ag_tuned_kind kind;
    int attribute; /* of AG_TUNED_ATTRIBUTE, else 0 */
    int device;    /* the call names, or -1 */
    int value;
};

/* Is that the value it was last set to? False when in doubt. */
bool ag_tuned_holds(const struct ag_tuned *tuned);
/* The driver has taken it. */
void ag_tuned_note(const struct ag_tuned *tuned);
/* Code goes: its handles may come back as others. */
void ag_tuned_forget(void);
void ag_tuned_begin_child(void);

#endif
