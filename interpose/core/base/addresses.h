/* A table of addresses with a number each, to be searched by address. */
#ifndef AG_ADDRESSES_H
#define AG_ADDRESSES_H

#include <stddef.h>

struct ag_address {
    const void *address;
    int number;
};

/* Sorts the rows by address, and those of one address by number. */
void ag_addresses_sort(struct ag_address *rows, size_t n);
/* Where the rows of `address` begin, of n sorted ones; n when there are none. */
size_t ag_addresses_find(const struct ag_address *rows, size_t n, const void *address);

#endif
