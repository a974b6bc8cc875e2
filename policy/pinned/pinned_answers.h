/* What the program is told about pinned memory that is kept, or was handed out again. */
#ifndef AG_PINNED_ANSWERS_H
#define AG_PINNED_ANSWERS_H

#include <stdbool.h>

#include "policy/pinned/blocks.h"
#include "policy/pinned/pinned.h"

/* Only for the function below. */
bool ag_pinned_answers_look(CUdeviceptr address, struct ag_pinned_seen *ret_seen);
/* Does the address lie in a block that is noted? False: the driver's answer is right. */
static inline bool ag_pinned_answers_find(CUdeviceptr address, struct ag_pinned_seen *ret_seen)
{
    return __builtin_expect(ag_pinned_on, 0) && ag_pinned_answers_look(address, ret_seen);
}
/* Where it was found: the address to ask the driver about. For what the program has freed, or has
 * not asked for, that of memory which the driver does not know. */
CUdeviceptr ag_pinned_answers_known(CUdeviceptr address, const struct ag_pinned_seen *seen);
/* The address to ask about, where the driver answers otherwise of memory that is registered: of
 * what we made for the program, some that was allocated likewise. */
CUdeviceptr ag_pinned_answers_allocated(CUdeviceptr address, const struct ag_pinned_seen *seen);
/* The address to ask about the attribute. */
CUdeviceptr ag_pinned_answers_asked(CUdeviceptr address, CUpointer_attribute attribute,
                                    const struct ag_pinned_seen *seen);
/* Corrects the driver's answer about it. */
void ag_pinned_answers_correct(void *data, CUpointer_attribute attribute,
                               const struct ag_pinned_seen *seen);

/* For calls that only need the address: as it is, where nothing is kept. */
static inline CUdeviceptr ag_pinned_answers_address(CUdeviceptr address)
{
    struct ag_pinned_seen seen;

    return ag_pinned_answers_find(address, &seen) ? ag_pinned_answers_known(address, &seen)
                                                  : address;
}
static inline CUdeviceptr ag_pinned_answers_as_allocated(CUdeviceptr address)
{
    struct ag_pinned_seen seen;

    return ag_pinned_answers_find(address, &seen) ? ag_pinned_answers_allocated(address, &seen)
                                                  : address;
}

#endif
