/* Forks over several streams and joins them again, in loops: in the ways that the first argument
 * names, or at random by the number behind "random". What each kernel found of the others' work can
 * be read off what this prints. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/common/device.h"
#include "tests/common/kernel_words.h"
#include "tests/common/say.h"

#define STREAMS 5u
#define EVENTS  6u
#define SLOTS   256u /* of a stream; each is written once between two waits for all */
#define OPS     64u

static CUfunction weave, lift, await;
static CUdeviceptr slots;
static uint32_t *flags; /* pinned */
static CUstream streams[STREAMS];
static CUevent events[EVENTS];
static bool blocking[STREAMS];
static CUcontext context;

/* Of stream s: operations so far, and how many of each other's it comes behind. Of event e: the
 * same of where it was recorded last. */
static uint32_t known[STREAMS][STREAMS], covered[EVENTS][STREAMS];
static uint32_t heard; /* what the host has read */
static bool lap_is_due;

/* p, to, a, b, value */
static void run_weave(const struct sim_kernel_call *call)
{
    uint32_t *word =
        sim_kernel_access(*(CUdeviceptr *)call->args[0], sizeof(*word) * STREAMS * SLOTS, true);

    if (word)
        word[word_arg(call, 1)] =
            mix(word[word_arg(call, 2)] ^ 3 * word[word_arg(call, 3)] ^ word_arg(call, 4));
}

/* flag, value */
static void run_lift(const struct sim_kernel_call *call)
{
    uint32_t *flag = sim_kernel_access(*(CUdeviceptr *)call->args[0], sizeof(*flag), true);

    if (flag)
        __atomic_store_n(flag, word_arg(call, 1), __ATOMIC_RELEASE);
}

/* flag, value */
static void run_await(const struct sim_kernel_call *call)
{
    const uint32_t *flag = sim_kernel_access(*(CUdeviceptr *)call->args[0], sizeof(*flag), false);

    if (flag && __atomic_load_n(flag, __ATOMIC_ACQUIRE) < word_arg(call, 1))
        sim_kernel_again();
}

static void begin(void)
{
    static const size_t weaved[] = {8, 4, 4, 4, 4}, flagged[] = {8, 4};
    static const char image[64] = "any bytes";
    CUmodule module;
    void *pinned;

    sim_register_kernel("weave", run_weave, 5, weaved);
    sim_register_kernel("lift", run_lift, 2, flagged);
    sim_register_kernel("await", run_await, 2, flagged);
    context = device_open();
    OK(cuModuleLoadData(&module, image));
    OK(cuModuleGetFunction(&weave, module, "weave"));
    OK(cuModuleGetFunction(&lift, module, "lift"));
    OK(cuModuleGetFunction(&await, module, "await"));
    OK(cuMemAlloc(&slots, 4 * STREAMS * SLOTS));
    OK(cuMemsetD8(slots, 0, 4 * STREAMS * SLOTS));
    OK(cuMemAllocHost(&pinned, 4096));
    memset(pinned, 0, 4096);
    flags = pinned;
    for (unsigned e = 0; e < EVENTS; e++)
        OK(cuEventCreate(&events[e], e % 2 ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING));
}

static void make_stream(unsigned s)
{
    OK(cuStreamCreate(&streams[s], blocking[s] ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
}

/* Bits of `kinds`: which streams are blocking ones. */
static void make_streams(unsigned kinds)
{
    for (unsigned s = 0; s < STREAMS; s++) {
        blocking[s] = kinds >> s & 1;
        make_stream(s);
    }
    OK(cuCtxSynchronize());
}

static void host_knows_all(void)
{
    OK(cuCtxSynchronize());
    for (unsigned s = 0; s < STREAMS; s++)
        for (unsigned t = 0; t < STREAMS; t++)
            known[s][t] = known[t][t];
}

static uint32_t slot(unsigned s, uint32_t n)
{
    return s * SLOTS + n % SLOTS;
}

/* Folds what stream s did last, and what it knows of `other`, into its next word. */
static void step(unsigned s, unsigned other, uint32_t value)
{
    uint32_t n = known[s][s] + 1;
    uint32_t to = slot(s, n), a = slot(s, n - 1), b = slot(other, known[s][other]);
    void *args[] = {&slots, &to, &a, &b, &value};

    OK(cuLaunchKernel(weave, 1, 1, 1, 32, 1, 1, 0, streams[s], args, NULL));
    known[s][s] = n;
    lap_is_due |= n % (SLOTS / 2) == 0;
}

/* Slots are written again only once all is done. */
static void begin_iteration(void)
{
    if (lap_is_due)
        host_knows_all();
    lap_is_due = false;
}

static void record(unsigned e, unsigned s)
{
    OK(cuEventRecord(events[e], streams[s]));
    memcpy(covered[e], known[s], sizeof(covered[e]));
}

static void wait_for(unsigned s, unsigned e)
{
    OK(cuStreamWaitEvent(streams[s], events[e], 0));
    for (unsigned t = 0; t < STREAMS; t++)
        if (t != s && known[s][t] < covered[e][t])
            known[s][t] = covered[e][t];
}

static void flag_kernel(CUfunction function, unsigned s, unsigned flag, uint32_t value)
{
    CUdeviceptr p = (CUdeviceptr)(uintptr_t)(flags + flag);
    void *args[] = {&p, &value};

    OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, streams[s], args, NULL));
}

/* What the event covers is done: the host reads the last of it. */
static void read_covered(unsigned e)
{
    uint32_t word;

    for (unsigned s = 0; s < STREAMS; s++) {
        if (!covered[e][s] || known[s][s] - covered[e][s] >= SLOTS / 2)
            continue;
        OK(cuMemcpyDtoH(&word, slots + 4 * slot(s, covered[e][s]), 4));
        heard = mix(heard ^ word);
    }
}

static void read_behind(unsigned e)
{
    OK(cuEventSynchronize(events[e]));
    read_covered(e);
}

static void tell(const char *what)
{
    static uint32_t words[STREAMS * SLOTS];
    uint32_t all = 0;

    host_knows_all();
    OK(cuMemcpyDtoH(words, slots, sizeof(words)));
    for (unsigned i = 0; i < STREAMS * SLOTS; i++)
        all = mix(all ^ words[i]);
    say("%s: %08x, the host %08x", what, all, heard);
}

/* ---- by name ---- */

/* Stream 0 forks and joins `n` others. */
static void fork_and_join(unsigned n, uint32_t iteration)
{
    step(0, 1, iteration);
    record(0, 0);
    for (unsigned s = 1; s <= n; s++) {
        wait_for(s, 0);
        for (uint32_t i = 0; i < 5; i++)
            step(s, 0, i % 2 ? i : iteration + i);
        record(s, s);
    }
    step(0, 0, 7);
    for (unsigned s = 1; s <= n; s++)
        wait_for(0, s);
    for (uint32_t i = 0; i < 4; i++)
        step(0, 1 + i % n, iteration);
}

static void waited(void)
{
    make_streams(0);
    for (uint32_t i = 0; i < 60; i++) {
        begin_iteration();
        fork_and_join(3, i);
        OK(cuStreamSynchronize(streams[0]));
    }
    tell("waited for");
}

static void unwaited(void)
{
    make_streams(0);
    for (uint32_t i = 0; i < 200; i++) {
        begin_iteration();
        fork_and_join(3, i);
    }
    tell("not waited for");
}

/* The leader is a blocking stream, and others are not. */
static void mixed(void)
{
    make_streams(1 | 4);
    for (uint32_t i = 0; i < 60; i++) {
        begin_iteration();
        fork_and_join(4, i);
        if (i % 3 == 0)
            OK(cuStreamSynchronize(streams[0]));
        if (i % 7 == 0)
            OK(cuMemsetD32(slots + 4 * slot(4, SLOTS - 1), i, 1));
    }
    tell("of both kinds");
}

/* A branch's stream waits for what its leader does before the fork: no graph of both may be
 * submitted behind it. */
static void stuck_before(void)
{
    make_streams(0);
    for (uint32_t i = 0; i < 40; i++) {
        begin_iteration();
        if (i > 20 && i % 4 == 0) {
            flag_kernel(await, 1, 0, i);
            step(1, 1, i);
        }
        flag_kernel(lift, 0, 0, i);
        fork_and_join(2, i);
        OK(cuStreamSynchronize(streams[0]));
    }
    tell("behind a kernel that waits for the leader");
}

/* A branch that is not joined waits for what its leader does later. */
static void stuck_behind(void)
{
    make_streams(0);
    for (uint32_t i = 1; i < 40; i++) {
        begin_iteration();
        fork_and_join(2, i);
        record(3, 0);
        wait_for(3, 3);
        flag_kernel(await, 3, 1, i);
        record(4, 3);
        for (uint32_t k = 0; k < 5; k++)
            step(0, 1, k);
        if (i % 2)
            OK(cuStreamSynchronize(streams[0]));
        flag_kernel(lift, 0, 1, i);
        if (i % 3 == 0)
            wait_for(0, 4);
    }
    tell("before a kernel that the leader releases");
}

/* One stream hands work on to another, and never waits for that. */
static void handed_on(void)
{
    make_streams(0);
    for (uint32_t i = 0; i < 300; i++) {
        begin_iteration();
        for (uint32_t k = 0; k < 6; k++)
            step(0, 0, k);
        record(0, 0);
        wait_for(1, 0);
        for (uint32_t k = 0; k < 6; k++)
            step(1, 0, k);
        if (i % 10 == 9)
            OK(cuStreamSynchronize(streams[1]));
    }
    tell("handed on");
}

/* The host goes on behind an event in the middle, and lets the rest go on. */
static void let_on(void)
{
    make_streams(0);
    for (uint32_t i = 1; i < 40; i++) {
        begin_iteration();
        fork_and_join(2, i);
        record(0, 0);
        wait_for(1, 0);
        step(1, 0, i);
        record(1, 1);
        flag_kernel(await, 1, 2, i);
        record(2, 1);
        wait_for(0, 2);
        step(0, 1, i);
        read_behind(1);
        __atomic_store_n(&flags[2], i, __ATOMIC_RELEASE);
        OK(cuStreamSynchronize(streams[0]));
    }
    tell("let on by the host");
}

static void *ask(void *data)
{
    unsigned e = *(const unsigned *)data;

    OK(cuCtxSetCurrent(context));
    OK(cuEventSynchronize(events[e]));
    return NULL;
}

/* The same with one branch, and `ask` before it is joined. */
static void ask_in_fork(uint32_t iteration, void (*ask)(void))
{
    begin_iteration();
    step(0, 0, iteration);
    record(0, 0);
    wait_for(1, 0);
    for (uint32_t i = 0; i < 6; i++)
        step(1, 0, i);
    record(1, 1);
    step(0, 0, 3);
    if (ask)
        ask();
    wait_for(0, 1);
    for (uint32_t i = 0; i < 6; i++)
        step(0, 1, i);
}

static void ask_by_thread(void)
{
    static unsigned asked = 1;
    pthread_t thread;

    if (pthread_create(&thread, NULL, ask, &asked) || pthread_join(thread, NULL))
        say("no thread");
    read_covered(1);
}

static void query(void)
{
    while (cuEventQuery(events[1]) == CUDA_ERROR_NOT_READY)
        ;
    read_covered(1);
}

static void wait_by_stream(void)
{
    wait_for(4, 1);
    step(4, 1, 9);
    OK(cuStreamSynchronize(streams[4]));
}

static void time_it(void)
{
    float ms;

    while (cuEventElapsedTime(&ms, events[3], events[1]) == CUDA_ERROR_NOT_READY)
        ;
    read_covered(1);
}

static void recorded_again(void)
{
    record(1, 2);
    step(2, 2, 4);
    record(1, 1);
}

/* Of an event that is withheld, in each way: another thread waits for it, and this one goes on
 * behind that; queries; a stream that is no branch; elapsed times; records elsewhere. */
static void asked(void (*ask)(void))
{
    make_streams(0);
    OK(cuEventRecord(events[3], streams[0]));
    for (uint32_t i = 0; i < 60; i++) {
        ask_in_fork(i, i % 4 == 3 ? ask : NULL);
        if (i % 3 == 0)
            OK(cuStreamSynchronize(streams[0]));
    }
    tell("asked for");
}

static void asked_elsewhere(void)
{
    asked(ask_by_thread);
}

static void queried(void)
{
    asked(query);
}

static void waited_for(void)
{
    asked(wait_by_stream);
}

static void timed(void)
{
    asked(time_it);
}

static void reused(void)
{
    asked(recorded_again);
}

static void *record_elsewhere(void *unused)
{
    (void)unused;
    OK(cuCtxSetCurrent(context));
    for (uint32_t i = 0; i < 20; i++)
        step(4, 4, i);
    record(0, 4);
    return NULL;
}

/* Before a stream waits for a fork's event, another thread records it on a stream of its own. */
static void stolen(void)
{
    make_streams(0);
    for (uint32_t i = 0; i < 60; i++) {
        pthread_t thread;

        begin_iteration();
        step(0, 1, i);
        record(0, 0);
        if (i % 3 == 2 &&
            (pthread_create(&thread, NULL, record_elsewhere, NULL) || pthread_join(thread, NULL)))
            say("no thread");
        wait_for(1, 0);
        for (uint32_t k = 0; k < 5; k++)
            step(1, i % 3 == 2 ? 4 : 0, k);
        record(1, 1);
        wait_for(0, 1);
        for (uint32_t k = 0; k < 5; k++)
            step(0, 1, k);
        if (i % 5 == 0)
            OK(cuStreamSynchronize(streams[0]));
    }
    tell("recorded elsewhere");
}

/* Streams of branches get other work between two forks, of kinds that are not recorded, too. */
static void strays(void)
{
    uint32_t word;

    make_streams(0);
    for (uint32_t i = 0; i < 80; i++) {
        if (i % 10 != 7)
            begin_iteration();
        fork_and_join(3, i);
        if (i % 10 == 5) {
            step(1, 1, i);
        } else if (i % 10 == 6) { /* which the host lets go on after the next fork */
            OK(cuStreamWaitValue32(streams[2], (CUdeviceptr)(uintptr_t)(flags + 5), i,
                                   CU_STREAM_WAIT_VALUE_GEQ));
            OK(cuStreamWriteValue32(streams[2], slots + 4 * slot(2, known[2][2] + 1), i, 0));
            known[2][2]++;
        } else if (i % 10 == 7) {
            __atomic_store_n(&flags[5], i, __ATOMIC_RELEASE);
            OK(cuMemcpyDtoHAsync(&word, slots + 4 * slot(3, known[3][3]), 4, streams[3]));
            OK(cuStreamSynchronize(streams[3]));
            heard = mix(heard ^ word);
        } else if (i % 10 == 8) {
            record(5, 1);
            wait_for(2, 5);
            step(2, 1, i);
        } else if (i % 10 == 9) {
            OK(cuStreamSynchronize(streams[0]));
        }
    }
    tell("with other work in between");
}

/* Events and streams that come and go. */
static void renewed(void)
{
    make_streams(0);
    for (uint32_t i = 0; i < 60; i++) {
        begin_iteration();
        fork_and_join(3, i);
        if (i % 20 == 13) {
            OK(cuEventDestroy(events[2]));
            OK(cuEventCreate(&events[2], CU_EVENT_DISABLE_TIMING));
            memset(covered[2], 0, sizeof(covered[2]));
        } else if (i % 20 == 17) {
            OK(cuStreamDestroy(streams[3]));
            make_stream(3);
            host_knows_all();
        }
    }
    tell("renewed");
}

/* ---- at random ---- */

static uint64_t random_state;

static uint32_t draw(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}

struct op {
    enum { STEP, RECORD, WAIT } kind;
    unsigned s, e, other;
    bool changes;
};

static struct op body[OPS];
static unsigned n_body, n_streams;

static void put(struct op op)
{
    if (n_body < OPS)
        body[n_body++] = op;
}

static void put_steps(unsigned s, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        put((struct op){STEP, s, 0, draw(n_streams), draw(3) == 0});
}

static void put_fork(unsigned leader)
{
    unsigned e = draw(EVENTS), late[STREAMS], n_late = 0;

    put((struct op){RECORD, leader, e, 0, false});
    for (unsigned s = 0; s < n_streams; s++) {
        unsigned back = draw(EVENTS);

        if (s == leader || draw(4) == 0)
            continue;
        put((struct op){WAIT, s, e, 0, false});
        put_steps(s, draw(5));
        if (draw(8) == 0)
            continue;
        put((struct op){RECORD, s, back, 0, false});
        if (draw(2))
            put((struct op){WAIT, leader, back, 0, false});
        else
            late[n_late++] = back;
    }
    put_steps(leader, draw(4));
    while (n_late)
        put((struct op){WAIT, leader, late[--n_late], 0, false});
}

static void put_any(void)
{
    put((struct op){(int)draw(3), draw(n_streams), draw(EVENTS), draw(n_streams), draw(2) == 0});
}

static void do_op(const struct op *op, uint32_t iteration)
{
    if (op->kind == STEP)
        step(op->s, op->other, op->changes ? iteration : op->s);
    else if (op->kind == RECORD)
        record(op->e, op->s);
    else
        wait_for(op->s, op->e);
}

static void surprise(uint32_t iteration)
{
    unsigned s = draw(n_streams), e = draw(EVENTS);
    CUdeviceptr p;
    float ms;

    switch (draw(11)) {
    case 0:
        (void)cuEventQuery(events[e]);
        break;
    case 1:
        (void)cuEventElapsedTime(&ms, events[1], events[3]);
        break;
    case 2:
        read_behind(e);
        break;
    case 3:
        OK(cuStreamSynchronize(streams[s]));
        break;
    case 4:
        (void)cuStreamQuery(streams[s]);
        break;
    case 5:
        step(s, s, iteration);
        break;
    case 6:
        OK(cuStreamWriteValue32(streams[s], slots + 4 * slot(s, known[s][s] + 1), iteration, 0));
        known[s][s]++;
        break;
    case 7:
        OK(cuMemAlloc(&p, 4096));
        OK(cuMemFree(p));
        break;
    case 8:
        OK(cuEventDestroy(events[e]));
        OK(cuEventCreate(&events[e], CU_EVENT_DEFAULT));
        memset(covered[e], 0, sizeof(covered[e]));
        break;
    case 9:
        OK(cuStreamDestroy(streams[s]));
        make_stream(s);
        host_knows_all();
        break;
    default:
        host_knows_all();
        break;
    }
}

static void end_iteration(unsigned end)
{
    if (end == 0)
        OK(cuStreamSynchronize(streams[0]));
    else if (end == 1)
        read_behind(draw(EVENTS));
    else if (end == 2)
        host_knows_all();
}

static void at_random(unsigned seed)
{
    unsigned end, every;

    random_state = seed * 2654435761u + 12345;
    n_streams = 2 + draw(STREAMS - 1);
    make_streams(draw(3) ? 0 : draw(1u << STREAMS));
    for (unsigned parts = 1 + draw(4); parts; parts--) {
        if (draw(4))
            put_fork(draw(3) ? 0 : draw(n_streams));
        else
            put_any();
        put_steps(draw(n_streams), draw(4));
    }
    end = draw(6);
    every = draw(3) ? 2 + draw(9) : 1000;
    for (uint32_t i = 0; i < 40; i++) {
        unsigned at = i % every == every - 1 ? draw(n_body + 1) : n_body + 1;

        begin_iteration();
        for (unsigned k = 0; k < n_body; k++) {
            if (k == at)
                surprise(i);
            do_op(&body[k], i);
        }
        end_iteration(end);
    }
    tell("at random");
}

static const struct {
    const char *name;
    void (*run)(void);
} parts[] = {
    {"waited", waited},
    {"unwaited", unwaited},
    {"mixed", mixed},
    {"stuck-before", stuck_before},
    {"stuck-behind", stuck_behind},
    {"let-on", let_on},
    {"handed-on", handed_on},
    {"asked-elsewhere", asked_elsewhere},
    {"queried", queried},
    {"waited-for", waited_for},
    {"timed", timed},
    {"reused", reused},
    {"stolen", stolen},
    {"strays", strays},
    {"renewed", renewed},
};

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "";

    begin();
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (!strcmp(part, parts[i].name))
            parts[i].run();
    }
    if (!strcmp(part, "random") && argc > 2)
        at_random((unsigned)strtoul(argv[2], NULL, 10));
    say("violations: %u", sim_violations());
    return 3;
}
