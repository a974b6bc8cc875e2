/* What it costs a kernel to use memory on the host, against one crossing of the bus of all that
 * memory. For a kernel that goes through it once that is 1; a product of matrices reads its
 * operands again and again, which takes many times as long. Measured by events around launches.
 *
 * An operand is a parameter of a function that is launched with that grid, block and so on: of a
 * product, the factors are read thirty times, and what it makes is written once; and a library has
 * one function for products of many sizes. */
#ifndef AG_PAGING_TOLL_H
#define AG_PAGING_TOLL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/core/driver/abi.h"

/* In hundredths of a crossing; 100 where nothing is known of the operand and of its kernel, and for
 * 0, which stands for what is none. Less where the kernel is given many addresses, and uses a part
 * of what they are of. With the lock of the ranges held. */
unsigned ag_toll_of(uint64_t kernel, uint64_t operand);
/* The price for a launch that follows now: more than a move takes as long as the first launch is
 * timed, so that others do not use memory of the host again and again meanwhile. */
unsigned ag_toll_now(uint64_t kernel, uint64_t operand);
/* Has that been measured? Likewise. */
bool ag_toll_is_known(uint64_t operand);

/* Does that kernel use next to nothing of what it is given, as far as was seen? Likewise. */
bool ag_toll_is_little(uint64_t kernel);

/* What it may be: far more, for an operand of which nothing is known. */
unsigned ag_toll_at_most(uint64_t operand);

/* Called before the driver's launch of that kernel on that stream, outside the latch, with no lock
 * held: what is timed on it ends here. */
void ag_toll_go_on(CUstream stream, uint64_t kernel);
/* Called before the stream goes, likewise: the name may be another one's then. */
void ag_toll_stream_ends(CUstream stream);
/* Called after that, before the launch of that kernel, likewise: so many bytes that it names lie on
 * the host, and stay there, most of them in that operand; it is given so many addresses. Times it
 * now and then. The stream is the one that the driver is to get. */
void ag_toll_before(CUstream stream, uint64_t kernel, uint64_t operand, size_t bytes,
                    unsigned n_given);
/* Called after that, where the driver has refused the launch: the next one with that operand is not
 * timed. */
void ag_toll_refused(void);

/* Called where no work is on the device: all that was timed has ended. */
void ag_toll_at_idle(void);

void ag_toll_begin_child(void);

#endif
