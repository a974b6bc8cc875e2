/* The state machine of replay: see replayer.h. */
#include "replayer.h"

_Atomic uint32_t ag_replay_withheld;

void ag_replay_configure(const struct ag_options *options)
{
    (void)options;
}

bool ag_replay_on(void)
{
    return false;
}

struct ag_lane *ag_replay_enter(CUstream stream, bool per_thread)
{
    (void)stream;
    (void)per_thread;
    return NULL;
}

unsigned char *ag_replay_room(struct ag_lane *lane)
{
    (void)lane;
    return NULL;
}

struct ag_ring *ag_replay_ring(struct ag_lane *lane, struct ag_staged **ret_staged)
{
    (void)lane;
    *ret_staged = NULL;
    return NULL;
}

bool ag_replay_would_withhold(struct ag_lane *lane, const struct ag_op *op)
{
    (void)lane;
    (void)op;
    return false;
}

bool ag_replay_take(struct ag_lane *lane, const struct ag_op *op)
{
    (void)lane;
    (void)op;
    return false;
}

bool ag_replay_pass(struct ag_lane *lane, enum ag_flush why)
{
    (void)lane;
    (void)why;
    return false;
}

void ag_replay_leave(struct ag_lane *lane)
{
    (void)lane;
}

void ag_replay_refused(struct ag_lane *lane)
{
    (void)lane;
}

void ag_replay_flush_stream(CUstream stream, bool per_thread, enum ag_flush why)
{
    (void)stream;
    (void)per_thread;
    (void)why;
}

void ag_replay_flush_context(enum ag_flush why)
{
    (void)why;
}

void ag_replay_flush_thread(enum ag_flush why)
{
    (void)why;
}

void ag_replay_flush_all(enum ag_flush why)
{
    (void)why;
}

void ag_replay_forget_code(enum ag_flush why)
{
    (void)why;
}

void ag_replay_stream_created(CUstream stream, unsigned flags, int priority)
{
    (void)stream;
    (void)flags;
    (void)priority;
}

void ag_replay_stream_dying(CUstream stream)
{
    (void)stream;
}

void ag_replay_context_dying(struct ag_context *context)
{
    (void)context;
}

void ag_replay_context_gone(struct ag_context *context)
{
    (void)context;
}

void ag_replay_stream_altered(CUstream stream)
{
    (void)stream;
}

void ag_replay_exit(void)
{
}

void ag_replay_begin_child(void)
{
}

CUresult ag_replay_late(CUresult result)
{
    return result;
}
