/* Lines for the user on stderr, each with the prefix "allograft: ". Silent unless something is
 * wrong. */
#ifndef AG_BASE_LOG_H
#define AG_BASE_LOG_H

#include <stdbool.h>

enum ag_log_level { AG_LOG_OFF, AG_LOG_ERROR, AG_LOG_WARN, AG_LOG_INFO, AG_LOG_DEBUG };

/* Lines above this level are dropped. Set once, before other threads log. */
void ag_log_set_level(enum ag_log_level level);
/* Are lines of that level shown? */
bool ag_log_shows(enum ag_log_level level);
/* How long a pipe or terminal that is full may keep a line, or a report, waiting. */
#define AG_LOG_TIMEOUT_MS 2000
/* Remembers what stderr is now: as the process begins, before the program can open a file. */
void ag_log_bind(void);
/* Why nothing may be written to descriptor 2, or NULL: it is no longer the file that it was then. A
 * program's file of data may have its number; and what a program put there in its place we cannot
 * tell from that. NULL too where nothing was bound. */
const char *ag_log_stderr_trouble(void);
/* A descriptor for lines while there is such trouble, if it is of the file that stderr was; -1:
 * none. It stays the caller's. */
void ag_log_borrow(int fd);
/* One line, at most 1 KiB, in a single write(2); keeps errno; async-signal-safe but for formatting.
 * A line that nobody takes is dropped. */
void ag_log(enum ag_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define ag_log_error(...) ag_log(AG_LOG_ERROR, __VA_ARGS__)
#define ag_log_warn(...)  ag_log(AG_LOG_WARN, __VA_ARGS__)
#define ag_log_info(...)  ag_log(AG_LOG_INFO, __VA_ARGS__)
#define ag_log_debug(...) ag_log(AG_LOG_DEBUG, __VA_ARGS__)

#endif
