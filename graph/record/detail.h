/* Bytes of a signature that do not fit into its words: launch attributes, the shape of a copy.
 * Equal ones are one object, so that signatures compare by pointer. Never freed; bounded in number.
 */
#ifndef AG_GRAPH_DETAIL_H
#define AG_GRAPH_DETAIL_H

#include <stdint.h>

/* Longer ones are not kept: NULL. */
#define AG_MAX_DETAIL 4096u

struct ag_detail {
    uint64_t hash;
    uint32_t bytes;
    _Alignas(8) unsigned char content[];
};

/* NULL without memory, or when there are too many. Any thread; no lock once the detail is known. */
const struct ag_detail *ag_detail_of(const void *content, uint32_t bytes);
/* In a forked child, before anything else: a thread of the parent may have held the lock. */
void ag_detail_begin_child(void);

#endif
