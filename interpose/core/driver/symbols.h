/* The hooked driver symbols by number, name and address: derived from hooks.def. */
#ifndef AG_SYMBOLS_H
#define AG_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Is this the driver's symbol, which has five characters at least? Thousands of such questions are
 * asked at each start, and most names differ early. */
static inline bool ag_symbol_is(const char *name, const char *symbol)
{
    return name[0] == symbol[0] && name[1] == symbol[1] && name[2] == symbol[2] &&
           name[3] == symbol[3] && name[4] == symbol[4] && !strcmp(name, symbol);
}

enum ag_hook {
#define AG_HOOK(base, symbol, since, flavour, need, flush) AG_HOOK_##symbol,
#include "interpose/core/driver/hooks.def"
    AG_N_HOOKS
};

enum ag_flavour { AG_FLAVOUR_NONE, AG_FLAVOUR_LEGACY, AG_FLAVOUR_PTSZ, AG_FLAVOUR_PTDS };

/* Which settings a hook is for. */
enum ag_when {
    AG_WHEN_ALWAYS = 1,
    AG_WHEN_LAUNCHES = 2, /* launches are watched, or may need memory that is kept, or a fence */
    AG_WHEN_ORDERED = 4,  /* frees need not wait */
    AG_WHEN_WATCHED = 8,  /* streams are watched */
    AG_WHEN_GRAPH = 16,   /* streams are replayed */
    AG_WHEN_WAITS = 32,   /* calls are timed that can wait */
    AG_WHEN_COPIES = 64,  /* pageable memory may be copied by threads of ours */
    AG_WHEN_SLEEPS = 128, /* waits sleep */
    AG_WHEN_HOST = 256,   /* freed pinned memory is kept */
    AG_WHEN_PAGED = 512,  /* memory may lie on the host, and move */
    AG_WHEN_EARLY = AG_WHEN_LAUNCHES | AG_WHEN_ORDERED,
    AG_WHEN_WORK = AG_WHEN_WATCHED | AG_WHEN_GRAPH | AG_WHEN_PAGED,
    AG_WHEN_WORK_OR_WAITS = AG_WHEN_WORK | AG_WHEN_WAITS,
    AG_WHEN_UNREGISTERS = AG_WHEN_WORK_OR_WAITS | AG_WHEN_HOST,
    AG_WHEN_COPIED = AG_WHEN_WORK_OR_WAITS | AG_WHEN_COPIES,
    AG_WHEN_COPY_WAITS = AG_WHEN_COPIED | AG_WHEN_SLEEPS,
    AG_WHEN_GRAPH_OR_WAITS = AG_WHEN_GRAPH | AG_WHEN_WAITS | AG_WHEN_SLEEPS,
};

struct ag_hook_info {
    const char *base, *symbol;
    enum ag_flavour flavour;
    enum ag_when when;
};

const struct ag_hook_info *ag_hook_info(enum ag_hook hook);

/* The hook of the exported symbol `name`, or AG_N_HOOKS. Lock-free, allocates nothing: safe inside
 * dlsym. */
enum ag_hook ag_hook_by_name(const char *name);

/* Fills the table of ag_hook_by_address from the driver's pointers; once, at start. */
void ag_symbols_index(void);
/* The hook whose real symbol lies at `address`; where two hooks share an address, the one of that
 * flavour. AG_N_HOOKS when it is none of ours. */
enum ag_hook ag_hook_by_address(const void *address, bool per_thread);
/* Some hook of the base name, of whatever version, or AG_N_HOOKS. */
enum ag_hook ag_hook_by_base(const char *base);

#endif
