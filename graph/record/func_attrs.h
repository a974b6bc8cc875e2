/* The values that attributes of functions were last set to. Libraries set the same ones before
 * every launch; only a changed value makes graphs stale. Any thread. */
#ifndef AG_GRAPH_FUNC_ATTRS_H
#define AG_GRAPH_FUNC_ATTRS_H

#include <stdbool.h>
#include <stdint.h>

enum ag_func_attrs_kind { AG_FUNC_ATTRIBUTE, AG_FUNC_CACHE, AG_FUNC_BANKS };

struct ag_func_attrs {
    const void *function; /* a CUfunction or CUkernel */
    enum ag_func_attrs_kind kind;
    int attribute; /* of AG_FUNC_ATTRIBUTE, else 0 */
    int device;    /* the call names, or -1 */
    int value;
};

/* Is that the value it was last set to? False when in doubt. */
bool ag_func_attrs_holds(const struct ag_func_attrs *func_attrs);
/* The driver has taken it. */
void ag_func_attrs_note(const struct ag_func_attrs *func_attrs);
/* Code goes: its handles may come back as others. */
void ag_func_attrs_forget(void);
void ag_func_attrs_begin_child(void);

#endif
