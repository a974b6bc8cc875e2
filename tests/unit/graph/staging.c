/* graph/record/staging.c: a slot is used again when its event has passed, and never before; threads
 * share them. The driver here is a few counters: an event is done when the test says so. */
#include "graph/record/staging.h"

#include <pthread.h>
#include <string.h>

#include "interpose/core/base/clock.h"
#include "interpose/core/driver/driver.h"
#include "interpose/core/report/stats.h"
#include "policy/order/capture.h"
#include "tests/common/chance.h"
#include "tests/common/check.h"

struct ag_driver ag_cu;

enum { MAX_EVENTS = 64, SLOT = 1024 };

static struct {
    _Atomic bool pending; /* recorded, and what is before it has not been done */
} events[MAX_EVENTS];
static unsigned n_events, n_destroyed, n_allocated, n_freed;
static _Atomic unsigned n_recorded;
static unsigned events_to_come = MAX_EVENTS; /* then there are no more */
static CUresult record_answer = CUDA_SUCCESS;
static bool memory_refused;
static unsigned char memory[64 * SLOT] __attribute__((aligned(64)));
static size_t in_use; /* bytes of it; a ring begins at its start */

/* --- what it calls --- */

CUstreamCaptureMode ag_capture_relax(void)
{
    return CU_STREAM_CAPTURE_MODE_GLOBAL;
}

void ag_capture_restore(CUstreamCaptureMode previous)
{
    CHECK(previous == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static CUresult alloc_host(void **ret, size_t bytes, unsigned flags)
{
    CHECK(bytes <= sizeof(memory) - in_use && !flags);
    if (memory_refused)
        return CUDA_ERROR_OUT_OF_MEMORY;
    n_allocated++;
    *ret = memory + in_use;
    in_use += bytes;
    return CUDA_SUCCESS;
}

static CUresult free_host(void *p)
{
    CHECK((unsigned char *)p >= memory && (unsigned char *)p < memory + in_use);
    n_freed++;
    return CUDA_SUCCESS;
}

static CUresult event_create(CUevent *ret, unsigned flags)
{
    CHECK(flags == CU_EVENT_DISABLE_TIMING);
    if (n_events == events_to_come)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ret = (CUevent)(uintptr_t)(n_events++ + 1);
    return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent event)
{
    CHECK(event);
    n_destroyed++;
    return CUDA_SUCCESS;
}

static unsigned number_of(CUevent event)
{
    return (unsigned)(uintptr_t)event - 1;
}

static CUresult event_record(CUevent event, CUstream stream)
{
    CHECK(stream == CU_STREAM_LEGACY);
    if (record_answer != CUDA_SUCCESS)
        return record_answer;
    n_recorded++;
    atomic_store(&events[number_of(event)].pending, true);
    return CUDA_SUCCESS;
}

static CUresult event_query(CUevent event)
{
    return atomic_load(&events[number_of(event)].pending) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static void device_catches_up(void)
{
    for (unsigned i = 0; i < MAX_EVENTS; i++)
        atomic_store(&events[i].pending, false);
}

static uint64_t counted(enum ag_stat id)
{
    return ag_stats_counter(id);
}

static struct ag_ring *ring_of(uint32_t depth)
{
    const struct ag_ring_limits limits = {.depth = depth, .slot_bytes = SLOT};

    n_events = 0;
    in_use = 0;
    device_catches_up();
    return ag_ring_new(&limits);
}

/* --- */

static void packs(void)
{
    struct ag_ring *ring = ring_of(3);
    struct ag_staged staged = {0};
    unsigned char bytes[SLOT + 1];
    uint64_t packed = counted(AG_STAT_STAGING_PACKED);
    unsigned char *a, *b, *c, *d;

    memset(bytes, 7, sizeof(bytes));
    a = ag_ring_put(ring, &staged, bytes, 100);
    b = ag_ring_put(ring, &staged, bytes, 100);
    CHECK(a == memory && b == memory + 128); /* 64-byte aligned */
    bytes[0] = 8;
    c = ag_ring_put(ring, &staged, bytes, SLOT - 256);
    CHECK(c == memory + 256 && c[0] == 8 && b[0] == 7 && a[99] == 7);
    CHECK(counted(AG_STAT_STAGING_PACKED) == packed + 2);
    d = ag_ring_put(ring, &staged, bytes, 1);
    CHECK(d == memory + SLOT);
    CHECK(!ag_ring_put(ring, &staged, bytes, SLOT + 1));
    CHECK(counted(AG_STAT_STAGING_TOO_LARGE) == 1);
    d = ag_ring_put(ring, &staged, bytes, SLOT); /* a slot of its own */
    CHECK(d == memory + 2 * SLOT);
    n_recorded = 0;
    CHECK(ag_ring_sent(ring, &staged, CU_STREAM_LEGACY) == CUDA_SUCCESS);
    CHECK(n_recorded == 3 && !staged.first && !staged.last && !staged.filled);
    device_catches_up();
    ag_ring_free(ring, false);
}

/* No slot is taken that may still be read; the oldest comes first. */
static void runs_around(void)
{
    struct ag_ring *ring = ring_of(4);
    struct ag_staged staged[5] = {{0}};
    char byte = 1;
    uint64_t stalls = counted(AG_STAT_STAGING_STALLS), full = counted(AG_STAT_STAGING_FULL);
    uint64_t began;

    for (int i = 0; i < 4; i++)
        CHECK(ag_ring_put(ring, &staged[i], &byte, 1) == memory + i * SLOT);
    began = ag_clock_ns();
    CHECK(!ag_ring_put(ring, &staged[4], &byte, 1)); /* streams hold all: nothing to wait for */
    CHECK(counted(AG_STAT_STAGING_STALLS) == stalls && counted(AG_STAT_STAGING_FULL) == full + 1);
    for (int i = 0; i < 4; i++)
        CHECK(ag_ring_sent(ring, &staged[i], CU_STREAM_LEGACY) == CUDA_SUCCESS);
    CHECK(!ag_ring_put(ring, &staged[4], &byte, 1)); /* in use, after a wait */
    CHECK(counted(AG_STAT_STAGING_STALLS) == stalls + 1);
    CHECK(ag_clock_ns() - began < 1000000000u);
    atomic_store(&events[0].pending, false);
    CHECK(ag_ring_put(ring, &staged[0], &byte, 1) == memory);
    CHECK(!ag_ring_put(ring, &staged[4], &byte, 1)); /* the next is the oldest now */
    device_catches_up();
    CHECK(ag_ring_put(ring, &staged[1], &byte, 1) == memory + 3 * SLOT); /* the last one is done */
    CHECK(ag_ring_sent(ring, &staged[1], CU_STREAM_LEGACY) == CUDA_SUCCESS);
    CHECK(!staged[1].first);
    device_catches_up();
    CHECK(ag_ring_put(ring, &staged[1], &byte, 1) == memory + 3 * SLOT);
    CHECK(ag_ring_put(ring, &staged[2], &byte, 1) == memory + SLOT);
    CHECK(ag_ring_put(ring, &staged[3], &byte, 1) == memory + 2 * SLOT);
    CHECK(!ag_ring_put(ring, &staged[4], &byte, 1)); /* all are held, the first one too */
    ag_ring_free(ring, true);
}

/* Who waits each time has the same slot each time; who does not never has one that is read. */
static void stays(void)
{
    struct ag_ring *ring = ring_of(4);
    struct ag_staged staged = {0};
    char byte = 1;

    for (int i = 0; i < 10; i++) {
        CHECK(ag_ring_put(ring, &staged, &byte, 1) == memory);
        CHECK(ag_ring_sent(ring, &staged, CU_STREAM_LEGACY) == CUDA_SUCCESS);
        device_catches_up();
    }
    for (int i = 0; i < 4; i++) {
        CHECK(ag_ring_put(ring, &staged, &byte, 1) == memory + i * SLOT);
        CHECK(ag_ring_sent(ring, &staged, CU_STREAM_LEGACY) == CUDA_SUCCESS);
    }
    device_catches_up();
    CHECK(ag_ring_put(ring, &staged, &byte, 1) == memory + 3 * SLOT);
    CHECK(ag_ring_put(ring, &staged, &byte, 1) == memory + 3 * SLOT + 64); /* there is room */
    ag_ring_free(ring, true);
}

/* Four slots at first; more where these are in use, and a wait where the driver gives no more. */
static void grows(void)
{
    struct ag_ring *ring = ring_of(40);
    struct ag_staged staged[40] = {{0}};
    unsigned allocated = n_allocated, freed = n_freed;
    uint64_t stalls = counted(AG_STAT_STAGING_STALLS);
    char byte = 1;

    CHECK(n_events == 4 && in_use == 4 * SLOT);
    for (int i = 0; i < 16; i++) {
        CHECK(ag_ring_put(ring, &staged[i], &byte, 1) == memory + i * SLOT);
        CHECK(n_events == (i < 4 ? 4 : 16));
    }
    CHECK(n_allocated == allocated + 1 && in_use == 16 * SLOT);
    for (int i = 0; i < 16; i++)
        CHECK(ag_ring_sent(ring, &staged[i], CU_STREAM_LEGACY) == CUDA_SUCCESS);
    atomic_store(&events[0].pending, false);
    CHECK(ag_ring_put(ring, &staged[0], &byte, 1) == memory); /* it is done: nothing is pinned */
    events_to_come = 20;
    CHECK(ag_ring_put(ring, &staged[1], &byte, 1) == memory + 16 * SLOT);
    CHECK(n_events == 20 && in_use == 40 * SLOT);
    for (int i = 2; i < 5; i++)
        CHECK(ag_ring_put(ring, &staged[i], &byte, 1) == memory + (15 + i) * SLOT);
    CHECK(counted(AG_STAT_STAGING_STALLS) == stalls);
    CHECK(!ag_ring_put(ring, &staged[5], &byte, 1));
    CHECK(counted(AG_STAT_STAGING_STALLS) == stalls + 1 && n_allocated == allocated + 2);
    ag_ring_free(ring, false);
    CHECK(n_freed == freed + 3);
    events_to_come = MAX_EVENTS;
}

/* A slot whose event could not be recorded is never given again. */
static void lost(void)
{
    struct ag_ring *ring = ring_of(3);
    struct ag_staged staged = {0}, other = {0};
    char bytes[SLOT] = {0};

    CHECK(ag_ring_put(ring, &staged, bytes, SLOT) && ag_ring_put(ring, &staged, bytes, SLOT));
    record_answer = CUDA_ERROR_LAUNCH_FAILED;
    CHECK(ag_ring_sent(ring, &staged, CU_STREAM_LEGACY) == CUDA_ERROR_LAUNCH_FAILED);
    CHECK(!staged.first);
    record_answer = CUDA_SUCCESS;
    for (int i = 0; i < 5; i++) {
        CHECK(ag_ring_put(ring, &other, bytes, SLOT) == memory + 2 * SLOT);
        CHECK(!ag_ring_put(ring, &staged, bytes, SLOT));
        CHECK(ag_ring_sent(ring, &other, CU_STREAM_LEGACY) == CUDA_SUCCESS);
        device_catches_up();
    }
    ag_ring_free(ring, false);
}

static void refused(void)
{
    struct ag_staged staged = {0}, other = {0};
    struct ag_ring *ring;
    unsigned freed = n_freed;
    char byte = 1;

    memory_refused = true;
    n_destroyed = 0;
    CHECK(!ring_of(3));
    CHECK(!n_events && n_freed == freed);
    memory_refused = false;
    events_to_come = 0;
    CHECK(!ring_of(3));
    CHECK(n_freed == freed + 1 && !n_destroyed);
    events_to_come = 1; /* then it is a short one */
    ring = ring_of(3);
    CHECK(ring && ag_ring_put(ring, &staged, &byte, 1) && !ag_ring_put(ring, &other, &byte, 1));
    ag_ring_free(ring, false);
    CHECK(n_freed == freed + 2 && n_destroyed == 1);
    events_to_come = MAX_EVENTS;
    ag_ring_free(NULL, false);
}

/* --- threads: nobody's bytes are written over before they were read --- */

#define THREADS 4
#define TURNS   3000

static struct ag_ring *shared;

static void *work(void *number)
{
    uint64_t state = (uintptr_t)number;
    unsigned char mine[SLOT], *there[4];

    for (unsigned turn = 0; turn < TURNS; turn++) {
        struct ag_staged staged = {0};
        size_t bytes = 1 + chance_below(&state, SLOT);
        unsigned n = 0;

        memset(mine, (int)(turn * THREADS + (uintptr_t)number), bytes);
        for (unsigned i = 0; i < 4; i++) {
            there[n] = ag_ring_put(shared, &staged, mine, bytes);
            n += there[n] != NULL;
        }
        for (unsigned i = 0; i < n; i++)
            CHECK(!memcmp(there[i], mine, bytes));
        CHECK(ag_ring_sent(shared, &staged, CU_STREAM_LEGACY) == CUDA_SUCCESS);
        device_catches_up();
    }
    return NULL;
}

static void threads(void)
{
    pthread_t thread[THREADS];

    shared = ring_of(20);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&thread[i], NULL, work, (void *)i));
    for (unsigned i = 0; i < THREADS; i++)
        CHECK(!pthread_join(thread[i], NULL));
    ag_ring_free(shared, false);
}

int main(void)
{
    ag_cu.cuMemHostAlloc = alloc_host;
    ag_cu.cuMemFreeHost = free_host;
    ag_cu.cuEventCreate = event_create;
    ag_cu.cuEventDestroy_v2 = event_destroy;
    ag_cu.cuEventRecord = event_record;
    ag_cu.cuEventQuery = event_query;
    packs();
    runs_around();
    stays();
    grows();
    lost();
    refused();
    threads();
    CHECK(n_allocated == n_freed + 2); /* two went with their contexts */
    return 0;
}
