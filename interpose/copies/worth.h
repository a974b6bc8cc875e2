/* Does the crew gain? What copies of each size and direction have taken, by the crew and by the
 * driver. Pure: the caller has the clock. Only for whoever has claimed the crew. */
#ifndef AG_COPIES_WORTH_H
#define AG_COPIES_WORTH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ag_worth {
    AG_WORTH_DRIVER, /* the driver's own copy */
    AG_WORTH_TIMED,  /* the same, and the caller says how long it took: ag_worth_took() */
    AG_WORTH_CREW,   /* the crew's; likewise */
};

#define AG_WORTH_SIZES 16u /* 1 MiB, 2, 4, ...: powers of two */

/* Zeroed before use. */
struct ag_worth_table {
    uint64_t lost_ns; /* by copies for which there were no slots */
    struct ag_worth_class {
        uint64_t driver_ns;    /* a MiB, the best so far; 0: not known */
        uint64_t crew_ns;      /* a MiB, on average; likewise */
        uint32_t timed;        /* copies of the driver's that were timed */
        uint32_t crewed;       /* copies by the crew since the driver was last timed */
        _Atomic uint32_t rest; /* copies that the driver gets now, since the crew was slower */
        uint32_t next_rest;
    } classes[2][AG_WORTH_SIZES];
};

/* Copies below that size are the driver's: waking the crew takes as long as it would save. */
#define AG_WORTH_LEAST_BYTES ((size_t)2 << 20)

/* Would slots, which take `price_ns` to make, have gained by now, with this copy? */
bool ag_worth_slots(struct ag_worth_table *table, size_t bytes, uint64_t price_ns);
/* Is the copy one of those that the driver gets for some time? Counts it. Any thread. */
bool ag_worth_rests(struct ag_worth_table *table, bool to_host, size_t bytes);
/* Whose is this copy, where there are slots? */
enum ag_worth ag_worth_of(struct ag_worth_table *table, bool to_host, size_t bytes);
/* It took that long, of the device's time for other work nothing. `by_crew`: of AG_WORTH_CREW. */
void ag_worth_took(struct ag_worth_table *table, bool to_host, size_t bytes, bool by_crew,
                   uint64_t ns);

#endif
