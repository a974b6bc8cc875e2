/* walk.c: stacks are walked as the compiler's own unwinder walks them, through frames of every
 * kind; and whatever lies on a stack, nothing outside of it is read. */
#include "interpose/core/base/stack/walk.h"

#include <alloca.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unwind.h>

#include "tests/common/chance.h"
#include "tests/common/check.h"

#define MOST  64u
#define DEPTH 6

/* Every module has a number by its base. */
static const char *bases[AG_FRAME_MODULES];
static unsigned n_bases;

static unsigned number_of(const struct ag_loaded *loaded)
{
    for (unsigned i = 1; i <= n_bases; i++) {
        if (bases[i] == loaded->base)
            return i;
    }
    bases[++n_bases] = loaded->base;
    return n_bases;
}

/* --- as the compiler's unwinder --- */

struct unwound {
    uintptr_t place[MOST];
    unsigned n;
};

static _Unwind_Reason_Code take(struct _Unwind_Context *context, void *unwound_)
{
    struct unwound *unwound = unwound_;

    if (unwound->n < MOST && _Unwind_GetIP(context))
        unwound->place[unwound->n++] = _Unwind_GetIP(context);
    return _URC_NO_REASON;
}

static unsigned n_compared, deepest;

/* From the caller of this function on, both find the same. */
static __attribute__((noinline)) void compare(void)
{
    uint64_t frames[MOST];
    struct unwound unwound = {.n = 0};
    struct ag_walk walk = ag_walk(0, frames, MOST);
    unsigned first = 0;

    (void)_Unwind_Backtrace(take, &unwound);
    while (first < unwound.n && unwound.place[first] != (uintptr_t)__builtin_return_address(0))
        first++;
    CHECK(!walk.is_cut && walk.n > 3);
    /* the walk's own first frame is this function's */
    CHECK_SAID(walk.n - 1 == unwound.n - first, "%u frames, not %u", walk.n - 1, unwound.n - first);
    for (unsigned i = 1; i < walk.n; i++) {
        uintptr_t place = (uintptr_t)bases[ag_frame_module(frames[i])] + ag_frame_offset(frames[i]);

        CHECK_SAID(place == unwound.place[first + i - 1], "frame %u", i);
    }
    n_compared++;
    deepest = walk.n > deepest ? walk.n : deepest;
}

typedef void call(int depth);
static call plain, growing, aligned, pointing, sorted;
static call *const kinds[] = {plain, growing, aligned, pointing, sorted};
static uint64_t state = 5;

static __attribute__((noinline)) void deeper(int depth)
{
    if (depth)
        kinds[chance_below(&state, N_OF(kinds))](depth - 1);
    else
        compare();
    __asm__ volatile(""); /* no jump */
}

static __attribute__((noinline)) void plain(int depth)
{
    deeper(depth);
    __asm__ volatile("");
}

/* Its frame is as large as it likes. */
static __attribute__((noinline)) void growing(int depth)
{
    volatile char *room = alloca(16 + chance_below(&state, 5000));

    room[0] = 1;
    deeper(depth);
    __asm__ volatile("" : : "r"(room));
}

/* It aligns its stack. */
static __attribute__((noinline)) int align(int depth, int b, int c, int d, int e, int f, int g)
{
    _Alignas(256) volatile char room[300];
    volatile char *more = alloca(16 + chance_below(&state, 5000));

    room[0] = more[0] = 1;
    CHECK((uintptr_t)room % 256 == 0);
    deeper(depth);
    __asm__ volatile("" : : "r"(room), "r"(more));
    return b + c + d + e + f + g; /* the last lies on the caller's stack */
}

static __attribute__((noinline)) void aligned(int depth)
{
    CHECK(align(depth, 1, 2, 3, 4, 5, 6) == 21);
}

/* It has a frame pointer. */
static __attribute__((noinline)) void pointing(int depth)
{
    deeper(depth);
    __asm__ volatile("" : : "r"(__builtin_frame_address(0)));
}

/* Through libc. */
static int sorted_depth;

static int compare_numbers(const void *a, const void *b)
{
    if (sorted_depth >= 0) {
        int depth = sorted_depth;

        sorted_depth = -1;
        deeper(depth);
    }
    return *(const int *)a - *(const int *)b;
}

static __attribute__((noinline)) void sorted(int depth)
{
    int numbers[] = {2, 1};

    sorted_depth = depth;
    qsort(numbers, 2, sizeof(numbers[0]), compare_numbers);
}

static void walks_as_unwinder(void)
{
    for (unsigned i = 0; i < 2000; i++)
        deeper((int)chance_below(&state, DEPTH));
    CHECK(n_compared == 2000 && deepest > 6);
}

/* --- in threads that end --- */

static __attribute__((noinline)) void *walk_in_thread(void *unused)
{
    uint64_t frames[MOST];
    struct ag_walk walk = ag_walk(0, frames, MOST);

    CHECK(!walk.is_cut && walk.n >= 2 && walk.n < 10);
    return unused;
}

static void *walk_often(void *unused)
{
    for (unsigned i = 0; i < 2000; i++)
        (void)walk_in_thread(NULL);
    return unused;
}

static void walks_in_threads(void)
{
    pthread_t threads[4];

    for (unsigned repeat = 0; repeat < 20; repeat++) {
        for (size_t i = 0; i < N_OF(threads); i++)
            OK(pthread_create(&threads[i], NULL, walk_often, NULL));
        for (size_t i = 0; i < N_OF(threads); i++)
            OK(pthread_join(threads[i], NULL));
    }
}

/* --- with few frames --- */

static __attribute__((noinline)) void counts_frames(void)
{
    uint64_t all[MOST], some[3];
    struct ag_walk walk = ag_walk(0, all, MOST), cut = ag_walk(0, some, 3);
    unsigned own = ag_frame_module(all[0]);

    CHECK(!walk.is_cut && cut.is_cut && cut.n == 3);
    CHECK(!memcmp(all + 1, some + 1, 2 * sizeof(all[0]))); /* the first are two calls */
    cut = ag_walk(own, some, 3);                           /* all that is below libc */
    CHECK(cut.n && ag_frame_module(some[0]) != own);
}

/* --- whatever lies there --- */

#define STACK_BYTES 8192u

/* A stack between pages that nobody may touch. */
static char *make_stack(void)
{
    char *low = mmap(NULL, 3 * STACK_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(low != MAP_FAILED);
    OK(mprotect(low + STACK_BYTES, STACK_BYTES, PROT_READ | PROT_WRITE));
    return low + STACK_BYTES;
}

/* A word that a stack may hold: of itself, of the code here, of code in no file, or anything. */
static uintptr_t some_word(const char *stack)
{
    switch (chance_below(&state, 6)) {
    case 0:
        return (uintptr_t)stack + chance_below(&state, STACK_BYTES + 64);
    case 1:
        return ((uintptr_t)stack + chance_below(&state, STACK_BYTES)) & ~(uintptr_t)7;
    case 2:
        return (uintptr_t)deeper + chance_below(&state, 2000);
    case 3:
        return (uintptr_t)qsort + chance_below(&state, 20000);
    case 4:
        return (uintptr_t)stack - chance_below(&state, STACK_BYTES);
    default:
        return (uintptr_t)chance(&state);
    }
}

static void survives_anything(void)
{
    char *stack = make_stack();
    unsigned long n = 0;

    for (unsigned repeat = 0; repeat < 300; repeat++) {
        for (size_t i = 0; i < STACK_BYTES; i += sizeof(uintptr_t)) {
            uintptr_t word = some_word(stack);

            memcpy(stack + i, &word, sizeof(word));
        }
        for (unsigned i = 0; i < 200; i++) {
            const struct ag_walk_start start = {some_word(stack), some_word(stack),
                                                some_word(stack)};
            uint64_t frames[MOST];
            struct ag_walk walk = ag_walk_from(&start, (uintptr_t)stack,
                                               (uintptr_t)stack + STACK_BYTES, 0, frames, MOST);

            CHECK(walk.n && walk.n <= MOST);
            n += walk.n;
        }
    }
    CHECK(n > 300 * 200 * 1.01); /* some walks got further than a frame */
}

/* A chain of frame pointers through code that nothing is said of. */
static void follows_frame_pointers(void)
{
    char *stack = make_stack();
    uintptr_t *words = (uintptr_t *)(void *)stack, code = (uintptr_t)make_stack();
    const struct ag_walk_start start = {code + 1, (uintptr_t)words, (uintptr_t)(words + 4)};
    uint64_t frames[MOST];
    struct ag_walk walk;

    words[4] = (uintptr_t)(words + 10);
    words[5] = code + 2;
    words[10] = (uintptr_t)(words + 20);
    words[11] = code + 3;
    words[20] = (uintptr_t)(words + 8); /* downwards: corrupt */
    words[21] = code + 4;
    walk = ag_walk_from(&start, (uintptr_t)stack, (uintptr_t)stack + STACK_BYTES, 0, frames, MOST);
    CHECK(walk.n == 4 && walk.is_cut);
    for (unsigned i = 0; i < 4; i++)
        CHECK(frames[i] == ag_frame(0, code + i + 1));
    words[20] = (uintptr_t)stack + STACK_BYTES - 8; /* half of it is outside */
    walk = ag_walk_from(&start, (uintptr_t)stack, (uintptr_t)stack + STACK_BYTES, 0, frames, MOST);
    CHECK(walk.n == 4 && walk.is_cut);
    words[21] = 0; /* nobody called */
    walk = ag_walk_from(&start, (uintptr_t)stack, (uintptr_t)stack + STACK_BYTES, 0, frames, MOST);
    CHECK(walk.n == 3 && !walk.is_cut);
}

/* --- libraries that come and go --- */

/* A library that has gone leaves nothing behind: another one lies at its address. */
static void forgets_libraries(char **paths)
{
    const void *bases[2] = {NULL, NULL};

    for (unsigned i = 0; i < 6; i++) {
        void *library = dlopen(paths[i % 2], RTLD_NOW);
        int (*call_back)(void (*function)(void));
        struct ag_loaded loaded;

        CHECK_SAID(library, "%s", dlerror());
        call_back = (int (*)(void (*)(void)))dlsym(library, "call_back");
        CHECK(call_back && ag_loaded_find((void *)call_back, &loaded));
        bases[i % 2] = loaded.base;
        CHECK(call_back(compare) == 1);
        OK(dlclose(library));
    }
    CHECK_SAID(bases[0] == bases[1], "%p and %p", bases[0], bases[1]);
}

int main(int argc, char **argv)
{
    ag_walk_begin(number_of);
    CHECK(argc == 3);
    forgets_libraries(argv + 1);
    n_compared = 0;
    walks_as_unwinder();
    walks_in_threads();
    counts_frames();
    follows_frame_pointers();
    survives_anything();
    ag_loaded_without_find_object();
    ag_walk_begin(number_of);
    n_compared = 0;
    walks_as_unwinder();
    return 0;
}
