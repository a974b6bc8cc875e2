/* When a thread that waits for an event looks at it, and sleeps in between.
 *
 * Being woken by the device takes a thread 120 to 160 us in a virtual machine. A timer wakes it as
 * late, but may be set earlier: to what is foreseen at the place (places.h), from where on the
 * thread looks until the wait ends. Nothing has to interrupt the host for that.
 *
 * Until then it looks each time that the wait has become four times as long, in case that it ends
 * early; later, and where nothing is foreseen, each twelfth of its time, between 120 and 200 us. */
#ifndef AG_WAITING_LOOKS_H
#define AG_WAITING_LOOKS_H

#include <stdbool.h>
#include <stdint.h>

#include "interpose/core/driver/abi.h"

/* A wait, timed by ag_clock_ns(). */
struct ag_looks {
    uint64_t place, began_ns, foreseen_ns;
    bool gives_up; /* where it lasts longer than foreseen, or nothing is */
};

/* Waits until the event is reached, or until the driver says something else; CUDA_ERROR_NOT_READY
 * where it gives up. The place learns from a wait that ends here. The event must not be recorded
 * anew meanwhile. Ends no capture, is no point of cancellation, keeps errno. */
CUresult ag_looks_wait(const struct ag_looks *looks, CUevent event);

/* Pure: when a thread that finds its wait not over after `elapsed_ns` looks again. */
uint64_t ag_looks_next(uint64_t foreseen_ns, uint64_t elapsed_ns);

#endif
