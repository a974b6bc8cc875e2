/* rules.c: globs, every condition at its ends, every action, every error and its column. */
#include "interpose/core/settings/rules.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "tests/common/check.h"

static struct ag_rules rules;
static char why[400];

static void parses(const char *text)
{
    CHECK_SAID(ag_rules_parse(text, &rules, why, sizeof(why)) == 0, "%s: %s", text, why);
}

/* The rule that applies to an allocation of `bytes`; all else is of no interest. */
static int match_size(uint64_t bytes)
{
    return ag_rules_match(&rules, 0, &(struct ag_asked){.bytes = bytes, .nth = 1});
}

static void globs(void)
{
    static const struct {
        const char *glob, *text;
        bool match;
    } cases[] = {
        {"", "", true},
        {"", "a", false},
        {"*", "", true},
        {"*", "abc", true},
        {"**", "abc", true},
        {"?", "", false},
        {"?", "a", true},
        {"?", "ab", false},
        {"a", "A", false},
        {"abc", "abc", true},
        {"abc", "abcd", false},
        {"abcd", "abc", false},
        {"a*", "a", true},
        {"a*", "ba", false},
        {"*c", "abc", true},
        {"*c", "abcd", false},
        {"a*c", "ac", true},
        {"a*c", "abcbc", true},
        {"a*c", "abcb", false},
        {"*b*", "abc", true},
        {"*b*", "aac", false},
        {"a?c", "abc", true},
        {"a?c", "ac", false},
        {"?*", "", false},
        {"?*", "a", true},
        {"*?", "a", true},
        {"*a*b*c*", "xxaxxbxxc", true},
        {"*a*b*c*", "xxbxxaxxc", false},
        {"*aab", "aaaab", true},
        {"libnccl*", "libnccl.so.2", true},
        {"libnccl*", "nlibnccl.so", false},
        {"[a]", "a", false},
        {"[a]", "[a]", true},
        {"\\*", "*", false},
        {"*.so.?", "libx.so.2", true},
        {"*.so.?", "libx.so.12", false},
    };
    static char many_stars[64], many_letters[4000];

    for (size_t i = 0; i < N_OF(cases); i++)
        CHECK_SAID(ag_glob_match(cases[i].glob, cases[i].text) == cases[i].match, "%s against %s",
                   cases[i].glob, cases[i].text);
    /* What makes a matcher that tries every way take years. */
    for (size_t i = 0; i < 62; i += 2)
        memcpy(many_stars + i, "*a", 2);
    many_stars[62] = 'b';
    memset(many_letters, 'a', sizeof(many_letters) - 1);
    CHECK(!ag_glob_match(many_stars, many_letters));
    many_letters[sizeof(many_letters) - 2] = 'b';
    CHECK(ag_glob_match(many_stars, many_letters));
}

/* Each form of a size condition holds from its first byte to its last, and not one beyond. */
static void sizes(void)
{
    static const struct {
        const char *condition;
        uint64_t first, last;
    } cases[] = {
        {"size>=4096", 4096, UINT64_MAX},
        {"size>4096", 4097, UINT64_MAX},
        {"size<=64KiB", 0, 65536},
        {"size<64KiB", 0, 65535},
        {"size=1MiB", 1u << 20, 1u << 20},
        {"size=1.5GiB..2g", 3ull << 29, 2ull << 30},
        {"size=0..0", 0, 0},
        {"size<1", 0, 0},
        {"size>=0", 0, UINT64_MAX},
        {"size=10,size=10", 10, 10},
        {"size>=10,size<=20,size>11", 12, 20},
        {"size=10..20,size<15", 10, 14},
        {"size=10..20,size>=5,size<=25", 10, 20},
        {"size>=8TiB", 8ull << 40, UINT64_MAX},
    };
    char text[100];

    for (size_t i = 0; i < N_OF(cases); i++) {
        uint64_t first = cases[i].first, last = cases[i].last;

        snprintf(text, sizeof(text), "%s:pool", cases[i].condition);
        parses(text);
        CHECK_SAID(match_size(first) == 0 && match_size(last) == 0, "%s", text);
        CHECK_SAID(!first || match_size(first - 1) == -1, "%s", text);
        CHECK_SAID(last == UINT64_MAX || match_size(last + 1) == -1, "%s", text);
        CHECK(rules.needs == 0);
    }
}

static bool holds(const char *text, struct ag_asked asked)
{
    parses(text);
    return ag_rules_match(&rules, 0, &asked) == 0;
}

static void other_conditions(void)
{
    CHECK(holds("*:pool", (struct ag_asked){0}) && rules.needs == 0);
    CHECK(holds("device=0:pool", (struct ag_asked){.device = 0}));
    CHECK(!holds("device=0:pool", (struct ag_asked){.device = 1}));
    CHECK(holds("device=12:pool", (struct ag_asked){.device = 12}) && rules.needs == 0);
    CHECK(holds("nth=17:pool", (struct ag_asked){.nth = 17}) && rules.needs == AG_NEED_NTH);
    CHECK(!holds("nth=17:pool", (struct ag_asked){.nth = 16}));
    CHECK(!holds("nth=17:pool", (struct ag_asked){.nth = 18}));
    CHECK(holds("nth=1..4:pool", (struct ag_asked){.nth = 1}));
    CHECK(holds("nth=1..4:pool", (struct ag_asked){.nth = 4}));
    CHECK(!holds("nth=1..4:pool", (struct ag_asked){.nth = 5}) && rules.needs == AG_NEED_NTH);
    CHECK(!holds("nth=2..18446744073709551615:pool", (struct ag_asked){.nth = 1}));
    CHECK(holds("nth=2..18446744073709551615:pool", (struct ag_asked){.nth = UINT64_MAX}));
    CHECK(holds("from=libx*:pool", (struct ag_asked){.module = "libx.so"}));
    CHECK(rules.needs == AG_NEED_MODULE);
    CHECK(!holds("from=libx*:pool", (struct ag_asked){.module = "liby.so"}));
    CHECK(!holds("from=libx*:pool", (struct ag_asked){.module = NULL}));
    CHECK(holds("from=*:pool", (struct ag_asked){.module = NULL}));
    CHECK(!holds("from=LIBX*:pool", (struct ag_asked){.module = "libx.so"}));
    CHECK(holds("thread=work?r 1:pool", (struct ag_asked){.thread = "worker 1"}));
    CHECK(rules.needs == AG_NEED_THREAD);
    CHECK(!holds("thread=worker:pool", (struct ag_asked){.thread = "worker 1"}));
    CHECK(!holds("thread=worker:pool", (struct ag_asked){.thread = NULL}));
    /* All of them must hold. */
    CHECK(
        holds("size>=2,device=1,nth=3,from=a,thread=b:pool",
              (struct ag_asked){.bytes = 2, .device = 1, .nth = 3, .module = "a", .thread = "b"}));
    CHECK(rules.needs == (AG_NEED_MODULE | AG_NEED_THREAD | AG_NEED_NTH));
    for (unsigned wrong = 0; wrong < 5; wrong++)
        CHECK(ag_rules_match(&rules, 0,
                             &(struct ag_asked){.bytes = 2 - (wrong == 0),
                                                .device = 1 + (wrong == 1),
                                                .nth = 3 + (wrong == 2),
                                                .module = wrong == 3 ? "x" : "a",
                                                .thread = wrong == 4 ? "x" : "b"}) == -1);
}

static void the_first_decides(void)
{
    parses("size>=1GiB:managed,prefer=host,access=device; from=libnccl*:native; *:pool");
    CHECK(rules.n == 3 && rules.needs == AG_NEED_MODULE);
    CHECK(ag_rules_match(&rules, 0, &(struct ag_asked){.bytes = 1 << 30, .module = "libnccl.so"}) ==
          0);
    CHECK(ag_rules_match(&rules, 0, &(struct ag_asked){.bytes = 1, .module = "libnccl.so"}) == 1);
    CHECK(ag_rules_match(&rules, 0, &(struct ag_asked){.bytes = 1, .module = "a.out"}) == 2);
    /* What exports memory is only met by from=. */
    CHECK(ag_rules_match(&rules, 0, &(struct ag_asked){.bytes = 1 << 30, .exporter = true}) == -1);
    CHECK(ag_rules_match(&rules, 0, &(struct ag_asked){.module = "libnccl.so", .exporter = true}) ==
          1);
    CHECK(!strcmp(rules.rule[0].text, "size>=1GiB:managed,prefer=host,access=device"));
    CHECK(!strcmp(rules.rule[1].text, "from=libnccl*:native") &&
          !strcmp(rules.rule[2].text, "*:pool"));
    parses("");
    CHECK(rules.n == 0 && match_size(1) == -1);
    parses(" ;; \n; ");
    CHECK(rules.n == 0);
}

/* A rule holds for the calls it names, or else for those that take memory of the device. */
static void calls(void)
{
    static const struct {
        const char *text;
        unsigned calls;
    } cases[] = {
        {"*:fail", AG_CALLS_OF_MEMORY},
        {"*:pool", AG_CALLS_OF_MEMORY},
        {"call=any:fail", (1u << AG_N_CALLS) - 1},
        {"call=host:fail", 1u << AG_CALL_HOST},
        {"call=host|GRAPH:fail", 1u << AG_CALL_HOST | 1u << AG_CALL_GRAPH},
        {"size>=0,call=any:fail", (1u << AG_N_CALLS) - 1},
        {"size>=1,call=any:fail", ((1u << AG_N_CALLS) - 1) & ~AG_CALLS_WITHOUT_SIZE},
        {"*:host=cache", 1u << AG_CALL_HOST},
        {"size>=1:host=native", 1u << AG_CALL_HOST},
        {"*:fail,every=2,host=cache", 1u << AG_CALL_HOST},
        {"*:pool,host=cache", AG_CALLS_OF_MEMORY | 1u << AG_CALL_HOST},
        {"*:host=fast,async=managed", AG_CALLS_OF_MEMORY | 1u << AG_CALL_HOST},
        {"call=host|pool:fail,host=fast", 1u << AG_CALL_HOST | 1u << AG_CALL_POOL},
    };

    for (size_t i = 0; i < N_OF(cases); i++) {
        parses(cases[i].text);
        for (unsigned call = 0; call < AG_N_CALLS; call++) {
            struct ag_asked asked = {.call = (enum ag_call)call, .bytes = 4096};

            if (1u << call & AG_CALLS_WITHOUT_SIZE)
                asked.bytes = 0;
            CHECK_SAID((ag_rules_match(&rules, 0, &asked) == 0) == (cases[i].calls >> call & 1),
                       "%s: %u", cases[i].text, call);
        }
    }
    parses("nth=1:fail;size<9:pool;*:managed,fail");
    CHECK(ag_rule_fails(&rules.rule[0]) && ag_rule_only_fails(&rules.rule[0]));
    CHECK(!ag_rule_fails(&rules.rule[1]) && !ag_rule_only_fails(&rules.rule[1]));
    CHECK(ag_rule_fails(&rules.rule[2]) && !ag_rule_only_fails(&rules.rule[2]));
    CHECK(ag_rules_match(&rules, 1, &(struct ag_asked){.bytes = 9, .nth = 1}) == 2);
    CHECK(ag_rules_match(&rules, 3, &(struct ag_asked){.bytes = 9, .nth = 1}) == -1);
}

/* Adds behind what is there; a mistake adds nothing. */
static void adds(void)
{
    parses("nth=1:pool");
    CHECK(ag_rules_add("thread=x:native;*:managed;", 1, &rules, why, sizeof(why)) == 0);
    CHECK(rules.n == 3 && rules.needs == (AG_NEED_NTH | AG_NEED_THREAD));
    CHECK(ag_rules_add("from=a:pool; *:pol", 100, &rules, why, sizeof(why)) == -EINVAL);
    CHECK_SAID(!strncmp(why, "column 115: unknown action \"pol\"", 32), "%s", why);
    CHECK(rules.n == 3 && rules.needs == (AG_NEED_NTH | AG_NEED_THREAD));
    CHECK(ag_rules_parse("*:pol", &rules, why, sizeof(why)) == -EINVAL && rules.n == 0 &&
          !rules.needs);
}

static const struct {
    const char *actions;
    struct ag_request_params params;
} written[] = {
    {"auto", {.policy = AG_POLICY_AUTO}},
    {"pool", {.policy = AG_POLICY_POOL}},
    {"native", {.policy = AG_POLICY_NATIVE}},
    {"Managed", {.policy = AG_POLICY_MANAGED}},
    {"backend=plain", {.backend = AG_MANAGED_PLAIN}},
    {"backend=POOL", {.backend = AG_MANAGED_POOL}},
    {"backend=auto", {.backend = AG_MANAGED_AUTO}},
    {"prefer=device", {.prefer = {AG_PREFER_DEVICE, 0}}},
    {"prefer=host", {.prefer = {AG_PREFER_HOST, 0}}},
    {"prefer=numa:3", {.prefer = {AG_PREFER_NUMA, 3}}},
    {"prefer=none", {.prefer = {AG_PREFER_NONE, 0}}},
    {"access=peers", {.access = AG_ACCESS_PEERS}},
    {"access=none", {.access = AG_ACCESS_NONE}},
    {"access=device", {.access = AG_ACCESS_DEVICE}},
    {"prefetch=launch", {.prefetch = AG_PREFETCH_LAUNCH}},
    {"prefetch=off", {.prefetch = AG_PREFETCH_OFF}},
    {"prefetch=alloc", {.prefetch = AG_PREFETCH_ALLOC}},
    {"read_mostly", {.read_mostly = true}},
    {"read_mostly=1", {.read_mostly = true}},
    {"READ_MOSTLY = 0", {.read_mostly = false}},
    {"async=managed", {.async = AG_ASYNC_MANAGED}},
    {"async=page", {.async = AG_ASYNC_PAGE}},
    {"async=pass", {.async = AG_ASYNC_PASS}},
    {"host=native", {.host = AG_HOST_NATIVE}},
    {"host=cache", {.host = AG_HOST_CACHE}},
    {"Host = FAST", {.host = AG_HOST_FAST}},
    {"managed , prefer = none , async = managed",
     {.policy = AG_POLICY_MANAGED, .prefer = {AG_PREFER_NONE, 0}, .async = AG_ASYNC_MANAGED}},
};

/* Every action writes its part of the parameters and no other. */
static void actions_write(void)
{
    const struct ag_request_params others = {AG_POLICY_NATIVE,     AG_MANAGED_POOL,
                                             {AG_PREFER_NUMA, 77}, AG_ACCESS_PEERS,
                                             AG_PREFETCH_OFF,      true,
                                             AG_ASYNC_MANAGED,     AG_HOST_FAST};
    char text[100];

    for (size_t i = 0; i < N_OF(written); i++) {
        const struct ag_request_params *said = &written[i].params;
        struct ag_request_params params = others;
        unsigned says;

        snprintf(text, sizeof(text), "*:%s", written[i].actions);
        parses(text);
        ag_rule_apply(&rules.rule[0], &params);
        says = rules.rule[0].says;
        CHECK_SAID(says, "%s", text);
        CHECK_SAID(params.policy == (says & 1u << AG_SAYS_POLICY ? said : &others)->policy, "%s",
                   text);
        CHECK_SAID(params.backend == (says & 1u << AG_SAYS_BACKEND ? said : &others)->backend, "%s",
                   text);
        CHECK_SAID(
            params.prefer.kind == (says & 1u << AG_SAYS_PREFER ? said : &others)->prefer.kind &&
                params.prefer.node == (says & 1u << AG_SAYS_PREFER ? said : &others)->prefer.node,
            "%s", text);
        CHECK_SAID(params.access == (says & 1u << AG_SAYS_ACCESS ? said : &others)->access, "%s",
                   text);
        CHECK_SAID(params.prefetch == (says & 1u << AG_SAYS_PREFETCH ? said : &others)->prefetch,
                   "%s", text);
        CHECK_SAID(params.read_mostly ==
                       (says & 1u << AG_SAYS_READ_MOSTLY ? said : &others)->read_mostly,
                   "%s", text);
        CHECK_SAID(params.async == (says & 1u << AG_SAYS_ASYNC ? said : &others)->async, "%s",
                   text);
        CHECK_SAID(params.host == (says & 1u << AG_SAYS_HOST ? said : &others)->host, "%s", text);
        /* Nothing but zeros where it says nothing: what was said is what differs. */
        CHECK_SAID(strchr(text, ',') || !(says & (says - 1)), "%s says %x", text, says);
    }
    CHECK(rules.rule[0].says ==
          (1u << AG_SAYS_POLICY | 1u << AG_SAYS_PREFER | 1u << AG_SAYS_ASYNC));
}

static void blanks_do_not_matter(void)
{
    struct ag_rules tight;

    parses("size>=1GiB,device=0,nth=1..4:managed,prefer=numa:1;from=a b:native");
    tight = rules;
    parses(
        "\n size >= 1GiB ,\tdevice = 0 , nth = 1 .. 4 : managed , prefer = numa:1 ;\n\r from = a b "
        ": native ; ");
    CHECK(rules.n == 2 && rules.needs == tight.needs);
    for (unsigned i = 0; i < 2; i++) {
        memset(rules.rule[i].text, 0, sizeof(rules.rule[i].text));
        memset(tight.rule[i].text, 0, sizeof(tight.rule[i].text));
        CHECK(!memcmp(&rules.rule[i], &tight.rule[i], sizeof(tight.rule[i])));
    }
}

#define C_ALLOWED "; allowed: size, device, from, nth, thread, call, *"
#define A_ALLOWED                                                                                  \
    "; allowed: auto, pool, native, managed, backend=, prefer=, access=, prefetch=, read_mostly, " \
    "async=, host=, fail, and with it every=, after=, over=, chance=, seed="
#define S_ALLOWED "; allowed: bytes such as 4096, 64KiB or 1.5GiB; behind = also A..B"
#define G_ALLOWED "; allowed: a name, in it * for any characters and ? for one"
#define K_ALLOWED                                                                                \
    "; allowed: device, async, managed, virtual, host, pool, graph, several with | between, or " \
    "any"
#define N40 "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"

static const struct {
    const char *text, *why;
} mistakes[] = {
    {"*:pool; nth=1,szie>4:native",
     "column 15: unknown condition \"szie\"" C_ALLOWED "; did you mean size?"},
    {"pool", "column 1: unknown condition \"pool\"" C_ALLOWED},
    {":pool", "column 1: a condition is missing" C_ALLOWED},
    {"nth=1, :pool", "column 7: a condition is missing" C_ALLOWED},
    {",nth=1:pool", "column 1: a condition is missing" C_ALLOWED},
    {"*x:pool", "column 1: unknown condition \"*x\"" C_ALLOWED},
    {"=1:pool", "column 1: unknown condition \"=1\"" C_ALLOWED},
    {N40 N40 "=1:pool", "column 1: unknown condition \"" N40 "\"" C_ALLOWED},
    {"a\nb=1:pool", "column 1: unknown condition \"a\"" C_ALLOWED},
    {"%n\x01\x7f:pool", "column 1: unknown condition \"%n??\"" C_ALLOWED},
    {"nth=1", "column 6: no ':' behind the conditions; allowed: "
              "CONDITION[,CONDITION...]:ACTION[,ACTION...]"},
    {" nth=1 ;*:pool", "column 7: no ':' behind the conditions; allowed: "
                       "CONDITION[,CONDITION...]:ACTION[,ACTION...]"},
    {"size:pool", "column 5: size is followed by \"\"; allowed: >= <= > < ="},
    {"size!4:pool", "column 5: size is followed by \"!4\"; allowed: >= <= > < ="},
    {"device>4:pool", "column 7: device is followed by \">\"; allowed: ="},
    {"nth >= 4:pool", "column 5: nth is followed by \">=\"; allowed: ="},
    {"from libx:pool", "column 6: from is followed by \"libx\"; allowed: ="},
    {"size=:pool", "column 6: size has no value" S_ALLOWED},
    {"size>=1XB:pool", "column 7: \"1XB\" is no value of size" S_ALLOWED},
    {"size>=1 GiB:pool", "column 7: \"1 GiB\" is no value of size" S_ALLOWED},
    {"size>=25%:pool", "column 7: \"25%\" is no value of size" S_ALLOWED},
    {"size<=max:pool", "column 7: \"max\" is no value of size" S_ALLOWED},
    {"size>=-1:pool", "column 7: \"-1\" is no value of size" S_ALLOWED},
    {"size>=1..2:pool", "column 7: \"1..2\" is no value of size" S_ALLOWED},
    {"size=1..:pool", "column 6: \"1..\" is no value of size" S_ALLOWED},
    {"size=..2:pool", "column 6: \"..2\" is no value of size" S_ALLOWED},
    {"size==2:pool", "column 6: \"=2\" is no value of size" S_ALLOWED},
    {"size=1..2..3:pool", "column 6: \"1..2..3\" is no value of size" S_ALLOWED},
    {"size>=9223372036854775808:pool",
     "column 7: \"9223372036854775808\" is no value of size" S_ALLOWED},
    {"size=2..1:pool",
     "column 6: the range \"2..1\" ends before it begins; allowed: A..B with A at most B"},
    {"size<0:pool", "column 6: no size is less than 0; allowed: size<1 and up"},
    {"size>=4, size<4:pool",
     "column 10: \"size<4\" and the sizes before it leave no size; allowed: "
     "sizes that overlap"},
    {"size=1,size=2:pool", "column 8: \"size=2\" and the sizes before it leave no size; allowed: "
                           "sizes that overlap"},
    {"device=:pool", "column 8: device has no value; allowed: a device's number, from 0"},
    {"device=-1:pool",
     "column 8: \"-1\" is no value of device; allowed: a device's number, from 0"},
    {"device=0x1:pool",
     "column 8: \"0x1\" is no value of device; allowed: a device's number, from 0"},
    {"device=2147483648:pool",
     "column 8: \"2147483648\" is no value of device; allowed: a device's number, from 0"},
    {"device=1..2:pool",
     "column 8: \"1..2\" is no value of device; allowed: a device's number, from 0"},
    {"device=1,Device=1:pool", "column 10: a second \"Device\" in one rule; allowed: one"},
    {"nth=:pool", "column 5: nth has no value; allowed: N or A..B, from 1"},
    {"nth=0:pool", "column 5: \"0\" is no value of nth; allowed: N or A..B, from 1"},
    {"nth=0..2:pool", "column 5: \"0..2\" is no value of nth; allowed: N or A..B, from 1"},
    {"nth=1.5:pool", "column 5: \"1.5\" is no value of nth; allowed: N or A..B, from 1"},
    {"nth=1..:pool", "column 5: \"1..\" is no value of nth; allowed: N or A..B, from 1"},
    {"nth=18446744073709551616:pool",
     "column 5: \"18446744073709551616\" is no value of nth; allowed: N or A..B, from 1"},
    {"nth=3..2:pool",
     "column 5: the range \"3..2\" ends before it begins; allowed: A..B with A at most B"},
    {"nth=1,nth=2:pool", "column 7: a second \"nth\" in one rule; allowed: one"},
    {"from=:pool", "column 6: from has no value" G_ALLOWED},
    {"thread= :pool", "column 8: thread has no value" G_ALLOWED},
    {"from=a,from=a:pool", "column 8: a second \"from\" in one rule; allowed: one"},
    {"thread=a,thread=b:pool", "column 10: a second \"thread\" in one rule; allowed: one"},
    {"from=" N40 "123456789012345678901234:pool",
     "column 6: \"nnnnnnnnnnnnnnnnnnnn...\" has 64 bytes; allowed: at most 63"},
    {"thread=" N40 N40 ":pool",
     "column 8: \"nnnnnnnnnnnnnnnnnnnn...\" has 80 bytes; allowed: at most 63"},
    {"*,nth=1:pool", "column 3: \"nth=1\" beside another condition; allowed: * alone"},
    {"nth=1,*:pool", "column 7: \"*\" beside another condition; allowed: * alone"},
    {"*,*:pool", "column 3: \"*\" beside another condition; allowed: * alone"},
    {"*:", "column 3: an action is missing" A_ALLOWED},
    {"*:pool,", "column 8: an action is missing" A_ALLOWED},
    {"*:,pool", "column 3: an action is missing" A_ALLOWED},
    {"* :  ;*:pool", "column 4: an action is missing" A_ALLOWED},
    {"*:natve", "column 3: unknown action \"natve\"" A_ALLOWED "; did you mean native?"},
    {"*:pool=1", "column 3: unknown action \"pool\"" A_ALLOWED},
    {"*:=1", "column 3: an action is missing" A_ALLOWED},
    {"*:pool:native", "column 3: unknown action \"pool:native\"" A_ALLOWED},
    {"*:" N40 N40, "column 3: unknown action \"" N40 "\"" A_ALLOWED},
    {"*:pool,managed",
     "column 8: a second placement, \"managed\"; allowed: one of auto|pool|native|managed"},
    {"*:pool,pool",
     "column 8: a second placement, \"pool\"; allowed: one of auto|pool|native|managed"},
    {"*:prefer", "column 9: prefer has no value; allowed: device|host|numa:N|none"},
    {"*:prefer=", "column 10: prefer has no value; allowed: device|host|numa:N|none"},
    {"*:prefer=moon",
     "column 10: \"moon\" is no value of prefer; allowed: device|host|numa:N|none"},
    {"*:prefer=numa:N",
     "column 10: \"numa:N\" is no value of prefer; allowed: device|host|numa:N|none"},
    {"*:prefer=numa:",
     "column 10: \"numa:\" is no value of prefer; allowed: device|host|numa:N|none"},
    {"*:prefer=numa:-1",
     "column 10: \"numa:-1\" is no value of prefer; allowed: device|host|numa:N|none"},
    {"*:backend=none", "column 11: \"none\" is no value of backend; allowed: auto|plain|pool"},
    {"*:access=host", "column 10: \"host\" is no value of access; allowed: device|peers|none"},
    {"*:prefetch=on", "column 12: \"on\" is no value of prefetch; allowed: alloc|launch|off"},
    {"*:read_mostly=2", "column 15: \"2\" is no value of read_mostly; allowed: 0|1"},
    {"*:read_mostly=", "column 15: read_mostly has no value; allowed: 0|1"},
    {"*:async=pool", "column 9: \"pool\" is no value of async; allowed: pass|managed|page"},
    {"*:host=pool", "column 8: \"pool\" is no value of host; allowed: native|cache|fast"},
    {"*:host=cahce", "column 8: \"cahce\" is no value of host; allowed: native|cache|fast; did "
                     "you mean cache?"},
    {"*:host", "column 7: host has no value; allowed: native|cache|fast"},
    {"*:host=fast,host=fast", "column 13: a second \"host\" in one rule; allowed: one"},
    {"*:pool; call=host:host=cache",
     "column 9: \"call=\" without fail; allowed: in rules with fail"},
    {"call=device|pool:fail,host=cache",
     "column 1: \"host=\" of calls that pin no memory; allowed: with call=host too"},
    {"*:prefer=" N40 N40,
     "column 10: \"" N40 "\" is no value of prefer; allowed: device|host|numa:N|none"},
    {"*:access=none,access=none", "column 15: a second \"access\" in one rule; allowed: one"},
    {"*:read_mostly,read_mostly=0",
     "column 15: a second \"read_mostly\" in one rule; allowed: one"},
    {"*:native,prefer=host",
     "column 10: \"prefer=host\": a rule cannot ask for native memory and say how managed memory "
     "behaves; allowed: one of the two"},
    {"call=:fail", "column 6: call has no value" K_ALLOWED},
    {"call=hots:fail", "column 6: \"hots\" is no value of call" K_ALLOWED "; did you mean host?"},
    {"call=host|:fail", "column 11: call has no value" K_ALLOWED},
    {"call=host|any:fail", "column 11: \"any\" is no value of call" K_ALLOWED},
    {"call=host,call=pool:fail", "column 11: a second \"call\" in one rule; allowed: one"},
    {"call>host:fail", "column 5: call is followed by \">\"; allowed: ="},
    {"*:pool; call=host:pool", "column 9: \"call=\" without fail; allowed: in rules with fail"},
    {"size>1,call=pool|graph:fail",
     "column 1: \"size\" of calls that have none; allowed: with call= of other calls too"},
    {"*:fail=1", "column 8: fail takes no value; allowed: fail, and behind a comma every=, after=, "
                 "over=, chance=, seed="},
    {"*:fail=", "column 8: fail takes no value; allowed: fail, and behind a comma every=, after=, "
                "over=, chance=, seed="},
    {"*:fail,fail", "column 8: a second \"fail\" in one rule; allowed: one"},
    {"*:fail,every", "column 13: every has no value; allowed: N, from 1"},
    {"*:fail,every=0", "column 14: \"0\" is no value of every; allowed: N, from 1"},
    {"*:fail,after=0", "column 14: \"0\" is no value of after; allowed: N, from 1"},
    {"*:fail,after=-1", "column 14: \"-1\" is no value of after; allowed: N, from 1"},
    {"*:fail,over=max",
     "column 13: \"max\" is no value of over; allowed: bytes such as 4096, 64KiB or 1.5GiB"},
    {"*:fail,chance=0", "column 15: \"0\" is no value of chance; allowed: a share above 0 such as "
                        "0.05 or 5%, to the millionth"},
    {"*:fail,chance=1.1", "column 15: \"1.1\" is no value of chance; allowed: a share above 0 such "
                          "as 0.05 or 5%, to the millionth"},
    {"*:fail,chance=0.1,seed=x", "column 24: \"x\" is no value of seed; allowed: N, from 0"},
    {"*:pool;*:every=2,chance=1", "column 8: \"every=\" without fail; allowed: in rules with fail"},
    {"*:fail,seed=2", "column 1: \"seed=\" without chance=; allowed: in rules with both"},
    {"*:read_mostly,native", "column 15: \"native\": a rule cannot ask for native memory and say "
                             "how managed memory behaves; "
                             "allowed: one of the two"},
};

static void refuses(void)
{
    for (size_t i = 0; i < N_OF(mistakes); i++) {
        memset(why, 'x', sizeof(why));
        CHECK_SAID(ag_rules_parse(mistakes[i].text, &rules, why, sizeof(why)) == -EINVAL, "%s",
                   mistakes[i].text);
        CHECK_SAID(!strcmp(why, mistakes[i].why), "%s\n gave %s\n not  %s", mistakes[i].text, why,
                   mistakes[i].why);
        CHECK(rules.n == 0 && rules.needs == 0);
    }
    /* Cut where there is no room, and nothing written where there is none at all. */
    memset(why, 'x', sizeof(why));
    CHECK(ag_rules_parse("*:pol", &rules, why, 8) == -EINVAL && !strcmp(why, "column ") &&
          why[8] == 'x');
    CHECK(ag_rules_parse("*:pol", &rules, why, 1) == -EINVAL && !*why);
    CHECK(ag_rules_parse("*:pol", &rules, NULL, 0) == -EINVAL);
    parses("*:native,async=managed"); /* of the program's own pools, no contradiction */
    parses("*:pool,prefetch=launch"); /* where it spills */
    parses("*:native,host=cache");    /* of other memory */
}

static void bounds(void)
{
    static char text[AG_MAX_RULES * 8 + 40];
    char long_rule[400];

    for (unsigned i = 0; i < AG_MAX_RULES; i++)
        memcpy(text + i * 7, "*:pool;", 7);
    parses(text);
    CHECK(rules.n == AG_MAX_RULES);
    memcpy(text + AG_MAX_RULES * 7, " nth=1:pool", 12);
    CHECK(ag_rules_parse(text, &rules, why, sizeof(why)) == -EINVAL);
    CHECK_SAID(!strcmp(why, "column 450: \"nth=1:pool\" is one rule too many; allowed: 64 rules"),
               "%s", why);
    /* Globs as long as can be; the text of the rule is cut. */
    snprintf(long_rule, sizeof(long_rule),
             "from=%s12345678901234567890123,thread=%s12345678901234567890123:pool", N40, N40);
    parses(long_rule);
    CHECK(strlen(rules.rule[0].from) == 63 && strlen(rules.rule[0].thread) == 63);
    CHECK(strlen(rules.rule[0].text) == 127 && !strncmp(rules.rule[0].text, long_rule, 127));
}

/* The printed form is the same rule, and as a person would write it. */
static void prints(void)
{
    static const struct {
        const char *text, *conditions, *placement, *settings;
    } cases[] = {
        {"*:pool", "*", "pool", ""},
        {"size>=0:pool", "*", "pool", ""},
        {"size>1023:prefetch=off", "size>=1KiB", "", "prefetch=off"},
        {"size<1025:native", "size<=1KiB", "native", ""},
        {"size>=1g,size<=2048m:managed,prefer=numa:2,read_mostly", "size=1GiB..2GiB", "managed",
         "prefer=numa:2,read_mostly=1"},
        {"size=3000 , device=1:async=pass,access=none", "size=3000,device=1", "",
         "access=none,async=pass"},
        {"THREAD=T*,nth=3..3,FROM=L?b:Backend=PLAIN", "from=L?b,nth=3,thread=T*", "",
         "backend=plain"},
        {"nth=1..2:async=managed", "nth=1..2", "", "async=managed"},
        {"size=9007199254740992:pool", "size=8192TiB", "pool", ""},
        {"size>9007199254740992:pool", "size>=9007199254740993", "pool", ""},
        {"size>9223372036854775807:pool", "size>9223372036854775807", "pool", ""},
        {"size=5..9223372036854775807:pool", "size=5..9223372036854775807", "pool", ""},
        {"*:FAIL", "*", "", "fail"},
        {"CALL = graph | host:fail, seed=2, chance=5%,over=4096,after=7,every=3", "call=host|graph",
         "", "fail,every=3,after=7,over=4KiB,chance=0.05,seed=2"},
        {"call=any:fail,chance=1", "call=any", "", "fail,chance=1"},
        {"call=virtual|managed|async|device:fail,every=1", "*", "", "fail,every=1"},
        {"thread=a,call=pool:fail,native", "thread=a,call=pool", "native", "fail"},
        {"size>=1MiB:Host=Cache", "size>=1MiB", "", "host=cache"},
        {"*:fail,every=2,host=fast,async=pass", "*", "", "async=pass,host=fast,fail,every=2"},
        {"call=host:fail,host=fast", "*", "", "host=fast,fail"},
        {"call=host|device:fail,host=fast", "call=device|host", "", "host=fast,fail"},
        {"call=host|device|async|virtual|managed:fail,pool,host=fast", "*", "pool",
         "host=fast,fail"},
        {"size=0:pool", "size=0", "pool", ""},
    };
    char conditions[AG_RULE_TEXT], placement[AG_RULE_TEXT], settings[AG_RULE_TEXT];

    for (size_t i = 0; i < N_OF(cases); i++) {
        parses(cases[i].text);
        ag_rule_conditions(&rules.rule[0], conditions, sizeof(conditions));
        ag_rule_placement(&rules.rule[0], placement, sizeof(placement));
        ag_rule_settings(&rules.rule[0], settings, sizeof(settings));
        CHECK_SAID(!strcmp(conditions, cases[i].conditions), "%s: %s", cases[i].text, conditions);
        CHECK_SAID(!strcmp(placement, cases[i].placement), "%s: %s", cases[i].text, placement);
        CHECK_SAID(!strcmp(settings, cases[i].settings), "%s: %s", cases[i].text, settings);
    }
    memset(conditions, 'x', sizeof(conditions));
    ag_rule_conditions(&rules.rule[0], conditions, 4);
    CHECK(!strcmp(conditions, "siz") && conditions[4] == 'x');
}

static void finds_hidden_rules(void)
{
    static const struct {
        const char *text;
        int hidden_by;
    } cases[] = {
        {"*:pool;*:native", 0},
        {"*:pool;nth=1:native", 0},
        {"nth=1:native;*:pool", -1},
        {"nth=1..9:native;nth=3..9:pool", 0},
        {"nth=1..9:native;nth=3..10:pool", -1},
        {"size>=4:native;size>4:pool", 0},
        {"size>4:native;size>=4:pool", -1},
        {"device=0:native;device=0,nth=1:pool", 0},
        {"device=0:native;device=1:pool", -1},
        {"device=0:native;nth=1:pool", -1},
        {"*:native;from=libnccl*:pool", -1},
        {"from=*:native;from=libnccl*:pool", 0},
        {"from=*:native;nth=1:pool", 0},
        {"from=a*:native;from=a*,nth=1:pool", 0},
        {"from=a*:native;from=ab:pool", -1},
        {"thread=a:native;thread=a,size=1:pool", 0},
        {"thread=a:native;nth=2:pool", -1},
        {"thread=*:native;nth=2:pool", 0},
        {"nth=1:pool;nth=2:pool;nth=2:native", 1},
        {"*:fail;*:pool", 0},
        {"*:fail,every=2;*:pool", -1},
        {"*:fail,after=2;*:pool", -1},
        {"*:fail,over=2;*:pool", -1},
        {"*:fail,chance=0.5;*:pool", -1},
        {"*:fail,every=2,native;*:pool", 0},
        {"*:fail;call=host:fail", -1},
        {"call=host:fail;*:pool", -1},
        {"call=any:fail;call=host|managed:fail", 0},
        {"*:pool;*:fail", 0},
        {"*:pool;*:host=cache", -1},
        {"*:host=cache;*:pool", -1},
        {"*:host=cache;size>4:host=native", 0},
        {"*:host=cache;*:pool,host=cache", -1},
        {"*:pool,host=cache;*:pool", 0},
        {"*:host=cache;call=host:fail", 0},
        {"call=host:fail,after=9;*:host=cache", -1},
    };

    for (size_t i = 0; i < N_OF(cases); i++) {
        parses(cases[i].text);
        CHECK_SAID(ag_rules_hidden_by(&rules, rules.n - 1) == cases[i].hidden_by, "%s",
                   cases[i].text);
        CHECK(ag_rules_hidden_by(&rules, 0) == -1);
    }
}

static void exporters_are_rules(void)
{
    char text[100];
    size_t n = 0;

    for (; ag_rules_exporter(n); n++) {
        snprintf(text, sizeof(text), "from=%s:native", ag_rules_exporter(n));
        parses(text);
        for (size_t i = 0; i < n; i++)
            CHECK(strcmp(ag_rules_exporter(i), ag_rules_exporter(n)) != 0);
    }
    CHECK(n >= 6 && !ag_rules_exporter(n + 1));
}

int main(void)
{
    globs();
    sizes();
    other_conditions();
    the_first_decides();
    calls();
    adds();
    actions_write();
    blanks_do_not_matter();
    refuses();
    bounds();
    prints();
    finds_hidden_rules();
    exporters_are_rules();
    return 0;
}
