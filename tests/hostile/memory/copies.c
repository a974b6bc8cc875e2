/* Copies of memory that is not pinned, by threads that keep no byte longer than they have to.
 *
 *     copies storm TENTHS MOST [THREADS]   so many tenths of a second: what a call read is
 *                                          overwritten, freed, unmapped or another's as soon as it
 *                                          is back, what it wrote is looked at
 *     copies signals TENTHS MOST           the same, while signals come with slow handlers
 *     copies forks TENTHS MOST             the same, while the process forks; children copy
 *     copies cancelled MOST                threads that are to be cancelled copy before they are
 *     copies gone|shut|cut MOST            memory that is not there: who faults, in a child
 *     copies late MOST                     a handler makes the memory there, and the copy goes on
 *     copies contexts MOST                 copies in contexts that come and go beside another
 *     copies exit MOST                     the process ends while its threads copy
 *
 * MOST is the largest copy in bytes. No kernels: it runs on every device. */
#define _GNU_SOURCE
#include <cuda.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "tests/common/chance.h"
#include "tests/common/context.h"
#include "tests/common/say.h"

#define MOST_THREADS 8
#define N_BLOCKS     6
#define PAGE         4096u

static size_t most;
static CUcontext context;
static _Atomic bool is_over;
static _Atomic unsigned n_turns, n_wrong, n_signals;

/* ---- bytes ---- */

static unsigned char byte_at(uint32_t seed, size_t i)
{
    return (unsigned char)((seed + (uint32_t)i * 2654435761u) >> 24);
}

static void fill(unsigned char *p, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++)
        p[i] = byte_at(seed, i);
}

/* The first one that is not what it should be; n if all are. */
static size_t first_wrong(const unsigned char *p, size_t n, uint32_t seed)
{
    size_t i = 0;

    while (i < n && p[i] == byte_at(seed, i))
        i++;
    return i;
}

/* ---- memory of the host ---- */

enum kind { HEAP, PAGES, FRESH, FILE_PRIVATE, FILE_SHARED, N_KINDS };

struct host {
    enum kind kind;
    void *base;
    size_t bytes;
    unsigned char *p;
};

static void *map(size_t bytes, int protection, int flags, int file)
{
    void *p = mmap(NULL, bytes, protection, flags, file, 0);

    CHECK(p != MAP_FAILED);
    return p;
}

static void take(struct host *host, size_t n, uint64_t *dice)
{
    size_t before = chance_below(dice, 3) ? chance_below(dice, PAGE) : 0;
    int file = -1;

    host->kind = (enum kind)chance_below(dice, N_KINDS);
    host->bytes = (before + n + PAGE) & ~(size_t)(PAGE - 1);
    if (host->kind == HEAP) {
        CHECK((host->base = malloc(host->bytes)) != NULL);
    } else if (host->kind < FILE_PRIVATE) {
        host->base = map(host->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    } else {
        CHECK((file = memfd_create("copies", MFD_CLOEXEC)) >= 0);
        OK(ftruncate(file, (off_t)host->bytes));
        host->base = map(host->bytes, PROT_READ | PROT_WRITE,
                         host->kind == FILE_SHARED ? MAP_SHARED : MAP_PRIVATE, file);
        OK(close(file));
    }
    if (host->kind == PAGES)
        memset(host->base, 0x55, host->bytes);
    host->p = (unsigned char *)host->base + before;
}

static void give_back(struct host *host)
{
    if (host->kind == HEAP)
        free(host->base);
    else
        OK(munmap(host->base, host->bytes));
}

/* The copy of it is back. */
static void spoil(struct host *host, uint64_t *dice)
{
    unsigned how = (unsigned)chance_below(dice, 4);
    void *others;

    if (how == 0)
        memset(host->base, 0xee, host->bytes);
    if (how == 1 && host->kind != HEAP) /* the very addresses are somebody else's */
        CHECK(mmap(host->base, host->bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == host->base);
    give_back(host);
    if (how != 2 || host->kind != HEAP)
        return;
    CHECK((others = malloc(host->bytes)) != NULL);
    memset(others, 0xdd, host->bytes);
    free(others);
}

/* ---- a thread's copies ---- */

struct block {
    CUdeviceptr p;
    size_t n; /* that were copied, 0: nothing yet */
    uint32_t seed;
};

struct worker {
    pthread_t id;
    unsigned number;
    uint64_t dice;
    CUstream stream;
    struct block blocks[N_BLOCKS];
};

/* One in three streams of each kind; where calls without one go is one of them. */
static void open_worker(struct worker *worker)
{
    static const unsigned flags[] = {CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING};
    unsigned kind = worker->number % 3;

    OK(cuCtxSetCurrent(context));
    worker->stream = CU_STREAM_PER_THREAD;
    if (kind < 2)
        OK(cuStreamCreate(&worker->stream, flags[kind]));
    for (unsigned i = 0; i < N_BLOCKS; i++) {
        worker->blocks[i].n = 0;
        OK(cuMemAlloc(&worker->blocks[i].p, most));
    }
}

static void close_worker(struct worker *worker)
{
    OK(cuStreamSynchronize(worker->stream));
    for (unsigned i = 0; i < N_BLOCKS; i++)
        OK(cuMemFree(worker->blocks[i].p));
    if (worker->stream != CU_STREAM_PER_THREAD)
        OK(cuStreamDestroy(worker->stream));
}

/* Small ones as often as large ones. */
static size_t some_size(uint64_t *dice)
{
    size_t n = most >> chance_below(dice, 12);

    return n < 2 ? 1 : n - chance_below(dice, n / 2);
}

static CUresult upload(struct worker *worker, CUdeviceptr p, const void *from, size_t n)
{
    CUdeviceptr host = (CUdeviceptr)(uintptr_t)from;
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = from,
                          .srcPitch = n / 2,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = p,
                          .dstPitch = n / 2,
                          .WidthInBytes = n / 2,
                          .Height = 2};
    CUresult result;

    switch (chance_below(&worker->dice, n % 2 ? 4 : 5)) {
    case 0: /* behind what other streams still read of the block; it arrives before them */
        OK(cuStreamSynchronize(worker->stream));
        result = cuMemcpyHtoD(p, from, n);
        return result ? result : cuStreamSynchronize(NULL);
    case 1:
        return cuMemcpyAsync(p, host, n, worker->stream);
    case 2:
    case 3:
        return cuMemcpyHtoDAsync(p, from, n, worker->stream);
    default:
        return cuMemcpy2DAsync(&rows, worker->stream);
    }
}

static CUresult download(struct worker *worker, void *to, CUdeviceptr p, size_t n)
{
    switch (chance_below(&worker->dice, 4)) {
    case 0:
        OK(cuStreamSynchronize(worker->stream));
        return cuMemcpyDtoH(to, p, n);
    case 1:
        return cuMemcpyAsync((CUdeviceptr)(uintptr_t)to, p, n, worker->stream);
    default:
        return cuMemcpyDtoHAsync(to, p, n, worker->stream);
    }
}

static void send(struct worker *worker, struct block *block)
{
    struct host source;

    block->n = some_size(&worker->dice);
    block->seed = (uint32_t)chance(&worker->dice);
    take(&source, block->n, &worker->dice);
    fill(source.p, block->n, block->seed);
    OK(upload(worker, block->p, source.p, block->n));
    spoil(&source, &worker->dice);
}

static void fetch(struct worker *worker, struct block *block)
{
    struct host target;
    size_t wrong;

    take(&target, block->n, &worker->dice);
    OK(download(worker, target.p, block->p, block->n));
    wrong = first_wrong(target.p, block->n, block->seed);
    if (wrong < block->n && n_wrong++ < 5)
        fprintf(stderr, "thread %u: byte %zu of %zu is %02x, not %02x\n", worker->number, wrong,
                block->n, target.p[wrong], byte_at(block->seed, wrong));
    give_back(&target);
}

/* Within the device, behind a copy and before another one. */
static void pass_on(struct worker *worker, struct block *from, struct block *to)
{
    if (from == to)
        return;
    OK(cuMemcpyDtoDAsync(to->p, from->p, from->n, worker->stream));
    to->n = from->n;
    to->seed = from->seed;
}

static void one_turn(struct worker *worker)
{
    struct block *block = &worker->blocks[chance_below(&worker->dice, N_BLOCKS)];

    if (!block->n || chance_below(&worker->dice, 100) < 40) {
        send(worker, block);
        return;
    }
    switch (chance_below(&worker->dice, 8)) {
    case 0: /* its address is another's, perhaps, and nothing of it is needed any more */
        OK(cuMemFree(block->p));
        OK(cuMemAlloc(&block->p, most));
        block->n = 0;
        break;
    case 1:
    case 2:
        pass_on(worker, block, &worker->blocks[chance_below(&worker->dice, N_BLOCKS)]);
        break;
    default:
        fetch(worker, block);
        break;
    }
    n_turns++;
}

static void *work(void *data)
{
    struct worker *worker = data;

    open_worker(worker);
    while (!is_over)
        one_turn(worker);
    for (unsigned i = 0; i < N_BLOCKS; i++)
        if (worker->blocks[i].n)
            fetch(worker, &worker->blocks[i]);
    close_worker(worker);
    return NULL;
}

static struct worker workers[MOST_THREADS];

static void start_workers(unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        workers[i].number = i;
        workers[i].dice = i + 1;
        OK(pthread_create(&workers[i].id, NULL, work, &workers[i]));
    }
}

static int join_workers(unsigned n)
{
    while (!n_turns) /* on a busy machine they may not have begun */
        (void)usleep(1000);
    is_over = true;
    for (unsigned i = 0; i < n; i++)
        OK(pthread_join(workers[i].id, NULL));
    say("turns: %u", n_turns);
    say("right: %d", n_turns > 0 && n_wrong == 0);
    return n_wrong > 0;
}

static void pause_tenths(unsigned tenths)
{
    struct timespec left = {tenths / 10, tenths % 10 * 100000000};

    while (nanosleep(&left, &left) && errno == EINTR)
        ;
}

/* ---- signals, forks, cancellation ---- */

/* Longer than a copy takes. */
static void take_time(int number)
{
    struct timespec until, now;

    (void)number;
    n_signals++;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    do
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - until.tv_sec) * 1000000000 + now.tv_nsec - until.tv_nsec < 3000000);
}

static int signals(unsigned tenths)
{
    struct sigaction action = {.sa_handler = take_time}; /* calls are interrupted */

    OK(sigaction(SIGUSR1, &action, NULL));
    start_workers(4);
    for (unsigned i = 0; i < tenths * 10; i++) {
        (void)usleep(10000);
        OK(pthread_kill(workers[i % 4].id, SIGUSR1));
    }
    say("handlers ran: %d", n_signals > 0);
    return join_workers(4);
}

/* A child has no device; what it copies is refused, and it ends as it likes. */
static void child_of(unsigned i)
{
    static unsigned char bytes[64];
    CUresult result = cuMemcpyHtoD(workers[0].blocks[0].p, bytes, sizeof(bytes));

    if (i % 2)
        _exit(result == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    quick_exit(result == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
}

static int forks(unsigned tenths)
{
    int status, n_bad = 0;

    start_workers(4);
    for (unsigned i = 0; i < tenths * 4; i++) {
        (void)usleep(25000);
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child)
            child_of(i);
        CHECK(waitpid(child, &status, 0) == child);
        n_bad += status != 0;
    }
    say("bad children: %d", n_bad);
    return join_workers(4);
}

static void *copy_and_be_cancelled(void *data)
{
    struct worker *worker = data;

    open_worker(worker);
    (void)pthread_cancel(pthread_self()); /* at the next cancellation point; no copy is one */
    for (unsigned i = 0; i < 20; i++)
        OK(cuMemcpyHtoDAsync(worker->blocks[0].p, workers, sizeof(workers), worker->stream));
    for (unsigned i = 0; i < 20; i++)
        OK(cuMemcpyDtoH(workers[1].blocks, worker->blocks[0].p, sizeof(workers[1].blocks)));
    n_turns++;
    pthread_testcancel();
    return NULL;
}

static int cancelled(void)
{
    void *result;

    for (unsigned i = 0; i < 4; i++) {
        OK(pthread_create(&workers[0].id, NULL, copy_and_be_cancelled, &workers[0]));
        OK(pthread_join(workers[0].id, &result));
        say("copied, and was cancelled: %d", result == PTHREAD_CANCELED);
    }
    say("all copied: %d", n_turns == 4);
    start_workers(2);
    pause_tenths(1);
    return join_workers(2);
}

/* ---- memory that is not there ---- */

static pid_t caller;
static unsigned char *absent;
static size_t absent_bytes;

static pid_t thread_id(void)
{
    return (pid_t)syscall(SYS_gettid);
}

static void say_fault(int number)
{
    say("signal %d of %s", number, thread_id() == caller ? "the calling thread" : "another thread");
    _exit(0);
}

static void let_in(int number)
{
    (void)number;
    n_signals++;
    if (mprotect(absent, absent_bytes, PROT_READ | PROT_WRITE))
        _exit(97);
}

static void expect_faults(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_NODEFER};

    caller = thread_id();
    OK(sigaction(SIGSEGV, &action, NULL));
    OK(sigaction(SIGBUS, &action, NULL));
}

/* The first half is there. */
static void take_half(const char *what)
{
    int file = memfd_create("copies", MFD_CLOEXEC);

    absent_bytes = most & ~(size_t)(2 * PAGE - 1);
    CHECK(file >= 0 && absent_bytes);
    OK(ftruncate(file, (off_t)absent_bytes));
    absent = map(absent_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file);
    memset(absent, 7, absent_bytes / 2);
    if (!strcmp(what, "cut"))
        OK(ftruncate(file, (off_t)absent_bytes / 2));
    else
        OK(mprotect(absent + absent_bytes / 2, absent_bytes / 2,
                    !strcmp(what, "shut") ? PROT_READ : PROT_NONE));
}

/* Each in a process of its own: how it goes on after a fault inside a driver nobody knows. */
static int gone(const char *what)
{
    static const char *const ways[] = {"up", "up on a stream", "down", "down on a stream"};

    for (unsigned i = 0; i < 4; i++) {
        pid_t child = fork();

        CHECK(child >= 0);
        if (child) {
            say_child(child);
            continue;
        }
        context = context_open();
        open_worker(&workers[0]);
        take_half(what);
        expect_faults(say_fault);
        say("%s", ways[i]);
        CUdeviceptr p = workers[0].blocks[0].p;
        CUresult result = i == 0   ? cuMemcpyHtoD(p, absent, absent_bytes)
                          : i == 1 ? cuMemcpyHtoDAsync(p, absent, absent_bytes, workers[0].stream)
                          : i == 2 ? cuMemcpyDtoH(absent, p, absent_bytes)
                                   : cuMemcpyDtoHAsync(absent, p, absent_bytes, workers[0].stream);
        say("code %d", (int)result);
        _exit(0);
    }
    return 0;
}

static void shut_again(void)
{
    n_signals = 0;
    OK(mprotect(absent + absent_bytes / 2, absent_bytes / 2, PROT_NONE));
}

static int late(void)
{
    open_worker(&workers[0]);
    CUdeviceptr p = workers[0].blocks[0].p;

    take_half("gone");
    expect_faults(let_in);
    OK(mprotect(absent, absent_bytes, PROT_READ | PROT_WRITE));
    fill(absent, absent_bytes, 1);
    shut_again();
    SAY_CODE("up", cuMemcpyHtoDAsync(p, absent, absent_bytes, workers[0].stream));
    say("handler ran: %d", n_signals > 0);
    OK(cuStreamSynchronize(workers[0].stream));
    memset(absent, 0, absent_bytes);
    shut_again();
    SAY_CODE("down", cuMemcpyDtoH(absent, p, absent_bytes));
    say("handler ran: %d, right: %d", n_signals > 0,
        first_wrong(absent, absent_bytes, 1) == absent_bytes);
    return 0;
}

/* ---- contexts, and the end ---- */

static int contexts(void)
{
    CUcontext other;

    start_workers(3);
    for (unsigned i = 0; i < 12; i++) {
        struct worker one = {.number = i, .dice = i};

        OK(cuCtxCreate(&other, NULL, 0, 0));
        CUcontext before = context;
        CUdeviceptr p;
        struct host source, target;
        size_t n = most / 2 + 1;

        take(&source, n, &one.dice);
        take(&target, n, &one.dice);
        fill(source.p, n, i);
        OK(cuMemAlloc(&p, n));
        OK(cuMemcpyHtoDAsync(p, source.p, n, NULL));
        spoil(&source, &one.dice);
        OK(cuCtxSetCurrent(before)); /* the memory is the other one's */
        OK(cuCtxSetCurrent(other));
        OK(cuMemcpyDtoH(target.p, p, n));
        n_wrong += first_wrong(target.p, n, i) < n;
        OK(cuMemcpyHtoDAsync(p, target.p, n, NULL));
        give_back(&target);
        OK(cuCtxDestroy(other)); /* with a copy on its way */
    }
    return join_workers(3);
}

/* Whatever the driver says to them while it ends. */
static void *copy_until_the_end(void *data)
{
    CUdeviceptr p = *(CUdeviceptr *)data;
    struct host host;
    uint64_t dice = (uintptr_t)&host;

    (void)cuCtxSetCurrent(context);
    for (;;) {
        take(&host, most, &dice);
        (void)cuMemcpyHtoDAsync(p, host.p, most, CU_STREAM_PER_THREAD);
        (void)cuMemcpyDtoHAsync(host.p, p, most, CU_STREAM_PER_THREAD);
        give_back(&host);
        n_turns++;
    }
    return NULL;
}

static int leave(void)
{
    static CUdeviceptr p[4];

    for (unsigned i = 0; i < 4; i++) {
        OK(cuMemAlloc(&p[i], most));
        OK(pthread_create(&workers[i].id, NULL, copy_until_the_end, &p[i]));
    }
    while (n_turns < 8)
        (void)usleep(1000);
    say("ends");
    return 0;
}

static int run(const char *what, unsigned tenths, unsigned n_threads)
{
    if (!strcmp(what, "gone") || !strcmp(what, "shut") || !strcmp(what, "cut"))
        return gone(what);
    context = context_open();
    if (!strcmp(what, "cancelled"))
        return cancelled();
    if (!strcmp(what, "late"))
        return late();
    if (!strcmp(what, "contexts"))
        return contexts();
    if (!strcmp(what, "exit"))
        return leave();
    if (!strcmp(what, "signals"))
        return signals(tenths);
    if (!strcmp(what, "forks"))
        return forks(tenths);
    start_workers(n_threads);
    pause_tenths(tenths);
    return join_workers(n_threads);
}

int main(int argc, char **argv)
{
    unsigned tenths = argc > 3 ? (unsigned)atoi(argv[2]) : 0;
    unsigned n_threads = argc > 4 ? (unsigned)atoi(argv[4]) : MOST_THREADS;

    CHECK(argc > 2 && n_threads <= MOST_THREADS);
    most = strtoull(argv[argc > 3 ? 3 : 2], NULL, 0);
    CHECK(most > sizeof(workers));
    return run(argv[1], tenths, n_threads);
}
