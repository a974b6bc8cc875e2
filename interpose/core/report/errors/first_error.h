/* The first sticky error: one after which every call in its context fails, so that what the program
 * computes from there on means nothing. Knows no CUDA but these numbers. */
#ifndef AG_FIRST_ERROR_H
#define AG_FIRST_ERROR_H

#include <stdbool.h>

#include "interpose/core/base/text.h"
#include "interpose/core/report/emitter.h"
#include "interpose/core/report/stats.h"

/* The name of a sticky error; NULL for every other result of a call. */
const char *ag_first_error_name(int code);
/* A call of the program's returned that sticky error. The row to describe for the first one of the
 * process, else NULL: what was launched, and then, that it is complete. */
struct ag_first_error *ag_first_error_note(int code, const char *call);
void ag_first_error_complete(struct ag_first_error *first);

/* A line without an end: "cuMemFree_v2 returned 700 (...) in thread 1, 2 s after the start". ""
 * where there was none. */
const char *ag_first_error_text(const struct ag_stats *stats, char *buffer, size_t size);
/* Lines on what was launched before it, or why that is not known. */
void ag_first_error_launched_text(struct ag_text *text, const struct ag_stats *stats);
/* "fill", "graph 0x55d0", "function 0x55d0". */
const char *ag_launched_name(const struct ag_launched *launched, char *buffer, size_t size);
/* "the default stream", "stream 0x55d0". */
const char *ag_launched_stream(const struct ag_launched *launched, char *buffer, size_t size);
#define AG_LAUNCHES_UNSEEN_TEXT                                                                 \
    "what was launched before it went straight to the driver, unseen; with ALLOGRAFT_ON_ERROR=" \
    "report it is listed here"
/* A member `first_error` of the object that is open, where there was one. */
void ag_first_error_json(struct ag_emitter *json, const struct ag_stats *stats);

#endif
