/* Copies between pageable memory and a device, which the crew makes where it is faster than the
 * driver (ALLOGRAFT_COPY=auto). A hook asks before the driver's own call:
 *
 *     struct ag_copying copying = {0};
 *
 *     if (ag_entry_has_copies() && ag_copying_line(&copying, ...))
 *         return copying.result;
 *     return ag_copying_driver_took(&copying, ag_cu.cuMemcpyHtoD_v2(...));
 *
 * Withheld work was submitted before, and the fence that was due was placed. Any thread. */
#ifndef AG_COPIES_COPYING_H
#define AG_COPIES_COPYING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/core/driver/abi.h"
#include "interpose/core/settings/options.h"

struct ag_context;

struct ag_copying {
    CUresult result;  /* of a copy that was made */
    uint64_t from_ns; /* the driver's copy, which is timed from here; 0: it is not */
    size_t bytes;
    bool to_host;
};

enum ag_copying_way {
    AG_COPYING_TO_DEVICE,
    AG_COPYING_TO_HOST,
    AG_COPYING_EITHER, /* addresses say where memory is */
};

/* Where the copy stands. */
struct ag_copying_place {
    CUstream stream; /* as the program names it */
    bool per_thread; /* what NULL stands for */
    bool waits;      /* the call waits for the stream, and for the copy */
};

/* May the crew make copies, as the settings have it? For ag_entry_copies. Asks the machine for
 * nothing: whether it can is seen at the first copy that is large enough. */
bool ag_copying_configure(const struct ag_options *options);

/* True: the copy was made, or the driver refused some of it, as `result` says. False: it is the
 * driver's, and nothing of it was done. */
bool ag_copying_line(struct ag_copying *copying, enum ag_copying_way way, uint64_t to,
                     uint64_t from, size_t bytes, struct ag_copying_place place);
bool ag_copying_rectangle(struct ag_copying *copying, const CUDA_MEMCPY2D *copy,
                          struct ag_copying_place place);
bool ag_copying_box(struct ag_copying *copying, const CUDA_MEMCPY3D *copy,
                    struct ag_copying_place place);
/* Returns what the driver's own call returned. */
CUresult ag_copying_driver_took(const struct ag_copying *copying, CUresult result);

/* The context is gone; its memory may be another's as soon as this returns. */
void ag_copying_context_gone(const struct ag_context *context);
void ag_copying_begin_child(void);

#endif
