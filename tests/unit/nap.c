/* graph/learn/nap.c: a lane that gains nothing sleeps, what begins to repeat is found soon, and
 * long rounds are not slept through. */
#include "graph/learn/nap.h"

#include "check.h"

static uint64_t state = 5;

/* A lane: `gains` per mille of the operations that it looks at are launched in graphs. */
struct lane {
    struct ag_nap *nap;
    uint32_t asleep, length, naps;
    uint64_t looked_at, slept;
};

static struct lane new_lane(void)
{
    struct lane lane = {.nap = ag_nap_new()};

    CHECK(lane.nap);
    return lane;
}

/* True when it was looked at. */
static bool pass(struct lane *lane, uint64_t hash, uint32_t place)
{
    if (lane->asleep) {
        lane->slept++;
        if (!--lane->asleep)
            ag_nap_end(lane->nap, lane->length);
        return false;
    }
    lane->looked_at++;
    if (ag_nap_tires(lane->nap, hash, place)) {
        lane->asleep = lane->length = ag_nap_begin(lane->nap);
        lane->naps++;
    }
    return true;
}

/* Rounds of so many operations; operations until `rounds` of them were looked at without sleep
 * between. */
static uint64_t until_found(struct lane *lane, uint32_t period, uint32_t rounds, uint64_t most)
{
    uint64_t in_a_row = 0, n = 0;

    for (; n < most && in_a_row < (uint64_t)period * rounds; n++) {
        uint64_t seed = n % period + period * 1000003u;

        in_a_row = pass(lane, chance(&seed), 100) ? in_a_row + 1 : 0;
    }
    return n;
}

static void pass_random(struct lane *lane, uint32_t n, uint32_t kinds)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t seed = chance_below(&state, kinds);

        (void)pass(lane, chance(&seed), 100);
    }
}

/* What never repeats is looked at less and less, however few kinds of operations there are. */
static void never(void)
{
    static const uint32_t kinds[] = {2, 4, 64, 1u << 30};

    for (unsigned i = 0; i < N_OF(kinds); i++) {
        struct lane lane = new_lane();

        pass_random(&lane, 60000, kinds[i]);
        CHECK_SAID(lane.looked_at < 7500, "%u kinds: %lu", kinds[i], (unsigned long)lane.looked_at);
        pass_random(&lane, 2000000, kinds[i]);
        CHECK_SAID(lane.looked_at < 50000, "%u kinds: %lu", kinds[i],
                   (unsigned long)lane.looked_at);
        CHECK(lane.length == 65536);
        ag_nap_free(lane.nap);
    }
}

/* One and the same operation, waited for each time. */
static void waited_for(void)
{
    struct lane lane = new_lane();

    for (unsigned i = 0; i < 40000; i++)
        (void)pass(&lane, 77, 1);
    CHECK_SAID(lane.looked_at < 2000, "%lu", (unsigned long)lane.looked_at);
    ag_nap_free(lane.nap);
}

/* Also where a phase of them begins while the lane sleeps: within a quarter of what was before, and
 * what a few looks may take. */
static void found(void)
{
    static const uint32_t periods[] = {1, 2, 3, 7, 12, 40, 100, 130, 200, 257, 400, 1000, 3000};
    static const uint32_t before[] = {0, 3000, 50000, 1000000};

    for (unsigned i = 0; i < N_OF(periods); i++) {
        for (unsigned k = 0; k < N_OF(before); k++) {
            struct lane lane = new_lane();
            uint32_t period = periods[i], nap = before[k] / 4 < 4096 ? 4096 : before[k] / 4;
            uint64_t n, most;

            if (nap > 65536)
                nap = 65536;
            pass_random(&lane, before[k], 64);
            most = (period <= 256 ? 1 : 6) * (nap + 2048) + 8 * period;
            n = until_found(&lane, period, 3, 4 * most);
            CHECK_SAID(n <= most, "%u after %u: %lu", period, before[k], (unsigned long)n);
            ag_nap_free(lane.nap);
        }
    }
}

/* Rounds longer than any look, from the start. */
static void long_rounds(void)
{
    static const uint32_t periods[] = {5000, 12000, 30000, 60000};

    for (unsigned i = 0; i < N_OF(periods); i++) {
        struct lane lane = new_lane();
        uint64_t n = until_found(&lane, periods[i], 3, 40u * periods[i]);

        CHECK_SAID(n < 16u * periods[i], "%u: %.1f rounds", periods[i], (double)n / periods[i]);
        ag_nap_free(lane.nap);
    }
}

/* Rounds of which nothing comes are not looked at for ever. */
static void in_vain(void)
{
    static const uint32_t periods[] = {5, 300, 5000};

    for (unsigned i = 0; i < N_OF(periods); i++) {
        struct lane lane = new_lane();

        for (uint64_t n = 0; n < 4000000; n++) {
            uint64_t seed = n % periods[i];

            (void)pass(&lane, chance(&seed), 100);
        }
        CHECK_SAID(lane.looked_at < 400000, "%u: %lu", periods[i], (unsigned long)lane.looked_at);
        ag_nap_free(lane.nap);
    }
}

/* One operation in eight pays for looking at all of them; a thousandth does not. */
static void gains(void)
{
    struct lane lane = new_lane();

    for (unsigned i = 0; i < 100000; i++) {
        (void)pass(&lane, chance(&state), 100);
        if (i % 64 == 63)
            ag_nap_gained(lane.nap, 9);
    }
    CHECK_SAID(!lane.naps, "%u", lane.naps);
    for (unsigned i = 0; i < 100000; i++) {
        if (pass(&lane, chance(&state), 100) && lane.looked_at % 4000 == 0)
            ag_nap_gained(lane.nap, 4);
    }
    CHECK_SAID(lane.naps > 4, "%u", lane.naps);
    ag_nap_refresh(lane.nap);
    ag_nap_free(lane.nap);
}

/* What another lane used before is as new. */
static void one_after_another(void)
{
    uint64_t looked_at = 0;

    for (unsigned i = 0; i < 12; i++) {
        struct lane lane = new_lane();
        uint64_t seed = 9;

        if (i % 3 == 0)
            ag_nap_prepare();
        for (unsigned n = 0; n < 30000; n++) {
            uint64_t op = n % 700;

            (void)pass(&lane, i % 2 ? chance(&op) : chance(&seed), 100);
        }
        if (i == 0)
            looked_at = lane.looked_at;
        CHECK_SAID(i % 2 || lane.looked_at == looked_at, "%u: %lu", i,
                   (unsigned long)lane.looked_at);
        ag_nap_free(lane.nap);
    }
}

int main(void)
{
    never();
    waited_for();
    found();
    long_rounds();
    in_vain();
    gains();
    one_after_another();
    return 0;
}
