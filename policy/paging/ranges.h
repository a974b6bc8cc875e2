/* Blocks of memory that can move between the device and the host (ALLOGRAFT_OOM=page): ranges of
 * addresses, each piece of which is always mapped to one of the two. So whatever a kernel follows
 * pointers to, it finds. */
#ifndef AG_PAGING_RANGES_H
#define AG_PAGING_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/core/driver/abi.h"
#include "interpose/core/settings/options.h"
#include "policy/managed/spans.h"
#include "policy/paging/handles.h"

struct ag_context;

/* Smaller blocks share pages natively; these would take whole ones. */
#define AG_RANGE_LEAST ((size_t)1 << 20)

/* `piece_bytes`: how much moves at a time, rounded up to whole pages of the driver. */
void ag_ranges_configure(enum ag_oom oom, uint64_t piece_bytes);
/* Nothing moves in this process, as the settings have it, and this is why; NULL: it may. */
void ag_ranges_stay(const char *why);
/* How large the largest piece has been so far. */
size_t ag_ranges_largest_piece(void);
/* Is memory to be of this kind, where it can? */
bool ag_ranges_wanted(void);

/* A range of at least `bytes` for the context, which is current: all of it on the device, or, with
 * `anywhere`, on the host what finds no room there. On failure nothing is left of it:
 * CUDA_ERROR_OUT_OF_MEMORY where there is no room, CUDA_ERROR_NOT_SUPPORTED where the driver cannot
 * do it, or the error of the context. */
CUresult ag_range_allocate(struct ag_context *context, size_t bytes, bool anywhere,
                           CUdeviceptr *ret_address);
/* The range at `address`, that no work uses any more, goes. CUDA_ERROR_INVALID_VALUE: there is
 * none. */
CUresult ag_range_free(CUdeviceptr address);
/* Where the range begins that the address lies in; 0: in none. */
CUdeviceptr ag_range_base(CUdeviceptr address);
/* Do all of these bytes lie in one range of the context, which nothing keeps where it is? The
 * driver calls each piece a mapping of its own. */
bool ag_range_holds(const struct ag_context *context, CUdeviceptr address, size_t bytes);
/* The driver has let others at what is there: it stays where it is. */
void ag_range_pin(CUdeviceptr address);

/* The block at `address` is memory of the pool (NULL: of its device's default one) to the program,
 * as a rule has it, until that ends. */
void ag_range_begin_pool(CUdeviceptr address, CUmemoryPool pool);
extern _Atomic bool ag_range_any_of_pool; /* relaxed: who frees a block comes after who got it */
void ag_range_end_pool_now(CUdeviceptr address);
static inline void ag_range_end_pool(CUdeviceptr address)
{
    if (__builtin_expect(atomic_load_explicit(&ag_range_any_of_pool, memory_order_relaxed), false))
        ag_range_end_pool_now(address);
}
/* False: it is none of a pool. */
bool ag_range_pool(CUdeviceptr address, CUmemoryPool *ret_pool);

/* --- for who moves pieces --- */

/* Where the program wants a piece (place.h). */
enum ag_placed { AG_PLACED_AUTO, AG_PLACED_ON_DEVICE, AG_PLACED_ON_HOST };

/* Where the addresses in a piece are that kernels are given: from `first` on; end 0: none. */
struct ag_given {
    size_t first, end;
};

struct ag_piece {
    struct ag_handle *handle; /* what it is mapped to */
    size_t offset, size;      /* in its range */
    /* The numbers of the launches that used it last, and that last wanted it, and what is about to
     * become of it, of use.c and exchange.c, under the lock of the ranges; and what foretell.c
     * knows of it, likewise. */
    uint64_t used_by, wanted_by;
    uint64_t logged_in, expected; /* entries of the log: its last use; its next, or 0 */
    uint32_t logged_at;
    bool comes, goes;
    uint8_t place;            /* enum ag_placed, under the lock */
    struct ag_given given[2]; /* of extents.c, by epoch, under the lock */
};

struct ag_movable {
    struct ag_span span;
    CUdeviceptr address;
    size_t size;
    struct ag_context *context;
    struct ag_piece *pieces; /* in the order of their addresses */
    unsigned n_pieces;
    bool pinned;     /* under the lock */
    bool is_of_pool; /* likewise */
    CUmemoryPool pool;
    uint64_t n_given; /* addresses that kernels were given so far; this and below of extents.c */
    unsigned epoch;
    size_t largest_part; /* in pieces */
    /* Who allocated it, of sites.c, under the lock: 1 + the row of the stack, or 0; what that asked
     * for. */
    uint32_t site;
    uint64_t asked_bytes;
    struct ag_movable *next, *previous;
};

/* The number of the piece that the address lies in, which is one of the range. */
static inline size_t ag_range_piece_at(const struct ag_movable *range, CUdeviceptr address)
{
    return (address - range->address) / range->pieces[0].size;
}

/* Takes the lock, under which ranges and what launches used are looked at; the first range. No
 * driver call meanwhile. */
struct ag_movable *ag_ranges_lock(void);
void ag_ranges_unlock(void);
/* Called with the lock held: the range that the address lies in, or NULL. */
struct ag_movable *ag_range_at(CUdeviceptr address);
/* Could there be one? Takes no lock. */
bool ag_range_may_hold(CUdeviceptr address);
/* While `held`, no range goes: who would take one down waits. One caller at a time. */
void ag_ranges_hold(bool held);

/* A forked child has none. */
void ag_ranges_begin_child(void);

#endif
