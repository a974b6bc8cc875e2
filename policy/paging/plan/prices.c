/* Averages of what moving cost: see prices.h. */
#include "policy/paging/plan/prices.h"

#include <stdatomic.h>

#define USUAL     160u                 /* of an H100 and an H200 by PCIe 5 */
#define MOST      260u                 /* has been seen; three uses in place are no cheaper, ever */
#define WIN       2u                   /* per cent */
#define REMEMBERS ((uint64_t)1 << 30)  /* bytes; what was before them counts half, and so on */
#define FEW       4u                   /* batches, and ... */
#define ENOUGH    ((uint64_t)32 << 20) /* ... bytes, after which the bus is believed to be slow */
#define RARELY    8u                   /* of later bytes, one in so many is measured, ... */
#define SELDOM    ((uint64_t)4 << 30)  /* ... until that is one batch in so many */

#define USUAL_GIB_NS ((uint64_t)19500000) /* one way, of the same */

static struct {
    uint64_t bytes, ns;      /* of moves */
    uint64_t copied, moved;  /* bytes of copies that were measured, and that moved since then */
    unsigned measured;       /* batches of them */
    _Atomic uint64_t gib_ns; /* of copies, at their fastest; relaxed: a guess; 0: none was made */
    _Atomic unsigned price;  /* relaxed, likewise */
    _Atomic bool is_known;   /* that is how fast the bus is; relaxed, likewise */
} self;

static uint64_t gib_ns_of(uint64_t bytes, uint64_t ns)
{
    return (uint64_t)((double)ns / (double)bytes * (double)REMEMBERS);
}

/* A kernel that uses memory of the host has the bus like a copy beside which nothing goes the other
 * way. */
void ag_prices_note_copies(uint64_t bytes, uint64_t ns)
{
    uint64_t gib_ns, fastest = ag_prices_gib_ns();

    if (!bytes)
        return;
    gib_ns = gib_ns_of(bytes, ns);
    if (gib_ns && (!fastest || gib_ns < fastest))
        atomic_store_explicit(&self.gib_ns, gib_ns, memory_order_relaxed);
    self.copied += bytes;
    self.measured++;
    self.moved = 0;
    if (self.copied >= ENOUGH && self.measured >= FEW)
        atomic_store_explicit(&self.is_known, true, memory_order_relaxed);
}

static bool is_known(void)
{
    return atomic_load_explicit(&self.is_known, memory_order_relaxed);
}

bool ag_prices_want_copies(void)
{
    uint64_t between = is_known() ? RARELY * self.copied : self.copied;

    return self.measured < FEW || self.moved >= (between < SELDOM ? between : SELDOM);
}

static unsigned price_of_move(void)
{
    uint64_t gib_ns = ag_prices_gib_ns();
    uint64_t price = 100 * gib_ns_of(self.bytes, self.ns) / (gib_ns ? gib_ns : USUAL_GIB_NS);

    return price < 100 ? 100 : price > MOST ? MOST : (unsigned)price;
}

void ag_prices_note_moves(uint64_t bytes, uint64_t ns)
{
    if (!bytes)
        return;
    self.moved += bytes;
    self.bytes += bytes;
    self.ns += ns;
    atomic_store_explicit(&self.price, price_of_move(), memory_order_relaxed);
    if (self.bytes < REMEMBERS)
        return;
    self.bytes /= 2;
    self.ns /= 2;
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

uint64_t ag_prices_gib_ns(void)
{
    return atomic_load_explicit(&self.gib_ns, memory_order_relaxed);
}

/* The first copies may be slow for other reasons than the bus. Were they believed, each kernel
 * would seem to use next to nothing of the host's memory: nothing more would move, and nothing
 * faster be measured. */
uint64_t ag_prices_crossing_ns(uint64_t bytes)
{
    uint64_t gib_ns = ag_prices_gib_ns();
    bool is_believed = gib_ns && (gib_ns < USUAL_GIB_NS || is_known());

    return (uint64_t)((double)bytes / (double)REMEMBERS *
                      (double)(is_believed ? gib_ns : USUAL_GIB_NS));
}
