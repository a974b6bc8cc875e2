/* allograft.h alone: it compiles, its table is laid out as libraries of that version have it, and
 * without a library every function says so and does nothing. Also compiled as C++ (header.cpp). */
#include "allograft.h"

#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
#define ASSERT static_assert
#else
#define ASSERT _Static_assert
#endif

/* What programs were compiled with stays: these numbers never change, and rows are only added. */
#define AT(name, number) \
    ASSERT(offsetof(struct allograft_api, name) == 8 + (number) * sizeof(void *), #name)
AT(last_error, 0);
AT(managed_support, 1);
AT(managed_alloc, 2);
AT(managed_free, 3);
AT(prefetch, 4);
AT(advise_preferred_location, 5);
AT(advise_accessed_by, 6);
AT(pool_new, 7);
AT(pool_shared, 8);
AT(capture_stream, 9);
AT(graph_create, 10);
AT(graph_enable_debug_mode, 11);
AT(graph_capture_begin, 12);
AT(graph_capture_end, 13);
AT(graph_instantiate, 14);
AT(graph_replay, 15);
AT(graph_reset, 16);
AT(graph_destroy, 17);
AT(graph_debug_dump, 18);
AT(graph_raw, 19);
AT(graph_pool, 20);
AT(stage_open, 21);
AT(stage_begin, 22);
AT(stage_end, 23);
AT(stage_iteration, 24);
AT(stage_input, 25);
AT(stage_load, 26);
AT(stage_reset, 27);
AT(stage_close, 28);
AT(ring_open, 29);
AT(ring_register, 30);
AT(ring_device_slot, 31);
AT(ring_submit, 32);
AT(ring_clear, 33);
AT(ring_query, 34);
AT(ring_wait_host, 35);
AT(ring_wait_stream, 36);
AT(ring_reader, 37);
AT(ring_properties, 38);
AT(ring_trace, 39);
AT(ring_close, 40);
AT(snapshot, 41);
AT(dump, 42);
AT(mark, 43);
AT(ring_pin, 44);
AT(ring_copy, 45);
AT(ring_stream, 46);
AT(memory_place, 47);
ASSERT(sizeof(struct allograft_stage_options) == 32, "stage options");
ASSERT(sizeof(struct allograft_ring_options) == 32, "ring options");
ASSERT(sizeof(struct allograft_ring_record) == 32, "ring record");
ASSERT(offsetof(struct allograft_snapshot, refused) == 168, "snapshot");

static int wrong;

static void absent(const char *what, allograft_status status)
{
    if (status == ALLOGRAFT_NOT_LOADED)
        return;
    printf("%s: %d without a library\n", what, (int)status);
    wrong = 1;
}

#define ABSENT(call) absent(#call, call)

static void graphs_and_stages(void)
{
    allograft_graph *graph = NULL;
    allograft_stage *stage = NULL;
    allograft_action action = ALLOGRAFT_SKIP;
    struct allograft_stage_options options = {sizeof(options), "training", 1, 0,
                                              ALLOGRAFT_CAPTURE_GLOBAL};
    allograft_pool pool = 5;
    void *stream = NULL;

    ABSENT(allograft_pool_new(&pool));
    ABSENT(allograft_pool_shared(0, &pool));
    ABSENT(allograft_capture_stream(0, &stream));
    ABSENT(allograft_graph_create(0, &graph));
    ABSENT(allograft_graph_enable_debug_mode(graph));
    ABSENT(allograft_graph_capture_begin(graph, stream, pool, ALLOGRAFT_CAPTURE_RELAXED));
    ABSENT(allograft_graph_capture_end(graph));
    ABSENT(allograft_graph_instantiate(graph));
    ABSENT(allograft_graph_replay(graph, stream));
    ABSENT(allograft_graph_reset(graph));
    ABSENT(allograft_graph_destroy(graph));
    ABSENT(allograft_graph_debug_dump(graph, "x"));
    ABSENT(allograft_graph_raw(graph, &stream));
    ABSENT(allograft_graph_pool(graph, &pool));
    ABSENT(allograft_stage_open(&options, &stage));
    ABSENT(allograft_stage_begin(stage, stream, &action));
    ABSENT(allograft_stage_end(stage));
    ABSENT(allograft_stage_iteration(stage, NULL, NULL));
    ABSENT(allograft_stage_input(stage, 0, 0, 4, &stream));
    ABSENT(allograft_stage_load(stage, 0, 0, &options, 4, stream));
    ABSENT(allograft_stage_reset(stage));
    ABSENT(allograft_stage_close(stage));
    if (pool != 5 || action != ALLOGRAFT_SKIP || graph || stage || stream) {
        printf("a result was written without a library\n");
        wrong = 1;
    }
}

static void rings(void)
{
    struct allograft_ring_options options = {sizeof(options), 0, 2, 64, 0, ALLOGRAFT_RING_AUTO};
    struct allograft_ring_properties properties;
    allograft_ring *ring = NULL;
    void *memory = NULL;
    size_t n = 0;
    int ready = 0;

    ABSENT(allograft_ring_open(&options, &ring));
    ABSENT(allograft_ring_register(ring, 0, memory, 64));
    ABSENT(allograft_ring_device_slot(ring, 0, &memory));
    ABSENT(allograft_ring_submit(ring, 0, 64));
    ABSENT(allograft_ring_clear(ring, 0));
    ABSENT(allograft_ring_query(ring, 0, &ready));
    ABSENT(allograft_ring_wait_host(ring, 0));
    ABSENT(allograft_ring_wait_stream(ring, 0, NULL));
    ABSENT(allograft_ring_reader(ring, 0, NULL));
    ABSENT(allograft_ring_get_properties(ring, 0, &properties));
    ABSENT(allograft_ring_trace(ring, NULL, 0, &n));
    ABSENT(allograft_ring_pin(ring, NULL, 0));
    ABSENT(allograft_ring_copy(ring, 0, NULL, NULL, 0));
    ABSENT(allograft_ring_get_stream(ring, NULL));
    ABSENT(allograft_ring_close(ring));
}

static void memory_and_statistics(void)
{
    struct allograft_range range = {&wrong, 4};
    struct allograft_snapshot snapshot;
    void *memory = NULL;
    size_t bytes = 0;

    snapshot.bytes = sizeof(snapshot);
    ABSENT(allograft_managed_support(0));
    ABSENT(allograft_managed_alloc(&memory, 4, 0, NULL));
    ABSENT(allograft_managed_free(memory, 4, 0, NULL));
    ABSENT(allograft_prefetch_ranges(&range, 1, ALLOGRAFT_HOST, NULL, &bytes));
    ABSENT(allograft_prefetch(&range, 4, 0, NULL));
    ABSENT(allograft_advise_preferred_location(&range, 1, 0, &bytes));
    ABSENT(allograft_advise_accessed_by(&range, 1, 0, &bytes));
    ABSENT(allograft_memory_place(&range, 4, ALLOGRAFT_PLACE_HOST));
    ABSENT(allograft_snapshot(&snapshot));
    ABSENT(allograft_dump(NULL));
    ABSENT(allograft_mark("x"));
}

int main(void)
{
    graphs_and_stages();
    rings();
    memory_and_statistics();
    if (allograft_is_loaded() || !strstr(allograft_last_error(), "not in this process")) {
        printf("a library was found: %s\n", allograft_last_error());
        wrong = 1;
    }
    if (allograft_load("/nowhere/liballograft.so") != ALLOGRAFT_NOT_LOADED) {
        printf("a file that is not there was loaded\n");
        wrong = 1;
    }
    return wrong;
}
