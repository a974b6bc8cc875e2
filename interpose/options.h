/* Settings from ALLOGRAFT_* variables: one row each in options.def. Knows no CUDA. */
#ifndef AG_OPTIONS_H
#define AG_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "rules.h"

enum ag_free_mode { AG_FREE_AUTO, AG_FREE_ORDERED, AG_FREE_SYNC };
enum ag_oom { AG_OOM_ERROR, AG_OOM_SPILL };

struct ag_size {
    uint64_t value; /* bytes, or a percentage of the device's memory; UINT64_MAX for no bound */
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
typedef bool ag_type_SWITCH;
typedef struct ag_size ag_type_SIZE;
typedef struct {
    char text[AG_TEXT_MAX];
} ag_type_TEXT;

/* The effective settings. */
struct ag_options {
#define AG_OPTION(field, name, type, preset, allowed, help) ag_type_##type field;
#include "options.def"
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

/* Reads every variable of `environment` ("NAME=value" strings, NULL-terminated). `tell` gets one line for each unknown name (level WARN) and bad value (ERROR). Returns 0,
 * or -EINVAL when a value was bad; *ret_options then holds the default in its place. */
int ag_options_read(char **environment, struct ag_options *ret_options,
                    void (*tell)(enum ag_log_level level, const char *line));

/* ALLOGRAFT_LOG of `environment`, or its default: known before anything is told about the others. */
enum ag_log_level ag_options_log_level(char **environment);

/* The text a row's variable has in `environment`, or NULL. */
const char *ag_option_text(char **environment, size_t i);

/* Bytes that `size` means on a device with total_bytes. */
uint64_t ag_size_bytes(struct ag_size size, uint64_t total_bytes);

#endif
