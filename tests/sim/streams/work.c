/* work.c: one stream operation as a value: its name, copy and end. */
#include "tests/sim/sim_internal.h"

#include <stdlib.h>
#include <string.h>

static unsigned char *duplicate(const unsigned char *bytes, size_t n)
{
    if (!bytes)
        return NULL;
    unsigned char *copy = malloc(n + 1);
    if (!copy)
        abort();
    memcpy(copy, bytes, n);
    return copy;
}

void sim_work_finish(struct sim_work *work)
{
    if (work->kind == SIM_WORK_KERNEL)
        free(work->u.kernel.params);
    else if (work->kind == SIM_WORK_COPY)
        free(work->u.copy.staged);
    memset(work, 0, sizeof(*work));
}

void sim_work_copy(struct sim_work *to, const struct sim_work *from)
{
    *to = *from;
    if (from->kind == SIM_WORK_KERNEL) {
        to->u.kernel.params = duplicate(from->u.kernel.params, from->u.kernel.entry->params_bytes);
    } else if (from->kind == SIM_WORK_COPY) {
        const struct sim_copy *copy = &from->u.copy;
        to->u.copy.staged = duplicate(copy->staged, copy->width * copy->height * copy->depth);
    }
}

const char *sim_work_name(const struct sim_work *work)
{
    switch (work->kind) {
    case SIM_WORK_EMPTY:
        return "empty";
    case SIM_WORK_KERNEL:
        return work->u.kernel.entry->name;
    case SIM_WORK_COPY:
        return "copy";
    case SIM_WORK_SET:
        return "memset";
    case SIM_WORK_HOST:
        return "host function";
    case SIM_WORK_EVENT_RECORD:
        return "event record";
    case SIM_WORK_EVENT_WAIT:
        return "event wait";
    case SIM_WORK_ALLOC:
        return "alloc";
    case SIM_WORK_FREE:
        return "free";
    case SIM_WORK_WRITE_VALUE:
        return "write value";
    case SIM_WORK_WAIT_VALUE:
        return "wait value";
    case SIM_WORK_CHILD:
        return "child graph";
    case SIM_WORK_PREFETCH:
        return "prefetch";
    }
    return "?";
}
