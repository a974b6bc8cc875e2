/* What to do when memory runs out: free what we hold, step by step; and the bounds on what we hold,
 * ALLOGRAFT_CACHE and ALLOGRAFT_PENDING. */
#ifndef AG_POLICY_PRESSURE_H
#define AG_POLICY_PRESSURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/core/settings/options.h"

struct ag_context;
struct ag_device;

void ag_pressure_configure(struct ag_size pending);
/* `give_back`: called with no lock taken where memory has run out, outside captures. */
void ag_pressure_ask(void (*give_back)(void));

/* A card that is nearly full.
 *
 * The driver takes memory of its own when a kernel is launched, for the code or the stack, and for
 * streams, events and the like. Such a call fails where there is none; natively there may have been
 * some, of what the program has freed. What is hooked is tried again then, after a wait. So that
 * this is rare, and for what is not, where less than a 64th of the card is free the cache gives
 * back what is missing, and what the program frees is freed natively but for 2 MiB of it, until
 * there is room.
 *
 * The driver is asked for it (3.4 us, H200) once for each 256th of the card that it gives us, or
 * gets back while the card is full. Where a call has found no memory it is, until asked again, but
 * for ALLOGRAFT_LIMIT. A device that uses the host's memory is never full: the host has some of it
 * for its files, which counts as used. */

/* The driver has given us `bytes`. How much the cache should give back; mostly 0. The current
 * context is one of the device. */
uint64_t ag_pressure_given(struct ag_device *device, size_t bytes);
bool ag_pressure_is_tight(const struct ag_device *device);
/* The driver has got `bytes` back on such a card, whatever context is current. */
void ag_pressure_returned(struct ag_device *device, size_t bytes);

/* Memory that takes the card without failing: managed memory comes to it page by page, and has its
 * other pages go where there is no room, for each kernel anew. Natively what the program has freed
 * is room. So where `bytes` of such memory come to be, or are about to lie on the device, what is
 * kept goes back until so much is free, and a 64th of the card; the driver is asked as above. NULL:
 * no device. Not for long where the device is busy. */
void ag_pressure_yield(struct ag_device *device, size_t bytes);

/* Another process that finds no room on the card asks nobody for it, and while all allocations are
 * served by what is kept, the driver is asked for nothing. So it is asked for the free memory after
 * each 8192 blocks that a thread's frees have kept, too. Where less than a 64th of the card is
 * free, all that is kept goes back, but for what a cache may hold then, and what pools have. That
 * is in a free, which natively would have waited for the same work; here not for long. A process
 * that frees nothing keeps what it has. */
extern _Thread_local uint32_t ag_pressure_unlooked; /* blocks until the next look */
void ag_pressure_look_beside(struct ag_device *device);

/* A free has kept a block of the device. Without a lock. */
static inline void ag_pressure_kept(struct ag_device *device)
{
    if (__builtin_expect(--ag_pressure_unlooked == 0, 0))
        ag_pressure_look_beside(device);
}

/* Waits when more bytes are pending than ALLOGRAFT_PENDING allows for a device of that size: true
 * if so. Call it without a lock, and outside the capture guard. */
bool ag_pressure_bound_pending(const struct ag_device *device);

/* Waits until every free so far has taken effect in its pool. */
void ag_pressure_wait_for_frees(void);

/* What the program has freed is free at once, natively. But what we have kept of it is in no cache,
 * and not free yet, while another thread gives it back, or ends the context that it is kept in.
 * Waits until that is done, within the timeout. True if anybody was at it, and nobody still is. */
bool ag_pressure_wait_for_others(const struct ag_device *device);

/* Gives up cached blocks until the budget of `device` has `bytes` left, if that is enough. True
 * when it is worth another try. */
bool ag_pressure_make_room(struct ag_device *device, size_t bytes);

/* Empties the caches of `device`, waits for pending frees, trims its pools: a failed allocation is
 * worth another try. */
void ag_pressure_relieve(struct ag_device *device);
/* The tries of one call that finds no memory; zero before the first. */
struct ag_relief {
    unsigned n;
    bool all;        /* false: not all could go back in time, which took long */
    uint64_t before; /* the last try: bytes that we had of the driver */
};
/* Relieves the device for the next try. Other threads free and allocate meanwhile: as long as they
 * have given back, or keep, what was not there for the last one, there is another. False: that was
 * in vain. */
bool ag_pressure_relieve_again(struct ag_device *device, struct ag_relief *relief);
/* Does the budget leave the program `bytes`, once others have given back what they are at? */
bool ag_pressure_may_have(struct ag_device *device, size_t bytes);
/* Takes `bytes` of the budget, for which cached blocks make room. False: there is none. */
bool ag_pressure_take_budget(struct ag_device *device, size_t bytes);
/* Relieves likewise after another call failed that takes memory of `device`; NULL: of the device of
 * the calling thread's context, and false if there is none. */
bool ag_pressure_relieve_for_call(struct ag_device *device, struct ag_relief *relief);
/* Relieves the device after withheld work failed, whose stream the calling thread owns: graphs of
 * ours stay. */
bool ag_pressure_relieve_for_withheld(void);

#endif
