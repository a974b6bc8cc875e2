/* marks.c: what every word of ALLOGRAFT_GRAPH means of a stream, names that come, change and go,
 * and the halves of an iteration's mark. */
#include "graph/learn/marks.h"

#include <pthread.h>
#include <string.h>

#include "tests/common/check.h"

static struct ag_options options;

static void nothing(enum ag_log_level level, const char *line)
{
    CHECK_SAID(level > AG_LOG_DEBUG, "%s", line);
}

/* The settings of these two values. */
static void set(const char *graph, const char *iteration)
{
    char first[300], second[300], *environment[] = {first, second, NULL};

    snprintf(first, sizeof(first), "ALLOGRAFT_GRAPH=%s", graph);
    snprintf(second, sizeof(second), "ALLOGRAFT_GRAPH_ITERATION=%s", iteration);
    CHECK(ag_options_read(environment, &options, nothing) == 0);
    ag_marks_configure(&options);
}

static const struct ag_stream_facts legacy = {.handle = CU_STREAM_LEGACY};
static const struct ag_stream_facts per_thread = {.handle = CU_STREAM_PER_THREAD};
static const struct ag_stream_facts first = {.handle = (CUstream)0x1000, .number = 1};
static const struct ag_stream_facts third = {
    .handle = (CUstream)0x3000, .number = 3, .nonblocking = true, .priority = -2};

static void means_what_it_says(void)
{
    static const struct {
        const char *graph;
        bool legacy, per_thread, first, third;
    } cases[] = {
        {"off", false, false, false, false},
        {"all", true, true, true, true},
        {"legacy", true, false, false, false},
        {"per-thread", false, true, false, false},
        {"nonblocking", false, false, false, true},
        {"priority:-2", false, false, false, true},
        {"priority:0", true, true, true, false},
        {"priority:2", false, false, false, false},
        {"nth:1", false, false, true, false},
        {"nth:3", false, false, false, true},
        {"nth:2", false, false, false, false},
        {"name:*", false, false, false, false},
        {"nth:1,legacy", true, false, true, false},
        {"nth:9,nonblocking,per-thread", false, true, false, true},
    };

    for (size_t i = 0; i < N_OF(cases); i++) {
        set(cases[i].graph, "auto");
        CHECK_SAID(ag_marks_any() == (i > 0), "%s", cases[i].graph);
        CHECK_SAID(ag_marks_stream(&legacy) == cases[i].legacy, "%s: legacy", cases[i].graph);
        CHECK_SAID(ag_marks_stream(&per_thread) == cases[i].per_thread, "%s: per-thread",
                   cases[i].graph);
        CHECK_SAID(ag_marks_stream(&first) == cases[i].first, "%s: first", cases[i].graph);
        CHECK_SAID(ag_marks_stream(&third) == cases[i].third, "%s: third", cases[i].graph);
        CHECK(!ag_marks_by_range() && ag_marks_by_name() == !strcmp(cases[i].graph, "name:*"));
    }
}

static void follows_names(void)
{
    uint32_t version = ag_marks_version();

    set("name:train*,nth:3", "auto");
    CHECK(ag_marks_by_name());
    ag_marks_name(first.handle, "validate");
    CHECK(!ag_marks_stream(&first) && ag_marks_version() == version);
    ag_marks_name(first.handle, "training");
    CHECK(ag_marks_stream(&first) && ag_marks_version() != version);
    version = ag_marks_version();
    ag_marks_name(first.handle, "train"); /* another, and still */
    CHECK(ag_marks_stream(&first) && ag_marks_version() == version);
    CHECK(!ag_marks_stream(&legacy));
    ag_marks_name(NULL, "train");
    CHECK(ag_marks_stream(&legacy) && ag_marks_stream(&first));
    ag_marks_name(first.handle, "x");
    CHECK(!ag_marks_stream(&first) && ag_marks_stream(&legacy) &&
          ag_marks_version() == version + 2);
    ag_marks_name(CU_STREAM_LEGACY, NULL);
    CHECK(!ag_marks_stream(&legacy) && ag_marks_version() == version + 3);
    ag_marks_name(CU_STREAM_LEGACY, NULL);
    CHECK(ag_marks_version() == version + 3);
    set("all", "auto");
    ag_marks_name(first.handle, "train");
    CHECK(ag_marks_version() == version + 3); /* nobody asked for names */
}

/* More names than there is room for: the rest is unmarked, and room comes back. */
static void has_bounds(void)
{
    struct ag_stream_facts facts = {.handle = NULL};
    unsigned named = 0;

    set("name:*", "auto");
    for (uintptr_t i = 1; i <= 2000; i++)
        ag_marks_name((CUstream)(i << 12), "a");
    for (uintptr_t i = 1; i <= 2000; i++) {
        facts.handle = (CUstream)(i << 12);
        named += ag_marks_stream(&facts);
    }
    CHECK(named == 1024);
    ag_marks_name((CUstream)(5ul << 12), NULL);
    ag_marks_name((CUstream)(1999ul << 12), "a");
    facts.handle = (CUstream)(1999ul << 12);
    CHECK(ag_marks_stream(&facts));
    for (uintptr_t i = 1; i <= 2000; i++)
        ag_marks_name((CUstream)(i << 12), NULL);
    CHECK(!ag_marks_stream(&facts));
}

static void knows_iterations(void)
{
    set("all", "nvtx:step ?*");
    CHECK(ag_marks_by_range());
    CHECK(ag_marks_is_iteration("step 1") && !ag_marks_is_iteration("step ") &&
          !ag_marks_is_iteration(NULL));
    CHECK(ag_marks_is_domain("") && ag_marks_is_domain(NULL) && ag_marks_is_domain("any"));
    set("all", "nvtx:step@");
    CHECK(ag_marks_is_domain("") && ag_marks_is_domain(NULL) && !ag_marks_is_domain("any"));
    set("all", "nvtx:step@My*");
    CHECK(!ag_marks_is_domain("") && !ag_marks_is_domain(NULL) && ag_marks_is_domain("MyLibrary"));
    set("off", "nvtx:step");
    CHECK(!ag_marks_by_range() && !ag_marks_is_iteration("step") && !ag_marks_is_domain(""));
    set("all", "sync");
    CHECK(!ag_marks_by_range() && !ag_marks_is_iteration("step") && !ag_marks_is_iteration(""));
}

static void *in_another_thread(void *unused)
{
    (void)unused;
    CHECK(!ag_marks_take_iteration());
    ag_marks_iteration();
    CHECK(ag_marks_take_iteration() && !ag_marks_take_iteration());
    return NULL;
}

/* A mark is its thread's, and counts once. */
static void hands_marks_on_once(void)
{
    pthread_t thread;

    CHECK(!ag_marks_take_iteration());
    ag_marks_iteration();
    ag_marks_iteration();
    CHECK(!pthread_create(&thread, NULL, in_another_thread, NULL) && !pthread_join(thread, NULL));
    CHECK(ag_marks_take_iteration() && !ag_marks_take_iteration());
    ag_marks_iteration();
    ag_marks_begin_child();
    CHECK(!ag_marks_take_iteration());
}

static void is_off_when_all_is(void)
{
    char *environment[] = {"ALLOGRAFT_GRAPH=all,name:x", "ALLOGRAFT_DISABLE=1",
                           "ALLOGRAFT_GRAPH_ITERATION=nvtx:x", NULL};

    CHECK(ag_options_read(environment, &options, nothing) == 0);
    ag_marks_configure(&options);
    CHECK(!ag_marks_any() && !ag_marks_by_name() && !ag_marks_by_range() &&
          !ag_marks_stream(&legacy));
}

int main(void)
{
    CHECK(!ag_marks_any() && !ag_marks_stream(&legacy) && !ag_marks_by_name());
    means_what_it_says();
    follows_names();
    has_bounds();
    knows_iterations();
    hands_marks_on_once();
    is_off_when_all_is();
    return 0;
}
