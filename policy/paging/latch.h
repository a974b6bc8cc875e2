/* Who is handing work to the driver? Pieces move only while nobody is (mover.h).
 *
 * A hook of work enters the latch before the driver's call and leaves it after that, and so does
 * one that asks the driver about memory that can move. Who moves pieces closes the latch, waits for
 * those inside, and then for the device. Work that reaches the driver by calls that nobody brackets
 * so ends all moving, before the first of them. */
#ifndef AG_PAGING_LATCH_H
#define AG_PAGING_LATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/base/slot.h"

/* Only for the functions here and in latch.c. */
extern struct ag_latch_state {
    bool on; /* set with the settings */
    _Atomic bool closed;
    struct {
        _Alignas(64) _Atomic unsigned inside;
    } slots[AG_SLOTS];
} ag_latch_state;

void ag_latch_configure(bool on);
/* Could pieces ever move in this process? */
static inline bool ag_latch_is_on(void)
{
    return __builtin_expect(ag_latch_state.on, false);
}

/* Only for the function below: the latch is closed. */
void ag_latch_wait(_Atomic unsigned *inside);
/* Waits while the latch is closed. Sequentially consistent, as in order/capture.c. */
static inline void ag_latch_enter(void)
{
    _Atomic unsigned *inside;

    if (!ag_latch_is_on())
        return;
    inside = &ag_latch_state.slots[ag_slot()].inside;
    atomic_fetch_add_explicit(inside, 1, memory_order_seq_cst);
    if (__builtin_expect(atomic_load_explicit(&ag_latch_state.closed, memory_order_seq_cst), false))
        ag_latch_wait(inside);
}
static inline void ag_latch_leave(void)
{
    if (ag_latch_is_on())
        atomic_fetch_sub_explicit(&ag_latch_state.slots[ag_slot()].inside, 1, memory_order_release);
}

/* The calling thread is about to make a call that is not bracketed: nothing moves any more. Waits
 * until nothing does. */
void ag_latch_end(void);

/* Lets nobody in, once those inside are out: false, and the latch is open, where somebody else has
 * closed it, where one does not come out in time, or where it has ended. The caller is not inside.
 */
bool ag_latch_close(uint64_t until_ns);
void ag_latch_open(void);

/* A forked child has nothing that could move. */
void ag_latch_begin_child(void);

#endif
