/* Rings of events: order, what is full, many that put and one that takes; and the events of a
 * process as they are put down. `unit_trace --bench` prints what one costs. */
#include "interpose/core/report/trace/trace.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/common/chance.h"
#include "tests/common/check.h"

static struct ag_trace_ring *make_ring(uint32_t positions, uint32_t first)
{
    struct ag_trace_ring *ring =
        mmap(NULL, sizeof(*ring) + positions * sizeof(struct ag_trace_event),
             PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(ring != MAP_FAILED);
    ring->mask = positions - 1;
    atomic_store(&ring->head, first);
    atomic_store(&ring->tail, first);
    return ring;
}

static void drop_ring(struct ag_trace_ring *ring)
{
    munmap(ring, sizeof(*ring) + (ring->mask + 1ul) * sizeof(struct ag_trace_event));
}

/* Fills and empties by chance, also past the end of the positions' numbers. */
static void test_order(bool shared, uint32_t first)
{
    struct ag_trace_ring *ring = make_ring(8, first);
    uint64_t state = 7, put = 0, taken = 0, refused = 0;
    struct ag_trace_event got[8];

    for (unsigned i = 0; i < 5000; i++) {
        if (chance_below(&state, 6)) {
            struct ag_trace_event event = {.kind = AG_TRACE_ALLOC, .size = put, .code = 3};
            bool room = put - taken < 8;

            CHECK_SAID(ag_trace_ring_put(ring, shared, &event, 0, 0) == room, "step %u", i);
            put += room;
            refused += !room;
        } else {
            size_t most = 1 + chance_below(&state, 8), n = ag_trace_ring_take(ring, got, most);

            CHECK_SAID(n == (put - taken < most ? put - taken : most), "step %u", i);
            for (size_t j = 0; j < n; j++)
                CHECK(got[j].size == taken++ && got[j].kind == AG_TRACE_ALLOC && got[j].code == 3);
        }
    }
    CHECK(refused > 100 && atomic_load(&ring->dropped) == refused);
    drop_ring(ring);
}

/* Every field comes out as it went in. */
static void test_fields(void)
{
    struct ag_trace_ring *ring = make_ring(1, 0);
    struct ag_trace_event in, out;
    unsigned char *bytes = (unsigned char *)&in;

    for (size_t i = 0; i < sizeof(in); i++)
        bytes[i] = (unsigned char)(i + 1);
    CHECK(ag_trace_ring_put(ring, false, &in, in.thread, in.module));
    CHECK(!ag_trace_ring_put(ring, false, &in, 1, 2));
    CHECK(ag_trace_ring_take(ring, &out, 5) == 1 && out.sequence == 1);
    in.sequence = 1;
    CHECK(!memcmp(&in, &out, sizeof(in)));
    drop_ring(ring);
}

#define N_THREADS 4u
#define N_EACH    20000u

static struct ag_trace_ring *common;
static _Atomic uint64_t n_refused, n_done;

static void *put_many(void *number)
{
    struct ag_trace_event event = {.thread = (uint32_t)(uintptr_t)number};

    for (uint64_t i = 0; i < N_EACH; i++) {
        event.size = i;
        event.address = i * 3 + event.thread;
        if (!ag_trace_ring_put(common, true, &event, event.thread, 0))
            atomic_fetch_add(&n_refused, 1);
    }
    atomic_fetch_add(&n_done, 1);
    return NULL;
}

/* What several put comes out whole, each thread's in order; all of it was put or refused. */
static void test_threads(void)
{
    uint64_t next[N_THREADS] = {0}, taken = 0;
    pthread_t threads[N_THREADS];
    struct ag_trace_event got[16];
    bool last = false;
    size_t n;

    common = make_ring(64, 0);
    for (uintptr_t i = 0; i < N_THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, put_many, (void *)i));
    do {
        last = atomic_load(&n_done) == N_THREADS;
        while ((n = ag_trace_ring_take(common, got, N_OF(got)))) {
            for (size_t i = 0; i < n; i++) {
                CHECK(got[i].thread < N_THREADS && got[i].size >= next[got[i].thread]);
                CHECK(got[i].address == got[i].size * 3 + got[i].thread);
                next[got[i].thread] = got[i].size + 1;
            }
            taken += n;
        }
    } while (!last);
    for (unsigned i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(taken + atomic_load(&n_refused) == N_THREADS * N_EACH);
    CHECK(atomic_load(&common->dropped) == atomic_load(&n_refused));
    drop_ring(common);
}

static struct ag_trace_ring *own_ring(void)
{
    struct ag_trace_ring *ring = ag_trace_ring_of(ag_slot());

    CHECK(ring);
    return ring;
}

static const struct ag_trace_named *text_of(uint32_t space, uint32_t number)
{
    const struct ag_trace_named *named;

    for (unsigned i = 0; (named = ag_trace_named(i)); i++) {
        if (named->space == space && named->number == number)
            return named;
    }
    return NULL;
}

static bool says(const struct ag_trace_named *named, const char *text)
{
    return named && named->length == strlen(text) && !memcmp(named->text, text, named->length);
}

/* Modules and names are put down once; events refer to them. */
static void test_process(void)
{
    struct ag_trace_event got[64];
    const struct ag_trace_named *module;
    size_t n;

    ag_trace_mark("not yet");
    CHECK(!ag_trace_ring_of(ag_slot()));
    CHECK(ag_trace_prepare(64 * 64 + 63));
    atomic_store(&ag_trace_active, true);
    for (uint64_t i = 0; i < 10; i++)
        ag_trace_add(&(struct ag_trace_event){
            .kind = AG_TRACE_ALLOC, .caller = (uintptr_t)test_process, .size = i});
    ag_trace_add(&(struct ag_trace_event){.kind = AG_TRACE_FREE, .caller = (uintptr_t)snprintf});
    ag_trace_add(&(struct ag_trace_event){.kind = AG_TRACE_FREE, .caller = 4096});
    ag_trace_mark("step 1");
    ag_trace_mark("step 2");
    ag_trace_mark("step 1");
    ag_trace_step(AG_STAT_LADDER_TRIM, 3, 77);
    n = ag_trace_ring_take(own_ring(), got, N_OF(got));
    CHECK(n == 16 && own_ring()->mask == 63);
    CHECK(got[0].module == got[9].module && got[0].module && got[0].thread);
    module = text_of(AG_TRACE_TEXT_MODULE, got[0].module);
    CHECK(module && strstr(module->text, "unit_trace") && module->base < (uintptr_t)test_process);
    CHECK(got[10].module && got[10].module != got[0].module && !got[11].module);
    module = text_of(AG_TRACE_TEXT_MODULE, got[10].module);
    CHECK(module && strlen(module->text) > 1);
    CHECK(says(text_of(AG_TRACE_TEXT_MARK, got[12].code), "step 1"));
    CHECK(says(text_of(AG_TRACE_TEXT_MARK, got[13].code), "step 2") &&
          got[14].code == got[12].code);
    CHECK(got[15].kind == AG_TRACE_STEP && got[15].device == 3 && got[15].size == 77);
    CHECK(says(text_of(AG_TRACE_TEXT_STEP, got[15].code), "trimmed"));
    CHECK(says(text_of(AG_TRACE_TEXT_FLUSH, AG_STAT_FLUSH_WATCHDOG), "watchdog"));
    CHECK(says(text_of(AG_TRACE_TEXT_PLACEMENT, AG_PLACE_SPILLED), "spilled"));
}

/* A full ring: what is too much is counted, and what was there stays. */
static void test_full(void)
{
    uint64_t before = ag_stats_counter(AG_STAT_TRACE_DROPPED);
    struct ag_trace_event got[64];

    for (uint64_t i = 0; i < 100; i++)
        ag_trace_add(&(struct ag_trace_event){.kind = AG_TRACE_ALLOC, .size = i});
    CHECK(ag_stats_counter(AG_STAT_TRACE_DROPPED) - before == 36);
    CHECK(ag_trace_ring_take(own_ring(), got, N_OF(got)) == 64 && got[63].size == 63);
    ag_trace_forget();
    CHECK(!ag_trace_on() && !ag_trace_ring_of(ag_slot()));
}

static void bench(bool on)
{
    const unsigned n = 2000000;
    struct ag_trace_event got[256];
    uint64_t ns = 0, began;

    CHECK(ag_trace_prepare(4u << 20));
    atomic_store(&ag_trace_active, on);
    for (unsigned i = 0; i < n; i += 1000) {
        began = ag_clock_ns();
        for (unsigned j = 0; j < 1000; j++) {
            if (ag_trace_on())
                ag_trace_add(&(struct ag_trace_event){.kind = AG_TRACE_ALLOC,
                                                      .ticks = ag_clock_ticks(),
                                                      .size = j,
                                                      .address = i,
                                                      .caller = (uintptr_t)bench});
            __asm__ volatile("" ::: "memory");
        }
        ns += ag_clock_ns() - began;
        while (on && ag_trace_ring_take(own_ring(), got, N_OF(got)))
            ;
    }
    printf("%s: %.1f ns an event, %llu dropped\n", on ? "on" : "off", (double)ns / n,
           (unsigned long long)ag_stats_counter(AG_STAT_TRACE_DROPPED));
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "--bench")) {
        bench(false);
        bench(true);
        return 0;
    }
    test_order(false, 0);
    test_order(true, 0);
    test_order(false, UINT32_MAX - 100);
    test_order(true, UINT32_MAX - 100);
    test_fields();
    test_threads();
    test_process();
    test_full();
    return 0;
}
