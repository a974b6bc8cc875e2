/* The log of launches, and what it foretells: see foretell.h.
 *
 * Each use of a piece is a record, and each record knows the next one of the same piece and the one
 * before. So the entry of the launch that came after the same launches before tells of each of its
 * pieces when it was used next, and, from there on, again.
 *
 * Launches are not the same where allocators give them other memory in each of the first
 * iterations. Then a piece is taken to be used as it was when it last was that operand. And a piece
 * of which not even that is known is taken to be used where it was in the iteration before: one
 * lasts, in launches, as long as a piece that lies on the host was not that operand. */
#include "policy/paging/plan/foretell.h"

#include <stdbool.h>
#include <string.h>

#include "interpose/core/base/hash.h"
#include "interpose/core/base/pages.h"
#include "policy/paging/plan/toll.h"

#define ENTRIES ((uint64_t)1 << 16)
#define RECORDS ((uint64_t)1 << 18)
#define ALIKE   4u    /* launches that have to be the same, for what follows to be */
#define ENOUGH  1000u /* hundredths of a crossing: no price of moving is near that */
#define MOST    UINT32_MAX
#define BACK    64u /* uses of a piece that are looked at, or pieces of a launch */

struct record {
    const struct ag_piece *piece; /* which may be another one's by now */
    uint64_t operand;
    uint64_t next;      /* the entry that uses the piece next; 0: none by now */
    uint64_t before;    /* likewise */
    uint32_t at;        /* which of the next one's records does */
    uint32_t before_at; /* likewise */
    uint32_t uses;      /* of this one */
};

struct entry {
    uint64_t key, repeats;
    uint64_t times;  /* that launches had led to it, this one included */
    uint64_t volume; /* bytes that launches had used before it */
    uint64_t first;  /* record */
    uint64_t match;  /* the entry like it, as it was foretold, or 0 */
    uint32_t n;      /* records */
};

struct log {
    struct entry entries[ENTRIES]; /* both are rings */
    struct record records[RECORDS];
    struct {
        uint64_t context, entry;
    } seen[ENTRIES]; /* where launches that led there led to last, by their hash */
};

static struct {
    struct log *log; /* NULL: there is none, and nothing is foretold */
    bool has_failed;
    uint64_t n_entries, n_records, volume; /* entries are numbered from 1 */
    uint64_t last_keys[ALIKE];
    uint64_t period; /* entries of an iteration; 0: not known */
    bool is_again;   /* the launch that began last is the one before it once more */
} self;

static struct entry *entry_at(uint64_t number)
{
    return &self.log->entries[number % ENTRIES];
}

static struct record *use_record(const struct entry *entry, uint32_t at)
{
    return &self.log->records[(entry->first + at) % RECORDS];
}

/* Is the entry in the log still, with all of its records? */
static bool is_known(uint64_t number)
{
    return number && number + ENTRIES > self.n_entries &&
           entry_at(number)->first + RECORDS > self.n_records;
}

static bool has_log(void)
{
    if (!self.log && !self.has_failed) {
        self.log = ag_pages_get(sizeof(*self.log));
        self.has_failed = !self.log;
    }
    return self.log;
}

/* --- launches --- */

static uint64_t context_of_last(void)
{
    uint64_t context = 0;

    for (uint64_t i = 0; i < ALIKE; i++)
        context = ag_hash_word(context, self.last_keys[(self.n_entries + i) % ALIKE]);
    return context;
}

/* The entry after the one that the last one is like, if it is like this one; 0: it is not. */
static uint64_t match_of_next(void)
{
    uint64_t next = entry_at(self.n_entries - 1)->match + 1;

    return next > 1 && is_known(next) && entry_at(next)->key == entry_at(self.n_entries)->key ? next
                                                                                              : 0;
}

/* The last entry after the same launches as this one; 0: there is none. Where others have taken its
 * place in the table, the entry before tells. */
static uint64_t find_match(void)
{
    uint64_t context = context_of_last(), at = ag_hash_entry(context, ENTRIES), match = 0;

    if (self.log->seen[at].context == context && is_known(self.log->seen[at].entry))
        match = self.log->seen[at].entry;
    self.log->seen[at].context = context;
    self.log->seen[at].entry = self.n_entries;
    return match ? match : match_of_next();
}

void ag_foretell_launch(uint64_t key)
{
    struct entry *last;
    uint64_t match;

    if (!has_log())
        return;
    last = entry_at(self.n_entries);
    self.is_again = self.n_entries && last->key == key;
    if (self.is_again) {
        last->repeats++;
        return;
    }
    self.n_entries++;
    *entry_at(self.n_entries) = (struct entry){
        .key = key,
        .repeats = 1,
        .volume = self.volume,
        .first = self.n_records,
    };
    self.last_keys[self.n_entries % ALIKE] = key;
    match = find_match();
    entry_at(self.n_entries)->match = match;
    entry_at(self.n_entries)->times = match ? entry_at(match)->times + 1 : 1;
}

/* --- uses --- */

/* The record of the piece's last use, or NULL. */
static struct record *last_record(const struct ag_piece *piece)
{
    return is_known(piece->logged_in) ? use_record(entry_at(piece->logged_in), piece->logged_at)
                                      : NULL;
}

static uint64_t price_of(const struct entry *entry, const struct record *record)
{
    return ag_toll_of(record->operand) * entry->repeats * record->uses;
}

/* Goes to the use of the piece before that one. False: it is not known. */
static bool go_back(uint64_t *number, uint32_t *at)
{
    const struct record *record = use_record(entry_at(*number), *at);

    *number = record->before;
    *at = record->before_at;
    return is_known(*number);
}

/* The entry that used the piece as this operand before its last use; 0: none is known. */
static uint64_t last_alike(const struct ag_piece *piece, const struct record **ret_record)
{
    uint64_t number = piece->logged_in;
    uint32_t at = piece->logged_at;
    uint64_t operand = use_record(entry_at(number), at)->operand;

    for (unsigned i = 0; i < BACK && go_back(&number, &at); i++) {
        *ret_record = use_record(entry_at(number), at);
        if ((*ret_record)->operand == operand)
            return number;
    }
    return 0;
}

/* In how many entries it is used as it was in the iteration before; 0: it was not. */
static uint64_t next_in_iteration(const struct ag_piece *piece)
{
    uint64_t number = piece->logged_in, first = 0;
    uint32_t at = piece->logged_at;

    if (!self.period || !is_known(number))
        return 0;
    for (unsigned i = 0; i < BACK && number + self.period > self.n_entries; i++) {
        first = number;
        if (!go_back(&number, &at))
            break;
    }
    return first ? first + self.period - self.n_entries : 0;
}

/* What the uses cost in place that follow each other from that record on; more than `enough` is not
 * asked for. */
static uint64_t price_from(uint64_t number, const struct record *record, uint64_t near,
                           uint64_t enough)
{
    uint64_t price = 0;

    for (;;) {
        const struct entry *entry = entry_at(number);

        price += price_of(entry, record);
        if (price > enough)
            return enough;
        if (!is_known(record->next) || entry_at(record->next)->volume - entry->volume > near)
            return price;
        number = record->next;
        record = use_record(entry_at(number), record->at);
    }
}

/* Nothing is foretold: it may go on as it did just now. */
static unsigned price_by_now(const struct ag_piece *piece, const struct record *last,
                             const struct record *now, uint64_t near)
{
    const struct entry *entry = entry_at(self.n_entries);
    uint64_t price = price_of(entry, now);

    if (last && entry->volume - entry_at(piece->logged_in)->volume <= near)
        price += price_of(entry_at(piece->logged_in), last);
    return price < ENOUGH ? (unsigned)price : ENOUGH;
}

/* Adds a record of the piece. Its last one knows of it then. */
static void add_record(struct ag_piece *piece, struct record *last, struct record now)
{
    struct entry *entry = entry_at(self.n_entries);

    if (last) {
        now.before = piece->logged_in;
        now.before_at = piece->logged_at;
    }
    *use_record(entry, entry->n) = now;
    self.n_records++;
    if (last) {
        last->next = self.n_entries;
        last->at = entry->n;
    }
    piece->logged_in = self.n_entries;
    piece->logged_at = entry->n++;
    self.volume += piece->size;
}

/* The record of the piece, which mostly is the one at that place, or near it; NULL: there is none.
 */
static const struct record *record_near(const struct entry *entry, uint32_t at,
                                        const struct ag_piece *piece)
{
    for (uint32_t i = 0; i < BACK && i < entry->n; i++) {
        if (at + i < entry->n && use_record(entry, at + i)->piece == piece)
            return use_record(entry, at + i);
        if (i <= at && at - i < entry->n && use_record(entry, at - i)->piece == piece)
            return use_record(entry, at - i);
    }
    return NULL;
}

/* The record, of the time before, that the piece's last one is like; NULL: nothing is foretold. */
static const struct record *foretold(const struct ag_piece *piece, uint64_t *ret_number)
{
    uint64_t number = is_known(piece->logged_in) ? entry_at(piece->logged_in)->match : 0;

    *ret_number = number;
    return is_known(number) ? record_near(entry_at(number), piece->logged_at, piece) : NULL;
}

/* `like` is the piece's record of the time before, in the entry of that number, or NULL. */
static void expect_next(struct ag_piece *piece, const struct record *like, uint64_t number,
                        bool on_host)
{
    const struct record *alike = NULL;
    bool is_foretold = like && like->next;
    uint64_t last = 0;

    if (on_host || !is_foretold)
        last = last_alike(piece, &alike);
    if (last && on_host)
        self.period = self.n_entries - last;
    if (last && !is_foretold) {
        like = alike;
        number = last;
    }
    piece->expected = like && like->next ? self.n_entries + (like->next - number) : 0;
}

unsigned ag_foretell_use(struct ag_piece *piece, uint64_t operand, unsigned uses, bool on_host,
                         uint64_t near)
{
    const struct record now = {.piece = piece, .operand = operand, .uses = uses};
    const struct entry *entry;
    const struct record *like;
    struct record *last;
    uint64_t number;
    unsigned price = 0;

    if (!self.log)
        return 100 * uses;
    entry = entry_at(self.n_entries);
    if (self.is_again || entry->n == UINT16_MAX)
        return price_by_now(piece, NULL, &now, near);
    last = last_record(piece);
    if (on_host)
        price = price_by_now(piece, last, &now, near);
    add_record(piece, last, now);
    like = foretold(piece, &number);
    expect_next(piece, like, number, on_host);
    if (on_host && like)
        price = (unsigned)price_from(number, like, near, ENOUGH);
    return price;
}

/* Does nothing but the launch of that record use the piece, once in each iteration? */
static bool is_used_by_that_only(uint64_t number, const struct record *record, uint64_t near)
{
    const struct entry *entry = entry_at(number), *next = entry_at(record->next);

    return is_known(record->next) && next->key == entry->key && next->volume - entry->volume > near;
}

uint64_t ag_foretell_price(const struct ag_piece *piece, uint64_t near)
{
    const struct record *last = last_record(piece), *like;
    uint64_t number, price;

    if (!last)
        return 0;
    like = foretold(piece, &number);
    if (!like || self.is_again)
        return price_of(entry_at(piece->logged_in), last);
    price = price_from(number, like, near, MOST);
    return is_used_by_that_only(number, like, near) ? price * (entry_at(number)->times + 1) : price;
}

unsigned ag_foretell_due(const struct ag_piece *piece, uint64_t near, uint64_t *ret_launches)
{
    uint64_t number, now;
    const struct record *like;

    if (piece->expected <= self.n_entries)
        return 0;
    like = foretold(piece, &number);
    now = number + (self.n_entries - piece->logged_in);
    if (!like || !is_known(like->next) || now > like->next ||
        entry_at(like->next)->volume - entry_at(now)->volume > near)
        return 0;
    *ret_launches = piece->expected - self.n_entries;
    return (unsigned)price_from(like->next, use_record(entry_at(like->next), like->at), near,
                                ENOUGH);
}

uint64_t ag_foretell_next_use(const struct ag_piece *piece)
{
    uint64_t next;

    if (!piece->logged_in)
        return UINT64_MAX;
    if (piece->expected > self.n_entries)
        return piece->expected - self.n_entries;
    next = next_in_iteration(piece);
    return next ? next : self.n_entries - piece->logged_in;
}

void ag_foretell_begin_child(void)
{
    if (self.log)
        ag_pages_free(self.log, sizeof(*self.log));
    memset(&self, 0, sizeof(self));
}
