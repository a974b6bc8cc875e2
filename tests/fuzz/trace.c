/* Traces: whatever the bytes are, the reader refuses them in one line, or gives events in order,
 * levels that add up, and output that ends. */
#include "tools/trace/trace_out.h"

#include <string.h>

#include "fuzz.h"

struct seen {
    uint64_t n, last_ns;
};

static void look(const struct trace_state *state, void *data)
{
    const struct trace_event *event = &state->event;
    struct seen *seen = data;
    uint64_t total = 0;

    for (unsigned i = 0; i < AG_TRACE_N_PLACES; i++)
        total += state->level[i];
    FUZZ_CHECK(total == state->total);
    FUZZ_CHECK(event->placement < AG_TRACE_N_PLACES && state->from < AG_TRACE_N_PLACES);
    seen->n++;
}

static void check(const struct trace *trace)
{
    static struct trace_bucket buckets[7];
    const struct trace_info *info = trace_info(trace);
    struct trace_block *left;
    struct trace_site sites[3];
    struct seen seen = {0, 0};
    uint64_t kinds = 0;
    char name[64];
    long n;

    FUZZ_CHECK(trace_walk(trace, AG_TRACE_NO_DEVICE, look, &seen) && seen.n == info->n_events);
    for (unsigned i = 0; i < 256; i++)
        kinds += info->n_kinds[i];
    FUZZ_CHECK(kinds == info->n_events && info->last_ns >= info->opened_ns);
    FUZZ_CHECK(strlen(info->program) < 256 && strlen(info->host) < 72 &&
               strlen(info->allograft) < 32);
    FUZZ_CHECK(trace_walk(trace, 0, look, &seen) && seen.n <= 2 * info->n_events);
    FUZZ_CHECK(trace_memory(trace, AG_TRACE_NO_DEVICE, 7, buckets));
    for (unsigned i = 0; i < 7; i++) {
        FUZZ_CHECK(!i || buckets[i].from_ns >= buckets[i - 1].from_ns);
        for (unsigned j = 0; j < AG_TRACE_N_PLACES; j++)
            FUZZ_CHECK(buckets[i].least[j] <= buckets[i].most[j]);
    }
    n = trace_left(trace, AG_TRACE_NO_DEVICE, &left);
    FUZZ_CHECK(n >= 0);
    for (long i = 1; i < n; i++)
        FUZZ_CHECK(left[i - 1].address < left[i].address);
    free(left);
    n = trace_sites(trace, AG_TRACE_NO_DEVICE, 3, sites);
    FUZZ_CHECK(n >= 0 && n <= 3);
    for (long i = 0; i < n; i++) {
        FUZZ_CHECK(sites[i].n_allocs && sites[i].n_temporary <= sites[i].n_allocs);
        FUZZ_CHECK(*trace_site_name(trace, sites[i].module, sites[i].caller, name, sizeof(name)));
        FUZZ_CHECK(strlen(trace_module_build_id(trace, sites[i].module)) <= AG_TRACE_TEXT_MAX);
    }
}

static void write_all(const struct trace *trace)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    FUZZ_CHECK(out && trace_write_perfetto(trace, AG_TRACE_NO_DEVICE, 0, out));
    FUZZ_CHECK(trace_write_rmm(trace, AG_TRACE_NO_DEVICE, out));
    FUZZ_CHECK(trace_write_summary(trace, AG_TRACE_NO_DEVICE, out));
    FUZZ_CHECK(trace_write_torch(trace, AG_TRACE_NO_DEVICE, out));
    FUZZ_CHECK(!fclose(out) && size);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[200] = "";
    /* Of its own size, so that a byte read behind the end is noticed. */
    void *copy = malloc(size ? size : 1);
    struct trace *trace;

    FUZZ_CHECK(copy);
    if (size)
        memcpy(copy, data, size);
    trace = trace_of_bytes(copy, size, why, sizeof(why));
    FUZZ_CHECK(!trace == !!*why && !strchr(why, '\n'));
    if (trace) {
        check(trace);
        write_all(trace);
    }
    trace_close(trace);
    free(copy);
    return 0;
}
