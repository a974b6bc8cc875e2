/* The table of the trampolines: what a call of each function means for withheld work, and where
 * the driver has it. For the trampolines' own files; others ask trampoline.h. */
#ifndef AG_TRAMPOLINE_TABLE_H
#define AG_TRAMPOLINE_TABLE_H

#include <limits.h>
#include <stdbool.h>

#include "interpose/core/driver/abi.h"
#include "interpose/resolve/trampoline.h"

/* The numbers of trampolines: the listed ones, then the spare ones. */
enum {
#define AG_TRAMPOLINE(symbol, kind) AG_LISTED_##symbol,
#include "interpose/resolve/trampolines.def"
    AG_N_LISTED,
    AG_N_TRAMPOLINES = AG_N_LISTED + AG_TRAMPOLINE_RESERVE
};

/* What stands for a number where there is none. */
#define AG_TRAMPOLINE_NEEDLESS INT_MAX  /* the function is listed as one that needs none */
#define AG_TRAMPOLINE_UNKNOWN  UINT_MAX /* no row names it, or no spare one is left */

/* What is to be done beside flushing. Work, or what may be, is watched. */
enum ag_trampoline_kind {
    AG_KIND_PLAIN,
    AG_KIND_REFERENCE, /* ends replay */
    AG_KIND_CODE,
    AG_KIND_MAPPING,
    AG_KIND_WORK,
    AG_KIND_MEMORY,
};

static inline bool ag_kind_may_be_work(enum ag_trampoline_kind kind)
{
    return kind >= AG_KIND_WORK;
}

static inline bool ag_kind_changes_what_graphs_name(enum ag_trampoline_kind kind)
{
    return kind == AG_KIND_MEMORY || kind == AG_KIND_MAPPING || kind == AG_KIND_CODE;
}

enum ag_trampoline_kind ag_trampoline_kind(unsigned number);
/* The name of a trampoline whose function is listed. */
const char *ag_trampoline_name(unsigned number);

unsigned ag_trampoline_by_name(const char *name);
/* The number of the function at that address; called after ag_trampoline_index(). */
unsigned ag_trampoline_by_address(const void *real);
/* The spare one of an address, the same one each time. */
unsigned ag_trampoline_spare(void *real);

/* The driver's function, or NULL while nobody knows it. */
void *ag_trampoline_real(unsigned number);
/* The function is `real` from now on. Where calls concern us only while work is withheld, the thunk
 * jumps there by itself. Returns it. */
void *ag_trampoline_fill(unsigned number, void *real);
/* Stands in for functions that the driver has not. */
CUresult ag_trampoline_not_supported(void);

/* Nothing is replayed any more. */
void ag_trampoline_end_replay(const char *why);

#endif
