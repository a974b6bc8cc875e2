/* Pinned memory that the program frees is kept and handed out again, where ALLOGRAFT_HOST asks for
 * it: cuMemAllocHost, cuMemHostAlloc and cuMemFreeHost without the driver, which pins and unpins
 * pages for a fifth of a millisecond and more each time.
 *
 * A native cuMemFreeHost waits for all work of the memory's context, and of no other. So does a
 * free that keeps its block under `cache`, since a program may read other pinned memory next: by an
 * event, or by nothing at all where nothing was submitted since the last wait. Under `fast` it does
 * not wait, and the block is handed out once its work is done. Natively an allocation waits for
 * nothing: so none of ours waits, but some microseconds, or gives anything back, but one that would
 * fail. */
#ifndef AG_PINNED_H
#define AG_PINNED_H

#include <stdbool.h>
#include <stddef.h>

#include "interpose/core/driver/abi.h"
#include "interpose/core/settings/options.h"
#include "policy/pinned/blocks.h"

/* Is anything kept, by the settings, or does a rule say what is? Written before the first call is
 * served. */
extern bool ag_pinned_on;

/* `is_default`: nobody set `cache`. The rules must stay. */
void ag_pinned_configure(enum ag_host_mode mode, struct ag_size cache, bool is_default,
                         const struct ag_rules *rules);

/* Only where it is on. The program asks for `bytes` > 0: true, and *ret_p set, where a kept block
 * serves; `how` as in blocks.h; `rule`: that decides, or -1. */
bool ag_pinned_take(void **ret_p, size_t bytes, unsigned how, int rule);
/* The driver gave `bytes` at `p`. */
void ag_pinned_note(void *p, size_t bytes, unsigned how, int rule);
/* The whole of cuMemFreeHost. */
CUresult ag_pinned_free(void *p);

/* The context ends, which is idle, with its memory. */
void ag_pinned_context_dying(const struct ag_context *context);

/* An allocation of host memory failed for want of it. True: what was kept has gone back, and it is
 * worth another try. */
bool ag_pinned_relieve(void);

#endif
