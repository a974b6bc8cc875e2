/* Receives NVTX's ranges and marks, which begin iterations, and its names of streams, as an NVTX
 * injection library.
 *
 * A program that uses NVTX has a table of function pointers in each of its libraries. At the first
 * NVTX call, each opens the library that NVTX_INJECTION64_PATH names, whose
 * InitializeInjectionNvtx2 fills in the pointers that it wants; the others stay without effect.
 * There is no other way in: the weak symbol that NVTX tries last is hidden. So the variable has to
 * be set (nvtx_offer.c). The injection only reads the settings.
 *
 * NVTX calls return what they return without any injection. Domains and registered strings are
 * pointers that we chose when they were made, and that come back to us. All we need to know of
 * either is whether it matches the settings, so there are two of each. */
#include <stddef.h>
#include <stdint.h>

#include "graph/learn/marks.h"
#include "interpose/core/driver/abi.h"
#include "interpose/hooks/entry.h"
#include "interpose/hooks/nvtx/nvtx_abi.h"
#include "interpose/lifecycle.h"
#include "interpose/resolve/preloaded.h"

#define MOST_BYTES 256u /* of a name in wide characters, with its NUL; the rest does not count */

AG_ENTRY int InitializeInjectionNvtx2(ag_nvtx_get_export *get_export);

static const char domains[2], strings[2]; /* [0]: does not match, [1]: does */

/* ---- names --------------------------------------------------------------------------------- */

/* UTF-8 of a wide string, cut. */
static const char *to_utf8(const wchar_t *wide, char *text)
{
    size_t length = 0;

    for (; wide && *wide && length + 5 <= MOST_BYTES; wide++) {
        uint32_t c = (uint32_t)*wide;

        if (c < 0x80) {
            text[length++] = (char)c;
            continue;
        }
        if (c >= 0x10000)
            text[length++] = (char)(0xf0 | (c >> 18 & 7));
        if (c >= 0x800)
            text[length++] =
                (char)((c >= 0x10000 ? 0x80 : 0xe0) | (c >> 12 & (c >= 0x10000 ? 0x3f : 0xf)));
        text[length++] = (char)((c >= 0x800 ? 0x80 : 0xc0) | (c >> 6 & (c >= 0x800 ? 0x3f : 0x1f)));
        text[length++] = (char)(0x80 | (c & 0x3f));
    }
    text[length] = '\0';
    return text;
}

static bool wide_matches(const wchar_t *name)
{
    char text[MOST_BYTES];

    return name && ag_marks_is_iteration(to_utf8(name, text));
}

/* Does the message of a range or a mark match? */
static bool event_matches(const struct ag_nvtx_event *event)
{
    if (!event || event->size < sizeof(*event))
        return false;
    switch (event->message_type) {
    case AG_NVTX_MESSAGE_ASCII:
        return ag_marks_is_iteration(event->message.ascii);
    case AG_NVTX_MESSAGE_UNICODE:
        return wide_matches(event->message.unicode);
    case AG_NVTX_MESSAGE_REGISTERED:
        return event->message.registered == &strings[1];
    default:
        return false;
    }
}

/* A range or mark was met; NULL is the default domain. */
static void met(const void *domain, bool matches)
{
    if (!matches || !(domain ? domain == &domains[1] : ag_marks_is_domain("")))
        return;
    ag_stats_add(AG_STAT_REPLAY_MARKS, 1);
    ag_marks_iteration();
}

/* ---- what NVTX calls ----------------------------------------------------------------------- */

static void mark_ex(const struct ag_nvtx_event *event)
{
    met(NULL, event_matches(event));
}

static void mark_a(const char *name)
{
    met(NULL, ag_marks_is_iteration(name));
}

static void mark_w(const wchar_t *name)
{
    met(NULL, wide_matches(name));
}

static uint64_t start_ex(const struct ag_nvtx_event *event)
{
    mark_ex(event);
    return 0;
}

static uint64_t start_a(const char *name)
{
    mark_a(name);
    return 0;
}

static uint64_t start_w(const wchar_t *name)
{
    mark_w(name);
    return 0;
}

static int push_ex(const struct ag_nvtx_event *event)
{
    mark_ex(event);
    return AG_NVTX_NO_TRACKING;
}

static int push_a(const char *name)
{
    mark_a(name);
    return AG_NVTX_NO_TRACKING;
}

static int push_w(const wchar_t *name)
{
    mark_w(name);
    return AG_NVTX_NO_TRACKING;
}

static void domain_mark(const void *domain, const struct ag_nvtx_event *event)
{
    met(domain, event_matches(event));
}

static uint64_t domain_start(const void *domain, const struct ag_nvtx_event *event)
{
    domain_mark(domain, event);
    return 0;
}

static int domain_push(const void *domain, const struct ag_nvtx_event *event)
{
    domain_mark(domain, event);
    return AG_NVTX_NO_TRACKING;
}

static const void *register_a(const void *domain, const char *name)
{
    (void)domain;
    return &strings[ag_marks_is_iteration(name)];
}

static const void *register_w(const void *domain, const wchar_t *name)
{
    (void)domain;
    return &strings[wide_matches(name)];
}

static const void *create_a(const char *name)
{
    return &domains[ag_marks_is_domain(name)];
}

static const void *create_w(const wchar_t *name)
{
    char text[MOST_BYTES];

    return &domains[ag_marks_is_domain(to_utf8(name, text))];
}

static void name_stream_a(CUstream stream, const char *name)
{
    ag_marks_name(stream, name);
}

static void name_stream_w(CUstream stream, const wchar_t *name)
{
    char text[MOST_BYTES];

    ag_marks_name(stream, name ? to_utf8(name, text) : NULL);
}

/* Names a stream; of other resources nothing is noted. */
static const void *create_resource(const void *domain, const struct ag_nvtx_resource *resource)
{
    (void)domain;
    if (!resource || resource->size < sizeof(*resource) ||
        (resource->type != AG_NVTX_RESOURCE_CU_STREAM &&
         resource->type != AG_NVTX_RESOURCE_CUDA_STREAM))
        return NULL;
    if (resource->message_type == AG_NVTX_MESSAGE_ASCII)
        name_stream_a((CUstream)resource->identifier, resource->message.ascii);
    else if (resource->message_type == AG_NVTX_MESSAGE_UNICODE)
        name_stream_w((CUstream)resource->identifier, resource->message.unicode);
    return NULL;
}

/* ---- the injection ------------------------------------------------------------------------- */

static const struct {
    enum ag_nvtx_module module;
    unsigned place;
    bool is_name; /* for names of streams; else for ranges */
    ag_nvtx_function function;
} ours[] = {
#define OURS(module, place, is_name, function) \
    {AG_NVTX_##module, AG_NVTX_##place, is_name, (ag_nvtx_function)(function)}
    OURS(CORE, MARK_EX, false, mark_ex),
    OURS(CORE, MARK_A, false, mark_a),
    OURS(CORE, MARK_W, false, mark_w),
    OURS(CORE, RANGE_START_EX, false, start_ex),
    OURS(CORE, RANGE_START_A, false, start_a),
    OURS(CORE, RANGE_START_W, false, start_w),
    OURS(CORE, RANGE_PUSH_EX, false, push_ex),
    OURS(CORE, RANGE_PUSH_A, false, push_a),
    OURS(CORE, RANGE_PUSH_W, false, push_w),
    OURS(CORE2, DOMAIN_MARK_EX, false, domain_mark),
    OURS(CORE2, DOMAIN_RANGE_START_EX, false, domain_start),
    OURS(CORE2, DOMAIN_RANGE_PUSH_EX, false, domain_push),
    OURS(CORE2, DOMAIN_REGISTER_STRING_A, false, register_a),
    OURS(CORE2, DOMAIN_REGISTER_STRING_W, false, register_w),
    OURS(CORE2, DOMAIN_CREATE_A, false, create_a),
    OURS(CORE2, DOMAIN_CREATE_W, false, create_w),
    OURS(CORE2, DOMAIN_RESOURCE_CREATE, true, create_resource),
    OURS(CUDA, NAME_CU_STREAM_A, true, name_stream_a),
    OURS(CUDA, NAME_CU_STREAM_W, true, name_stream_w),
    OURS(CUDART, NAME_CUDA_STREAM_A, true, name_stream_a),
    OURS(CUDART, NAME_CUDA_STREAM_W, true, name_stream_w),
#undef OURS
};

/* Fills in what the settings need. A module that this NVTX has not, or a table that ends before, is
 * left alone. */
static void attach(const struct ag_nvtx_callbacks *callbacks)
{
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        ag_nvtx_function **table = NULL;
        unsigned size = 0;

        if (!(ours[i].is_name ? ag_marks_by_name() : ag_marks_by_range()))
            continue;
        if (callbacks->get_table(ours[i].module, &table, &size) && table && ours[i].place < size &&
            table[ours[i].place])
            *table[ours[i].place] = ours[i].function;
    }
}

int InitializeInjectionNvtx2(ag_nvtx_get_export *get_export)
{
    const struct ag_nvtx_callbacks *callbacks =
        get_export ? get_export(AG_NVTX_EXPORT_CALLBACKS) : NULL;

    /* NVTX may be told to open us in a process where we are not preloaded, a child perhaps. */
    if (!ag_is_preloaded())
        return 0;
    ag_lifecycle_know_marks();
    if (!callbacks || callbacks->struct_size < sizeof(*callbacks) || !callbacks->get_table ||
        (!ag_marks_by_name() && !ag_marks_by_range()))
        return 0;
    attach(callbacks);
    return 1;
}
