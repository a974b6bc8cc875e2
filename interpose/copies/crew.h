/* The crew: threads of ours that move the pieces of one copy side by side, with the thread that
 * makes the copy. They call no driver, and sleep between copies.
 *
 *     if (ag_crew_claim()) {
 *         ag_crew_open(&job, 4);                  three threads of ours are woken
 *         ... ag_crew_ready(&job, n); ag_crew_move_one(&job); ag_crew_is_moved(&job, i) ...
 *         ag_crew_close(&job);                    none of them is at it any more
 *         ag_crew_release();
 *     } */
#ifndef AG_COPIES_CREW_H
#define AG_COPIES_CREW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define AG_CREW_MOST  64u  /* threads, the caller's included */
#define AG_CREW_SLOTS 256u /* pieces that can be under way at a time */

/* Pieces are numbered from 0. Only its owner, the thread that opened it, changes what is no
 * atomic, and that before. */
struct ag_crew_job {
    /* Moves the piece. False: it is left to the owner. Any thread. */
    bool (*move)(const struct ag_crew_job *job, uint32_t piece);
    uint32_t end;           /* how many there are; below 2^31 */
    _Atomic uint32_t next;  /* the first that nobody moves yet */
    _Atomic uint32_t ready; /* those before it may be moved */
    _Atomic uint32_t sleepers;
    /* A number for each slot: twice that of the piece last moved there plus 2, and 1 more where it
     * is left. */
    _Atomic uint32_t moved[AG_CREW_SLOTS];
};

enum ag_crew_piece { AG_CREW_UNDER_WAY, AG_CREW_MOVED, AG_CREW_LEFT };

/* How many threads a copy may have, the caller's included: `wanted` ones, or with 0 as many as the
 * processors of the process allow. At least 1. No thread is started. */
void ag_crew_configure(uint32_t wanted);
uint32_t ag_crew_size(void);
/* How many it may have where their own rate, not the bus, bounds a large copy: not fewer. */
uint32_t ag_crew_size_large(void);
/* Counts them anew: no more than the calling thread's affinity allows now, nor than there are idle
 * processors. Only for whoever has claimed the crew. */
void ag_crew_look_around(void);

/* The crew is one thread's until it releases it. False, at once: another has it. */
bool ag_crew_claim(void);
void ag_crew_release(void);

/* Wakes `n` - 1 threads of ours for the job, and starts those that there are not yet; where none
 * can be started there are fewer: how many there are. The job is the caller's memory until it is
 * closed. */
uint32_t ag_crew_open(struct ag_crew_job *job, uint32_t n);
/* Pieces before `ready` may be moved. Never less than before. */
void ag_crew_ready(struct ag_crew_job *job, uint32_t ready);
/* The owner moves a piece. False: there is none that is ready and nobody's yet. */
bool ag_crew_move_one(struct ag_crew_job *job);
enum ag_crew_piece ag_crew_piece_of(const struct ag_crew_job *job, uint32_t piece);
/* What nobody has begun to move is not moved any more. Returns when no thread of ours knows the job
 * any longer. */
void ag_crew_close(struct ag_crew_job *job);

/* A forked child has no such threads. */
void ag_crew_begin_child(void);

#endif
