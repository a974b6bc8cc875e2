/* What the functions of the control API begin and end with: how they find the driver, errors,
 * contexts. See api.h. */
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

#include "interpose/core/driver/real_dlsym.h"
#include "interpose/core/report/stats.h"
#include "interpose/core/report/trace/trace.h"
#include "interpose/hooks/entry.h"
#include "interpose/resolve/preloaded.h"
#include "policy/contexts/context.h"

struct ag_api_driver ag_api_cu;

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

static _Atomic bool is_found;

/* Looks `name` up as the program would: through us where we are in front of it. */
static void *look_up_symbol(void *handle, const char *name)
{
    return ag_is_preloaded() ? dlsym(handle, name) : ag_real_dlsym(handle, name);
}

/* The first name that is needed and missing, or NULL. */
static const char *fill_driver(void *handle)
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
        void *found = look_up_symbol(handle, rows[i].name);

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
    missing = fill_driver(handle);
    if (missing)
        return ag_api_fail(ALLOGRAFT_UNSUPPORTED, "the driver has no %s", missing);
    return AG_API_DO(cuInit, 0);
}

allograft_status ag_api_enter(void)
{
    allograft_status status = ALLOGRAFT_OK;

    if (atomic_load_explicit(&is_found, memory_order_acquire))
        return ALLOGRAFT_OK;
    pthread_mutex_lock(&ag_api_look_up_mutex);
    if (!atomic_load_explicit(&is_found, memory_order_relaxed)) { /* relaxed: under the mutex */
        status = find_driver();
        atomic_store_explicit(&is_found, status == ALLOGRAFT_OK, memory_order_release);
    }
    pthread_mutex_unlock(&ag_api_look_up_mutex);
    return status;
}

bool ag_api_intercepts(void)
{
    return ag_entry_substitutes();
}

/* ---- contexts and streams ---- */

/* The primary context of `device`, kept alive from the first time on. */
static allograft_status retain_primary(int device, CUcontext *ret)
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
    status = retain_primary(device, &context);
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
