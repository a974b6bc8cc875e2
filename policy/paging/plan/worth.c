/* The price of room, and what uses are worth by it: see worth.h.
 *
 * One pass backward through the log tells what each use is worth at given prices, as the next one
 * of the same piece is known by then. The last one of each piece has no next one yet, and is worth
 * what the use was found to be that it is like, an iteration before, at the prices before.
 *
 * First one price is looked for at which what is worth its rent fills the device in the mean. Then
 * that of each part of the launches goes up or down by how full the device would be there. */
#include "policy/paging/plan/worth.h"

#include "policy/paging/plan/prices.h"
#include "policy/paging/plan/toll.h"

#define FIRST_LOOK ((uint64_t)16)      /* launches */
#define MOST_USES  ((uint64_t)1 << 14) /* are looked at */
#define MOST_APART ((uint64_t)1 << 14) /* launches from one look to the next */
#define PARTS      256u                /* of the launches that are looked at */
#define HALVINGS   5u    /* between two prices, one of which is four times the other */
#define CHANGES    16u   /* of the prices of the parts */
#define LEAST      0.001 /* price of room for a launch; likewise MOST */
#define MOST       1e9
#define MOST_FULL  2.0 /* however full or empty a part is, its price changes by no more at once */

static uint64_t due;      /* the launch at which the log is looked at again */
static double usual_rent; /* from one launch to the next */

/* What is looked at: launches after `first` up to `last`. */
static struct {
    uint64_t first, last, width;  /* of a part, in launches */
    double most;                  /* KiB that the device holds */
    double price[PARTS];          /* of room, for a launch */
    double taken[PARTS + 1];      /* KiB times launches that what is worth its rent takes there */
    double throughout[PARTS + 2]; /* what is added to that from there on, in KiB */
} self;

uint64_t ag_worth_price(const struct ag_log_launch *launch, const struct ag_log_use *use)
{
    return ag_toll_of(launch->kernel, use->operand) * launch->repeats * use->uses;
}

static unsigned part_at(uint64_t number)
{
    return (unsigned)((number - self.first) / self.width);
}

/* --- a look at given prices --- */

static void set_rents(void)
{
    double rent = ag_log_launch_at(self.first)->rent;

    for (uint64_t number = self.first + 1; number <= self.last; number++) {
        rent += self.price[part_at(number)];
        ag_log_launch_at(number)->rent = rent;
    }
}

/* A piece stays from one launch to the other. */
static void take(uint64_t from, uint64_t to, uint32_t kib)
{
    unsigned first = part_at(from), last = part_at(to);

    if (first == last) {
        self.taken[first] += (double)kib * (double)(to - from);
        return;
    }
    self.taken[first] += (double)kib * (double)(self.first + (first + 1) * self.width - from);
    self.taken[last] += (double)kib * (double)(to - self.first - last * self.width);
    self.throughout[first + 1] += kib;
    self.throughout[last] -= kib;
}

static double worth_until(const struct ag_log_use *next, double rent)
{
    double saved = (double)next->price + (double)(next->worth > 0 ? next->worth : 0);
    double move = ag_prices_of_move();

    return (saved < move ? saved : move) - rent;
}

static void look_at_use(uint64_t number, struct ag_log_use *use)
{
    const struct ag_log_use *before;

    if (use->next)
        use->worth =
            (float)worth_until(ag_log_use_at(use->next, use->next_at),
                               ag_log_launch_at(use->next)->rent - ag_log_launch_at(number)->rent);
    else if (ag_log_has(use->like))
        use->worth = ag_log_use_at(use->like, use->like_at)->worth;
    if (use->worth > 0)
        take(number, use->next ? use->next : self.last, use->kib);
    if (use->before > self.first || !ag_log_has(use->before))
        return;
    before = ag_log_use_at(use->before, use->before_at);
    if (before->worth > 0)
        take(self.first, number, use->kib);
}

/* How full the device would be in the mean. */
static double look_at_prices(void)
{
    double all = 0, throughout = 0;

    set_rents();
    for (unsigned i = 0; i <= PARTS; i++)
        self.taken[i] = self.throughout[i] = 0;
    for (uint64_t number = self.last; number > self.first; number--)
        for (uint32_t at = ag_log_launch_at(number)->n; at-- > 0;)
            look_at_use(number, ag_log_use_at(number, at));
    for (unsigned i = 0; i <= PARTS; i++) {
        throughout += self.throughout[i];
        self.taken[i] += throughout * (double)self.width;
        all += self.taken[i];
    }
    return all / self.most / (double)(self.last - self.first);
}

static double look_at_price(double price)
{
    for (unsigned i = 0; i < PARTS; i++)
        self.price[i] = price;
    return look_at_prices();
}

/* --- prices --- */

/* The least one, to 10 %, at which no more is taken than there is. */
static void find_price(void)
{
    double low = 0, high = LEAST, middle;

    while (high < MOST && look_at_price(high) > 1) {
        low = high;
        high *= 4;
    }
    for (unsigned i = 0; i < HALVINGS; i++) {
        middle = (low + high) / 2;
        if (look_at_price(middle) > 1)
            low = middle;
        else
            high = middle;
    }
    (void)look_at_price(high);
}

/* The factor by which the price of the part changes; that of the n-th change is nearer to 1 than
 * those before. */
static double change_of(unsigned part, unsigned n)
{
    double full = self.taken[part] / self.most / (double)self.width;
    double most = 1 + (MOST_FULL - 1) * 8 / (8 + n);

    return full > most ? most : full < 1 / most ? 1 / most : full;
}

static void change_prices(void)
{
    for (unsigned n = 0; n < CHANGES; n++) {
        for (unsigned i = 0; i < PARTS; i++)
            self.price[i] *= change_of(i, n);
        (void)look_at_prices();
    }
}

/* Chooses the last three quarters of the launches, at most. Prices of their uses are what they are
 * known to be now. False: what follows most of the uses is not known yet. */
static bool choose_what_to_look_at(void)
{
    uint64_t number = self.last, uses = 0, followed = 0, price;

    for (; number > self.last / 4 && ag_log_has(number) && uses < MOST_USES; number--) {
        const struct ag_log_launch *launch = ag_log_launch_at(number);

        for (uint32_t at = 0; at < launch->n; at++) {
            struct ag_log_use *use = ag_log_use_at(number, at);

            price = ag_worth_price(launch, use);
            use->price = price < UINT32_MAX ? (uint32_t)price : UINT32_MAX;
            followed += use->next != 0;
        }
        uses += launch->n;
    }
    self.first = number;
    self.width = (self.last - number) / PARTS + 1;
    return 2 * followed > uses;
}

void ag_worth_look(uint64_t room)
{
    self.last = ag_log_last();
    if (self.last < FIRST_LOOK || self.last < due)
        return;
    due = self.last + (self.last / 4 < MOST_APART ? self.last / 4 : MOST_APART);
    self.most = (double)(room >> 10);
    if (!choose_what_to_look_at())
        return;
    find_price();
    change_prices();
    usual_rent = (ag_log_launch_at(self.last)->rent - ag_log_launch_at(self.first)->rent) /
                 (double)(self.last - self.first);
}

/* --- what is asked --- */

uint64_t ag_worth_of_use(uint64_t number, const struct ag_log_use *use)
{
    return ag_worth_price(ag_log_launch_at(number), use) +
           (use->worth > 0 ? (uint64_t)use->worth : 0);
}

double ag_worth_usual_rent(void)
{
    return usual_rent;
}

uint64_t ag_worth_now(const struct ag_log_use *use, uint64_t number, uint64_t next)
{
    double now = ag_log_launch_at(ag_log_last())->rent, then = now, worth;

    if (next < ag_log_last())
        then = ag_log_has(next) ? ag_log_launch_at(next)->rent : 0;
    worth = use->worth + then - ag_log_launch_at(number)->rent - (now - then);
    return worth > 0 ? (uint64_t)worth : 0;
}

void ag_worth_begin_child(void)
{
    due = 0;
    usual_rent = 0;
}
