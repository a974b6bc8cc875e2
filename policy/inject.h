/* Which rule decides a call of the program that takes memory, and whether it fails the call (the
 * action `fail`), so that the program meets the driver's error where somebody wants to see it do
 * so. Calls of our own to the driver are never failed. */
#ifndef AG_POLICY_INJECT_H
#define AG_POLICY_INJECT_H

#include <stdbool.h>
#include <stddef.h>

#include "interpose/core/driver/abi.h"
#include "interpose/core/settings/rules.h"

struct ag_context;

struct ag_choice {
    int rule;   /* -1: none */
    bool fails; /* the call */
};

/* NULL for no rules; else they must stay. Before the first call. */
void ag_inject_configure(const struct ag_rules *rules);
/* A forked child counts its own calls. */
void ag_inject_begin_child(void);

/* Does any rule fail calls of that kind? */
bool ag_inject_any(enum ag_call call);

/* The rule that decides the call, which it counts. `device`: the ordinal, or -1. `exporter`: as in
 * struct ag_asked. Only where there are rules. */
struct ag_choice ag_inject_choose(enum ag_call call, size_t bytes, int device, bool exporter,
                                  const void *caller);

/* What a call returns that is to fail: CUDA_ERROR_OUT_OF_MEMORY, unless an earlier error of the
 * device makes every call in `context`, which may be NULL, fail otherwise. */
CUresult ag_inject_error(struct ag_context *context);

/* The error of a call that no other action concerns, and whose parameters the driver would take;
 * CUDA_SUCCESS: the driver is to be called. `device`: as above; the current context's is taken
 * where there is none. `caller`: the return address of the hook. */
CUresult ag_inject(enum ag_call call, size_t bytes, int device, const void *caller);
/* ag_inject(), and *ret_rule: the rule that decides what becomes of pinned memory, or -1. */
CUresult ag_inject_deciding(enum ag_call call, size_t bytes, int device, const void *caller,
                            int *ret_rule);

#endif
