/* bus.h: what the bus between host and device was measured to do, and what that comes to. Pure. */
#ifndef TOOLS_DOCTOR_BUS_H
#define TOOLS_DOCTOR_BUS_H

#include <stdbool.h>
#include <stddef.h>

/* Copies of one kind of host memory. */
struct bus_rates {
    size_t bytes;                    /* of each copy; 0: not measured */
    unsigned to_device, from_device; /* MB/s */
};

struct bus {
    struct bus_rates pageable, pinned;
    unsigned processors;    /* that a process may use */
    bool finds_host_memory; /* the device does, by itself */
    bool has_pages_by_call; /* the kernel gives pages without a fault */
};

/* Says what ALLOGRAFT_COPY=auto could gain, at most. Both kinds were measured. */
void bus_say_gain(const struct bus *bus, char *text, size_t size);

#endif
