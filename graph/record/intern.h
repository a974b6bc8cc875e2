/* Interned bytes: what of a signature does not fit into its words (launch attributes, the geometry
 * of a 3-D copy). Equal bytes are one object, so signatures compare by pointer. Never freed;
 * bounded in number. */
#ifndef AG_GRAPH_INTERN_H
#define AG_GRAPH_INTERN_H

#include <stdint.h>

/* The most bytes that are interned; for more, NULL is returned. */
#define AG_MAX_INTERNED 4096u

struct ag_interned {
    uint64_t hash;
    uint32_t bytes;
    _Alignas(8) unsigned char content[];
};

/* NULL without memory, or when there are too many. Any thread; no lock once the content is known.
 */
const struct ag_interned *ag_intern(const void *content, uint32_t bytes);
/* In a forked child, before anything else: a thread of the parent may have held the lock. */
void ag_intern_begin_child(void);

#endif
