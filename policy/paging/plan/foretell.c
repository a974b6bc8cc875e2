/* What the log foretells: see foretell.h.
 *
 * Launches are not the same where allocators give them other memory in each of the first
 * iterations. Then a piece is taken to be used as it was when it last was that operand. And a piece
 * of which not even that is known is taken to be used where it was in the iteration before: one
 * lasts, in launches, as long as a piece that lies on the host was not that operand. */
#include "policy/paging/plan/foretell.h"

#include "policy/paging/plan/log.h"
#include "policy/paging/plan/prices.h"
#include "policy/paging/plan/toll.h"
#include "policy/paging/plan/worth.h"

#define BACK 64u /* uses of a piece that are looked at, or pieces of a launch */

static uint64_t period; /* launches of an iteration; 0: not known */

/* --- what was alike --- */

/* A use in the log: of that launch, the one at that place. */
struct found {
    uint64_t number;
    uint32_t at;
};

static struct ag_log_use *use_of(struct found found)
{
    return ag_log_use_at(found.number, found.at);
}

/* Goes to the use of the piece before that one. False: it is not known. */
static bool go_back(struct found *found)
{
    const struct ag_log_use *use = use_of(*found);

    *found = (struct found){use->before, use->before_at};
    return ag_log_has(found->number);
}

/* The use of the piece as this operand before its last use. False: none is known. */
static bool find_alike(const struct ag_piece *piece, struct found *ret)
{
    struct found found = {piece->logged_in, piece->logged_at};
    uint64_t operand = use_of(found)->operand;

    for (unsigned i = 0; i < BACK && go_back(&found); i++) {
        if (use_of(found)->operand != operand)
            continue;
        *ret = found;
        return true;
    }
    return false;
}

/* In how many launches it is used as it was in the iteration before; 0: it was not. */
static uint64_t next_in_iteration(const struct ag_piece *piece)
{
    struct found found = {piece->logged_in, piece->logged_at};
    uint64_t first = 0;

    if (!period || !ag_log_has(found.number))
        return 0;
    for (unsigned i = 0; i < BACK && found.number + period > ag_log_last(); i++) {
        first = found.number;
        if (!go_back(&found))
            break;
    }
    return first ? first + period - ag_log_last() : 0;
}

/* The launch's use of the piece, which mostly is the one at that place, or near it. */
static bool find_use_near(struct found *found, const struct ag_piece *piece)
{
    uint32_t n = ag_log_launch_at(found->number)->n, at = found->at;

    for (uint32_t i = 0; i < BACK && i < n; i++) {
        found->at = at + i;
        if (found->at < n && use_of(*found)->piece == piece)
            return true;
        found->at = at - i;
        if (i <= at && found->at < n && use_of(*found)->piece == piece)
            return true;
    }
    return false;
}

/* The use, of the time before, that the piece's last one is like, as the launches were alike. */
static bool find_foretold(const struct ag_piece *piece, struct found *ret)
{
    *ret = (struct found){ag_log_launch_at(piece->logged_in)->match, piece->logged_at};
    return ag_log_has(ret->number) && find_use_near(ret, piece);
}

/* --- uses --- */

/* The use that the piece's last one is taken to be like: what follows it follows now. */
static bool find_like(const struct ag_piece *piece, bool on_host, struct found *ret)
{
    bool is_foretold = find_foretold(piece, ret), is_followed = is_foretold && use_of(*ret)->next;
    struct found alike;

    if ((!on_host && is_followed) || !find_alike(piece, &alike))
        return is_foretold;
    if (on_host)
        period = ag_log_last() - alike.number;
    if (!is_followed)
        *ret = alike;
    return true;
}

static void expect_next(struct ag_piece *piece, struct ag_log_use *use, struct found like)
{
    use->like = like.number;
    use->like_at = like.at;
    use->worth = use_of(like)->worth;
    if (ag_log_has(use_of(like)->next))
        piece->expected = ag_log_last() + (use_of(like)->next - like.number);
}

void ag_foretell_use(struct ag_piece *piece, uint64_t operand, unsigned uses, bool on_host)
{
    struct ag_log_use *use;
    struct found like;

    if (!ag_log_last() || ag_log_is_again())
        return;
    use = ag_log_add_use(piece, operand, uses);
    if (!use)
        return;
    piece->expected = 0;
    if (find_like(piece, on_host, &like))
        expect_next(piece, use, like);
}

/* --- what is expected --- */

/* What the use before cost, if no more than `near` bytes were used since: where nothing is
 * foretold, it may go on as it did just now. */
static uint64_t price_before(const struct ag_log_use *use, uint64_t near)
{
    const struct ag_log_launch *before = ag_log_launch_at(use->before);

    if (ag_log_is_again() || !ag_log_has(use->before) ||
        ag_log_launch_at(ag_log_last())->volume - before->volume > near)
        return 0;
    return ag_worth_price(before, ag_log_use_at(use->before, use->before_at));
}

uint64_t ag_foretell_worth(const struct ag_piece *piece, uint64_t near)
{
    const struct ag_log_use *last = ag_log_last_use(piece);
    uint64_t worth, foretold, kernel;
    struct found like;

    if (!last)
        return 0;
    if (piece->logged_in != ag_log_last())
        return piece->expected ? ag_worth_now(last, piece->logged_in, piece->expected) : 0;
    kernel = ag_log_launch_at(piece->logged_in)->kernel;
    worth = ag_worth_of_use(piece->logged_in, last) + ag_toll_now(kernel, last->operand) -
            ag_toll_of(kernel, last->operand);
    if (!find_foretold(piece, &like))
        return worth + price_before(last, near);
    foretold = ag_worth_of_use(like.number, use_of(like));
    return worth > foretold ? worth : foretold;
}

bool ag_foretell_comes(const struct ag_piece *piece)
{
    const struct ag_log_use *last = ag_log_last_use(piece), *like;
    uint64_t worth;

    if (!last || piece->expected <= ag_log_last() || !ag_log_has(last->like))
        return false;
    like = ag_log_use_at(last->like, last->like_at);
    if (!ag_log_has(like->next))
        return false;
    worth = ag_worth_of_use(like->next, ag_log_use_at(like->next, like->next_at));
    return ag_prices_worth_moving(worth < UINT32_MAX ? (unsigned)worth : UINT32_MAX);
}

uint64_t ag_foretell_next_use(const struct ag_piece *piece)
{
    uint64_t next;

    if (!piece->logged_in)
        return UINT64_MAX;
    if (piece->expected > ag_log_last())
        return piece->expected - ag_log_last();
    next = next_in_iteration(piece);
    return next ? next : ag_log_last() - piece->logged_in;
}

void ag_foretell_begin_child(void)
{
    period = 0;
    ag_log_begin_child();
    ag_worth_begin_child();
}
