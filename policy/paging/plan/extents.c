/* The parts of blocks that kernels are given: see extents.h.
 *
 * Of each piece the first and the last address are known that kernels are given in it. They are of
 * this epoch or the one before: of a pool that was divided anew the old parts are forgotten. */
#include "policy/paging/plan/extents.h"

#include <string.h>

#include "interpose/core/base/hash.h"

#define LEAST ((size_t)1 << 30)
#define EPOCH 16384u /* addresses that are given */
#define ROWS  16384u /* operands; of two that share a row, the later one has it */

static struct {
    uint64_t operand;
    size_t reach;
} rows[ROWS];
static bool any_row;

bool ag_extents_are_learnt(const struct ag_movable *range)
{
    return range->size >= LEAST;
}

static void include(struct ag_given *given, size_t first, size_t end)
{
    if (!given->end || first < given->first)
        given->first = first;
    if (end > given->end)
        given->end = end;
}

/* What is given in the piece, in both epochs. False: nothing is. */
static bool given_in(const struct ag_piece *piece, struct ag_given *ret_given)
{
    *ret_given = piece->given[0];
    if (piece->given[1].end)
        include(ret_given, piece->given[1].first, piece->given[1].end);
    return ret_given->end;
}

static void forget(struct ag_movable *range, unsigned epoch)
{
    for (unsigned i = 0; i < range->n_pieces; i++)
        range->pieces[i].given[epoch] = (struct ag_given){0};
}

/* Pieces between two addresses that follow each other, at most. */
static size_t largest_part(const struct ag_movable *range)
{
    size_t largest = 0, from = 0;
    struct ag_given given;
    bool any = false;

    for (size_t i = 0; i < range->n_pieces; i++) {
        if (!given_in(&range->pieces[i], &given))
            continue;
        if (any && i - from + 1 > largest)
            largest = i - from + 1;
        any = true;
        from = i;
    }
    return largest;
}

void ag_extents_note(struct ag_movable *range, CUdeviceptr address)
{
    struct ag_piece *piece = &range->pieces[ag_range_piece_at(range, address)];
    size_t offset = address - range->address - piece->offset;
    struct ag_given *given;

    if (range->n_given++ % EPOCH == 0) {
        range->epoch = !range->epoch;
        forget(range, range->epoch);
        range->largest_part = largest_part(range);
    }
    given = &piece->given[range->epoch];
    if (offset >= given->first && offset < given->end)
        return;
    include(given, offset, offset + 1);
    range->largest_part = largest_part(range);
}

size_t ag_extents_end(const struct ag_movable *range, CUdeviceptr address)
{
    size_t at = ag_range_piece_at(range, address), end;
    struct ag_given given;

    if (!ag_extents_are_learnt(range))
        return range->n_pieces;
    if (given_in(&range->pieces[at], &given) &&
        given.end - 1 > address - range->address - range->pieces[at].offset)
        return at + 1;
    for (end = at + 1; end < range->n_pieces; end++)
        if (given_in(&range->pieces[end], &given))
            return given.first ? end + 1 : end;
    return range->largest_part && at + range->largest_part < end ? at + range->largest_part : end;
}

size_t ag_extents_reach(uint64_t operand, size_t left)
{
    size_t row = ag_hash_entry(operand, ROWS);

    any_row = true;
    if (rows[row].operand != operand || left < rows[row].reach) {
        rows[row].operand = operand;
        rows[row].reach = left;
    }
    return rows[row].reach;
}

void ag_extents_begin_child(void)
{
    if (any_row)
        memset(rows, 0, sizeof(rows));
    any_row = false;
}
