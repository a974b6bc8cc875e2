/* Settings from ALLOGRAFT_* variables and the file that one of them names: one row each in
 * options.def. Knows no CUDA. */
#ifndef AG_OPTIONS_H
#define AG_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/core/base/log.h"
#include "interpose/core/settings/replay_words.h"
#include "interpose/core/settings/rules.h"

enum ag_free_mode { AG_FREE_AUTO, AG_FREE_ORDERED, AG_FREE_SYNC };
enum ag_oom { AG_OOM_ERROR, AG_OOM_SPILL, AG_OOM_PAGE };
/* What follows the first sticky error: a note in the report, a line at once, the end. */
enum ag_on_error { AG_ON_ERROR_NOTE, AG_ON_ERROR_REPORT, AG_ON_ERROR_EXIT };
#define AG_ON_ERROR_STATUS 70 /* the exit status of the latter */
enum ag_copy { AG_COPY_BY_DRIVER, AG_COPY_BY_CREW };
enum ag_wait_mode { AG_WAIT_MODE_NATIVE, AG_WAIT_MODE_SLEEP, AG_WAIT_MODE_AUTO };
enum ag_guard { AG_GUARD_OFF, AG_GUARD_POISON, AG_GUARD_CANARY, AG_GUARD_PAGE };

struct ag_size {
    uint64_t value; /* bytes, or a percentage of the memory; UINT64_MAX for no bound */
    bool percent;
};

#define AG_TEXT_MAX 2048 /* with its NUL: a copy, since programs write over their environment */

typedef enum ag_policy ag_type_POLICY;
typedef enum ag_free_mode ag_type_FREE_MODE;
typedef enum ag_log_level ag_type_LOG_LEVEL;
typedef enum ag_managed_backend ag_type_MANAGED_BACKEND;
typedef struct ag_prefer ag_type_PREFER;
typedef enum ag_access ag_type_ACCESS;
typedef enum ag_prefetch ag_type_PREFETCH;
typedef enum ag_oom ag_type_OOM;
typedef enum ag_copy ag_type_COPY;
typedef enum ag_host_mode ag_type_HOST_MODE;
typedef enum ag_guard ag_type_GUARD;
typedef enum ag_on_error ag_type_ON_ERROR;
typedef enum ag_wait_mode ag_type_WAIT_MODE;
typedef bool ag_type_SWITCH;
typedef struct ag_size ag_type_SIZE;
typedef struct {
    char text[AG_TEXT_MAX];
} ag_type_TEXT;
typedef struct {
    char text[AG_TEXT_MAX]; /* "" for off */
} ag_type_PATH;
typedef struct ag_rules ag_type_RULES;
typedef struct ag_stream_words ag_type_STREAMS;
typedef struct ag_iteration ag_type_ITERATION;
typedef struct ag_segment_length ag_type_SEGMENT;
typedef uint32_t ag_type_COUNT;
typedef uint32_t ag_type_WORD_OR_COUNT; /* 0 for the word */
typedef uint64_t ag_type_BYTES;
typedef uint64_t ag_type_WORD_OR_BYTES; /* 0 for the word */

enum ag_option_row {
#define AG_OPTION(field, name, type, preset, allowed, help) AG_OPTION_##name,
#include "interpose/core/settings/options.def"
    AG_N_OPTIONS
};

enum ag_origin_kind { AG_ORIGIN_DEFAULT, AG_ORIGIN_FILE, AG_ORIGIN_ENVIRONMENT };

/* Where a value comes from, and its text. */
struct ag_origin {
    enum ag_origin_kind kind;
    unsigned line; /* of the file; the first, where several are joined */
    unsigned text; /* where in `texts` the value begins */
};

/* The effective settings. */
struct ag_options {
#define AG_OPTION(field, name, type, preset, allowed, help) ag_type_##type field;
#include "interpose/core/settings/options.def"
    struct ag_origin origins[AG_N_OPTIONS];
    unsigned texts_used;
    char texts[16384]; /* of values that are no defaults; what is too much is cut */
    char rules_text[8192];
};

struct ag_option_info {
    const char *name;         /* with its ALLOGRAFT_ prefix */
    const char *type;         /* as in options.def */
    const char *default_text; /* the value when the variable is not set */
    const char *allowed;
    const char *help;
};

size_t ag_options_count(void);
/* Row i < ag_options_count(), of static memory. */
const struct ag_option_info *ag_option_info(size_t i);

/* Is `value` allowed for the variable `name`? 0; -ENOENT for no such name (`why` names the nearest
 * one), -EINVAL for a bad value (`why`: variable, value and what is allowed). `why` is one line
 * without newline, cut at why_size. */
int ag_option_check(const char *name, const char *value, char *why, size_t why_size);

typedef void ag_options_tell(enum ag_log_level level, const char *line);

/* Reads the file that ALLOGRAFT_CONFIG names, then every variable of `environment` ("NAME=value"
 * strings, NULL-terminated; of two of one name the first), which goes before the file. `tell` gets
 * one line for each unknown variable (level WARN), bad value and bad line of the file (ERROR).
 * Returns 0, or -EINVAL when anything was bad; *ret_options then holds a default in its place. Not
 * for two threads at once. */
int ag_options_read(char **environment, struct ag_options *ret_options, ag_options_tell *tell);

/* Reads the settings for a process that the library is loaded into: the log, which has the level
 * that is set from then on, tells. */
int ag_options_read_own(char **environment, struct ag_options *ret_options);

/* Reads settings from a file's text only, which is written into and has a NUL after its `length`
 * bytes. `name` is the file's, for what is told: "NAME:LINE: column N: ...". */
int ag_options_read_text(const char *name, char *text, size_t length,
                         struct ag_options *ret_options, ag_options_tell *tell);

/* The text of row i's value in force. */
const char *ag_option_value(const struct ag_options *options, size_t i);
/* Where it comes from: "default", "environment", or the file and line, "FILE:LINE"; returns buffer.
 */
const char *ag_option_origin(const struct ag_options *options, size_t i, char *buffer, size_t size);

/* Does a setting or a rule need launches to be watched? */
bool ag_options_watch_launches(const struct ag_options *options);
/* Do the settings need NVTX: a stream's name, a range or a mark? */
bool ag_options_ask_for_nvtx(const struct ag_options *options);

/* Does ALLOGRAFT_DISABLE of `environment` say so? The one setting that look-ups ask for before the
 * settings are read. Reads no file, and changes nothing. A bad value counts as none. */
bool ag_options_are_disabled(char **environment);

/* ALLOGRAFT_LOG of `environment`, or its default: known before anything is told about the others.
 */
enum ag_log_level ag_options_log_level(char **environment);

/* The text a row's variable has in `environment`, or NULL. */
const char *ag_option_text(char **environment, size_t i);

/* Bytes that `size` means on a device with total_bytes. */
uint64_t ag_size_bytes(struct ag_size size, uint64_t total_bytes);

#endif
