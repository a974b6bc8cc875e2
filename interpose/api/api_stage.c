/* Stages of the control API: kinds of iterations, recorded once and then replayed, and their input
 * buffers. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/learn/marks.h"
#include "interpose/api/api.h"
#include "interpose/core/base/log.h"
#include "interpose/core/report/trace/trace.h"

#define MOST_NAME 64u

struct input {
    struct input *next;
    unsigned micro_batch, number;
    size_t bytes;
    CUdeviceptr memory;
};

struct allograft_stage {
    allograft_stage *next;
    char name[MOST_NAME];
    unsigned warmup, flags;
    allograft_capture_mode mode;
    uint64_t done;           /* iterations that ended */
    bool open, eager;        /* between begin and end; could not be recorded */
    allograft_action action; /* of the iteration that is open */
    void *stream;
    allograft_graph *graph;
    /* What the inputs share, made with the first of them. */
    CUcontext context;
    CUdevice device;
    CUstream side;
    CUevent before, after;
    struct input *inputs;
};

static allograft_stage *stages; /* under ag_api_lock */

static allograft_stage *find_stage(const char *name)
{
    allograft_stage *stage = stages;

    while (stage && strcmp(stage->name, name) != 0)
        stage = stage->next;
    return stage;
}

static allograft_status check_stage_options(const struct allograft_stage_options *options)
{
    const unsigned known = ALLOGRAFT_STAGE_TRANSPARENT | ALLOGRAFT_STAGE_SINGLE_POOL;

    if (!options || options->bytes < sizeof(*options))
        return ag_api_fail(ALLOGRAFT_INVALID,
                           "stage_open: `bytes` is to be set to the size of the options");
    if (!options->name || !*options->name || strlen(options->name) >= MOST_NAME)
        return ag_api_fail(ALLOGRAFT_INVALID, "stage_open: a name of 1 to %u characters is needed",
                           MOST_NAME - 1);
    if (options->flags & ~known)
        return ag_api_fail(ALLOGRAFT_INVALID, "stage_open: flags %#x: known are %#x",
                           options->flags, known);
    if ((unsigned)options->mode > ALLOGRAFT_CAPTURE_RELAXED)
        return ag_api_fail(ALLOGRAFT_INVALID, "capture mode %d: 0, 1 or 2", (int)options->mode);
    return ALLOGRAFT_OK;
}

allograft_status ag_api_stage_open(const struct allograft_stage_options *options,
                                   allograft_stage **ret)
{
    allograft_status status = check_stage_options(options);
    allograft_graph *graph = NULL;
    allograft_stage *stage, *fresh;

    if (status == ALLOGRAFT_OK && !ret)
        status = ag_api_fail(ALLOGRAFT_INVALID, "stage_open: nowhere to put the result");
    if (status == ALLOGRAFT_OK)
        status = ag_api_graph_create(0, &graph);
    if (status != ALLOGRAFT_OK)
        return status;
    fresh = calloc(1, sizeof(*fresh));
    ag_lock_take(&ag_api_lock);
    stage = find_stage(options->name);
    if (!stage && fresh) {
        stage = fresh;
        snprintf(stage->name, sizeof(stage->name), "%s", options->name);
        stage->warmup = options->warmup;
        stage->flags = options->flags;
        stage->mode = options->mode;
        stage->graph = graph;
        stage->next = stages;
        stages = stage;
    }
    ag_lock_release(&ag_api_lock);
    if (stage != fresh) {
        (void)ag_api_graph_destroy(graph);
        free(fresh);
    }
    if (!stage)
        return ag_api_fail(ALLOGRAFT_NO_MEMORY, "no memory for a stage");
    *ret = stage;
    return ALLOGRAFT_OK;
}

/* ---- iterations ---- */

static allograft_action next_action(const allograft_stage *stage)
{
    if (stage->flags & ALLOGRAFT_STAGE_TRANSPARENT || stage->eager || stage->done < stage->warmup)
        return ALLOGRAFT_RUN;
    return stage->done == stage->warmup ? ALLOGRAFT_RECORD : ALLOGRAFT_SKIP;
}

static allograft_status record_stage(allograft_stage *stage, void *stream)
{
    allograft_pool pool = ALLOGRAFT_NEW_POOL;
    allograft_status status = ALLOGRAFT_OK;
    CUdevice device;

    if (stage->flags & ALLOGRAFT_STAGE_SINGLE_POOL) {
        status = AG_API_DO(cuCtxGetDevice, &device);
        if (status == ALLOGRAFT_OK)
            status = ag_api_pool_shared(device, &pool);
    }
    if (status == ALLOGRAFT_OK)
        status = ag_api_graph_capture_begin(stage->graph, stream, pool, stage->mode);
    return status;
}

allograft_status ag_api_stage_begin(allograft_stage *stage, void *stream, allograft_action *ret)
{
    allograft_status status = ALLOGRAFT_OK;
    allograft_action action;

    if (!stage || !ret)
        return ag_api_fail(ALLOGRAFT_INVALID, "stage_begin: %s",
                           stage ? "nowhere to put the action" : "no stage given");
    if (stage->open)
        return ag_api_fail(ALLOGRAFT_STATE, "%s: an iteration is open already", stage->name);
    if (ag_api_is_default_stream(stream) && !(stage->flags & ALLOGRAFT_STAGE_TRANSPARENT))
        return ag_api_fail(ALLOGRAFT_INVALID, "%s: a default stream cannot be recorded",
                           stage->name);
    action = next_action(stage);
    if (action == ALLOGRAFT_RECORD)
        status = record_stage(stage, stream);
    else if (stage->flags & ALLOGRAFT_STAGE_TRANSPARENT)
        ag_marks_iteration(); /* for replay of the stream, where that is on */
    if (status != ALLOGRAFT_OK)
        return status;
    stage->open = true;
    stage->action = *ret = action;
    stage->stream = stream;
    return ALLOGRAFT_OK;
}

/* The recorded body's work, or the same again. */
static allograft_status do_work(allograft_stage *stage)
{
    allograft_status status = ALLOGRAFT_OK;

    if (stage->action == ALLOGRAFT_RECORD)
        status = ag_api_graph_capture_end(stage->graph);
    if (status == ALLOGRAFT_STATE) /* another thread's capture, which goes on */
        return status;
    if (status == ALLOGRAFT_OK && stage->action != ALLOGRAFT_RUN)
        status = ag_api_graph_replay(stage->graph, stage->stream);
    if (status != ALLOGRAFT_OK && stage->action == ALLOGRAFT_RECORD) {
        (void)ag_api_graph_reset(stage->graph);
        stage->eager = true;
        ag_log_warn("stage %s cannot be recorded and runs as it is from now on", stage->name);
    }
    return status;
}

allograft_status ag_api_stage_end(allograft_stage *stage)
{
    allograft_status status;

    if (!stage)
        return ag_api_fail(ALLOGRAFT_INVALID, "stage_end: no stage given");
    if (!stage->open)
        return ag_api_fail(ALLOGRAFT_STATE, "%s: no iteration is open", stage->name);
    status = do_work(stage);
    if (status == ALLOGRAFT_STATE) /* another thread's capture: still open */
        return status;
    stage->open = false;
    if (status == ALLOGRAFT_OK)
        stage->done++;
    return status;
}

allograft_status ag_api_stage_iteration(allograft_stage *stage, uint64_t *ret_current,
                                        uint64_t *ret_next)
{
    if (!stage)
        return ag_api_fail(ALLOGRAFT_INVALID, "stage_iteration: no stage given");
    if (ret_current)
        *ret_current = stage->open ? stage->done : stage->done - 1; /* UINT64_MAX for none */
    if (ret_next)
        *ret_next = stage->open ? stage->done + 1 : stage->done;
    return ALLOGRAFT_OK;
}

static allograft_status reset(allograft_stage *stage)
{
    allograft_status status = ag_api_graph_reset(stage->graph);

    if (status != ALLOGRAFT_OK)
        return status;
    stage->open = stage->eager = false;
    stage->done = 0;
    return ALLOGRAFT_OK;
}

allograft_status ag_api_stage_reset(allograft_stage *stage)
{
    allograft_status status = ALLOGRAFT_OK;
    allograft_stage *first;

    if (stage)
        return reset(stage);
    ag_lock_take(&ag_api_lock);
    first = stages;
    ag_lock_release(&ag_api_lock);
    for (stage = first; stage; stage = stage->next) {
        allograft_status this_one = reset(stage);

        status = status == ALLOGRAFT_OK ? this_one : status;
    }
    return status;
}

/* ---- inputs ---- */

static struct input *find_input(const allograft_stage *stage, unsigned micro_batch, unsigned number)
{
    struct input *input = stage->inputs;

    while (input && (input->micro_batch != micro_batch || input->number != number))
        input = input->next;
    return input;
}

static void drop_side(allograft_stage *stage)
{
    if (stage->before)
        (void)ag_api_cu.cuEventDestroy_v2(stage->before);
    if (stage->after)
        (void)ag_api_cu.cuEventDestroy_v2(stage->after);
    if (stage->side)
        (void)ag_api_cu.cuStreamDestroy_v2(stage->side);
    stage->before = stage->after = NULL;
    stage->side = NULL;
}

/* The stream and events of copies, in the current context. */
static allograft_status make_side(allograft_stage *stage)
{
    allograft_status status;

    if (stage->side)
        return ALLOGRAFT_OK;
    status = AG_API_DO(cuCtxGetCurrent, &stage->context);
    if (status == ALLOGRAFT_OK)
        status = AG_API_DO(cuCtxGetDevice, &stage->device);
    if (status == ALLOGRAFT_OK)
        status = AG_API_DO(cuStreamCreate, &stage->side, CU_STREAM_NON_BLOCKING);
    if (status == ALLOGRAFT_OK)
        status = AG_API_DO(cuEventCreate, &stage->before, CU_EVENT_DISABLE_TIMING);
    if (status == ALLOGRAFT_OK)
        status = AG_API_DO(cuEventCreate, &stage->after, CU_EVENT_DISABLE_TIMING);
    if (status != ALLOGRAFT_OK)
        drop_side(stage);
    return status;
}

static allograft_status make_input(allograft_stage *stage, unsigned micro_batch, unsigned number,
                                   size_t bytes)
{
    struct input *input = calloc(1, sizeof(*input));
    allograft_status status;

    if (!input)
        return ag_api_fail(ALLOGRAFT_NO_MEMORY, "no memory for an input");
    status = AG_API_DO(cuMemAlloc_v2, &input->memory, bytes);
    if (status != ALLOGRAFT_OK) {
        free(input);
        return status;
    }
    input->micro_batch = micro_batch;
    input->number = number;
    input->bytes = bytes;
    input->next = stage->inputs;
    stage->inputs = input;
    return ALLOGRAFT_OK;
}

allograft_status ag_api_stage_input(allograft_stage *stage, unsigned micro_batch, unsigned input,
                                    size_t bytes, void **ret)
{
    const struct input *found = stage ? find_input(stage, micro_batch, input) : NULL;
    allograft_status status = ALLOGRAFT_OK;

    if (!stage || !bytes || !ret)
        return ag_api_fail(ALLOGRAFT_INVALID, "stage_input: %s",
                           !stage   ? "no stage given"
                           : !bytes ? "an input of 0 bytes"
                                    : "nowhere to put the result");
    if (found && found->bytes < bytes)
        return ag_api_fail(ALLOGRAFT_INVALID,
                           "%s: input %u of micro-batch %u has %zu bytes, not %zu", stage->name,
                           input, micro_batch, found->bytes, bytes);
    if (!found && ag_api_thread_captures())
        return ag_api_fail(ALLOGRAFT_CAPTURING, "%s: an input made during a capture", stage->name);
    if (!found) {
        status = make_side(stage);
        if (status == ALLOGRAFT_OK)
            status = make_input(stage, micro_batch, input, bytes);
        found = stage->inputs;
    }
    if (status == ALLOGRAFT_OK)
        *ret = (void *)found->memory;
    return status;
}

static allograft_status copy_in(allograft_stage *stage, const struct input *input,
                                const void *source, size_t bytes, void *stream)
{
    allograft_status status = AG_API_DO(cuEventRecord, stage->before, stream);

    if (status == ALLOGRAFT_OK)
        status = AG_API_DO(cuStreamWaitEvent, stage->side, stage->before, 0);
    if (status == ALLOGRAFT_OK)
        status = AG_API_DO(cuMemcpyAsync, input->memory, (CUdeviceptr)source, bytes, stage->side);
    if (status == ALLOGRAFT_OK)
        status = AG_API_DO(cuEventRecord, stage->after, stage->side);
    if (status == ALLOGRAFT_OK)
        status = AG_API_DO(cuStreamWaitEvent, stream, stage->after, 0);
    return status;
}

allograft_status ag_api_stage_load(allograft_stage *stage, unsigned micro_batch, unsigned input,
                                   const void *source, size_t bytes, void *stream)
{
    const struct input *found = stage ? find_input(stage, micro_batch, input) : NULL;
    uint64_t began = ag_trace_began();
    allograft_status status;
    bool pushed;

    if (!found)
        return ag_api_fail(ALLOGRAFT_INVALID, "stage_load: there is no input %u of micro-batch %u",
                           input, micro_batch);
    if (!source || bytes > found->bytes)
        return ag_api_fail(ALLOGRAFT_INVALID,
                           "%s: input %u of micro-batch %u: %zu bytes from %p, it has %zu",
                           stage->name, input, micro_batch, bytes, source, found->bytes);
    if (stage->open)
        return ag_api_fail(ALLOGRAFT_STATE, "%s: inputs are loaded before the iteration begins",
                           stage->name);
    status = ag_api_not_capturing(stream, "stage_load");
    if (status == ALLOGRAFT_OK)
        status = ag_api_enter_context(stage->context, &pushed);
    if (status != ALLOGRAFT_OK)
        return status;
    status = copy_in(stage, found, source, bytes, stream);
    ag_api_leave(pushed);
    if (status == ALLOGRAFT_OK)
        ag_api_note_copy(began, &(struct ag_trace_event){
                                    .device = (int16_t)stage->device,
                                    .address = found->memory,
                                    .size = bytes,
                                    .stream = (uintptr_t)stage->side,
                                    .code = (uint16_t)input,
                                });
    return status;
}

/* ---- the end ---- */

static void unlink_stage(allograft_stage *stage)
{
    allograft_stage **link = &stages;

    ag_lock_take(&ag_api_lock);
    while (*link && *link != stage)
        link = &(*link)->next;
    if (*link)
        *link = stage->next;
    ag_lock_release(&ag_api_lock);
}

static void drop_inputs(allograft_stage *stage)
{
    bool pushed;

    if (!stage->inputs || ag_api_enter_context(stage->context, &pushed) != ALLOGRAFT_OK)
        return;
    (void)ag_api_cu.cuStreamSynchronize(stage->side);
    while (stage->inputs) {
        struct input *input = stage->inputs;

        stage->inputs = input->next;
        (void)ag_api_cu.cuMemFree_v2(input->memory);
        free(input);
    }
    drop_side(stage);
    ag_api_leave(pushed);
}

allograft_status ag_api_stage_close(allograft_stage *stage)
{
    allograft_status status;

    if (!stage)
        return ALLOGRAFT_OK;
    /* Waits and frees would end a capture; that of the stage's own is over before they come. */
    if (ag_api_thread_captures() && !(stage->open && stage->action == ALLOGRAFT_RECORD))
        return ag_api_fail(ALLOGRAFT_CAPTURING, "%s: a stage closed during a capture", stage->name);
    status = ag_api_graph_destroy(stage->graph);
    if (status != ALLOGRAFT_OK)
        return status;
    unlink_stage(stage);
    drop_inputs(stage);
    free(stage);
    return ALLOGRAFT_OK;
}
