/* Marks of streams and of iterations: see marks.h.
 *
 * Of the names that NVTX gives to streams, only those count that a word `name:GLOB` matches. Their
 * streams are kept in a table of fixed size, so that naming needs no memory. Streams that find no
 * room stay unmarked, which is always allowed. */
#include "graph/learn/marks.h"

#include <string.h>

#include "interpose/core/base/threads/lock.h"
#include "interpose/core/settings/rules.h"

#define MOST_NAMED 1024u

static struct {
    struct ag_stream_words words;
    struct ag_iteration iteration;
    bool by_name;
    struct ag_lock lock; /* guards the two below */
    uint32_t n_named;
    CUstream named[MOST_NAMED];
} marks = {.lock = AG_LOCK_INIT(AG_RANK_MARKS)};

_Atomic uint32_t ag_marks_changes;
_Thread_local bool ag_marks_met;

static bool same_stream_words(const struct ag_stream_words *a, const struct ag_stream_words *b)
{
    bool same = a->n == b->n;

    for (unsigned i = 0; same && i < a->n; i++)
        same = a->word[i].kind == b->word[i].kind && a->word[i].number == b->word[i].number &&
               !strcmp(a->word[i].name, b->word[i].name);
    return same;
}

static bool same_iteration(const struct ag_iteration *iteration)
{
    return marks.iteration.kind == iteration->kind &&
           !strcmp(marks.iteration.name, iteration->name) &&
           !strcmp(marks.iteration.domain, iteration->domain);
}

void ag_marks_configure(const struct ag_options *options)
{
    struct ag_stream_words words = options->graph;

    if (options->disable)
        words.n = 0;
    /* The second time, when NVTX may be calling already, nothing is written. */
    if (same_stream_words(&marks.words, &words) && same_iteration(&options->graph_iteration))
        return;
    marks.words = words;
    marks.iteration = options->graph_iteration;
    marks.by_name = false;
    for (unsigned i = 0; i < marks.words.n; i++)
        marks.by_name = marks.by_name || marks.words.word[i].kind == AG_STREAMS_NAME;
}

bool ag_marks_any(void)
{
    return marks.words.n > 0;
}

bool ag_marks_by_name(void)
{
    return marks.by_name;
}

bool ag_marks_by_range(void)
{
    return marks.words.n && marks.iteration.kind == AG_ITERATION_NVTX;
}

/* ---- streams ------------------------------------------------------------------------------- */

/* The place of a named stream that counts, or n_named. With the lock held. */
static uint32_t find_named(CUstream stream)
{
    uint32_t i = 0;

    while (i < marks.n_named && marks.named[i] != stream)
        i++;
    return i;
}

static bool is_stream_named(CUstream stream)
{
    bool named;

    ag_lock_take(&marks.lock);
    named = find_named(stream) < marks.n_named;
    ag_lock_release(&marks.lock);
    return named;
}

static bool word_means(const struct ag_stream_word *word, const struct ag_stream_facts *facts)
{
    switch (word->kind) {
    case AG_STREAMS_ALL:
        return true;
    case AG_STREAMS_LEGACY:
        return facts->handle == CU_STREAM_LEGACY;
    case AG_STREAMS_PER_THREAD:
        return facts->handle == CU_STREAM_PER_THREAD;
    case AG_STREAMS_NONBLOCKING:
        return facts->nonblocking;
    case AG_STREAMS_PRIORITY:
        return facts->priority == word->number;
    case AG_STREAMS_NTH:
        return facts->number && facts->number == (uint64_t)word->number;
    case AG_STREAMS_NAME:
        return is_stream_named(facts->handle);
    }
    return false;
}

bool ag_marks_stream(const struct ag_stream_facts *facts)
{
    for (unsigned i = 0; i < marks.words.n; i++) {
        if (word_means(&marks.words.word[i], facts))
            return true;
    }
    return false;
}

static bool name_counts(const char *name)
{
    for (unsigned i = 0; name && i < marks.words.n; i++) {
        const struct ag_stream_word *word = &marks.words.word[i];

        if (word->kind == AG_STREAMS_NAME && ag_glob_match(word->name, name))
            return true;
    }
    return false;
}

void ag_marks_name(CUstream stream, const char *name)
{
    bool counts = name_counts(name), changed = false;
    uint32_t i;

    if (!marks.by_name)
        return;
    if (!stream) /* as CUDA's runtime calls the legacy stream */
        stream = CU_STREAM_LEGACY;
    ag_lock_take(&marks.lock);
    i = find_named(stream);
    if (counts && i == marks.n_named && i < MOST_NAMED) {
        marks.named[marks.n_named++] = stream;
        changed = true;
    } else if (!counts && i < marks.n_named) {
        marks.named[i] = marks.named[--marks.n_named];
        changed = true;
    }
    ag_lock_release(&marks.lock);
    if (changed)
        atomic_fetch_add_explicit(&ag_marks_changes, 1, memory_order_release);
}

/* ---- iterations ---------------------------------------------------------------------------- */

bool ag_marks_is_iteration(const char *name)
{
    return name && ag_marks_by_range() && ag_glob_match(marks.iteration.name, name);
}

bool ag_marks_is_domain(const char *domain)
{
    return ag_marks_by_range() && ag_glob_match(marks.iteration.domain, domain ? domain : "");
}

void ag_marks_iteration(void)
{
    ag_marks_met = true;
}

bool ag_marks_take_iteration(void)
{
    bool met = ag_marks_met;

    ag_marks_met = false;
    return met;
}

void ag_marks_begin_child(void)
{
    ag_lock_init(&marks.lock, AG_RANK_MARKS);
    ag_marks_met = false;
}
