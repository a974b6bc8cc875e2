/* Blocks of pinned memory that the driver gave: those that the program has, and those that it has
 * freed and that are kept for it. Calls no driver.
 *
 * A block is LIVE, KEPT, or BUSY: in the hands of the thread that claimed, found or evicted it,
 * which then says what becomes of it. A BUSY block may lose its context meanwhile; then it is
 * nobody's memory any more, and whoever has it is told so when it hands it on. */
#ifndef AG_PINNED_BLOCKS_H
#define AG_PINNED_BLOCKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/core/driver/abi.h"
#include "interpose/core/settings/rules.h"
#include "policy/order/watch.h"

struct ag_context;

/* How the program asked for it: the flags of cuMemHostAlloc, or this of cuMemAllocHost. */
#define AG_PINNED_PLAIN 0x100u

enum ag_pinned_state { AG_PINNED_LIVE, AG_PINNED_BUSY, AG_PINNED_KEPT };

struct ag_pinned_links {
    struct ag_pinned_block *newer, *older;
};

/* What the program asks for. */
struct ag_pinned_request {
    size_t bytes;
    unsigned how;
    enum ag_host_mode mode; /* what is to become of it when it is freed */
};

/* Guarded by a lock of blocks.c, but for the members that say otherwise. */
struct ag_pinned_block {
    uint64_t address; /* never changes, nor do the four below */
    size_t size;      /* that the driver was asked for */
    unsigned how;
    uint8_t kind;           /* its list, when it is KEPT */
    bool is_made;           /* memory of ours (made.h); likewise */
    size_t requested;       /* that the program was given */
    enum ag_host_mode mode; /* that it was given with */
    enum ag_pinned_state state;
    bool is_altered;            /* somebody set what stays with the memory: it is never kept */
    uint64_t buffer_id;         /* 0: the driver's */
    struct ag_context *context; /* NULL: it is gone */
    uint64_t freed_ns;
    struct ag_pinned_links by_age,
        by_kind;                    /* of a KEPT block; of one that left the table, by_age */
    struct ag_pinned_links by_made; /* of one that is made, and in the table */
    /* These are the thread's that has it BUSY, and of a KEPT one the lock's: */
    CUevent event;                /* made once; NULL before */
    bool waits;                   /* work recorded in `event` may use it */
    struct ag_watch_mark mark;    /* as of that event */
    uint64_t ordered;             /* likewise, of the context's barriers */
    struct ag_pinned_block *next; /* evicted with it */
};

/* The driver has given what was asked for at `address`, or we have `made` it. False: there is no
 * memory to note that, and the block is none of ours. What was known of the address before is
 * forgotten. */
bool ag_pinned_blocks_note(uint64_t address, const struct ag_pinned_request *request,
                           struct ag_context *context, bool made);
struct ag_pinned_claim {
    struct ag_context *owner; /* of a LIVE block, unless that is gone */
    bool is_known;            /* a block begins there, LIVE or not */
    bool may_keep;            /* it is LIVE, may be kept, and is of `most_bytes` at most */
};
/* Makes a LIVE block BUSY. NULL: there is none. */
struct ag_pinned_block *ag_pinned_blocks_claim(uint64_t address, uint64_t most_bytes,
                                               struct ag_pinned_claim *ret_claim);
/* Makes a LIVE block KEPT, if it may be kept, is of `most_bytes` at most, and no work may use it.
 * False: nothing was done. */
bool ag_pinned_blocks_keep_at_once(uint64_t address, uint64_t most_bytes, uint64_t now_ns);

/* Makes a BUSY block KEPT. False: its context is gone, and the block with it. */
bool ag_pinned_blocks_keep(struct ag_pinned_block *block, uint64_t now_ns);
/* Makes it KEPT again, as the oldest. */
void ag_pinned_blocks_put_back(struct ag_pinned_block *block);
/* Makes a KEPT block of at least that many bytes, but not much larger, the program's, at
 * *ret_address: the one that was freed last, or under AG_HOST_FAST, if work may use that, first.
 * Where work may use it, it is returned instead, BUSY. NULL, and *ret_address 0: there is none. */
struct ag_pinned_block *ag_pinned_blocks_take(const struct ag_context *context,
                                              const struct ag_pinned_request *request,
                                              uint64_t *ret_address);
/* Makes a BUSY block the program's. False: its context is gone, and the block with it. */
bool ag_pinned_blocks_hand_over(struct ag_pinned_block *block,
                                const struct ag_pinned_request *request);

/* Takes the oldest KEPT blocks of the context (NULL: of any) out of the table, until `most_bytes`
 * are left at most and nothing that was freed before `before_ns`. A list, by `next`, of BUSY
 * blocks. */
struct ag_pinned_block *ag_pinned_blocks_evict(const struct ag_context *context,
                                               uint64_t most_bytes, uint64_t before_ns);
/* A BUSY block leaves the table, before the driver gets it: whoever is given its address next may
 * be told so before the call returns here. */
void ag_pinned_blocks_leave(struct ag_pinned_block *block);
/* The driver has it. */
void ag_pinned_blocks_forget(struct ag_pinned_block *block);
/* The driver did not take it: it is in the table again, in that state. */
void ag_pinned_blocks_return(struct ag_pinned_block *block, enum ag_pinned_state state);

/* The context ends, and all of its memory with it. A list, by `next`, of blocks that we made, which
 * are BUSY and away: the caller ends their memory, and has them forgotten. */
struct ag_pinned_block *ag_pinned_blocks_context_dying(const struct ag_context *context);

/* What is known of the block that begins at `address`. False: nothing. */
struct ag_pinned_seen {
    uint64_t address;
    size_t size, requested;
    uint64_t buffer_id;
    unsigned how;
    struct ag_context *context;
    bool is_live, is_made;
};
bool ag_pinned_blocks_look(uint64_t address, struct ag_pinned_seen *ret_seen);
/* What is known of the block that we made in whose pages `address` lies. */
bool ag_pinned_blocks_look_inside(uint64_t address, struct ag_pinned_seen *ret_seen);
/* May `address` lie in a block? */
bool ag_pinned_blocks_may_hold(uint64_t address);
void ag_pinned_blocks_note_altered(uint64_t address);

/* How many are KEPT, and their bytes. */
size_t ag_pinned_blocks_n_kept(void);
uint64_t ag_pinned_blocks_kept_bytes(void);

/* A forked child has none. */
void ag_pinned_blocks_begin_child(void);

#endif
