/* What it costs a kernel to use memory on the host, against one crossing of the bus of all that
 * memory. For a kernel that goes through it once that is 1; a product of matrices reads its
 * operands again and again, which takes many times as long. Measured by events around launches. */
#ifndef AG_PAGING_TOLL_H
#define AG_PAGING_TOLL_H

#include <stddef.h>
#include <stdint.h>

#include "interpose/core/driver/abi.h"

/* In hundredths of a crossing; 100 for a function of which nothing is known, and for 0, which
 * stands for what is no kernel; more than a move takes as long as its first launch is timed, so
 * that it does not use memory of the host again and again meanwhile. With the lock of the ranges
 * held. */
unsigned ag_toll_of(uint64_t function);

/* What it may be: far more, for a function of which nothing is known. */
unsigned ag_toll_at_most(uint64_t function);

/* Called before the driver's launch of any function on that stream, outside the latch, with no lock
 * held: what is timed on it ends here. */
void ag_toll_go_on(CUstream stream);
/* Called after that, before the launch of that function, likewise: so many bytes that it names lie
 * on the host, and stay there. Times it now and then. The stream is the one that the driver is to
 * get. */
void ag_toll_before(CUstream stream, uint64_t function, uint64_t config, size_t bytes);
/* Called after that, where the driver has refused the launch: one of that configuration is not
 * timed. */
void ag_toll_refused(void);

/* Called where no work is on the device: all that was timed has ended. */
void ag_toll_at_idle(void);

void ag_toll_begin_child(void);

#endif
