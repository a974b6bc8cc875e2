/* interpose/resolve/trampoline*.c and the thunks: what a program puts into registers and on the
 * stack arrives, whatever happens in between, and every function of the driver gets the trampoline
 * that is meant. */
#include "interpose/resolve/trampoline.h"

#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "interpose/core/driver/driver.h"
#include "interpose/core/driver/real_dlsym.h"
#include "interpose/hooks/entry.h"
#include "interpose/resolve/bypass.h"
#include "policy/order/drain.h"
#include "tests/common/chance.h"
#include "tests/common/check.h"

#define A_NAME     "cuMemBatchDecompressAsync"
#define LARGE_NAME "cuStreamBatchMemOp_v2"
#define ANY_NAME   "cuMemRangeGetAttribute"
#define CHAIN_NAME "cuMemcpyPeerAsync"
#define CODE_NAME  "cuTexRefSetAddress_v2"
#define PLAIN_NAME "cuStreamAttachMemAsync"
#define STILL_NAME "cuCtxGetCurrent"
#define TWIN_NAME  "cuMemcpyAtoA" /* at the address of one that is still */
#define WORK_NAME  "cuMemcpyAtoH_v2"
#define GONE_NAME  "cuStreamWriteValue64" /* not in this driver */

/* --- what trampoline*.c call --- */

_Thread_local int ag_entry_depth;
_Thread_local int ag_entry_errno;
_Atomic int ag_entry_state = AG_ENTRY_NEW;
_Atomic int ag_entry_replay = AG_REPLAY_NEW;
_Atomic uint32_t ag_replay_withheld;
_Atomic uint64_t ag_memory_epoch;

static unsigned starts, flushes, forgets, exits, submits, watch_ends;
struct ag_watch_state ag_watch_state;
struct ag_watch_thread ag_watch_stranger = {.permit = AG_WATCH_ALL};
_Thread_local struct ag_watch_thread *ag_watch_own = &ag_watch_stranger;
static bool driver_is_there;
static bool looks_back; /* a flush takes a backtrace */
static void *came_back[64];
static int n_came_back;

bool ag_entry_needs(enum ag_when when)
{
    CHECK(when == AG_WHEN_GRAPH);
    return ag_entry_replays_now();
}

enum ag_entry_state ag_entry_start(void)
{
    starts++;
    atomic_store(&ag_entry_state, AG_ENTRY_ACTIVE);
    return AG_ENTRY_ACTIVE;
}

bool ag_driver_is_loaded(void)
{
    return driver_is_there;
}

/* Every register that a call may change, and the stack below, become something else. */
static void spoil(void)
{
    volatile unsigned char below[512];

    memset((void *)below, 0xa5, sizeof(below));
#if defined(__x86_64__)
#define VECTOR(n) "pcmpeqd %%xmm" #n ", %%xmm" #n "\n\t"
    __asm__ volatile(
        "movq $0x5a5a5a5a, %%rax\n\tmovq %%rax, %%rcx\n\tmovq %%rax, %%rdx\n\tmovq %%rax, %%rsi\n\t"
        "movq %%rax, %%rdi\n\tmovq %%rax, %%r8\n\tmovq %%rax, %%r9\n\tmovq %%rax, %%r10\n\t"
        "movq %%rax, %%r11\n\t" VECTOR(0) VECTOR(1) VECTOR(2) VECTOR(3) VECTOR(4) VECTOR(5)
            VECTOR(6) VECTOR(7)::
                : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "xmm0", "xmm1",
                  "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7");
#elif defined(__aarch64__)
#define GENERAL(n) "mov x" #n ", #0x5a5a\n\t"
#define VECTOR(n)  "movi v" #n ".16b, #255\n\t"
    __asm__ volatile(GENERAL(0) GENERAL(1) GENERAL(2) GENERAL(3) GENERAL(4) GENERAL(5) GENERAL(6)
                         GENERAL(7) GENERAL(8) VECTOR(0) VECTOR(1) VECTOR(2) VECTOR(3) VECTOR(4)
                             VECTOR(5) VECTOR(6) VECTOR(7)::
                                 : "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "v0", "v1",
                                   "v2", "v3", "v4", "v5", "v6", "v7");
#endif
}

static __attribute__((noinline)) void work(void)
{
    CHECK(ag_entry_depth == 1);
    CHECK((uintptr_t)__builtin_frame_address(0) % 16 == 0);
    if (looks_back)
        n_came_back = backtrace(came_back, (int)N_OF(came_back));
    errno = EBADF;
    spoil();
}

void ag_replay_flush_all(enum ag_flush why)
{
    CHECK(why == AG_FLUSH_CALL);
    flushes++;
    work();
}

void ag_replay_flush_before_work(void)
{
    if (!ag_replay_holds())
        return;
    flushes++;
    work();
}

void ag_replay_forget_code(enum ag_flush why, bool unloads)
{
    CHECK(why == AG_FLUSH_CODE && !unloads);
    forgets++;
    work();
}

bool ag_replay_on(void)
{
    return ag_entry_replays_now() && !exits;
}

bool ag_bypass_find(enum ag_bypass_verdict (*judge)(const char *symbol),
                    struct ag_bypass_found *ret_found)
{
    (void)ret_found;
    CHECK(judge(STILL_NAME) == AG_BYPASS_HARMLESS);
    CHECK(judge(A_NAME) == AG_BYPASS_BOUND && judge("cuMemFree_v2") == AG_BYPASS_BOUND);
    CHECK(judge("cuNobodyKnows") == AG_BYPASS_NAMED);
    return false;
}

enum ag_hook ag_hook_by_name(const char *name)
{
    return strcmp(name, "cuMemFree_v2") ? AG_N_HOOKS : AG_HOOK_cuMemFree_v2;
}

void ag_watch_submits(CUstream stream, bool per_thread)
{
    CHECK(ag_watch_number(stream, per_thread) == AG_WATCH_ALL);
    submits++;
    work();
}

void ag_drain_note_visible(enum ag_visible how)
{
    (void)how;
    CHECK(false); /* ag_bypass_find() finds nothing */
}

void ag_watch_end(const char *why)
{
    CHECK(why && ag_entry_depth == 1);
    watch_ends++;
    ag_watch_state.on = false;
    atomic_store(&ag_watch_stranger.permit, AG_WATCH_ALL);
}

void ag_latch_end(void)
{
}

void ag_replay_stop(void)
{
    CHECK(ag_entry_depth == 1);
    exits++;
}

/* --- the driver --- */

typedef float v4 __attribute__((vector_size(16)));

static uint64_t words[16];
static v4 vectors[8];
static double last;

static bool same(v4 a, v4 b)
{
    return !memcmp(&a, &b, sizeof(a));
}

/* More of everything than there are registers for. */
static int takes_all(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, v4 v0,
                     v4 v1, v4 v2, v4 v3, v4 v4_, v4 v5, v4 v6, v4 v7, uint64_t g, uint64_t h,
                     uint64_t i, uint64_t j, uint64_t k, double z)
{
    const uint64_t got[] = {a, b, c, d, e, f, g, h, i, j, k};

    CHECK(!memcmp(got, words, sizeof(got)));
    CHECK(same(v0, vectors[0]) && same(v1, vectors[1]) && same(v2, vectors[2]));
    CHECK(same(v3, vectors[3]) && same(v4_, vectors[4]) && same(v5, vectors[5]));
    CHECK(same(v6, vectors[6]) && same(v7, vectors[7]));
    CHECK(z == last);
    return 4711;
}

struct large {
    uint64_t word[8];
};

/* The address of what is returned is an argument, too. */
static struct large returns_much(uint64_t a, double z)
{
    struct large large;

    for (unsigned i = 0; i < N_OF(large.word); i++)
        large.word[i] = a + i;
    CHECK(z == last);
    return large;
}

/* Says how many vector registers hold arguments: in al, on x86-64. */
static double takes_any(int n, ...)
{
    va_list list;
    double sum = 0;

    va_start(list, n);
    while (n--)
        sum += va_arg(list, double);
    va_end(list);
    return sum;
}

#if defined(__x86_64__)
/* r10 is the static chain, what a function inside another, or a closure of some languages, is
 * given; al tells of vector registers. */
static __attribute__((naked)) uint64_t tells_chain(void)
{
    __asm__("addq %r10, %rax\n\tret");
}
#endif

static unsigned empty_calls;

static CUresult counts(void)
{
    empty_calls++;
    return CUDA_SUCCESS;
}

static unsigned work_calls;

static CUresult counts_work(void)
{
    work_calls++;
    return CUDA_SUCCESS;
}

static CUresult of_others(void)
{
    return CUDA_ERROR_STUB_LIBRARY;
}

static CUresult of_nobody(void)
{
    return CUDA_ERROR_UNKNOWN;
}

void *ag_driver_symbol(const char *name)
{
    static const struct {
        const char *name;
        void *real;
    } known[] = {
        {A_NAME, (void *)takes_all},       {LARGE_NAME, (void *)returns_much},
        {ANY_NAME, (void *)takes_any},
#if defined(__x86_64__)
        {CHAIN_NAME, (void *)tells_chain},
#endif
        {CODE_NAME, (void *)counts},       {WORK_NAME, (void *)counts_work},
        {PLAIN_NAME, (void *)of_others},   {STILL_NAME, (void *)spoil},
        {"cuCtxGetFlags", (void *)work},   {TWIN_NAME, (void *)work},
    };

    for (size_t i = 0; i < N_OF(known); i++) {
        if (!strcmp(name, known[i].name))
            return known[i].real;
    }
    return NULL;
}

void *ag_real_dlsym(void *handle, const char *name)
{
    (void)handle;
    return strcmp(name, A_NAME) ? NULL : (void *)of_others;
}

/* --- the checks --- */

/* As look-ups get it where streams are replayed. */
static void *trampoline(const char *name)
{
    int replay = atomic_exchange(&ag_entry_replay, AG_REPLAY_ON);
    void *real = (void *)name; /* of nobody */
    void *found = ag_trampoline_of_name(name, real);

    /* A spare one would be another for another address. */
    CHECK_SAID(found == ag_trampoline_of_name(name, (void *)(name + 1)), "%s", name);
    atomic_store(&ag_entry_replay, replay);
    return found;
}

/* Without a driver nothing starts; with one, the first call starts everything. */
static void before_the_start(void)
{
    CUresult (*way)(void) = (CUresult(*)(void))trampoline(A_NAME);
    CUresult (*gone)(void) = (CUresult(*)(void))trampoline(GONE_NAME);

    CHECK(way() == CUDA_ERROR_STUB_LIBRARY);
    CHECK(gone() == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(!starts);
    driver_is_there = true;
    CHECK(gone() == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(starts == 1);
    CHECK(gone() == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(starts == 1 && !flushes && !forgets);
}

static __attribute__((noinline)) void call_all(void *way)
{
    __typeof__(&takes_all) all = (__typeof__(&takes_all))way;
    uint64_t seed = 7;

    for (unsigned i = 0; i < N_OF(words); i++)
        words[i] = chance(&seed);
    for (unsigned i = 0; i < 4 * N_OF(vectors); i++)
        vectors[i / 4][i % 4] = (float)chance_below(&seed, 1000000);
    last = (double)chance_below(&seed, 1000000);
    errno = ENOTTY;
    CHECK(all(words[0], words[1], words[2], words[3], words[4], words[5], vectors[0], vectors[1],
              vectors[2], vectors[3], vectors[4], vectors[5], vectors[6], vectors[7], words[6],
              words[7], words[8], words[9], words[10], last) == 4711);
    CHECK(errno == ENOTTY);
}

static void call_large(void)
{
    struct large large = ((__typeof__(&returns_much))trampoline(LARGE_NAME))(41, last);

    for (unsigned i = 0; i < N_OF(large.word); i++)
        CHECK(large.word[i] == 41 + i);
}

static void call_others(void)
{
    __typeof__(&takes_any) any = (__typeof__(&takes_any))trampoline(ANY_NAME);

    CHECK(any(9, 1., 2., 4., 8., 16., 32., 64., 128., 256.) == 511.);
    CHECK(any(0) == 0.);
#if defined(__x86_64__)
    void *way = trampoline(CHAIN_NAME);
    uint64_t chain = 0x1234567887654321u, found = 0xabcdef;

    __asm__ volatile("movq %2, %%r10\n\tcall *%1"
                     : "+a"(found)
                     : "r"(way), "r"(chain)
                     : "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm2",
                       "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
                       "xmm12", "xmm13", "xmm14", "xmm15", "memory", "cc");
    CHECK(found == chain + 0xabcdef);
#endif
}

/* Of a stream that nobody knows: each asks, while the thread has no pass for all. */
static void work_is_seen(void)
{
    CUresult (*way)(void) = (CUresult(*)(void))trampoline(WORK_NAME);

    ag_watch_state.on = true;
    CHECK(way() == CUDA_SUCCESS && submits == 0);
    atomic_store(&ag_watch_stranger.permit, AG_WATCH_NONE);
    CHECK(way() == CUDA_SUCCESS && submits == 1);
    atomic_store(&ag_watch_stranger.permit, 4711);
    CHECK(way() == CUDA_SUCCESS && submits == 2);
    atomic_store(&ag_watch_stranger.permit, AG_WATCH_ALL);
    CHECK(way() == CUDA_SUCCESS && submits == 2 && work_calls == 4);
    ag_watch_state.on = false;
}

static void arguments_arrive(void)
{
    for (unsigned withheld = 0; withheld < 2; withheld++) {
        unsigned before = flushes;

        atomic_store(&ag_replay_withheld, withheld);
        call_all(trampoline(A_NAME));
        call_large();
        CHECK(flushes == before + 2 * withheld);
        call_others();
        CHECK((flushes > before + 2) == (withheld != 0));
    }
    ag_entry_depth = 1; /* one of our own calls */
    flushes = 0;
    call_all(trampoline(A_NAME));
    CHECK(ag_entry_depth == 1 && !flushes);
    ag_entry_depth = 0;
    atomic_store(&ag_replay_withheld, 0);
}

static __attribute__((noinline)) void *call_and_tell(void)
{
    call_all(trampoline(A_NAME));
    return __builtin_return_address(0);
}

/* A debugger, or an exception's way, finds who called. */
static void backtraces_go_through(void)
{
    bool found = false;
    void *caller;

    looks_back = true;
    atomic_store(&ag_replay_withheld, 1);
    caller = call_and_tell();
    atomic_store(&ag_replay_withheld, 0);
    looks_back = false;
    for (int i = 0; i < n_came_back; i++)
        found = found || came_back[i] == caller;
    CHECK_SAID(found, "%d frames", n_came_back);
}

/* Before replay is on, such a function is like any other; then every call concerns us. */
static void what_code_depends_on(void)
{
    CUresult (*way)(void) = (CUresult(*)(void))trampoline(CODE_NAME);
    CUresult (*other)(void) = (CUresult(*)(void))trampoline("cuSurfRefSetArray");

    atomic_store(&ag_entry_replay, AG_REPLAY_ON);
    ag_trampoline_index();
    CHECK(way() == CUDA_SUCCESS && way() == CUDA_SUCCESS && empty_calls == 2);
    CHECK(forgets == 2);
    CHECK(other() == CUDA_ERROR_NOT_SUPPORTED && forgets == 3);
    ag_entry_depth = 1;
    CHECK(way() == CUDA_SUCCESS && forgets == 3);
    ag_entry_depth = 0;
}

static void look_ups(void)
{
    void *real = (void *)before_the_start;

    CHECK(ag_trampoline_of_name(STILL_NAME, real) == real);
    CHECK(ag_trampoline_of_address((void *)spoil) == (void *)spoil);
    CHECK(ag_trampoline_of_address((void *)takes_all) == trampoline(A_NAME));
    CHECK(ag_trampoline_of_address((void *)work) == trampoline(TWIN_NAME));
    CHECK(trampoline(PLAIN_NAME) != trampoline(PLAIN_NAME "_ptsz"));
}

#define N_THREADS 4
#define N_SHARED  100

static char unknown[AG_TRAMPOLINE_RESERVE + 8]; /* addresses */
static void *given[N_THREADS][N_SHARED];

static void *ask_for_reserve(void *argument)
{
    unsigned me = (unsigned)(uintptr_t)argument;
    uint64_t seed = me;

    for (unsigned i = 0; i < 20 * N_SHARED; i++) {
        unsigned k = i < 19 * N_SHARED ? (unsigned)chance_below(&seed, N_SHARED) : i % N_SHARED;
        void *found = ag_trampoline_of_name("cuNobodyKnows", &unknown[k]);

        CHECK(found != &unknown[k] && (!given[me][k] || given[me][k] == found));
        given[me][k] = found;
    }
    return NULL;
}

/* One each, the same one whoever asks, until there are no more. */
static void reserve(void)
{
    pthread_t threads[N_THREADS];
    void *first_too_many = &unknown[AG_TRAMPOLINE_RESERVE];
    unsigned before = flushes;

    CHECK(ag_trampoline_of_address((void *)counts) == trampoline(CODE_NAME));
    for (uintptr_t i = 0; i < N_THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, ask_for_reserve, (void *)i));
    for (unsigned i = 0; i < N_THREADS; i++)
        CHECK(!pthread_join(threads[i], NULL));
    for (unsigned k = 0; k < N_SHARED; k++) {
        for (unsigned i = 1; i < N_THREADS; i++)
            CHECK(given[i][k] == given[0][k]);
        for (unsigned i = 0; i < k; i++)
            CHECK(given[0][i] != given[0][k]);
    }
    for (unsigned k = N_SHARED; k < AG_TRAMPOLINE_RESERVE - 1; k++)
        CHECK(ag_trampoline_of_address(&unknown[k]) != &unknown[k]);
    /* The last one, for a function that can be called. What it does to memory is not known. */
    CUresult (*way)(void) = (CUresult(*)(void))ag_trampoline_of_address((void *)of_nobody);
    uint64_t epoch = atomic_load(&ag_memory_epoch);

    CHECK(way != of_nobody && way() == CUDA_ERROR_UNKNOWN && flushes == before);
    CHECK(atomic_load(&ag_memory_epoch) == epoch + 1);
    atomic_store(&ag_replay_withheld, 1);
    CHECK(way() == CUDA_ERROR_UNKNOWN && flushes == before + 1);
    atomic_store(&ag_replay_withheld, 0);

    CHECK(!exits && !ag_trampoline_over());
    CHECK(ag_trampoline_of_address(first_too_many) == first_too_many);
    CHECK(ag_trampoline_of_name("cuNobodyKnows", first_too_many) == first_too_many);
    CHECK(exits == 1 && ag_trampoline_over() && !ag_entry_depth);
    CHECK(watch_ends == 2); /* which waits if another thread's has not returned */
    CHECK(ag_trampoline_of_name("cuNobodyKnows", &unknown[3]) == given[0][3]);
}

static double ns_of(CUresult (*way)(void))
{
    struct timespec begin, end;
    double least = 1e9;

    for (unsigned turn = 0; turn < 20; turn++) {
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (unsigned i = 0; i < 20000; i++)
            (void)way();
        clock_gettime(CLOCK_MONOTONIC, &end);
        double ns =
            (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
        least = ns / 20000 < least ? ns / 20000 : least;
    }
    return least;
}

static void cost(void)
{
    CUresult (*way)(void) = (CUresult(*)(void))trampoline(PLAIN_NAME);
    double plain = ns_of(of_others), passed = ns_of(way), flushed;

    atomic_store(&ag_replay_withheld, 1);
    flushed = ns_of(way);
    atomic_store(&ag_replay_withheld, 0);
    printf("a call: %.1f ns; by a trampoline: %.1f ns; with a flush of nothing: %.1f ns\n", plain,
           passed, flushed);
}

int main(void)
{
    before_the_start();
    work_is_seen();
    arguments_arrive();
    backtraces_go_through();
    what_code_depends_on();
    look_ups();
    reserve();
    cost();
    return 0;
}
