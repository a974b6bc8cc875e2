/* The listener, and asking one: see ipc_socket.h.
 *
 * The listener trusts nobody. A peer may send nothing, half a message or nonsense, may stay for
 * ever or connect a thousand times. So there is one message of known length each way
 * (SOCK_SEQPACKET keeps messages apart), a bounded table of connections, a deadline for each, and
 * no blocking call but poll. The kernel drops descriptors that a peer sends, since we receive
 * without room for them. One descriptor is kept in reserve, to accept a connection when the program
 * has used up its own. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "policy/ipc/ipc_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "interpose/core/base/clock.h"
#include "interpose/core/base/threads/thread.h"

#define MS          1000000u
#define MAX_GUESTS  64u /* connections that have not asked yet */
#define GUEST_NS    (500u * MS)
#define WELCOME_NS  (250u * MS) /* as long a guest may stay where others throng */
#define ASK_NS      (5000ull * MS)
#define BACKLOG     128
#define STACK_BYTES (256u * 1024u)
#define HIGH_FD     512

/* A socket of ours: a program may close what it did not open, and use the number for another file.
 */
struct own {
    int fd;
    struct stat identity;
};

static struct {
    struct ag_ipc_service service;
    struct ag_ipc_id process; /* once it listens */
    _Atomic bool listens;
    struct own listener;
    struct own reserve; /* closed to take a guest in when no descriptor is left; fd is -1 until it
                           has gone */
    unsigned n_guests;
    struct guest {
        int fd;
        uint64_t until;   /* ag_clock_ns() */
    } guests[MAX_GUESTS]; /* oldest first */
} self = {.listener.fd = -1, .reserve.fd = -1};

/* --- for both --- */

static socklen_t socket_name(const struct ag_ipc_id *process, struct sockaddr_un *ret)
{
    static const char prefix[] = "allograft-ipc-", digits[] = "0123456789abcdef";
    char *at;

    memset(ret, 0, sizeof(*ret));
    ret->sun_family = AF_UNIX;
    at = ret->sun_path + 1; /* after the NUL that makes it abstract */
    memcpy(at, prefix, sizeof(prefix) - 1);
    at += sizeof(prefix) - 1;
    for (unsigned i = 0; i < AG_IPC_ID_BYTES; i++) {
        *at++ = digits[process->bytes[i] >> 4];
        *at++ = digits[process->bytes[i] & 15];
    }
    return (socklen_t)(at - (char *)ret);
}

static bool is_our_user(int fd)
{
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t size = sizeof(peer);

    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) && peer.uid == geteuid();
}

bool ag_ipc_random(struct ag_ipc_id *ret)
{
    return getrandom(ret->bytes, sizeof(ret->bytes), GRND_NONBLOCK) == (ssize_t)sizeof(ret->bytes);
}

int ag_ipc_out_of_the_way(int fd)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);

    if (high < 0) {
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
        return fd;
    }
    (void)close(fd);
    return high;
}

/* 0, and the socket is no child's; or -errno. */
static int make_own(struct own *ret)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error;

    if (fd < 0)
        return -errno;
    ret->fd = ag_ipc_out_of_the_way(fd);
    if (!fstat(ret->fd, &ret->identity))
        return 0;
    error = -errno;
    (void)close(ret->fd);
    ret->fd = -1;
    return error;
}

static bool is_our_socket(const struct own *own)
{
    struct stat now;

    return own->fd >= 0 && !fstat(own->fd, &now) && now.st_ino == own->identity.st_ino &&
           now.st_dev == own->identity.st_dev;
}

static void close_own(struct own *own)
{
    if (is_our_socket(own))
        (void)close(own->fd);
    own->fd = -1;
}

#define FDS_BYTES (AG_IPC_DESCRIPTORS * sizeof(int))

/* Sends one message, with descriptors unless `fds` is NULL. Never blocks, raises no signal. */
static bool send_message(int to, const uint8_t *bytes, size_t n, const int *fds)
{
    struct iovec part = {.iov_base = (void *)bytes, .iov_len = n};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(FDS_BYTES)] = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    struct cmsghdr *header;

    if (fds) {
        message.msg_control = control;
        message.msg_controllen = sizeof(control);
        header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(FDS_BYTES);
        memcpy(CMSG_DATA(header), fds, FDS_BYTES);
    }
    return sendmsg(to, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n;
}

/* --- the listener --- */

static void drop_guest(unsigned i)
{
    (void)close(self.guests[i].fd);
    self.n_guests--;
    memmove(&self.guests[i], &self.guests[i + 1], (self.n_guests - i) * sizeof(self.guests[0]));
    if (self.reserve.fd < 0)
        (void)make_own(&self.reserve);
}

/* The next of those who wait outside; -1 with errno. */
static int accept_guest(void)
{
    int fd = accept4(self.listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd >= 0 || (errno != EMFILE && errno != ENFILE))
        return fd;
    if (self.reserve.fd < 0) /* another thread of the program was quicker, the last time */
        (void)make_own(&self.reserve);
    if (!is_our_socket(&self.reserve))
        return -1;
    close_own(&self.reserve);
    return accept4(self.listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

/* Nobody can be taken in before somebody has had the time to ask. */
static bool is_full(void)
{
    return self.n_guests == MAX_GUESTS &&
           ag_clock_ns() + (GUEST_NS - WELCOME_NS) < self.guests[0].until;
}

/* Takes in whoever waits outside. False when that failed for now (no descriptors left, say). */
static bool admit(void)
{
    int fd;

    if (is_full())
        return false;
    fd = accept_guest();
    if (fd < 0)
        return errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
    if (!is_our_user(fd)) {
        (void)close(fd);
        self.service.refused(AG_IPC_OTHER_USER);
        return true;
    }
    if (self.n_guests == MAX_GUESTS) {
        drop_guest(0);
        self.service.refused(AG_IPC_TOO_SLOW);
    }
    self.guests[self.n_guests].fd = fd;
    self.guests[self.n_guests++].until = ag_clock_ns() + GUEST_NS;
    return true;
}

/* The guest has said something, or has left. */
static void serve(int guest)
{
    uint8_t bytes[AG_IPC_REQUEST_BYTES + 1], answer[AG_IPC_REPLY_BYTES];
    ssize_t n = recv(guest, bytes, sizeof(bytes), MSG_DONTWAIT);
    struct ag_ipc_reply reply = {.status = AG_IPC_NO_SUCH_MEMORY};
    struct ag_ipc_request request;
    int fds[AG_IPC_DESCRIPTORS];

    if (n < 0 || !ag_ipc_read_request(bytes, (size_t)n, &request)) {
        self.service.refused(AG_IPC_MALFORMED);
        return;
    }
    self.service.answer(&request, &reply, fds);
    ag_ipc_write_reply(answer, &reply);
    (void)send_message(guest, answer, sizeof(answer), reply.status == AG_IPC_GIVEN ? fds : NULL);
}

/* Milliseconds until the first guest must go; -1 for never. */
static int guest_timeout(void)
{
    uint64_t now = ag_clock_ns();

    if (!self.n_guests)
        return -1;
    return self.guests[0].until <= now ? 0 : (int)((self.guests[0].until - now) / MS) + 1;
}

/* One turn: whoever asked is answered, who was silent too long goes, one more may come in. */
static void turn(bool open)
{
    struct pollfd polls[MAX_GUESTS + 1];
    unsigned n = self.n_guests;
    uint64_t now;

    for (unsigned i = 0; i < n; i++)
        polls[i] = (struct pollfd){.fd = self.guests[i].fd, .events = POLLIN};
    polls[n] = (struct pollfd){.fd = open ? self.listener.fd : -1, .events = POLLIN};
    if (poll(polls, n + 1, open ? guest_timeout() : 20) < 0)
        return;
    now = ag_clock_ns();
    for (unsigned i = n; i-- > 0;) {
        if (polls[i].revents)
            serve(self.guests[i].fd);
        else if (self.guests[i].until > now)
            continue;
        else
            self.service.refused(AG_IPC_TOO_SLOW);
        drop_guest(i);
    }
}

static void *listen_for_ever(void *unused)
{
    bool open = true;

    (void)pthread_setname_np(pthread_self(), "allograft-ipc");
    for (;;) {
        turn(open);
        if (!is_our_socket(&self.listener)) /* closed while we waited */
            return unused;
        open = admit();
    }
}

int ag_ipc_listen(const struct ag_ipc_id *process, const struct ag_ipc_service *service)
{
    struct sockaddr_un name;
    socklen_t size = socket_name(process, &name);
    int error = make_own(&self.listener);

    if (error)
        return error;
    if (bind(self.listener.fd, (struct sockaddr *)&name, size) ||
        listen(self.listener.fd, BACKLOG)) {
        error = -errno;
        goto out;
    }
    self.service = *service;
    (void)make_own(&self.reserve);
    error = -ag_thread_start(listen_for_ever, STACK_BYTES);
    if (error)
        goto out;
    self.process = *process;
    atomic_store_explicit(&self.listens, true, memory_order_release);
    return 0;
out:
    close_own(&self.reserve);
    close_own(&self.listener);
    return error;
}

bool ag_ipc_listens_as(const struct ag_ipc_id *process)
{
    return atomic_load_explicit(&self.listens, memory_order_acquire) &&
           ag_ipc_same_id(process, &self.process);
}

void ag_ipc_listen_begin_child(void)
{
    atomic_store(&self.listens, false);
    close_own(&self.listener);
    close_own(&self.reserve);
    self.n_guests = 0; /* theirs closes when the parent closes it, or when we end */
}

/* --- the question --- */

/* Waits for `events`; 0, or -ETIMEDOUT, -errno. */
static int wait_for_events(int fd, short events, uint64_t until)
{
    struct pollfd poll_for = {.fd = fd, .events = events};

    for (;;) {
        uint64_t now = ag_clock_ns();
        int n = now < until ? poll(&poll_for, 1, (int)((until - now) / MS) + 1) : 0;

        if (n > 0)
            return 0;
        if (n == 0)
            return -ETIMEDOUT;
        if (errno != EINTR)
            return -errno;
    }
}

static int reach(int fd, const struct ag_ipc_id *process, uint64_t until)
{
    struct sockaddr_un name;
    socklen_t size = socket_name(process, &name);

    while (connect(fd, (struct sockaddr *)&name, size)) {
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN) /* many others ask at the same time */
            return -errno;
        if (ag_clock_ns() > until)
            return -ETIMEDOUT;
        (void)poll(NULL, 0, 1);
    }
    return is_our_user(fd) ? 0 : -EACCES;
}

/* Takes all descriptors out of a received message: as many as belong there stay, others are closed.
 * How many came. */
static size_t descriptors_in(struct msghdr *message, int *ret_fds)
{
    size_t n = 0;
    int fd;

    for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at; at = CMSG_NXTHDR(message, at)) {
        if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < (at->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++, n++) {
            memcpy(&fd, CMSG_DATA(at) + i * sizeof(int), sizeof(int));
            if (n < AG_IPC_DESCRIPTORS)
                ret_fds[n] = fd;
            else
                (void)close(fd);
        }
    }
    return n;
}

static int receive_reply(int from, struct ag_ipc_reply *ret_reply, int *ret_fds)
{
    uint8_t bytes[AG_IPC_REPLY_BYTES + 1];
    struct iovec part = {.iov_base = bytes, .iov_len = sizeof(bytes)};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(2 * FDS_BYTES)];
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    ssize_t n = recvmsg(from, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    struct ag_ipc_reply reply;
    size_t n_fds;

    if (n < 0)
        return -errno;
    n_fds = descriptors_in(&message, ret_fds);
    if (!ag_ipc_read_reply(bytes, (size_t)n, &reply) || message.msg_flags & MSG_CTRUNC ||
        n_fds != (reply.status == AG_IPC_GIVEN ? AG_IPC_DESCRIPTORS : 0)) {
        for (size_t i = 0; i < n_fds && i < AG_IPC_DESCRIPTORS; i++)
            (void)close(ret_fds[i]);
        return message.msg_flags & MSG_CTRUNC && n_fds < AG_IPC_DESCRIPTORS ? -EMFILE : -EPROTO;
    }
    *ret_reply = reply;
    return 0;
}

/* -ECONNRESET: whoever listens has not heard the question. */
static int ask_once(const struct ag_ipc_id *process, const struct ag_ipc_request *request,
                    uint64_t until, struct ag_ipc_reply *ret_reply, int *ret_fds)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error;
    uint8_t bytes[AG_IPC_REQUEST_BYTES];

    if (fd < 0)
        return -errno;
    error = reach(fd, process, until);
    if (!error) {
        ag_ipc_write_request(bytes, request);
        if (!send_message(fd, bytes, sizeof(bytes), NULL))
            error = errno == EPIPE || errno == ECONNRESET ? -ECONNRESET : -EPROTO;
    }
    if (!error)
        error = wait_for_events(fd, POLLIN, until);
    if (!error)
        error = receive_reply(fd, ret_reply, ret_fds);
    (void)close(fd);
    return error;
}

/* A process that is held up on its way, as on a busy machine or by a debugger, is sent away for
 * being slow: it comes again. */
int ag_ipc_ask(const struct ag_ipc_id *process, const struct ag_ipc_request *request,
               struct ag_ipc_reply *ret_reply, int *ret_fds)
{
    uint64_t until = ag_clock_ns() + ASK_NS;
    int error;

    while ((error = ask_once(process, request, until, ret_reply, ret_fds)) == -ECONNRESET) {
        if (ag_clock_ns() > until)
            return -EPROTO;
        (void)poll(NULL, 0, 1);
    }
    return error;
}
