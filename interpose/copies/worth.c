/* Weighs the crew against the driver's own copies: see worth.h.
 *
 * The driver copies 8 to 15 GB/s (H100). While the crew is faster than that by far, the driver's
 * rate need not be known: to learn it costs slow copies. Where the crew is slower, since processors
 * are busy or few, the driver is timed, and then the faster one has it. */
#include "interpose/copies/worth.h"

#define DRIVER_NS_PER_MIB 60000u /* better than any of its copies: 17 GB/s */
#define SAVED_NS_PER_MIB  60000u /* by the crew, where nothing is known */
#define PRICE_TIMES       2u     /* what has to be lost before slots are made */
#define TIMED_AT_FIRST    2u     /* copies of the driver's, where its rate has to be known */
#define TIMED_AGAIN       256u   /* copies by the crew after which the driver is timed again */
#define MARGIN_PERCENT    3u     /* what the crew has to be better by */
#define FIRST_REST        16u
#define LONGEST_REST      4096u

static struct ag_worth_class *rates_of(struct ag_worth_table *table, bool to_host, size_t bytes)
{
    unsigned size = 0;

    while (size + 1 < AG_WORTH_SIZES && bytes >> (size + 21))
        size++;
    return &table->classes[to_host][size];
}

static uint64_t per_mib(uint64_t ns, size_t bytes)
{
    return (uint64_t)((double)ns * (1 << 20) / (double)bytes) + 1;
}

bool ag_worth_slots(struct ag_worth_table *table, size_t bytes, uint64_t price_ns)
{
    table->lost_ns += (uint64_t)((double)bytes / (1 << 20) * SAVED_NS_PER_MIB);
    return table->lost_ns >= price_ns * PRICE_TIMES;
}

/* Is the crew's rate good enough, as far as is known? */
static bool crew_is_better(const struct ag_worth_class *class)
{
    uint64_t driver_ns = class->driver_ns ? class->driver_ns : DRIVER_NS_PER_MIB;

    return class->crew_ns * (100 + MARGIN_PERCENT) < driver_ns * 100;
}

/* The crew rests, longer each time. */
static void rest(struct ag_worth_class *class)
{
    class->next_rest = class->next_rest ? class->next_rest * 2 : FIRST_REST;
    if (class->next_rest > LONGEST_REST)
        class->next_rest = LONGEST_REST;
    atomic_store_explicit(&class->rest, class->next_rest, memory_order_relaxed);
    class->crew_ns = 0; /* then it is tried as if for the first time */
}

/* Relaxed: it is a count alone. */
bool ag_worth_rests(struct ag_worth_table *table, bool to_host, size_t bytes)
{
    _Atomic uint32_t *count = &rates_of(table, to_host, bytes)->rest;
    uint32_t left = atomic_load_explicit(count, memory_order_relaxed);

    while (left) {
        if (atomic_compare_exchange_weak_explicit(count, &left, left - 1, memory_order_relaxed,
                                                  memory_order_relaxed))
            return true;
    }
    return false;
}

enum ag_worth ag_worth_of(struct ag_worth_table *table, bool to_host, size_t bytes)
{
    struct ag_worth_class *class = rates_of(table, to_host, bytes);

    if (ag_worth_rests(table, to_host, bytes))
        return AG_WORTH_DRIVER;
    if (class->crewed >= TIMED_AGAIN)
        return AG_WORTH_TIMED;
    if (!class->crew_ns || crew_is_better(class))
        return AG_WORTH_CREW;
    if (class->timed < TIMED_AT_FIRST)
        return AG_WORTH_TIMED;
    rest(class);
    return AG_WORTH_DRIVER;
}

void ag_worth_took(struct ag_worth_table *table, bool to_host, size_t bytes, bool by_crew,
                   uint64_t ns)
{
    struct ag_worth_class *class = rates_of(table, to_host, bytes);

    ns = per_mib(ns, bytes);
    if (by_crew) {
        class->crewed++;
        class->crew_ns = class->crew_ns ? (3 * class->crew_ns + ns) / 4 : ns;
        return;
    }
    class->crewed = 0;
    class->timed++;
    if (!class->driver_ns || ns < class->driver_ns)
        class->driver_ns = ns;
}
