/* Transfer rings of the control API: copies from host slots to device slots on a stream of their
 * own. */
#include <stdlib.h>
#include <string.h>

#include "interpose/api/api.h"
#include "interpose/core/base/clock.h"
#include "interpose/core/report/stats.h"
#include "interpose/core/report/trace/trace.h"

#define MOST_SLOTS   1024u
#define MOST_RECORDS 256u
#define MOST_READERS 16u /* streams that read a slot before it is submitted again */

struct slot {
    void *host;      /* the caller's, NULL: none registered */
    void *bounce;    /* pinned memory of ours */
    bool registered; /* we pinned `host` in place */
    enum allograft_ring_backend backend;
    bool submitted; /* and not cleared since */
    CUdeviceptr device;
    CUevent began, done; /* of the last copy */
    bool copied;         /* there was one */
    CUevent readers[MOST_READERS];
    unsigned n_readers;
    struct allograft_ring_record *record; /* of the last copy, while it is in the trace */
};

/* Host memory that we pinned in place for the ring. */
struct pin {
    struct pin *next;
    void *memory;
};

struct allograft_ring {
    CUcontext context;
    CUstream stream;
    int device;
    struct pin *pins;
    unsigned depth;
    size_t slot_bytes;
    bool timing;
    enum allograft_ring_backend best; /* that is allowed */
    uint64_t sequence;
    struct allograft_ring_record records[MOST_RECORDS];
    struct slot slots[];
};

/* ---- checks ---- */

static allograft_status check_ring_options(const struct allograft_ring_options *options)
{
    if (!options || options->bytes < sizeof(*options))
        return ag_api_fail(ALLOGRAFT_INVALID,
                           "ring_open: `bytes` is to be set to the size of the options");
    if (!options->depth || options->depth > MOST_SLOTS)
        return ag_api_fail(ALLOGRAFT_INVALID, "ring_open: depth %u: 1 to %u", options->depth,
                           MOST_SLOTS);
    if (options->slot_bytes > SIZE_MAX / 2)
        return ag_api_fail(ALLOGRAFT_INVALID, "ring_open: slots of %zu bytes", options->slot_bytes);
    if (options->flags & ~ALLOGRAFT_RING_TIMING)
        return ag_api_fail(ALLOGRAFT_INVALID, "ring_open: flags %#x: known are %#x", options->flags,
                           ALLOGRAFT_RING_TIMING);
    if ((unsigned)options->backend > ALLOGRAFT_RING_PAGEABLE)
        return ag_api_fail(ALLOGRAFT_INVALID, "ring_open: backend %d: 0 to %d",
                           (int)options->backend, ALLOGRAFT_RING_PAGEABLE);
    return ALLOGRAFT_OK;
}

static allograft_status check_slot(const allograft_ring *ring, unsigned slot)
{
    if (!ring)
        return ag_api_fail(ALLOGRAFT_INVALID, "no ring given");
    if (slot >= ring->depth)
        return ag_api_fail(ALLOGRAFT_INVALID, "slot %u: there are %u, from 0", slot, ring->depth);
    return ALLOGRAFT_OK;
}

/* Checks the slot for a function that writes an answer to `ret`. */
static allograft_status check_answer(const allograft_ring *ring, unsigned slot, const void *ret)
{
    allograft_status status = check_slot(ring, slot);

    if (!status && !ret)
        status = ag_api_fail(ALLOGRAFT_INVALID, "slot %u: nowhere to put the answer", slot);
    return status;
}

/* Checks that the ring has slots of its own. */
static allograft_status check_slots(const allograft_ring *ring)
{
    return ring->slot_bytes ? ALLOGRAFT_OK
                            : ag_api_fail(ALLOGRAFT_STATE, "the ring has no slots of its own");
}

/* A call that concerns a slot: the ring's context is current until it ends. */
struct slot_call {
    struct slot *row;
    bool pushed;
};

static void slot_call_end(struct slot_call *call)
{
    ag_api_leave(call->pushed);
}

static allograft_status slot_call_begin(struct slot_call *call, allograft_ring *ring, unsigned slot)
{
    allograft_status status = check_slot(ring, slot);

    if (status)
        return status;
    call->row = &ring->slots[slot];
    return ag_api_enter_context(ring->context, &call->pushed);
}

/* The declarations of such a function: `row` is the slot's, `status` what came of its beginning. */
#define SLOT_CALL(ring, number)                                                    \
    struct slot_call call __attribute__((cleanup(slot_call_end))) = {NULL, false}; \
    allograft_status status = slot_call_begin(&call, ring, number);                \
    struct slot *row __attribute__((unused)) = call.row

/* ---- beginning and end ---- */

static void drop_host(struct slot *slot)
{
    if (slot->registered)
        (void)ag_api_cu.cuMemHostUnregister(slot->host);
    if (slot->bounce)
        (void)ag_api_cu.cuMemFreeHost(slot->bounce);
    slot->host = slot->bounce = NULL;
    slot->registered = false;
    slot->backend = ALLOGRAFT_RING_AUTO;
}

static void drop_pins(allograft_ring *ring)
{
    while (ring->pins) {
        struct pin *pin = ring->pins;

        ring->pins = pin->next;
        (void)ag_api_cu.cuMemHostUnregister(pin->memory);
        free(pin);
    }
}

static void drop_ring(allograft_ring *ring)
{
    drop_pins(ring);
    for (unsigned i = 0; i < ring->depth; i++) {
        struct slot *slot = &ring->slots[i];

        drop_host(slot);
        for (unsigned r = 0; r < MOST_READERS && slot->readers[r]; r++) {
            if (r < slot->n_readers)
                (void)ag_api_cu.cuEventSynchronize(slot->readers[r]);
            (void)ag_api_cu.cuEventDestroy_v2(slot->readers[r]);
        }
        if (slot->began)
            (void)ag_api_cu.cuEventDestroy_v2(slot->began);
        if (slot->done)
            (void)ag_api_cu.cuEventDestroy_v2(slot->done);
        if (slot->device)
            (void)ag_api_cu.cuMemFree_v2(slot->device);
    }
    if (ring->stream)
        (void)ag_api_cu.cuStreamDestroy_v2(ring->stream);
    free(ring);
}

static allograft_status make_slot(const allograft_ring *ring, struct slot *slot)
{
    unsigned flags = ring->timing ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING;
    allograft_status status = ALLOGRAFT_OK;

    if (ring->slot_bytes)
        status = AG_API_DO(cuMemAlloc_v2, &slot->device, ring->slot_bytes);
    if (status)
        return status;
    status = AG_API_DO(cuEventCreate, &slot->done, flags);
    return status || !ring->timing ? status : AG_API_DO(cuEventCreate, &slot->began, flags);
}

/* Makes a ring; the device's context is current. */
static allograft_status make_transfer_ring(const struct allograft_ring_options *options,
                                           allograft_ring **ret)
{
    allograft_ring *ring = calloc(1, sizeof(*ring) + options->depth * sizeof(ring->slots[0]));
    allograft_status status;

    if (!ring)
        return ag_api_fail(ALLOGRAFT_NO_MEMORY, "no memory for a ring");
    ring->device = options->device;
    ring->depth = options->depth;
    ring->slot_bytes = options->slot_bytes;
    ring->timing = options->flags & ALLOGRAFT_RING_TIMING;
    ring->best = options->backend == ALLOGRAFT_RING_AUTO ? ALLOGRAFT_RING_PINNED : options->backend;
    status = AG_API_DO(cuCtxGetCurrent, &ring->context);
    if (status)
        goto failed;
    status = AG_API_DO(cuStreamCreate, &ring->stream, CU_STREAM_NON_BLOCKING);
    for (unsigned i = 0; i < ring->depth && !status; i++)
        status = make_slot(ring, &ring->slots[i]);
    if (status)
        goto failed;
    *ret = ring;
    return ALLOGRAFT_OK;
failed:
    drop_ring(ring);
    return status;
}

allograft_status ag_api_ring_open(const struct allograft_ring_options *options,
                                  allograft_ring **ret)
{
    allograft_status status = ag_api_enter();
    bool pushed;

    if (!status)
        status = check_ring_options(options);
    if (status)
        return status;
    if (!ret)
        return ag_api_fail(ALLOGRAFT_INVALID, "ring_open: nowhere to put the result");
    if (ag_api_thread_captures())
        return ag_api_fail(ALLOGRAFT_CAPTURING, "ring_open during a capture");
    status = ag_api_enter_device(options->device, &pushed);
    if (!status)
        status = make_transfer_ring(options, ret);
    ag_api_leave(pushed);
    return status;
}

allograft_status ag_api_ring_close(allograft_ring *ring)
{
    allograft_status status;
    bool pushed;

    if (!ring)
        return ALLOGRAFT_OK;
    if (ag_api_thread_captures()) /* which the wait would end */
        return ag_api_fail(ALLOGRAFT_CAPTURING, "ring_close during a capture");
    status = ag_api_enter_context(ring->context, &pushed);
    if (status)
        return status;
    status = AG_API_DO(cuStreamSynchronize, ring->stream);
    if (status !=
        ALLOGRAFT_CAPTURING) /* with an error of the device there is nothing to wait for */
        drop_ring(ring);
    ag_api_leave(pushed);
    return status;
}

/* ---- host slots ---- */

/* Is the memory pinned already, by whoever? */
static bool is_pinned(const void *memory)
{
    unsigned type = 0, managed = 0;

    return ag_api_cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                           (CUdeviceptr)memory) == CUDA_SUCCESS &&
           type == CU_MEMORYTYPE_HOST &&
           (ag_api_cu.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                            (CUdeviceptr)memory) != CUDA_SUCCESS ||
            !managed);
}

/* Are both ends? The driver refuses copies from memory of which only a part is pinned. */
static bool is_all_pinned(const void *memory, size_t bytes)
{
    return is_pinned(memory) && is_pinned((const char *)memory + bytes - 1);
}

/* The best way that is allowed and works. */
static void choose_backend(const allograft_ring *ring, struct slot *slot)
{
    slot->backend = ALLOGRAFT_RING_PAGEABLE;
    if (ring->best == ALLOGRAFT_RING_PINNED) {
        slot->registered =
            !is_all_pinned(slot->host, ring->slot_bytes) &&
            ag_api_cu.cuMemHostRegister_v2(slot->host, ring->slot_bytes,
                                           CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS;
        if (slot->registered || is_all_pinned(slot->host, ring->slot_bytes)) {
            slot->backend = ALLOGRAFT_RING_PINNED;
            return;
        }
    }
    if (ring->best <= ALLOGRAFT_RING_BOUNCE &&
        ag_api_cu.cuMemHostAlloc(&slot->bounce, ring->slot_bytes, CU_MEMHOSTALLOC_PORTABLE) ==
            CUDA_SUCCESS)
        slot->backend = ALLOGRAFT_RING_BOUNCE;
}

allograft_status ag_api_ring_register(allograft_ring *ring, unsigned slot, void *memory,
                                      size_t bytes)
{
    SLOT_CALL(ring, slot);

    if (status)
        return status;
    status = check_slots(ring);
    if (status)
        return status;
    if (!memory || bytes < ring->slot_bytes)
        status = ag_api_fail(ALLOGRAFT_INVALID, "host slot %u: %zu bytes at %p, %zu are needed",
                             slot, bytes, memory, ring->slot_bytes);
    else if (ag_api_thread_captures())
        status = ag_api_fail(ALLOGRAFT_CAPTURING, "a host slot registered during a capture");
    else if (row->copied) /* out of the memory that was registered before */
        status = AG_API_DO(cuEventSynchronize, row->done);
    if (status)
        return status;
    drop_host(row);
    row->host = memory;
    choose_backend(ring, row);
    return ALLOGRAFT_OK;
}

allograft_status ag_api_ring_device_slot(allograft_ring *ring, unsigned slot, void **ret)
{
    allograft_status status = check_answer(ring, slot, ret);

    if (!status)
        status = check_slots(ring);
    if (!status)
        *ret = (void *)ring->slots[slot].device;
    return status;
}

allograft_status ag_api_ring_stream(allograft_ring *ring, void **ret)
{
    allograft_status status = check_answer(ring, 0, ret);

    if (!status)
        *ret = ring->stream;
    return status;
}

static allograft_status pin_now(allograft_ring *ring, void *memory, size_t bytes)
{
    struct pin *pin = malloc(sizeof(*pin));
    allograft_status status;

    if (!pin)
        return ag_api_fail(ALLOGRAFT_NO_MEMORY, "no memory for a pin");
    status = AG_API_DO(cuMemHostRegister_v2, memory, bytes, CU_MEMHOSTREGISTER_PORTABLE);
    if (status) {
        free(pin);
        return status;
    }
    *pin = (struct pin){.next = ring->pins, .memory = memory};
    ring->pins = pin;
    return ALLOGRAFT_OK;
}

allograft_status ag_api_ring_pin(allograft_ring *ring, void *memory, size_t bytes)
{
    SLOT_CALL(ring, 0);

    if (status)
        return status;
    if (!memory || !bytes)
        status = ag_api_fail(ALLOGRAFT_INVALID, "ring_pin: %zu bytes at %p", bytes, memory);
    else if (ag_api_thread_captures())
        status = ag_api_fail(ALLOGRAFT_CAPTURING, "memory pinned during a capture");
    else if (!is_all_pinned(memory, bytes))
        status = pin_now(ring, memory, bytes);
    return status;
}

allograft_status ag_api_ring_properties(allograft_ring *ring, unsigned slot,
                                        struct allograft_ring_properties *ret)
{
    allograft_status status = check_answer(ring, slot, ret);
    enum allograft_ring_backend backend;

    if (status)
        return status;
    backend = ring->slots[slot].backend;
    *ret = (struct allograft_ring_properties){
        .backend = backend,
        .pinned = backend == ALLOGRAFT_RING_PINNED || backend == ALLOGRAFT_RING_BOUNCE,
        .async_submit = backend == ALLOGRAFT_RING_PINNED,
        .timing = ring->timing,
    };
    return ALLOGRAFT_OK;
}

/* ---- copies ---- */

/* The time of the slot's copy, once it is over, goes into its record. */
static void note_time(const allograft_ring *ring, struct slot *slot)
{
    float ms;

    if (!slot->record)
        return;
    if (!ring->timing ||
        (ag_api_cu.cuEventQuery(slot->done) == CUDA_SUCCESS &&
         ag_api_cu.cuEventElapsedTime(&ms, slot->began, slot->done) == CUDA_SUCCESS)) {
        if (ring->timing)
            slot->record->copy_ms = ms;
        slot->record = NULL;
    }
}

/* A copy, or the submission of one, as it is told of. */
struct transfer {
    CUdeviceptr to;
    const void *from;
    size_t bytes;
    uint64_t submit_ns, began; /* began: of the trace */
};

static void note_transfer(allograft_ring *ring, struct slot *slot, const struct transfer *transfer)
{
    struct allograft_ring_record *record = &ring->records[ring->sequence++ % MOST_RECORDS];

    for (unsigned i = 0; i < ring->depth; i++) {
        if (ring->slots[i].record == record) /* an older one in its place */
            ring->slots[i].record = NULL;
    }
    *record = (struct allograft_ring_record){
        .sequence = ring->sequence,
        .submit_ns = transfer->submit_ns,
        .bytes = transfer->bytes,
        .copy_ms = -1,
        .slot = (unsigned)(slot - ring->slots),
    };
    slot->record = record;
    ag_api_note_copy(transfer->began, &(struct ag_trace_event){
                                          .device = (int16_t)ring->device,
                                          .address = transfer->to,
                                          .size = transfer->bytes,
                                          .stream = (uintptr_t)ring->stream,
                                          .code = (uint16_t)record->slot,
                                      });
}

static allograft_status after_readers(const allograft_ring *ring, struct slot *slot)
{
    allograft_status status = ALLOGRAFT_OK;

    for (unsigned i = 0; i < slot->n_readers && !status; i++)
        status = AG_API_DO(cuStreamWaitEvent, ring->stream, slot->readers[i], 0);
    if (!status)
        slot->n_readers = 0;
    return status;
}

/* Where the copy reads from: the bounce buffer is free again when the copy before has read it. */
static allograft_status source_of(struct slot *slot, size_t bytes, const void **ret)
{
    allograft_status status = ALLOGRAFT_OK;

    *ret = slot->host;
    if (slot->backend != ALLOGRAFT_RING_BOUNCE)
        return ALLOGRAFT_OK;
    if (slot->copied)
        status = AG_API_DO(cuEventSynchronize, slot->done);
    if (!status && slot->host)
        memcpy(slot->bounce, slot->host, bytes);
    *ret = slot->bounce;
    return status;
}

/* Submits the transfer, after the slot's readers; the slot is ready when it has come through. */
static allograft_status transfer_now(allograft_ring *ring, struct slot *slot,
                                     const struct transfer *transfer)
{
    allograft_status status;

    note_time(ring, slot);
    slot->record = NULL; /* its events are about to be those of another copy */
    status = after_readers(ring, slot);
    if (!status && ring->timing)
        status = AG_API_DO(cuEventRecord, slot->began, ring->stream);
    if (!status && transfer->bytes)
        status = AG_API_DO(cuMemcpyHtoDAsync_v2, transfer->to, transfer->from, transfer->bytes,
                           ring->stream);
    if (!status)
        status = AG_API_DO(cuEventRecord, slot->done, ring->stream);
    if (status)
        return status;
    slot->submitted = slot->copied = true;
    if (transfer->bytes)
        note_transfer(ring, slot, transfer);
    return ALLOGRAFT_OK;
}

allograft_status ag_api_ring_submit(allograft_ring *ring, unsigned slot, size_t bytes)
{
    struct transfer transfer = {
        .bytes = bytes, .submit_ns = ag_clock_ns(), .began = ag_trace_began()};
    SLOT_CALL(ring, slot);

    if (status)
        return status;
    if (!bytes || bytes > ring->slot_bytes)
        status = ag_api_fail(ALLOGRAFT_INVALID, "submit of %zu bytes: 1 to %zu", bytes,
                             ring->slot_bytes);
    else if (!row->host)
        status = ag_api_fail(ALLOGRAFT_STATE, "no host slot %u is registered", slot);
    if (!status)
        status = source_of(row, bytes, &transfer.from);
    if (status)
        return status;
    transfer.to = row->device;
    return transfer_now(ring, row, &transfer);
}

allograft_status ag_api_ring_copy(allograft_ring *ring, unsigned slot, void *device,
                                  const void *host, size_t bytes)
{
    struct transfer transfer = {.to = (CUdeviceptr)device,
                                .from = host,
                                .bytes = bytes,
                                .submit_ns = ag_clock_ns(),
                                .began = ag_trace_began()};
    SLOT_CALL(ring, slot);

    if (status)
        return status;
    if (bytes && (!device || !host))
        return ag_api_fail(ALLOGRAFT_INVALID, "ring_copy of %zu bytes from %p to %p", bytes, host,
                           device);
    return transfer_now(ring, row, &transfer);
}

allograft_status ag_api_ring_clear(allograft_ring *ring, unsigned slot)
{
    allograft_status status = check_slot(ring, slot);

    if (!status)
        ring->slots[slot].submitted = false;
    return status;
}

allograft_status ag_api_ring_query(allograft_ring *ring, unsigned slot, int *ret_ready)
{
    SLOT_CALL(ring, slot);

    if (status)
        return status;
    if (!ret_ready)
        status = ag_api_fail(ALLOGRAFT_INVALID, "ring_query: nowhere to put the answer");
    else if (row->submitted)
        status = AG_API_DO(cuEventQuery, row->done);
    if (status && status != ALLOGRAFT_NOT_READY)
        return status;
    *ret_ready = row->submitted && !status;
    return ALLOGRAFT_OK;
}

static allograft_status need_submitted(const struct slot *row, unsigned slot)
{
    return row->submitted
               ? ALLOGRAFT_OK
               : ag_api_fail(ALLOGRAFT_STATE,
                             "nothing was submitted to slot %u since it was cleared", slot);
}

allograft_status ag_api_ring_wait_host(allograft_ring *ring, unsigned slot)
{
    SLOT_CALL(ring, slot);

    if (!status)
        status = need_submitted(row, slot);
    return status ? status : AG_API_DO(cuEventSynchronize, row->done);
}

allograft_status ag_api_ring_wait_stream(allograft_ring *ring, unsigned slot, void *stream)
{
    SLOT_CALL(ring, slot);

    if (!status)
        status = need_submitted(row, slot);
    if (!status)
        status = ag_api_not_capturing(stream, "ring_wait_stream");
    return status ? status : AG_API_DO(cuStreamWaitEvent, stream, row->done, 0);
}

/* An event for another reader; the oldest is waited for by the copy stream when there are too many.
 */
static allograft_status reader_event(allograft_ring *ring, struct slot *row, CUevent *ret)
{
    allograft_status status = ALLOGRAFT_OK;

    if (row->n_readers == MOST_READERS)
        status = after_readers(ring, row);
    if (!status && !row->readers[row->n_readers])
        status = AG_API_DO(cuEventCreate, &row->readers[row->n_readers], CU_EVENT_DISABLE_TIMING);
    if (!status)
        *ret = row->readers[row->n_readers];
    return status;
}

allograft_status ag_api_ring_reader(allograft_ring *ring, unsigned slot, void *stream)
{
    CUevent event = NULL;
    SLOT_CALL(ring, slot);

    if (!status)
        status = ag_api_not_capturing(stream, "ring_reader");
    if (!status)
        status = reader_event(ring, row, &event);
    if (!status)
        status = AG_API_DO(cuEventRecord, event, stream);
    if (!status)
        row->n_readers++;
    return status;
}

allograft_status ag_api_ring_trace(allograft_ring *ring, struct allograft_ring_record *records,
                                   size_t capacity, size_t *ret_n)
{
    SLOT_CALL(ring, 0);
    uint64_t first;
    size_t n;

    if (status)
        return status;
    if (!ret_n || (!records && capacity))
        return ag_api_fail(ALLOGRAFT_INVALID, "ring_trace: nowhere to put the records");
    for (unsigned i = 0; i < ring->depth; i++)
        note_time(ring, &ring->slots[i]);
    n = ring->sequence < MOST_RECORDS ? ring->sequence : MOST_RECORDS;
    n = n < capacity ? n : capacity;
    first = ring->sequence - n;
    for (size_t i = 0; i < n; i++)
        records[i] = ring->records[(first + i) % MOST_RECORDS];
    *ret_n = n;
    return status;
}
