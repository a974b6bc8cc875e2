/* policy/ipc/ipc_socket.c: who asks properly gets the descriptor; strangers, babblers, silent ones
 * and crowds get nothing and keep nobody out; who answers nonsense, or not at all, is not
 * believed. */
#include "policy/ipc/ipc_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/common/chance.h"
#include "tests/common/check.h"

#define LONG_S 60 /* what takes 5 s at most takes no longer than that where it does not hang */

static struct ag_ipc_id process;
static const struct ag_ipc_id right = {{1, 2, 3}};
static int given = -1; /* the descriptor handed over: a file that says so */
static atomic_uint answered, refusals[AG_IPC_N_REFUSALS];
static atomic_bool foreign_signal;

static void answer(const struct ag_ipc_request *request, struct ag_ipc_reply *ret_reply,
                   int *ret_fds)
{
    sigset_t blocked;

    (void)pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    if (!sigismember(&blocked, SIGTERM) || !sigismember(&blocked, SIGINT))
        atomic_store(&foreign_signal, true);
    atomic_fetch_add(&answered, 1);
    if (!ag_ipc_same_id(&request->token, &right))
        return;
    ret_reply->status = AG_IPC_GIVEN;
    ret_reply->size = request->number * 2;
    for (unsigned i = 0; i < AG_IPC_DESCRIPTORS; i++)
        ret_fds[i] = given;
}

static void refused(enum ag_ipc_refusal why)
{
    atomic_fetch_add(&refusals[why], 1);
}

static double now(void)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static void backoff(unsigned ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000l};

    nanosleep(&time, NULL);
}

/* Asks, and looks whether what came is what was handed over. */
static bool is_served(uint64_t number)
{
    struct ag_ipc_request request = {.token = right, .number = number};
    struct ag_ipc_reply reply;
    int fds[AG_IPC_DESCRIPTORS];

    if (ag_ipc_ask(&process, &request, &reply, fds) || reply.status != AG_IPC_GIVEN)
        return false;
    CHECK(reply.size == number * 2);
    for (unsigned i = 0; i < AG_IPC_DESCRIPTORS; i++) {
        char text[8] = "";

        CHECK(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
        CHECK(pread(fds[i], text, sizeof(text), 0) == 5 && !strcmp(text, "given"));
        CHECK(!close(fds[i]));
    }
    return true;
}

/* --- by hand --- */

static socklen_t name_of(const struct ag_ipc_id *whose, struct sockaddr_un *name)
{
    char *at = name->sun_path + 1;

    memset(name, 0, sizeof(*name));
    name->sun_family = AF_UNIX;
    at += sprintf(at, "allograft-ipc-");
    for (unsigned i = 0; i < AG_IPC_ID_BYTES; i++)
        at += sprintf(at, "%02x", whose->bytes[i]);
    return (socklen_t)(at - (char *)name);
}

/* A connection; whether it was taken is not looked at. */
static int try_to_knock(int *ret_error)
{
    struct sockaddr_un name;
    socklen_t size = name_of(&process, &name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0);
    *ret_error = connect(fd, (struct sockaddr *)&name, size) ? errno : 0;
    return fd;
}

static int knock(void)
{
    int error, fd = try_to_knock(&error);

    CHECK_SAID(!error, "%s", strerror(error));
    return fd;
}

/* What comes back on a connection: bytes, 0 when it was closed. */
static ssize_t hear(int fd)
{
    char bytes[512];
    struct timeval timeout = {.tv_sec = LONG_S};
    ssize_t n;

    CHECK(!setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)));
    n = recv(fd, bytes, sizeof(bytes), 0);
    return n < 0 && errno == ECONNRESET ? 0 : n;
}

static void wait_until(atomic_uint *counter, unsigned value)
{
    double until = now() + LONG_S;

    while (atomic_load(counter) < value && now() < until)
        backoff(5);
    CHECK_SAID(atomic_load(counter) >= value, "%u of %u", atomic_load(counter), value);
}

/* --- guests --- */

static void test_asking(void)
{
    struct ag_ipc_request wrong = {.token = {{1, 2, 4}}, .number = 1};
    struct ag_ipc_reply reply;
    int fds[AG_IPC_DESCRIPTORS];

    for (unsigned i = 1; i <= 100; i++)
        CHECK(is_served(i));
    CHECK(!ag_ipc_ask(&process, &wrong, &reply, fds));
    CHECK(reply.status == AG_IPC_NO_SUCH_MEMORY);
    CHECK(!atomic_load(&foreign_signal));
}

static void test_babble(void)
{
    static const size_t lengths[] = {1, 8, 47, 48, 49, 64, 120, 4096};
    unsigned before = atomic_load(&refusals[AG_IPC_MALFORMED]), asked = atomic_load(&answered);
    uint8_t bytes[4096];
    uint64_t state = 5;

    for (unsigned i = 0; i < N_OF(lengths); i++) {
        int fd = knock();

        for (size_t b = 0; b < sizeof(bytes); b++)
            bytes[b] = (uint8_t)chance(&state);
        CHECK(send(fd, bytes, lengths[i], 0) == (ssize_t)lengths[i]);
        CHECK_SAID(hear(fd) == 0, "%zu bytes", lengths[i]);
        CHECK(!close(fd));
    }
    CHECK(!close(knock())); /* comes and goes */
    wait_until(&refusals[AG_IPC_MALFORMED], before + N_OF(lengths) + 1);
    CHECK(atomic_load(&answered) == asked);
    CHECK(is_served(1));
}

static unsigned open_descriptors(void)
{
    unsigned n = 0;

    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* Once no guest is left: a question that is answered was taken in after all before it. */
static unsigned quiet_descriptors(void)
{
    unsigned n = open_descriptors(), fewer;

    CHECK(is_served(1));
    for (unsigned i = 0; i < 20; i++) {
        backoff(5);
        fewer = open_descriptors();
        n = fewer < n ? fewer : n;
    }
    return n;
}

/* Are there so many? The listener may still have those of guests that have just left. */
static bool descriptors_are(unsigned n)
{
    double until = now() + LONG_S;

    while (open_descriptors() != n && now() < until)
        backoff(5);
    return open_descriptors() == n;
}

/* A right question with a descriptor beside it: the listener keeps none. */
static void test_presents(void)
{
    struct ag_ipc_request request = {.token = right, .number = 3};
    uint8_t bytes[AG_IPC_REQUEST_BYTES];
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {bytes, sizeof(bytes)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    unsigned before;
    int fd;

    before = quiet_descriptors();
    fd = knock();
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &given, sizeof(given));
    ag_ipc_write_request(bytes, &request);
    CHECK(sendmsg(fd, &message, 0) == (ssize_t)sizeof(bytes));
    CHECK(hear(fd) == AG_IPC_REPLY_BYTES);
    CHECK(!close(fd));
    CHECK(descriptors_are(before));
}

/* Those who say nothing are shown out in time, and keep nobody waiting meanwhile. */
static void test_silence(void)
{
    enum { N = 150 };
    unsigned before = atomic_load(&refusals[AG_IPC_TOO_SLOW]), left = quiet_descriptors();
    double began = now();
    int fds[N];

    for (unsigned i = 0; i < N; i++)
        fds[i] = knock();
    CHECK(is_served(9));
    wait_until(&refusals[AG_IPC_TOO_SLOW], before + N);
    CHECK_SAID(now() - began < LONG_S, "out after %.3f s", now() - began);
    for (unsigned i = 0; i < N; i++) {
        CHECK(hear(fds[i]) == 0);
        CHECK(!close(fds[i]));
    }
    CHECK(descriptors_are(left));
}

static void *ask_often(void *served)
{
    for (unsigned i = 0; i < 200; i++)
        atomic_fetch_add((atomic_uint *)served, is_served(i + 1));
    return NULL;
}

static void *knock_often(void *stop)
{
    while (!atomic_load((atomic_bool *)stop)) {
        CHECK(!close(knock()));
        backoff(1);
    }
    return NULL;
}

static void test_crowd(void)
{
    enum { N = 8 };
    pthread_t threads[N], nuisance;
    atomic_uint served = 0;
    atomic_bool stop = false;

    CHECK(!pthread_create(&nuisance, NULL, knock_often, &stop));
    for (unsigned i = 0; i < N; i++)
        CHECK(!pthread_create(&threads[i], NULL, ask_often, &served));
    for (unsigned i = 0; i < N; i++)
        CHECK(!pthread_join(threads[i], NULL));
    atomic_store(&stop, true);
    CHECK(!pthread_join(nuisance, NULL));
    CHECK_SAID(served == N * 200, "%u of %u", (unsigned)served, N * 200);
}

/* No descriptor left to take anybody in: it goes on when there is one again. */
static void test_no_descriptors(void)
{
    struct rlimit before, none;
    int fd = knock(), full[64], n = 0;
    uint8_t bytes[AG_IPC_REQUEST_BYTES];
    struct ag_ipc_request request = {.token = right, .number = 3};

    CHECK(!close(fd));
    backoff(20);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && !getrlimit(RLIMIT_NOFILE, &before));
    none = (struct rlimit){.rlim_cur = (rlim_t)fd + 1, .rlim_max = before.rlim_max};
    while (n < 64 && (full[n] = dup(fd)) >= 0 && full[n] < fd)
        n++;
    CHECK(!setrlimit(RLIMIT_NOFILE, &none));
    struct sockaddr_un name;
    socklen_t size = name_of(&process, &name);
    CHECK(!connect(fd, (struct sockaddr *)&name, size));
    ag_ipc_write_request(bytes, &request);
    CHECK(send(fd, bytes, sizeof(bytes), 0) == (ssize_t)sizeof(bytes));
    backoff(100);
    CHECK(!setrlimit(RLIMIT_NOFILE, &before));
    CHECK(hear(fd) == AG_IPC_REPLY_BYTES);
    CHECK(!close(fd));
    for (int i = 0; i < n; i++)
        CHECK(!close(full[i]));
}

/* In a child: the test as another user, its result as exit status. */
static int as_other_user(int (*test)(void))
{
    int status;
    pid_t child = fork();

    if (!child) {
        if (setresgid(65533, 65533, 65533) || setresuid(65533, 65533, 65533))
            _exit(77);
        _exit(test());
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int ask_as_stranger(void)
{
    struct ag_ipc_request request = {.token = right, .number = 1};
    struct ag_ipc_reply reply;
    int fds[AG_IPC_DESCRIPTORS], error = ag_ipc_ask(&process, &request, &reply, fds);

    return error == -EACCES ? 0 : 1; /* a stranger of ours does not even ask */
}

static int knock_as_stranger(void)
{
    struct ag_ipc_request request = {.token = right, .number = 1};
    uint8_t bytes[AG_IPC_REQUEST_BYTES];
    int fd = knock();

    ag_ipc_write_request(bytes, &request);
    (void)send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
    return hear(fd) == 0 ? 0 : 1;
}

static void test_other_user(void)
{
    unsigned before = atomic_load(&refusals[AG_IPC_OTHER_USER]), asked = atomic_load(&answered);

    if (geteuid()) {
        fprintf(stderr, "not root: other users are not tried\n");
        return;
    }
    CHECK(as_other_user(ask_as_stranger) == 0);
    CHECK(as_other_user(knock_as_stranger) == 0);
    wait_until(&refusals[AG_IPC_OTHER_USER], before + 2);
    CHECK(atomic_load(&answered) == asked);
}

/* --- hosts --- */

enum host {
    NO_DESCRIPTOR,
    ONE_DESCRIPTOR,
    THREE_DESCRIPTORS,
    GARBAGE,
    SHORT,
    LEAVES,
    SILENT,
    SENDS_AWAY, /* the first ones that come, unheard, as who is slow; then does as it should */
    UNKNOWN_WITH_DESCRIPTOR
};

static void say_wrongly(int to, enum host host)
{
    struct ag_ipc_reply reply = {.status = host == UNKNOWN_WITH_DESCRIPTOR ? AG_IPC_NO_SUCH_MEMORY
                                                                           : AG_IPC_GIVEN};
    uint8_t bytes[AG_IPC_REPLY_BYTES];
    int fds[3] = {given, given, given};
    size_t n_fds = host == THREE_DESCRIPTORS ? 3
                   : host == NO_DESCRIPTOR   ? 0
                   : host == ONE_DESCRIPTOR  ? 1
                                             : 2;
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(3 * sizeof(int))] = {0};
    struct iovec part = {bytes, host == SHORT ? 50 : sizeof(bytes)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    struct cmsghdr *header = (struct cmsghdr *)(void *)control;

    ag_ipc_write_reply(bytes, &reply);
    if (host == GARBAGE)
        bytes[20] ^= 1;
    if (n_fds) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(header), fds, n_fds * sizeof(int));
    }
    CHECK(sendmsg(to, &message, MSG_NOSIGNAL) > 0);
}

struct stage {
    int listener;
    enum host host;
};

static void *play_host(void *data)
{
    struct stage *stage = data;
    int guest = accept(stage->listener, NULL, NULL);
    char bytes[512];

    for (int i = 0; i < 3 && stage->host == SENDS_AWAY; i++) {
        backoff(i == 1 ? 20 : 0); /* until it has asked */
        CHECK(guest >= 0 && !close(guest));
        guest = accept(stage->listener, NULL, NULL);
    }
    CHECK(guest >= 0 && recv(guest, bytes, sizeof(bytes), 0) == AG_IPC_REQUEST_BYTES);
    if (stage->host == SILENT)
        (void)recv(guest, bytes, sizeof(bytes), 0); /* until the other side gives up */
    else if (stage->host != LEAVES)
        say_wrongly(guest, stage->host);
    CHECK(!close(guest));
    return NULL;
}

/* What ag_ipc_ask makes of such a host. */
static int ask_host(enum host host)
{
    struct ag_ipc_request request = {.token = right, .number = 1};
    struct stage stage = {.listener = socket(AF_UNIX, SOCK_SEQPACKET, 0), .host = host};
    struct ag_ipc_id own;
    struct ag_ipc_reply reply;
    struct sockaddr_un name;
    socklen_t size;
    pthread_t thread;
    int error, fds[AG_IPC_DESCRIPTORS];

    CHECK(ag_ipc_random(&own));
    size = name_of(&own, &name);
    CHECK(stage.listener >= 0 && !bind(stage.listener, (struct sockaddr *)&name, size));
    CHECK(!listen(stage.listener, 1));
    CHECK(!pthread_create(&thread, NULL, play_host, &stage));
    error = ag_ipc_ask(&own, &request, &reply, fds);
    for (size_t i = 0; i < AG_IPC_DESCRIPTORS && !error; i++)
        CHECK(!close(fds[i]));
    (void)shutdown(stage.listener, SHUT_RDWR); /* nobody comes again */
    CHECK(!pthread_join(thread, NULL));
    CHECK(!close(stage.listener));
    return error;
}

static void test_hosts(void)
{
    unsigned before = quiet_descriptors();
    struct ag_ipc_request request = {.token = right, .number = 1};
    struct ag_ipc_reply reply;
    struct ag_ipc_id nobody;
    double began;
    int fds[AG_IPC_DESCRIPTORS];

    CHECK(ag_ipc_random(&nobody));
    CHECK(ag_ipc_ask(&nobody, &request, &reply, fds) == -ECONNREFUSED);
    CHECK(ask_host(NO_DESCRIPTOR) == -EPROTO);
    CHECK(ask_host(GARBAGE) == -EPROTO);
    CHECK(ask_host(SHORT) == -EPROTO);
    CHECK(ask_host(LEAVES) == -EPROTO);
    CHECK(ask_host(UNKNOWN_WITH_DESCRIPTOR) == -EPROTO);
    CHECK(ask_host(ONE_DESCRIPTOR) == -EPROTO);
    CHECK(ask_host(THREE_DESCRIPTORS) == -EPROTO);
    CHECK(ask_host(SENDS_AWAY) == 0);
    CHECK(descriptors_are(before));
    began = now();
    CHECK(ask_host(SILENT) == -ETIMEDOUT);
    CHECK_SAID(now() - began > 1 && now() - began < LONG_S, "gave up after %.3f s", now() - began);
    CHECK(descriptors_are(before));
}

/* --- the end --- */

/* A child's listener is none; the name goes with the parent. */
static void test_fork(void)
{
    int status;
    pid_t child = fork();

    if (!child) {
        ag_ipc_listen_begin_child();
        _exit(is_served(4) ? 0 : 1); /* by the parent, who is another process */
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(is_served(5));
}

/* The listener's descriptor, found by what it is. */
static int listener_fd(void)
{
    for (int fd = 3; fd < 4096; fd++) {
        int listens = 0;
        socklen_t size = sizeof(listens);

        if (!getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) && listens)
            return fd;
    }
    return -1;
}

/* The program closes what it does not know, and gives the number to a socket of its own that
 * listens: whoever knocks there is the program's guest. */
static void test_closed_under_it(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t size = sizeof(name);
    int listener = listener_fd(), mine = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
    int guest = socket(AF_UNIX, SOCK_SEQPACKET, 0), fd, error;

    CHECK(listener > 256 && mine >= 0 && guest >= 0);
    CHECK(!bind(mine, (struct sockaddr *)&name, sizeof(sa_family_t)) && !listen(mine, 4));
    CHECK(!getsockname(mine, (struct sockaddr *)&name, &size));
    CHECK(dup2(mine, listener) == listener);
    fd = try_to_knock(&error); /* wakes the thread, if the name is not gone already */
    CHECK(!connect(guest, (struct sockaddr *)&name, size));
    backoff(100);
    CHECK(!close(fd));
    fd = accept(mine, NULL, NULL);
    CHECK_SAID(fd >= 0, "%s: somebody else has let him in", strerror(errno));
}

int main(void)
{
    static const struct ag_ipc_service service = {.answer = answer, .refused = refused};
    char path[] = "/tmp/ipc-socket-XXXXXX";
    sigset_t mask;

    given = mkstemp(path);
    CHECK(given >= 0 && write(given, "given", 5) == 5 && !unlink(path));
    CHECK(ag_ipc_random(&process));
    CHECK(!ag_ipc_listen(&process, &service));
    CHECK(!pthread_sigmask(SIG_SETMASK, NULL, &mask) && !sigismember(&mask, SIGTERM));
    test_asking();
    test_babble();
    test_presents();
    test_silence();
    test_crowd();
    test_no_descriptors();
    test_other_user();
    test_hosts();
    test_fork();
    test_closed_under_it();
    return 0;
}
