/* Keeps and renders the first sticky error: see first_error.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "interpose/report/errors/first_error.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "interpose/base/clock.h"

/* Of cuda.h, by the words in which the driver describes them; others in between, such as 704, are
 * of one call. */
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

bool ag_first_error_note(int code, const char *call)
{
    struct ag_first_error *first = &ag_stats.first_error;
    uint32_t none = 0;

    if (!atomic_compare_exchange_strong(&first->claimed, &none, 1))
        return false;
    first->code = code;
    first->thread = (int32_t)syscall(SYS_gettid);
    first->after_ns = ag_clock_ns() - ag_stats.head.started_ns;
    snprintf(first->call, sizeof(first->call), "%s", call);
    atomic_store_explicit(&first->used, 1, memory_order_release);
    return true;
}

const char *ag_first_error_text(const struct ag_stats *stats, char *buffer, size_t size)
{
    const struct ag_first_error *first = &stats->first_error;
    const char *name = ag_first_error_name(first->code);
    char after[32];

    *buffer = '\0';
    if (atomic_load_explicit(&first->used, memory_order_acquire))
        snprintf(buffer, size,
                 "%.47s returned %d (%s) in thread %d, %s after the start; from then on every call "
                 "in its context fails",
                 first->call, first->code, name ? name : "a sticky error", first->thread,
                 ag_text_duration(after, sizeof(after), (double)first->after_ns));
    return buffer;
}

void ag_first_error_json(struct ag_emitter *json, const struct ag_stats *stats)
{
    const struct ag_first_error *first = &stats->first_error;

    if (!atomic_load_explicit(&first->used, memory_order_acquire))
        return;
    ag_emit_line(json, 0);
    ag_emit_object(json, "first_error");
    ag_emit_string(json, "call", first->call);
    ag_emit_number(json, "code", (uint64_t)first->code);
    ag_emit_number(json, "thread", (uint64_t)first->thread);
    ag_emit_number(json, "after_ns", first->after_ns);
    ag_emit_end(json);
}
