/* libcuda's own functions: a typed pointer for each symbol that hooks.def lists as hooked or
 * called.
 *
 * Every call into libcuda is ag_cu.<symbol>(...), and none is made while a lock of ours is held. A
 * pointer is NULL where the driver is too old for it (need OPTIONAL); the REQUIRED ones are there
 * once ag_driver_complete() has said so. */
#ifndef AG_DRIVER_H
#define AG_DRIVER_H

#include <stdbool.h>

#include "interpose/core/driver/abi.h"
#include "interpose/core/driver/symbols.h"

struct ag_driver {
#define AG_HOOK(base, symbol, since, flavour, need, flush) __typeof__(&symbol) symbol;
#define AG_CALL                                            AG_HOOK
#include "interpose/core/driver/hooks.def"
};

extern struct ag_driver ag_cu;

/* An address inside libcuda that the program was given: of several libcudas, that one is meant. */
void ag_driver_note_address(const void *address);
/* Finds the libcuda of this process and fills ag_cu; once. 0, or -ENOENT when none is loaded: ag_cu
 * then holds what other libraries define under these names, which is what the program meant. */
int ag_driver_find(void);
/* What the driver exports under this name, or NULL; after ag_driver_find(). */
void *ag_driver_symbol(const char *name);
/* All REQUIRED symbols found? If not, *ret_missing names the first that was not. */
bool ag_driver_complete(const char **ret_missing);
/* A symbol that the simulated driver exports (tests/sim/sim.h) and no other. */
#define AG_DRIVER_MARK "allograft_simulated_driver"
/* Is the driver found the simulated one? */
bool ag_driver_is_simulated(void);
/* The path libcuda was loaded from, "" before it was found. */
const char *ag_driver_path(void);
/* The driver's own pointer for a hooked symbol, or NULL. */
void *ag_driver_pointer(enum ag_hook hook);
/* Does `address` lie in a library whose file name starts with libcuda.so, and which the program has
 * in its own namespace? That of another one (dlmopen) is a driver of its own, which we know nothing
 * of. */
bool ag_driver_owns(const void *address);
/* Is a libcuda mapped into this process? Needs no ag_driver_find(). */
bool ag_driver_is_loaded(void);
/* May one that is export `name`? Likewise. */
bool ag_driver_may_export(const char *name);
/* Is a libcuda mapped, or does a library after us define its functions? */
bool ag_driver_is_there(void);
/* "CUDA_ERROR_OUT_OF_MEMORY" or the like; static memory. */
const char *ag_driver_error_name(CUresult result);

#endif
