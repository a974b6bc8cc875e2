/* The kinds of iterations that come often enough to be compared: see kinds.h.
 *
 * There are few places. Kinds that come often keep theirs: an iteration of a kind without a place
 * takes one credit from each kind that has one, and the place of a kind without credit. */
#include "graph/learn/kinds.h"

#include <stddef.h>

static uint32_t find(const struct ag_kinds *kinds, uint64_t path)
{
    uint32_t i = 0;

    while (i < AG_KINDS && kinds->kind[i].path != path)
        i++;
    return i;
}

static void begin(struct ag_kinds *kinds, uint32_t place, uint64_t path)
{
    for (uint32_t i = 0; i < AG_KINDS; i++) {
        if (kinds->kind[i].next == place)
            kinds->kind[i].next = AG_KINDS;
    }
    kinds->kind[place] = (struct ag_kind){.path = path, .next = AG_KINDS};
    if (kinds->last == place + 1)
        kinds->last = 0;
}

/* The place of the kind; AG_KINDS: it has none. */
static uint32_t place_of(struct ag_kinds *kinds, uint64_t path)
{
    uint32_t place = find(kinds, path), unused = AG_KINDS;

    if (place < AG_KINDS)
        return place;
    for (uint32_t i = AG_KINDS; i-- > 0;) {
        if (!kinds->kind[i].credit)
            unused = i;
    }
    if (unused < AG_KINDS) {
        begin(kinds, unused, path);
        return unused;
    }
    for (uint32_t i = 0; i < AG_KINDS; i++)
        kinds->kind[i].credit--;
    return AG_KINDS;
}

/* A kind came behind another one. */
static void follow(struct ag_kind *before, uint32_t place)
{
    if (before->next == place)
        before->sure += before->sure < AG_KINDS_MOST_SURE;
    else if (before->next < AG_KINDS && before->sure)
        before->sure--;
    else
        before->next = place;
}

/* Until more is known, a new kind is taken to be an exception: the kind before it comes back. */
static void expect(struct ag_kinds *kinds, uint32_t place)
{
    uint32_t before = kinds->last ? kinds->last - 1 : place;

    follow(&kinds->kind[before], place);
    kinds->last = place + 1;
    kinds->expected = (kinds->kind[place].next < AG_KINDS ? kinds->kind[place].next : before) + 1;
}

/* Iterations in which graphs are built say nothing of later ones, so they do not count, unless
 * building does not end. */
static bool count(struct ag_kind *kind, const struct ag_iteration_sample *sample)
{
    return !sample->built || kind->building++ >= AG_KINDS_BUILDING;
}

static bool took_most(const struct ag_kinds *kinds, const struct ag_kind *kind)
{
    for (uint32_t i = 0; i < AG_KINDS; i++) {
        if (kinds->kind[i].ns > kind->ns)
            return false;
    }
    return true;
}

bool ag_kinds_replay(const struct ag_kinds *kinds)
{
    return !kinds->expected || ag_profit_replays(&kinds->kind[kinds->expected - 1].profit);
}

const struct ag_profit *ag_kinds_note(struct ag_kinds *kinds,
                                      const struct ag_iteration_sample *sample)
{
    uint32_t place = sample->path ? place_of(kinds, sample->path) : AG_KINDS;
    bool compared = false;
    struct ag_kind *kind;
    uint64_t ns;

    if (place == AG_KINDS)
        return NULL;
    kind = &kinds->kind[place];
    kind->credit += kind->credit < AG_KINDS_MOST_CREDIT;
    kind->ns += sample->ns;
    ns = count(kind, sample) ? sample->ns : 0;
    if (sample->replayed || !sample->was_to_replay)
        compared = ag_profit_note(&kind->profit, sample->replayed, ns, sample->least_eager);
    expect(kinds, place);
    return compared && took_most(kinds, kind) ? &kind->profit : NULL;
}

bool ag_kinds_compared(const struct ag_kinds *kinds, uint64_t path)
{
    uint32_t place = find(kinds, path);

    return place < AG_KINDS && kinds->kind[place].profit.interval;
}
