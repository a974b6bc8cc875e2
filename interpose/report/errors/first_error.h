/* The first sticky error: one after which every call in its context fails, so that what the program
 * computes from there on means nothing. Knows no CUDA but these numbers. */
#ifndef AG_FIRST_ERROR_H
#define AG_FIRST_ERROR_H

#include <stdbool.h>

#include "interpose/base/text.h"
#include "interpose/report/emitter.h"
#include "interpose/report/stats.h"

/* The name of a sticky error; NULL for every other result of a call. */
const char *ag_first_error_name(int code);
/* A call of the program's returned that sticky error. True for the first one of the process. */
bool ag_first_error_note(int code, const char *call);

/* A line without an end: "cuMemFree_v2 returned 700 (...) in thread 1, 2 s after the start". ""
 * where there was none. */
const char *ag_first_error_text(const struct ag_stats *stats, char *buffer, size_t size);
/* A member `first_error` of the object that is open, where there was one. */
void ag_first_error_json(struct ag_emitter *json, const struct ag_stats *stats);

#endif
