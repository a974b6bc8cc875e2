/* ALLOGRAFT_LIMIT: a budget of bytes for each device, taken before the driver is asked for
 * memory. */
#ifndef AG_POLICY_BUDGET_H
#define AG_POLICY_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/settings/options.h"
#include "policy/mem_desc.h"

struct ag_block;
struct ag_device;

/* Before the first device is met. */
void ag_budget_configure(struct ag_size limit);
bool ag_budget_is_limited(void);
/* Bytes that the program may have on a device with total_bytes; UINT64_MAX for no limit. */
uint64_t ag_budget_of(uint64_t total_bytes);

/* Takes `bytes` of the device's budget, for memory about to be asked of the driver. False, and
 * nothing taken, when they are not left. Any thread. */
bool ag_budget_take(struct ag_device *device, size_t bytes);
/* Takes them although they may not be left: for a little that is there already. */
void ag_budget_overdraw(struct ag_device *device, size_t bytes);
/* Gives them back, once the driver has the memory again. */
void ag_budget_give(struct ag_device *device, size_t bytes);

/* Bytes the program may still have: what is left, and what our caches would give at most. */
uint64_t ag_budget_left(struct ag_device *device);
/* The same, for the program to see: of slabs in part, nothing. */
uint64_t ag_budget_left_now(struct ag_device *device);

/* Bytes that ag_budget_take() took for memory without an address, which `handle` names. False when
 * there is no room to note it. */
bool ag_budget_note(struct ag_device *device, uint64_t handle, size_t bytes);
/* The handle was released: what was noted goes back to the budget. The driver keeps such memory as
 * long as it is mapped; a program that releases the handle first has it uncounted until then. */
void ag_budget_noted_gone(uint64_t handle);

/* The driver has given a block of `bytes`, or got it back: which blocks share its pages? For
 * ag_device_cached_room(). */
void ag_budget_note_given(struct ag_device *device, struct ag_mem_desc desc, size_t bytes);
void ag_budget_note_returned(struct ag_device *device, struct ag_mem_desc desc, size_t bytes);

/* Takes a KEPT block, which is about to go back to the driver, out of the ledger and off the
 * budget. */
void ag_budget_forget(struct ag_block *block);
void ag_budget_begin_child(void);

#endif
