/* Keeps and renders the first sticky error: see first_error.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/core/report/errors/first_error.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "interpose/core/base/clock.h"

/* The sticky errors of cuda.h, by the words in which the driver describes them; others in between,
 * such as 704, are of one call. */
static const struct {
    int code;
    const char *name;
} sticky[] = {
    {214, "an uncorrectable ECC error"},
    {220, "an uncorrectable NVLink error"},
    {226, "an uncorrectable error that was contained"},
    {700, "an illegal memory access"},
    {702, "a kernel that ran too long"},
    {710, "a failed assertion on the device"},
    {714, "an error of the hardware's stack"},
    {715, "an illegal instruction"},
    {716, "a misaligned address"},
    {717, "an operation that the address space does not support"},
    {718, "an invalid program counter"},
    {719, "a launch that failed"},
};

const char *ag_first_error_name(int code)
{
    for (size_t i = 0; i < sizeof(sticky) / sizeof(sticky[0]); i++) {
        if (sticky[i].code == code)
            return sticky[i].name;
    }
    return NULL;
}

struct ag_first_error *ag_first_error_note(int code, const char *call)
{
    struct ag_first_error *first = &ag_stats.first_error;
    uint32_t none = 0;

    if (!atomic_compare_exchange_strong(&first->claimed, &none, 1))
        return NULL;
    first->code = code;
    first->thread = (int32_t)syscall(SYS_gettid);
    first->after_ns = ag_clock_ns() - ag_stats.head.started_ns;
    snprintf(first->call, sizeof(first->call), "%s", call);
    return first;
}

void ag_first_error_complete(struct ag_first_error *first)
{
    atomic_store_explicit(&first->used, 1, memory_order_release);
}

static bool has_error(const struct ag_first_error *first)
{
    return atomic_load_explicit(&first->used, memory_order_acquire) != 0;
}

const char *ag_first_error_text(const struct ag_stats *stats, char *buffer, size_t size)
{
    const struct ag_first_error *first = &stats->first_error;
    const char *name = ag_first_error_name(first->code);
    char after[32];

    *buffer = '\0';
    if (has_error(first))
        snprintf(buffer, size,
                 "%.47s returned %d (%s) in thread %d, %s after the start; from then on every call "
                 "in its context fails",
                 first->call, first->code, name ? name : "a sticky error", first->thread,
                 ag_text_duration(after, sizeof(after), (double)first->after_ns));
    return buffer;
}

const char *ag_launched_name(const struct ag_launched *launched, char *buffer, size_t size)
{
    if (*launched->name)
        snprintf(buffer, size, "%.255s", launched->name);
    else
        snprintf(buffer, size, "%s 0x%llx", launched->is_graph ? "graph" : "function",
                 (unsigned long long)launched->handle);
    return buffer;
}

/* CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are 1 and 2. */
const char *ag_launched_stream(const struct ag_launched *launched, char *buffer, size_t size)
{
    if (launched->stream <= 2)
        snprintf(buffer, size, "%s",
                 launched->stream == 2 ? "the thread's default stream" : "the default stream");
    else
        snprintf(buffer, size, "stream 0x%llx", (unsigned long long)launched->stream);
    return buffer;
}

void ag_first_error_launched_text(struct ag_text *text, const struct ag_stats *stats)
{
    const struct ag_first_error *first = &stats->first_error;
    char name[288], stream[64];

    if (!has_error(first))
        return;
    if (!first->n_launched && first->launches_unseen)
        ag_text_add(text, "    " AG_LAUNCHES_UNSEEN_TEXT "\n");
    for (uint32_t i = 0; i < first->n_launched && i < AG_LAUNCHED; i++) {
        const struct ag_launched *launched = &first->launched[i];

        if (!i || launched->thread != first->launched[i - 1].thread)
            ag_text_add(text, "    launched before it in thread %d, the latest first\n",
                        launched->thread);
        ag_text_add(text, "      %s on %s\n", ag_launched_name(launched, name, sizeof(name)),
                    ag_launched_stream(launched, stream, sizeof(stream)));
    }
}

static void json_launched(struct ag_emitter *json, const struct ag_first_error *first)
{
    char handle[32], stream[32];

    ag_emit_bool(json, "launches_unseen", first->launches_unseen);
    ag_emit_array(json, "launched");
    for (uint32_t i = 0; i < first->n_launched && i < AG_LAUNCHED; i++) {
        const struct ag_launched *launched = &first->launched[i];

        snprintf(handle, sizeof(handle), "0x%llx", (unsigned long long)launched->handle);
        snprintf(stream, sizeof(stream), "0x%llx", (unsigned long long)launched->stream);
        ag_emit_line(json, 1);
        ag_emit_object(json, NULL);
        ag_emit_string(json, "kind", launched->is_graph ? "graph" : "function");
        if (*launched->name)
            ag_emit_string(json, "name", launched->name);
        ag_emit_string(json, "handle", handle);
        ag_emit_string(json, "stream", stream);
        ag_emit_number(json, "thread", (uint64_t)launched->thread);
        ag_emit_end(json);
    }
    ag_emit_end(json);
}

void ag_first_error_json(struct ag_emitter *json, const struct ag_stats *stats)
{
    const struct ag_first_error *first = &stats->first_error;

    if (!has_error(first))
        return;
    ag_emit_line(json, 0);
    ag_emit_object(json, "first_error");
    ag_emit_string(json, "call", first->call);
    ag_emit_number(json, "code", (uint64_t)first->code);
    ag_emit_number(json, "thread", (uint64_t)first->thread);
    ag_emit_number(json, "after_ns", first->after_ns);
    json_launched(json, first);
    ag_emit_end(json);
}
