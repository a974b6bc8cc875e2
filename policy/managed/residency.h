/* Where managed blocks are thought to be, for ALLOGRAFT_PREFETCH=launch. Pure: no driver call.
 *
 * This is an estimate, since the driver moves pages as they are touched and reports nothing. A
 * block counts as on the host until it is claimed for a device. When a device holds more than
 * its capacity, its least recently used blocks count as on the host again. */
#ifndef AG_POLICY_RESIDENCY_H
#define AG_POLICY_RESIDENCY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AG_RESIDENT_HOST (-1)

/* A managed block becomes the program's: before the program learns its address. `device`: where it
 * lies now, AG_RESIDENT_HOST for fresh memory. */
void ag_residency_add(uint64_t address, size_t bytes, int device);
/* The program has freed the block that begins at `address`: before anybody else may get the memory.
 * Returns where it is thought to lie. AG_RESIDENT_HOST also for a block that was never added. */
int ag_residency_remove(uint64_t address);

/* Bytes of `device` that managed blocks may take before the oldest go; 0, as at first, for no
 * bound. */
void ag_residency_set_capacity(int device, uint64_t bytes);
uint64_t ag_residency_capacity(int device);

/* Is everything on `device` already? Then nothing below needs to be asked. Two loads: while another
 * thread adds a block and brings it, the answer can be true once too early, and the launch that
 * asked brings nothing; the next one does. */
bool ag_residency_is_complete(int device);
/* Does `address` lie in a block that is not thought to lie on `device`? Notes that one that does is
 * used `now`, in ticks of ag_clock_ticks(). Takes no lock. */
bool ag_residency_missing(int device, uint64_t address, uint64_t now);
/* If the block is still missing: counts it as on `device` from now on, and says what of it to bring
 * there, from its beginning; only one caller is told to. Blocks that were used before `now` go from
 * the device where there is no room; without room still, false. */
bool ag_residency_claim(int device, uint64_t address, uint64_t now, uint64_t *ret_address,
                        size_t *ret_bytes);
/* It could not be brought there: it lies on the host again, unless that happens every time. */
void ag_residency_failed(int device, uint64_t address);

/* A forked child has no managed memory. */
void ag_residency_begin_child(void);

#endif
