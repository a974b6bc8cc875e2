/* Which of many address ranges holds an address? Readers take no lock. Pure. */
#ifndef AG_POLICY_SPANS_H
#define AG_POLICY_SPANS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One range, in memory of the caller's that is never unmapped and whose fields are only written by
 * ag_spans_add: a reader may look at a span that was taken out meanwhile. */
struct ag_span {
    _Atomic uint64_t first, last; /* inclusive */
};

#define AG_SPAN_LEVELS 10u

/* A table of ranges that do not overlap. Zeroed, it is empty. Changes are the caller's to serialise
 * (one lock); finding needs none. */
struct ag_spans {
    _Atomic uint64_t version; /* odd while a change is under way */
    _Atomic(struct ag_spans_table *) table;
    _Atomic unsigned used_levels; /* a bit for each level that has ranges */
    unsigned n_ranges[AG_SPAN_LEVELS];
    size_t n_entries;
};

/* Puts the range in. False when memory runs out; then it is not in. bytes > 0. */
bool ag_spans_add(struct ag_spans *spans, struct ag_span *span, uint64_t address, uint64_t bytes);
/* Takes out a span that is in. */
void ag_spans_remove(struct ag_spans *spans, struct ag_span *span);
/* The span that holds `address`, or NULL. Any thread, at any time; a span that was put in before
 * the call and stays in is always found. */
struct ag_span *ag_spans_find(struct ag_spans *spans, uint64_t address);

#endif
