/* The socket over which a process hands its pool to another: the exporter has a listener with a
 * thread of its own; the importer sends a request and waits for the reply, for a bounded time.
 *
 * Abstract Unix sockets leave no file, and their name goes with the process. But names are
 * public: anybody may connect, or take the name of a process that is gone. So each side asks the
 * kernel for the other's user, and talks to its own user only. Knows no CUDA. */
#ifndef AG_POLICY_IPC_SOCKET_H
#define AG_POLICY_IPC_SOCKET_H

#include <stdbool.h>

#include "policy/ipc/ipc_message.h"

/* Why somebody was turned away. */
enum ag_ipc_refusal {
    AG_IPC_OTHER_USER,
    AG_IPC_MALFORMED,
    AG_IPC_TOO_SLOW, /* or pushed out by newer ones */
    AG_IPC_N_REFUSALS
};

/* The descriptors that travel with an answer of status GIVEN. */
enum ag_ipc_descriptor { AG_IPC_POOL, AG_IPC_LEASES, AG_IPC_DESCRIPTORS };

struct ag_ipc_service {
    /* What to answer to a well-formed question. With status GIVEN all of ret_fds travel along; they
     * stay the service's. */
    void (*answer)(const struct ag_ipc_request *request, struct ag_ipc_reply *ret_reply,
                   int *ret_fds);
    void (*refused)(enum ag_ipc_refusal why);
};

/* Listens under the name of `process` from now on; both functions of `service` are called on the
 * listener's thread, which takes no signals and makes no driver call. 0 or -errno. At most once a
 * process. */
int ag_ipc_listen(const struct ag_ipc_id *process, const struct ag_ipc_service *service);

/* Is that the name under which this process listens? */
bool ag_ipc_listens_as(const struct ag_ipc_id *process);

/* A forked child has the parent's descriptors, and must not keep its name alive. */
void ag_ipc_listen_begin_child(void);

/* Puts the question to `process` and waits for the answer, some seconds at most. 0 with *ret_reply
 * and, when its status is GIVEN, AG_IPC_DESCRIPTORS ret_fds, which are the caller's (else -1).
 * -ECONNREFUSED: nobody has that name; -EACCES: another user has it; -ETIMEDOUT; -EPROTO: not an
 * answer; -EMFILE: this process has no descriptors left; other -errno of the socket calls. */
int ag_ipc_ask(const struct ag_ipc_id *process, const struct ag_ipc_request *request,
               struct ag_ipc_reply *ret_reply, int *ret_fds);

/* 128 bits of the kernel's; false when it gives none. */
bool ag_ipc_random(struct ag_ipc_id *ret);

/* Moves a descriptor of ours to a high number, out of the way of programs that count on low ones;
 * close-on-exec. The old one where that fails. */
int ag_ipc_out_of_the_way(int fd);

#endif
