/* graph/learn/backoff.c: a stream that gains nothing backs off, what begins to repeat is found
 * soon, also iterations longer than one sampling. */
#include "graph/learn/backoff.h"

#include "tests/common/chance.h"
#include "tests/common/check.h"

static uint64_t state = 5;

/* A stream: `gains` per mille of the operations that are sampled are launched in graphs. */
struct stream {
    struct ag_backoff *backoff;
    uint32_t left, length, backoffs; /* left: operations of the back-off that runs */
    uint64_t sampled, passed;
};

static struct stream new_stream(void)
{
    struct stream stream = {.backoff = ag_backoff_new()};

    CHECK(stream.backoff);
    return stream;
}

/* True when it was sampled. */
static bool pass(struct stream *stream, uint64_t hash, uint32_t place)
{
    if (stream->left) {
        stream->passed++;
        if (!--stream->left)
            ag_backoff_end(stream->backoff, stream->length);
        return false;
    }
    stream->sampled++;
    if (ag_backoff_sample(stream->backoff, hash, place)) {
        stream->left = stream->length = ag_backoff_begin(stream->backoff);
        stream->backoffs++;
    }
    return true;
}

/* Iterations of so many operations; operations until `iterations` of them were sampled without a
 * back-off between. */
static uint64_t until_found(struct stream *stream, uint32_t period, uint32_t iterations,
                            uint64_t most)
{
    uint64_t in_a_row = 0, n = 0;

    for (; n < most && in_a_row < (uint64_t)period * iterations; n++) {
        uint64_t seed = n % period + period * 1000003u;

        in_a_row = pass(stream, chance(&seed), 100) ? in_a_row + 1 : 0;
    }
    return n;
}

static void pass_random(struct stream *stream, uint32_t n, uint32_t kinds)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t seed = chance_below(&state, kinds);

        (void)pass(stream, chance(&seed), 100);
    }
}

/* What never repeats is sampled less and less, however few kinds of operations there are. */
static void never(void)
{
    static const uint32_t kinds[] = {2, 4, 64, 1u << 30};

    for (unsigned i = 0; i < N_OF(kinds); i++) {
        struct stream stream = new_stream();

        pass_random(&stream, 60000, kinds[i]);
        CHECK_SAID(stream.sampled < 7500, "%u kinds: %lu", kinds[i], (unsigned long)stream.sampled);
        pass_random(&stream, 2000000, kinds[i]);
        CHECK_SAID(stream.sampled < 50000, "%u kinds: %lu", kinds[i],
                   (unsigned long)stream.sampled);
        CHECK(stream.length == 65536);
        ag_backoff_free(stream.backoff);
    }
}

/* One and the same operation, waited for each time. */
static void waited_for(void)
{
    struct stream stream = new_stream();

    for (unsigned i = 0; i < 40000; i++)
        (void)pass(&stream, 77, 1);
    CHECK_SAID(stream.sampled < 2000, "%lu", (unsigned long)stream.sampled);
    ag_backoff_free(stream.backoff);
}

/* Also where they begin during a back-off: within a quarter of the operations before, and what a
 * few samplings may take. */
static void found(void)
{
    static const uint32_t periods[] = {1, 2, 3, 7, 12, 40, 100, 130, 200, 257, 400, 1000, 3000};
    static const uint32_t before[] = {0, 3000, 50000, 1000000};

    for (unsigned i = 0; i < N_OF(periods); i++) {
        for (unsigned k = 0; k < N_OF(before); k++) {
            struct stream stream = new_stream();
            uint32_t period = periods[i], backoff = before[k] / 4 < 4096 ? 4096 : before[k] / 4;
            uint64_t n, most;

            if (backoff > 65536)
                backoff = 65536;
            pass_random(&stream, before[k], 64);
            most = (period <= 256 ? 1 : 6) * (backoff + 2048) + 8 * period;
            n = until_found(&stream, period, 3, 4 * most);
            CHECK_SAID(n <= most, "%u after %u: %lu", period, before[k], (unsigned long)n);
            ag_backoff_free(stream.backoff);
        }
    }
}

/* Iterations longer than any sampling, from the start. */
static void long_iterations(void)
{
    static const uint32_t periods[] = {5000, 12000, 30000, 60000};

    for (unsigned i = 0; i < N_OF(periods); i++) {
        struct stream stream = new_stream();
        uint64_t n = until_found(&stream, periods[i], 3, 40u * periods[i]);

        CHECK_SAID(n < 16u * periods[i], "%u: %.1f iterations", periods[i], (double)n / periods[i]);
        ag_backoff_free(stream.backoff);
    }
}

/* Iterations that gain nothing are not sampled for ever. */
static void in_vain(void)
{
    static const uint32_t periods[] = {5, 300, 5000};

    for (unsigned i = 0; i < N_OF(periods); i++) {
        struct stream stream = new_stream();

        for (uint64_t n = 0; n < 4000000; n++) {
            uint64_t seed = n % periods[i];

            (void)pass(&stream, chance(&seed), 100);
        }
        CHECK_SAID(stream.sampled < 400000, "%u: %lu", periods[i], (unsigned long)stream.sampled);
        ag_backoff_free(stream.backoff);
    }
}

/* One operation in eight is worth sampling all of them for; a thousandth does not. */
static void gains(void)
{
    struct stream stream = new_stream();

    for (unsigned i = 0; i < 100000; i++) {
        (void)pass(&stream, chance(&state), 100);
        if (i % 64 == 63)
            ag_backoff_gained(stream.backoff, 9);
    }
    CHECK_SAID(!stream.backoffs, "%u", stream.backoffs);
    for (unsigned i = 0; i < 100000; i++) {
        if (pass(&stream, chance(&state), 100) && stream.sampled % 4000 == 0)
            ag_backoff_gained(stream.backoff, 4);
    }
    CHECK_SAID(stream.backoffs > 4, "%u", stream.backoffs);
    ag_backoff_refresh(stream.backoff);
    ag_backoff_free(stream.backoff);
}

/* What another stream used before is as new. */
static void one_after_another(void)
{
    uint64_t sampled = 0;

    for (unsigned i = 0; i < 12; i++) {
        struct stream stream = new_stream();
        uint64_t seed = 9;

        if (i % 3 == 0)
            ag_backoff_prepare();
        for (unsigned n = 0; n < 30000; n++) {
            uint64_t op = n % 700;

            (void)pass(&stream, i % 2 ? chance(&op) : chance(&seed), 100);
        }
        if (i == 0)
            sampled = stream.sampled;
        CHECK_SAID(i % 2 || stream.sampled == sampled, "%u: %lu", i, (unsigned long)stream.sampled);
        ag_backoff_free(stream.backoff);
    }
}

int main(void)
{
    never();
    waited_for();
    found();
    long_iterations();
    in_vain();
    gains();
    one_after_another();
    return 0;
}
