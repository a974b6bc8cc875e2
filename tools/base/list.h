/* list.h: grows lists. */
#ifndef TOOLS_LIST_H
#define TOOLS_LIST_H

#include <stdlib.h>

/* Makes room for one more element after the `n` of a list, whose capacity doubles when it is full.
 * Returns the list, which may have moved; NULL, with the list as it was, when memory runs out. */
static inline void *list_grow(void *list, size_t n, size_t *capacity, size_t each)
{
    size_t more = *capacity ? *capacity * 2 : 64;
    void *grown = n < *capacity ? list : reallocarray(list, more, each);

    if (grown && n >= *capacity)
        *capacity = more;
    return grown;
}

#endif
