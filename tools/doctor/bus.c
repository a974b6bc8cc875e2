/* bus.c: says what threads that copy pageable memory could gain: see bus.h. Pure. */
#include "tools/doctor/bus.h"

#include <stdio.h>

#define LEAST_PROCESSORS 4u  /* the threads are half as many, and one alone gains nothing */
#define LEAST_GAIN       1.1 /* less than that is chance */

/* Pinned memory is copied as fast as the bus allows; no way to copy pageable memory is faster. */
static double most(unsigned pinned, unsigned pageable)
{
    return pageable && pinned > pageable ? (double)pinned / pageable : 1.0;
}

void bus_say_gain(const struct bus *bus, char *text, size_t size)
{
    double to = most(bus->pinned.to_device, bus->pageable.to_device),
           from = most(bus->pinned.from_device, bus->pageable.from_device);

    if (bus->finds_host_memory)
        snprintf(text, size,
                 "COPY=auto changes nothing here: the device finds the host's memory by itself, "
                 "and the driver's copies stay");
    else if (bus->processors < LEAST_PROCESSORS)
        snprintf(text, size,
                 "COPY=auto changes nothing here: it takes %u processors, and %u can be used",
                 LEAST_PROCESSORS, bus->processors);
    else if (!bus->has_pages_by_call)
        snprintf(text, size, "COPY=auto changes nothing here: it takes Linux 5.14");
    else if (to < LEAST_GAIN && from < LEAST_GAIN)
        snprintf(text, size,
                 "COPY=auto gains nothing here: pageable memory is copied as fast as pinned");
    else
        snprintf(text, size,
                 "COPY=auto, with %u processors, could make large copies of pageable memory at "
                 "most %.1fx as fast to the device and %.1fx from it",
                 bus->processors, to, from);
}
