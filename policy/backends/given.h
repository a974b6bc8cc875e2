/* How much of a device is ours, and the most at a time: what the program has, what the cache and
 * slabs keep, and what our pool holds and nobody uses. The report tells it. */
#ifndef AG_POLICY_GIVEN_H
#define AG_POLICY_GIVEN_H

#include <stdbool.h>
#include <stddef.h>

#include "policy/mem_desc.h"

struct ag_device;

/* Was a report with counts asked for? Before the first device is met. */
void ag_given_configure(bool has_counts);
/* The driver has given a block of `bytes`, which ag_budget_take() has counted before. May ask the
 * driver how large our pool is; any thread, also while a capture is open. */
void ag_given(struct ag_device *device, struct ag_mem_desc desc, size_t bytes);
/* The driver, or our pool, has a block of `bytes` back. */
void ag_given_back(struct ag_device *device, struct ag_mem_desc desc, size_t bytes);
/* Our pool gave back what nobody uses. */
void ag_given_trimmed(struct ag_device *device);

#endif
