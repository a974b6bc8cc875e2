/* A sorted table of addresses: see addresses.h. */
#include "interpose/core/base/addresses.h"

#include <stdlib.h>

static int compare_addresses(const void *a, const void *b)
{
    const struct ag_address *x = a, *y = b;

    if (x->address != y->address)
        return x->address > y->address ? 1 : -1;
    return (x->number > y->number) - (x->number < y->number);
}

void ag_addresses_sort(struct ag_address *rows, size_t n)
{
    qsort(rows, n, sizeof(*rows), compare_addresses);
}

size_t ag_addresses_find(const struct ag_address *rows, size_t n, const void *address)
{
    size_t low = 0, high = n;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (rows[middle].address < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && rows[low].address == address ? low : n;
}
