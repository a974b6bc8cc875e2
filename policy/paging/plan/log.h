/* The log of launches that use memory that can move, and of the pieces that each of them uses.
 *
 * Each use of a piece is a record, and each record knows the next one of the same piece and the one
 * before. So the launch that came after the same launches before tells of each of its pieces when
 * it was used next, and, from there on, again.
 *
 * Bounded: of more than 65,536 launches, or 262,144 uses of pieces, the oldest are forgotten. Only
 * with the lock of the ranges held. */
#ifndef AG_PAGING_LOG_H
#define AG_PAGING_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/paging/ranges.h"

struct ag_log_use {
    const struct ag_piece *piece; /* which may be another one's by now */
    uint64_t operand;             /* as which it is used (toll.h) */
    /* The launches that use it next, and did before; and that which used it an iteration before as
     * this one does. 0: none is known. And which of their uses that is. */
    uint64_t next, before, like;
    uint32_t next_at, before_at, like_at;
    uint32_t uses;  /* in the order of those calls, of each launch */
    uint32_t kib;   /* of the piece */
    uint32_t price; /* of the use, as when worth.c looked last */
    float worth;    /* that it stays until the next use (worth.h) */
};

struct ag_log_launch {
    uint64_t key, repeats;
    uint64_t kernel; /* as toll.h tells them apart; 0: it is none */
    uint64_t volume; /* bytes that launches had used before it */
    uint64_t first;  /* of its uses */
    uint64_t match;  /* the launch like it, as it was foretold, or 0 */
    double rent;     /* of a piece that was on the device from the first launch on (worth.h) */
    uint32_t n;      /* uses */
};

/* A launch follows: `key` is the same for launches of the same kernel with the same memory. The
 * same one again is no other launch. Where it is like none before, room costs `usual_rent` until
 * it. */
void ag_log_add_launch(uint64_t key, uint64_t kernel, double usual_rent);
/* Is the launch that began last the one before it once more? */
bool ag_log_is_again(void);
/* The number of the launch that began last; they are numbered from 1. 0: there is no log. */
uint64_t ag_log_last(void);
/* Is the launch of that number in the log still, with all of its uses? */
bool ag_log_has(uint64_t number);
/* Called with the number of a launch that it has. */
struct ag_log_launch *ag_log_launch_at(uint64_t number);
struct ag_log_use *ag_log_use_at(uint64_t number, uint32_t at);
/* The piece's last use, or NULL. */
struct ag_log_use *ag_log_last_use(const struct ag_piece *piece);
/* The launch that began last uses the piece. NULL: it has no room for another use. */
struct ag_log_use *ag_log_add_use(struct ag_piece *piece, uint64_t operand, unsigned uses);

void ag_log_begin_child(void);

#endif
