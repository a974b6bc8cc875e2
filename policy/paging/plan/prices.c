/* Averages of what moving cost: see prices.h. */
#include "policy/paging/plan/prices.h"

#include <stdatomic.h>

#define USUAL     180u                /* of an H100 by PCIe 5 */
#define MOST      300u                /* a use more in place costs less than never to move */
#define WIN       2u                  /* per cent */
#define REMEMBERS ((uint64_t)1 << 30) /* bytes; what was before them counts half, and so on */

#define USUAL_GIB_NS ((uint64_t)21000000) /* both ways at once, of the same */

static struct {
    uint64_t bytes, copy_ns, rest_ns;
    _Atomic uint64_t gib_ns; /* of copies; relaxed, likewise */
    _Atomic unsigned price;  /* relaxed: a guess; 0: nothing is measured */
} self;

static unsigned price_of(uint64_t copy_ns, uint64_t rest_ns)
{
    uint64_t price = copy_ns ? 100 + 100 * rest_ns / copy_ns : USUAL;

    return price > MOST ? MOST : (unsigned)price;
}

void ag_prices_note(uint64_t bytes, uint64_t copy_ns, uint64_t rest_ns)
{
    self.bytes += bytes;
    self.copy_ns += copy_ns;
    self.rest_ns += rest_ns;
    atomic_store_explicit(&self.price, price_of(self.copy_ns, self.rest_ns), memory_order_relaxed);
    if (self.bytes)
        atomic_store_explicit(
            &self.gib_ns, (uint64_t)((double)self.copy_ns / (double)self.bytes * (double)REMEMBERS),
            memory_order_relaxed);
    if (self.bytes < REMEMBERS)
        return;
    self.bytes /= 2;
    self.copy_ns /= 2;
    self.rest_ns /= 2;
}

unsigned ag_prices_of_move(void)
{
    unsigned price = atomic_load_explicit(&self.price, memory_order_relaxed);

    return price ? price : USUAL;
}

bool ag_prices_worth_moving(unsigned crossings)
{
    return (uint64_t)crossings * 100 > (uint64_t)ag_prices_of_move() * (100 + WIN);
}

uint64_t ag_prices_crossing_ns(uint64_t bytes)
{
    uint64_t gib_ns = atomic_load_explicit(&self.gib_ns, memory_order_relaxed);

    return (uint64_t)((double)bytes / (double)REMEMBERS * (double)(gib_ns ? gib_ns : USUAL_GIB_NS));
}
