/* The request parameters of an allocation (where it is to come from, how managed memory is to
 * behave), and the rules that set them, or that fail it. Pure; knows no CUDA.
 *
 *     ALLOGRAFT_RULES="size>=1GiB:managed,prefer=host,access=device; from=libnccl*:native; *:pool"
 *
 * Rules are separated by ';', a rule is CONDITION[,CONDITION...]:ACTION[,ACTION...]. The first rule
 * whose conditions all hold decides. What it leaves open, the settings of the process decide. */
#ifndef AG_RULES_H
#define AG_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interpose/core/settings/fail.h"

enum ag_policy { AG_POLICY_AUTO, AG_POLICY_POOL, AG_POLICY_NATIVE, AG_POLICY_MANAGED };
enum ag_managed_backend { AG_MANAGED_AUTO, AG_MANAGED_PLAIN, AG_MANAGED_POOL };
enum ag_prefer_kind { AG_PREFER_DEVICE, AG_PREFER_HOST, AG_PREFER_NUMA, AG_PREFER_NONE };
enum ag_access { AG_ACCESS_DEVICE, AG_ACCESS_PEERS, AG_ACCESS_NONE };
enum ag_prefetch { AG_PREFETCH_ALLOC, AG_PREFETCH_LAUNCH, AG_PREFETCH_OFF };
enum ag_host_mode { AG_HOST_NATIVE, AG_HOST_CACHE, AG_HOST_FAST };

/* Where managed memory had best lie. */
struct ag_prefer {
    enum ag_prefer_kind kind;
    unsigned node; /* of NUMA, else 0 */
};

/* What the program's own cudaMallocAsync gives. */
enum ag_async {
    AG_ASYNC_PASS,
    AG_ASYNC_MANAGED, /* memory of a managed pool */
    AG_ASYNC_PAGE,    /* what cudaMalloc gives under ALLOGRAFT_OOM=page */
};

/* Where an allocation is to come from, how managed memory is to behave, and what becomes of pinned
 * memory that is freed. */
struct ag_request_params {
    enum ag_policy policy;
    enum ag_managed_backend backend;
    struct ag_prefer prefer;
    enum ag_access access;
    enum ag_prefetch prefetch;
    bool read_mostly;
    enum ag_async async;
    enum ag_host_mode host;
};

/* Calls of the program that take memory. */
enum ag_call {
    AG_CALL_DEVICE,  /* cuMemAlloc, cuMemAllocPitch: what all actions apply to */
    AG_CALL_ASYNC,   /* cuMemAllocAsync, cuMemAllocFromPoolAsync */
    AG_CALL_MANAGED, /* cuMemAllocManaged */
    AG_CALL_VIRTUAL, /* cuMemCreate */
    AG_CALL_HOST,    /* cuMemAllocHost, cuMemHostAlloc, cuMemHostRegister */
    AG_CALL_POOL,    /* cuMemPoolCreate: has no size */
    AG_CALL_GRAPH,   /* cuGraphInstantiate and its variants: has no size */
    AG_N_CALLS
};

#define AG_CALLS_OF_MEMORY                                                \
    (1u << AG_CALL_DEVICE | 1u << AG_CALL_ASYNC | 1u << AG_CALL_MANAGED | \
     1u << AG_CALL_VIRTUAL) /* of rules that name none, and say more than host= */
#define AG_CALLS_WITHOUT_SIZE (1u << AG_CALL_POOL | 1u << AG_CALL_GRAPH)

/* Facts of one allocating call. Facts that no rule asks for (ag_rules.needs) may be left out. */
struct ag_asked {
    enum ag_call call;
    size_t bytes;       /* 0 where the call has no size */
    int device;         /* ordinal; -1: of the host, or not known */
    uint64_t nth;       /* 1 for the first such call of the process */
    const char *module; /* file name of the calling library or program, without folder; or NULL */
    const char *thread; /* the calling thread's name, or NULL */
    /* The caller hands memory to other processes or devices: only rules with from= apply to it. */
    bool exporter;
};

#define AG_MAX_RULES 64u
#define AG_GLOB_MAX  64u

enum ag_rule_needs { AG_NEED_MODULE = 1, AG_NEED_THREAD = 2, AG_NEED_NTH = 4 };

struct ag_range {
    uint64_t first, last; /* both inclusive */
};

struct ag_rule {
    struct ag_range size, nth;
    int device;                      /* -1: any */
    unsigned calls;                  /* 1 << enum ag_call; with host=, that of AG_CALL_HOST */
    char from[AG_GLOB_MAX];          /* "" : any */
    char thread[AG_GLOB_MAX];        /* "" : any */
    struct ag_request_params params; /* what it says, where `says` has the bit */
    struct ag_fail fail;             /* where it says so */
    unsigned says;                   /* 1 << enum ag_says */
    char text[128]; /* the rule as written, blanks at the ends cut, cut at 127 bytes */
};

enum ag_says {
    AG_SAYS_POLICY,
    AG_SAYS_BACKEND,
    AG_SAYS_PREFER,
    AG_SAYS_ACCESS,
    AG_SAYS_PREFETCH,
    AG_SAYS_READ_MOSTLY,
    AG_SAYS_ASYNC,
    AG_SAYS_HOST,
    AG_SAYS_FAIL,
    AG_SAYS_EVERY, /* this and what follows: of the calls that fail */
    AG_SAYS_AFTER,
    AG_SAYS_OVER,
    AG_SAYS_CHANCE,
    AG_SAYS_SEED,
    AG_N_SAYS
};

struct ag_rules {
    unsigned n;
    unsigned needs; /* bits of enum ag_rule_needs: facts some rule asks for */
    struct ag_rule rule[AG_MAX_RULES];
};

/* Parses `text`. 0, or -EINVAL: `why` then is one line that names the column (1 for the first byte
 * of `text`), what stands there and what is allowed, cut at why_size; *ret holds no rules. */
int ag_rules_parse(const char *text, struct ag_rules *ret, char *why, size_t why_size);

/* Parses the rules of `text`, which come after those that *rules has already, for the lines of a
 * file: the text's first byte is column `first_column`. On failure *rules has what it had. */
int ag_rules_add(const char *text, size_t first_column, struct ag_rules *rules, char *why,
                 size_t why_size);

/* Does the rule's action watch launches, to prefetch what they use? */
bool ag_rule_watches_launches(const struct ag_rule *rule);
/* Does it fail calls? */
bool ag_rule_fails(const struct ag_rule *rule);
/* Does it do nothing else? The calls that it lets pass are for the rules after it. */
bool ag_rule_only_fails(const struct ag_rule *rule);

/* The first rule that applies, of those from number `first` on, or -1. Its action is not looked at.
 * A name that is NULL is matched by globs that match "". */
int ag_rules_match(const struct ag_rules *rules, unsigned first, const struct ag_asked *asked);

/* The first rule before rule i that decides wherever rule i applies, so that i never does; or -1.
 */
int ag_rules_hidden_by(const struct ag_rules *rules, unsigned i);

/* Writes what `rule` says over *params. */
void ag_rule_apply(const struct ag_rule *rule, struct ag_request_params *params);

/* Does `text` match `glob` ('*' any run, '?' any one byte)? Upper and lower case differ. */
bool ag_glob_match(const char *glob, const char *text);

/* The i-th glob of the file names of libraries that export memory, or NULL after the last: what
 * stands below the user's rules as `from=GLOB:native`. */
const char *ag_rules_exporter(size_t i);

/* "device", "host", "numa:N" or "none". 0, or -EINVAL with *ret untouched. */
int ag_prefer_parse(const char *text, struct ag_prefer *ret);

/* A rule's parts in one form of several that mean the same: conditions, the placement ("" for none
 * said), the other actions. "conditions:placement,settings" parses to the same rule. Cut at `size`;
 * AG_RULE_TEXT bytes hold any of them. */
#define AG_RULE_TEXT 320u
void ag_rule_conditions(const struct ag_rule *rule, char *buffer, size_t size);
void ag_rule_placement(const struct ag_rule *rule, char *buffer, size_t size);
void ag_rule_settings(const struct ag_rule *rule, char *buffer, size_t size);

#endif
