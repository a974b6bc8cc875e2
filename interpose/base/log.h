/* Lines for the user on stderr, each prefixed "allograft: "; quiet unless something is wrong. */
#ifndef AG_BASE_LOG_H
#define AG_BASE_LOG_H

#include <stdbool.h>

enum ag_log_level { AG_LOG_OFF, AG_LOG_ERROR, AG_LOG_WARN, AG_LOG_INFO, AG_LOG_DEBUG };

/* Lines above this level are dropped. Set once, before other threads log. */
void ag_log_set_level(enum ag_log_level level);
/* Remembers what stderr is now. */
void ag_log_bind(void);
/* Is stderr still that, or was it never bound? A program may have closed it and given its number to a
 * file of its own. */
bool ag_log_stderr_is_ours(void);
/* One line, at most 1 KiB, in a single write(2); keeps errno; async-signal-safe but for formatting. */
void ag_log(enum ag_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define ag_log_error(...) ag_log(AG_LOG_ERROR, __VA_ARGS__)
#define ag_log_warn(...) ag_log(AG_LOG_WARN, __VA_ARGS__)
#define ag_log_info(...) ag_log(AG_LOG_INFO, __VA_ARGS__)
#define ag_log_debug(...) ag_log(AG_LOG_DEBUG, __VA_ARGS__)

#endif
