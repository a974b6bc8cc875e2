/* Trampolines: while graph replay is on, look-ups of driver functions that are not hooked get one
 * of these. A trampoline submits withheld work, if there is any, and jumps on to the driver's own
 * function with every argument as it was. trampolines.def says which functions have one.
 *
 * The listed trampolines are exported by the names of their functions, so linked programs always
 * call them; without replay they are a load, two comparisons and a jump. */
#ifndef AG_TRAMPOLINE_H
#define AG_TRAMPOLINE_H

/* Trampolines that are kept for functions that no row of hooks.def names. */
#define AG_TRAMPOLINE_RESERVE 128

#ifndef __ASSEMBLER__

#include <stdbool.h>

/* What the program is to get for the driver's function `real`, found by its exported name: a
 * trampoline, or `real`. Takes no lock and opens nothing: safe inside dlsym. */
void *ag_trampoline_of_name(const char *name, void *real);
/* What the program is to get for the function `real` that the driver's own look-up answered. Called
 * after ag_trampoline_index(). */
void *ag_trampoline_of_address(void *real);
/* The trampoline that a look-up of `real` was answered with before; else `real`. */
void *ag_trampoline_given(void *real);

/* Is it one of them? */
bool ag_trampoline_is_at(const void *address);

/* Finds every listed function of the driver; once, at start, and only where trampolines are handed
 * out: else each is found when it is first called. */
void ag_trampoline_index(void);

/* Has anything been loaded that reaches the driver past us, by RTLD_DEEPBIND or being linked with a
 * function that no row names? Then replay ends, and frees drain. Not inside dlsym. */
void ag_trampoline_look_around(void);
/* Somebody can call the driver without our noticing: from now on nothing is withheld, and frees
 * wait for no work to order them. Not inside dlsym. */
void ag_trampoline_end(const char *why);
/* Has replay ended for that, or because there were more functions that no row names than there are
 * spare trampolines? */
bool ag_trampoline_over(void);

#endif
#endif
