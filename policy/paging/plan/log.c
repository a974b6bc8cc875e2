/* Two rings, and a table of where launches led to: see log.h. */
#include "policy/paging/plan/log.h"

#include <string.h>

#include "interpose/core/base/hash.h"
#include "interpose/core/base/pages.h"

#define LAUNCHES ((uint64_t)1 << 16)
#define USES     ((uint64_t)1 << 18)
/* Launches that have to be the same, for what follows to be; and as many as tell one iteration from
 * another that is like it in parts. */
#define ALIKE      4u
#define LONG_ALIKE 64u
#define BASE       0x9e3779b97f4a7c15u /* of the hash of those; odd */

struct seen {
    uint64_t context, launch;
};

struct log {
    struct ag_log_launch launches[LAUNCHES]; /* both are rings */
    struct ag_log_use uses[USES];
    struct seen seen[2][LAUNCHES]; /* where few launches, or many, led to last, by their hash */
};

static struct {
    struct log *log; /* NULL: there is none, and nothing is foretold */
    bool has_failed;
    uint64_t n_launches, n_uses, volume;
    uint64_t last_keys[LONG_ALIKE];
    uint64_t long_context; /* their hash */
    bool is_again;
} self;

static bool has_log(void)
{
    if (!self.log && !self.has_failed) {
        self.log = ag_pages_get(sizeof(*self.log));
        self.has_failed = !self.log;
    }
    return self.log;
}

uint64_t ag_log_last(void)
{
    return self.log ? self.n_launches : 0;
}

struct ag_log_launch *ag_log_launch_at(uint64_t number)
{
    return &self.log->launches[number % LAUNCHES];
}

struct ag_log_use *ag_log_use_at(uint64_t number, uint32_t at)
{
    return &self.log->uses[(ag_log_launch_at(number)->first + at) % USES];
}

bool ag_log_has(uint64_t number)
{
    return self.log && number && number + LAUNCHES > self.n_launches &&
           ag_log_launch_at(number)->first + USES > self.n_uses;
}

bool ag_log_is_again(void)
{
    return self.is_again;
}

/* --- launches --- */

/* Each key counts by a power of the base, so that the oldest can be taken out again. */
static void add_key(uint64_t key)
{
    uint64_t *place = &self.last_keys[self.n_launches % LONG_ALIKE], power = BASE;

    for (unsigned i = 1; i < LONG_ALIKE; i *= 2)
        power *= power;
    self.long_context = self.long_context * BASE + key - *place * power;
    *place = key;
}

static uint64_t context_of_last(void)
{
    uint64_t context = 0;

    for (uint64_t i = 0; i < ALIKE; i++)
        context = ag_hash_word(context, self.last_keys[(self.n_launches - i) % LONG_ALIKE]);
    return context;
}

/* The launch that this context, of few launches or of many, led to last, or 0. Now it leads to the
 * last one. */
static uint64_t lead_here(bool is_of_many, uint64_t context)
{
    size_t at = ag_hash_entry(context, LAUNCHES);
    struct seen seen = self.log->seen[is_of_many][at];

    self.log->seen[is_of_many][at] = (struct seen){context, self.n_launches};
    return seen.context == context && ag_log_has(seen.launch) ? seen.launch : 0;
}

/* The launch after the one that the last one is like, if it is like this one; 0: it is not. */
static uint64_t match_of_next(void)
{
    uint64_t next = ag_log_launch_at(self.n_launches - 1)->match + 1;

    return next > 1 && ag_log_has(next) &&
                   ag_log_launch_at(next)->key == ag_log_launch_at(self.n_launches)->key
               ? next
               : 0;
}

/* The last launch after the same many launches as this one, or else after the same few; 0: there is
 * none. Where others have taken its place in the tables, the launch before tells. */
static uint64_t find_match(void)
{
    uint64_t few = lead_here(false, context_of_last());
    uint64_t many = lead_here(true, self.long_context);

    return many ? many : few ? few : match_of_next();
}

/* What room costs until the last launch, from the one before: as much as with the one that it is
 * like. */
static double rent_of_last(double usual)
{
    uint64_t match = ag_log_launch_at(self.n_launches)->match;

    return match > 1 && ag_log_has(match - 1)
               ? ag_log_launch_at(match)->rent - ag_log_launch_at(match - 1)->rent
               : usual;
}

void ag_log_add_launch(uint64_t key, uint64_t kernel, double usual_rent)
{
    struct ag_log_launch *last;

    if (!has_log())
        return;
    last = ag_log_launch_at(self.n_launches);
    self.is_again = self.n_launches && last->key == key;
    if (self.is_again) {
        last->repeats++;
        return;
    }
    self.n_launches++;
    *ag_log_launch_at(self.n_launches) = (struct ag_log_launch){
        .key = key,
        .kernel = kernel,
        .repeats = 1,
        .volume = self.volume,
        .first = self.n_uses,
    };
    add_key(key);
    ag_log_launch_at(self.n_launches)->match = find_match();
    ag_log_launch_at(self.n_launches)->rent = last->rent + rent_of_last(usual_rent);
}

/* --- uses --- */

struct ag_log_use *ag_log_last_use(const struct ag_piece *piece)
{
    return ag_log_has(piece->logged_in) ? ag_log_use_at(piece->logged_in, piece->logged_at) : NULL;
}

struct ag_log_use *ag_log_add_use(struct ag_piece *piece, uint64_t operand, unsigned uses)
{
    struct ag_log_launch *launch = ag_log_launch_at(self.n_launches);
    struct ag_log_use *last = ag_log_last_use(piece), *use;

    if (launch->n == UINT16_MAX)
        return NULL;
    use = ag_log_use_at(self.n_launches, launch->n);
    *use = (struct ag_log_use){
        .piece = piece,
        .operand = operand,
        .before = last ? piece->logged_in : 0,
        .before_at = piece->logged_at,
        .uses = uses,
        .kib = (uint32_t)(piece->size >> 10),
    };
    self.n_uses++;
    if (last) {
        last->next = self.n_launches;
        last->next_at = launch->n;
    }
    piece->logged_in = self.n_launches;
    piece->logged_at = launch->n++;
    self.volume += piece->size;
    return use;
}

void ag_log_begin_child(void)
{
    if (self.log)
        ag_pages_free(self.log, sizeof(*self.log));
    memset(&self, 0, sizeof(self));
}
