/* The control API: its table of functions, how it finds the driver, errors, contexts, statistics.
 * See api.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/api/api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interpose/base/clock.h"
#include "interpose/driver/real_dlsym.h"
#include "interpose/hooks/entry.h"
#include "interpose/report/live.h"
#include "interpose/report/report.h"
#include "interpose/report/stats.h"
#include "interpose/report/trace/trace.h"
#include "interpose/resolve/preloaded.h"
#include "policy/contexts/context.h"

AG_ENTRY const struct allograft_api *allograft_get_api(uint32_t version);

struct ag_api_driver ag_api_cu;
struct ag_lock ag_api_lock = AG_LOCK_INIT(AG_RANK_API);

/* ---- errors ---- */

#define MOST_TEXT 256

static pthread_key_t error_key; /* a thread's text, on the heap: thread-local storage is scarce */
static pthread_once_t error_once = PTHREAD_ONCE_INIT;
static bool has_error_key;

static void make_error_key(void)
{
    has_error_key = !pthread_key_create(&error_key, free);
}

static char *error_text(void)
{
    char *text;

    pthread_once(&error_once, make_error_key);
    if (!has_error_key)
        return NULL;
    text = pthread_getspecific(error_key);
    if (text)
        return text;
    text = calloc(1, MOST_TEXT);
    if (text && pthread_setspecific(error_key, text)) {
        free(text);
        text = NULL;
    }
    return text;
}

void ag_api_explain(const char *format, ...)
{
    char *text = error_text();
    va_list args;

    va_start(args, format);
    if (text)
        vsnprintf(text, MOST_TEXT, format, args);
    va_end(args);
}

const char *ag_api_last_error(void)
{
    const char *text = error_text();

    return text ? text : "no memory for the text of an error";
}

allograft_status ag_api_answer(CUresult result, const char *call)
{
    const char *name = NULL;

    if (result == CUDA_SUCCESS)
        return ALLOGRAFT_OK;
    if (ag_api_cu.cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
        name = "an unknown error";
    switch ((int)result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
        return ag_api_fail(ALLOGRAFT_NO_MEMORY, "%s: %s", call, name);
    case CUDA_ERROR_NOT_READY:
        return ag_api_fail(ALLOGRAFT_NOT_READY, "%s: %s", call, name);
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
        return ag_api_fail(ALLOGRAFT_CAPTURING, "%s: %s", call, name);
    default:
        return ag_api_fail(ALLOGRAFT_DRIVER, "%s: %s (%d)", call, name, (int)result);
    }
}

/* ---- the driver ---- */

static pthread_mutex_t look_up_mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool is_found;

/* As the program would look `name` up: through us where we are in front of it. */
static void *look_up(void *handle, const char *name)
{
    return ag_is_preloaded() ? dlsym(handle, name) : ag_real_dlsym(handle, name);
}

/* The first name that is needed and missing, or NULL. */
static const char *fill(void *handle)
{
    static const struct {
        const char *name;
        size_t place;
        bool needed;
    } rows[] = {
#define NEEDED(symbol) {#symbol, offsetof(struct ag_api_driver, symbol), true},
#define WANTED(symbol) {#symbol, offsetof(struct ag_api_driver, symbol), false},
        AG_API_NEEDS(NEEDED) AG_API_WANTS(WANTED)
#undef NEEDED
#undef WANTED
    };
    const char *missing = NULL;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        void *found = look_up(handle, rows[i].name);

        memcpy((char *)&ag_api_cu + rows[i].place, &found, sizeof(found));
        if (!found && rows[i].needed && !missing)
            missing = rows[i].name;
    }
    return missing;
}

static allograft_status find_driver(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    const char *missing;

    if (!handle)
        return ag_api_fail(ALLOGRAFT_UNSUPPORTED, "no libcuda.so.1 can be loaded: %s", dlerror());
    missing = fill(handle);
    if (missing)
        return ag_api_fail(ALLOGRAFT_UNSUPPORTED, "the driver has no %s", missing);
    return AG_API_DO(cuInit, 0);
}

allograft_status ag_api_enter(void)
{
    allograft_status status = ALLOGRAFT_OK;

    if (atomic_load_explicit(&is_found, memory_order_acquire))
        return ALLOGRAFT_OK;
    pthread_mutex_lock(&look_up_mutex);
    if (!atomic_load_explicit(&is_found, memory_order_relaxed)) {
        status = find_driver();
        atomic_store_explicit(&is_found, status == ALLOGRAFT_OK, memory_order_release);
    }
    pthread_mutex_unlock(&look_up_mutex);
    return status;
}

bool ag_api_intercepts(void)
{
    return ag_entry_substitutes();
}

/* ---- contexts and streams ---- */

/* The primary context of `device`, kept alive from the first time on. */
static allograft_status primary_of(int device, CUcontext *ret)
{
    static _Atomic bool retained[AG_MAX_DEVICES];
    bool again = atomic_exchange(&retained[device], true);
    allograft_status status = AG_API_DO(cuDevicePrimaryCtxRetain, ret, device);

    if (status == ALLOGRAFT_OK && again)
        (void)ag_api_cu.cuDevicePrimaryCtxRelease_v2(device);
    if (status != ALLOGRAFT_OK && !again)
        atomic_store(&retained[device], false);
    return status;
}

allograft_status ag_api_check_device(int device, bool host_too)
{
    allograft_status status = ag_api_enter();
    int n = 0;

    if (status == ALLOGRAFT_OK)
        status = AG_API_DO(cuDeviceGetCount, &n);
    if (n > (int)AG_MAX_DEVICES) /* which our tables have room for */
        n = AG_MAX_DEVICES;
    if (status != ALLOGRAFT_OK || (device >= 0 && device < n) ||
        (host_too && device == ALLOGRAFT_HOST))
        return status;
    return ag_api_fail(ALLOGRAFT_INVALID, "device %d: there are %d, from 0%s", device, n,
                       host_too ? "; the host is -1" : "");
}

allograft_status ag_api_enter_device(int device, bool *ret_pushed)
{
    CUcontext context = NULL;
    CUdevice current = -1;
    allograft_status status = ag_api_check_device(device, false);

    *ret_pushed = false;
    if (status != ALLOGRAFT_OK)
        return status;
    if (ag_api_cu.cuCtxGetDevice(&current) == CUDA_SUCCESS && current == device)
        return ALLOGRAFT_OK;
    status = primary_of(device, &context);
    if (status == ALLOGRAFT_OK)
        status = AG_API_DO(cuCtxPushCurrent_v2, context);
    *ret_pushed = status == ALLOGRAFT_OK;
    return status;
}

allograft_status ag_api_enter_context(CUcontext context, bool *ret_pushed)
{
    CUcontext current = NULL;
    allograft_status status;

    *ret_pushed = false;
    if (ag_api_cu.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context)
        return ALLOGRAFT_OK;
    status = AG_API_DO(cuCtxPushCurrent_v2, context);
    *ret_pushed = status == ALLOGRAFT_OK;
    return status;
}

void ag_api_leave(bool pushed)
{
    CUcontext context;

    if (pushed)
        (void)ag_api_cu.cuCtxPopCurrent_v2(&context);
}

bool ag_api_is_default_stream(void *stream)
{
    return !stream || stream == (void *)CU_STREAM_LEGACY || stream == (void *)CU_STREAM_PER_THREAD;
}

allograft_status ag_api_not_capturing(void *stream, const char *what)
{
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    allograft_status status = AG_API_DO(cuStreamIsCapturing, stream, &capture);

    if (status != ALLOGRAFT_OK || capture == CU_STREAM_CAPTURE_STATUS_NONE)
        return status;
    return ag_api_fail(ALLOGRAFT_CAPTURING, "%s while the stream is being captured", what);
}

void ag_api_begin_child(void)
{
    ag_lock_init(&ag_api_lock, AG_RANK_API);
    look_up_mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    ag_api_owned_begin_child();
}

/* ---- statistics ---- */

void ag_api_note_copy(uint64_t began, const struct ag_trace_event *event)
{
    struct ag_trace_event whole = *event;

    whole.kind = AG_TRACE_TRANSFER;
    ag_stats_add(AG_STAT_API_COPIES, 1);
    ag_stats_add(AG_STAT_API_COPIED, whole.size);
    if (ag_trace_on())
        ag_trace_add_call(began, whole);
}

static void sum_places(struct allograft_snapshot *now)
{
    struct ag_api_owned_counts owned = ag_api_owned_counts();

    now->allocations[ALLOGRAFT_MANAGED] += owned.allocations;
    now->frees[ALLOGRAFT_MANAGED] += owned.frees;
    now->current_bytes[ALLOGRAFT_MANAGED] += owned.current_bytes;
    now->peak_bytes[ALLOGRAFT_MANAGED] += owned.peak_bytes;
    for (unsigned device = 0; device < AG_STATS_DEVICES; device++) {
        for (unsigned place = 0; place < AG_N_PLACEMENTS; place++) {
            size_t at = offsetof(struct ag_stats_slot, places) +
                        (device * AG_N_PLACEMENTS + place) * sizeof(struct ag_place_stats);

            now->allocations[place] += ag_stats_sum(at + offsetof(struct ag_place_stats, allocs));
            now->frees[place] += ag_stats_sum(at + offsetof(struct ag_place_stats, frees));
            now->refused += ag_stats_sum(at + offsetof(struct ag_place_stats, failed));
            now->current_bytes[place] += ag_live_of(&ag_stats, device, place);
            now->peak_bytes[place] +=
                atomic_load_explicit(&ag_stats.peak_bytes[device][place], memory_order_relaxed);
        }
    }
}

allograft_status ag_api_snapshot(struct allograft_snapshot *ret)
{
    struct allograft_snapshot now = {0};
    size_t bytes = ret ? ret->bytes : 0;

    if (bytes < sizeof(size_t))
        return ag_api_fail(ALLOGRAFT_INVALID,
                           "snapshot: `bytes` is to be set to the size of the struct");
    sum_places(&now);
    now.replay_operations = ag_stats_counter(AG_STAT_REPLAY_SEEN);
    now.replay_withheld = ag_stats_counter(AG_STAT_REPLAY_WITHHELD);
    now.replay_replayed = ag_stats_counter(AG_STAT_REPLAY_REPLAYED);
    now.replay_launches = ag_stats_counter(AG_STAT_REPLAY_LAUNCHES);
    now.api_captures = ag_stats_counter(AG_STAT_API_CAPTURES);
    now.api_replays = ag_stats_counter(AG_STAT_API_REPLAYS);
    now.api_copies = ag_stats_counter(AG_STAT_API_COPIES);
    now.api_copied_bytes = ag_stats_counter(AG_STAT_API_COPIED);
    now.bytes = bytes;
    memcpy(ret, &now, bytes < sizeof(now) ? bytes : sizeof(now));
    return ALLOGRAFT_OK;
}

allograft_status ag_api_dump(const char *path)
{
    int result;

    if (ag_api_enter() != ALLOGRAFT_OK) /* nothing was read yet that a report could tell of */
        return ALLOGRAFT_UNSUPPORTED;
    (void)ag_entry_start();
    result = ag_report_write_to(path ? path : "stderr");
    return result
               ? ag_api_fail(ALLOGRAFT_INVALID, "%s: %s", path ? path : "stderr", strerror(-result))
               : ALLOGRAFT_OK;
}

allograft_status ag_api_mark(const char *name)
{
    struct allograft_snapshot now = {0};
    uint64_t bytes = 0, after = 0;
    bool kept;

    if (!name || !*name)
        return ag_api_fail(ALLOGRAFT_INVALID, "a mark needs a name");
    (void)ag_entry_start(); /* which says when the process began: with its first call, or now */
    sum_places(&now);
    for (unsigned place = 0; place < AG_N_PLACEMENTS; place++)
        bytes += now.current_bytes[place];
    ag_trace_mark(name);
    ag_lock_take(&ag_api_lock);
    if (ag_stats.head.started_ns)
        after = ag_clock_ns() - ag_stats.head.started_ns;
    kept = ag_stats_mark(name, after, bytes);
    ag_lock_release(&ag_api_lock);
    return kept ? ALLOGRAFT_OK
                : ag_api_fail(ALLOGRAFT_NO_MEMORY, "%u marks have names already", AG_MARKS);
}

/* ---- the table ---- */

_Static_assert(ALLOGRAFT_PLACES == (int)AG_N_PLACEMENTS, "the placements of a snapshot");

static const struct allograft_api whole_api = {
    .version = ALLOGRAFT_API_VERSION,
    .bytes = sizeof(struct allograft_api),
#define AG_API(name, stub) .name = ag_api_##name,
#include "interpose/api/functions.def"
};

/* allograft.h stands alone, so it has its own copy of the list: that one has the same order, with
 * nothing between or behind, and each stub the type of the member that it calls. */
enum {
#define AG_API(name, stub) ROW_##name,
#include "interpose/api/functions.def"
    N_ROWS
};
#define MEMBER_IN_ROW(row) (offsetof(struct allograft_api, last_error) + (row) * sizeof(void *))
#define AG_API(name, stub)                                                                       \
    _Static_assert(offsetof(struct allograft_api, name) == MEMBER_IN_ROW(ROW_##name),            \
                   #name ": the order of struct allograft_api is not that of functions.def");    \
    _Static_assert(                                                                              \
        __builtin_types_compatible_p(__typeof__(&allograft_##stub), __typeof__(whole_api.name)), \
        "allograft_" #stub " is not of the type of the member that it calls");
#include "interpose/api/functions.def"
_Static_assert(sizeof(struct allograft_api) == MEMBER_IN_ROW(N_ROWS),
               "struct allograft_api has other members than functions.def has rows");

const struct allograft_api *allograft_get_api(uint32_t version)
{
    return version == ALLOGRAFT_API_VERSION ? &whole_api : NULL;
}
