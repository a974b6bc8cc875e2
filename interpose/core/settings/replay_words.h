/* The values of the settings of replay: which streams, where iterations begin, how long a segment
 * is. Pure; knows no CUDA. */
#ifndef AG_REPLAY_WORDS_H
#define AG_REPLAY_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/core/settings/rules.h"

#define AG_MAX_STREAM_WORDS 16u
/* What a STREAM of ALLOGRAFT_GRAPH may be. */
#define AG_STREAM_WORDS "all|legacy|per-thread|nonblocking|priority:N|nth:K|name:GLOB"

enum ag_stream_word_kind {
    AG_STREAMS_ALL,
    AG_STREAMS_LEGACY,
    AG_STREAMS_PER_THREAD,
    AG_STREAMS_NONBLOCKING,
    AG_STREAMS_PRIORITY,
    AG_STREAMS_NTH,
    AG_STREAMS_NAME,
};

struct ag_stream_word {
    enum ag_stream_word_kind kind;
    int64_t number;         /* priority, or n-th */
    char name[AG_GLOB_MAX]; /* a glob */
};

/* A stream is meant when one of the words means it. */
struct ag_stream_words {
    unsigned n; /* 0: off */
    struct ag_stream_word word[AG_MAX_STREAM_WORDS];
};

enum ag_iteration_kind { AG_ITERATION_AUTO, AG_ITERATION_SYNC, AG_ITERATION_NVTX };

struct ag_iteration {
    enum ag_iteration_kind kind;
    char name[AG_GLOB_MAX];   /* a glob, of a range or mark */
    char domain[AG_GLOB_MAX]; /* a glob; "" means the default domain, "*" any */
};

enum ag_segment_kind { AG_SEGMENT_GROWING, AG_SEGMENT_FIXED };

#define AG_SEGMENT_SHORTEST 4u
#define AG_SEGMENT_LONGEST  4096u

struct ag_segment_length {
    enum ag_segment_kind kind;
    uint32_t n; /* of FIXED, else 0 */
};

/* All return 0, or -EINVAL with *ret untouched. */

/* "off" or "", or words separated by commas. On failure `why` is one line that names the column
 * (counted from `first_column`), what stands there and what is allowed, cut at why_size. */
int ag_stream_words_parse(const char *text, size_t first_column, struct ag_stream_words *ret,
                          char *why, size_t why_size);
/* "auto", "sync", "nvtx:NAME" or "nvtx:NAME@DOMAIN" (the last @ counts); without a domain any. */
int ag_iteration_parse(const char *text, struct ag_iteration *ret);
/* "growing", or a number of operations. */
int ag_segment_parse(const char *text, struct ag_segment_length *ret);

/* A whole number without sign, of decimal digits only; false when it is none or does not fit. */
bool ag_number_parse(const char *text, uint64_t *ret);
/* A number of "FIRST..LAST", whose ends may be sizes ("4KiB..64MiB") when `sizes`: then the number
 * may be one too. 0 or -EINVAL. */
int ag_number_in_range_parse(const char *text, const char *range, bool sizes, uint64_t *ret);

#endif
