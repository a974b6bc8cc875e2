/* hostfn.c: calls host functions and stream callbacks on a thread of their own, as the driver
 * does, without the lock: they may take mutexes that callers of the driver hold. */
#include "tests/sim/sim_internal.h"

#include <signal.h>

static struct {
    struct sim_ops queue;
    pthread_cond_t more; /* its own: it need not wake for each operation of the device */
    bool started;
} self = {.more = PTHREAD_COND_INITIALIZER};

static void call_one(struct sim_op *op)
{
    struct sim_host_call call = op->work.u.host;
    CUresult status = op->ctx->fault;

    sim_make_current(op->ctx);

    sim_unlock();
    sim_in_callback(SIM_IN_HOST_FUNCTION);
    if (call.callback)
        call.callback(call.stream, status, call.data);
    else if (status == CUDA_SUCCESS)
        call.fn(call.data);
    sim_in_callback(SIM_IN_NOTHING);
    sim_lock();
    sim_op_done(op);
}

static void *serve(void *unused)
{
    sim_lock();
    for (;;) {
        while (!self.queue.n || sim_gone())
            sim_sleep_for(&self.more);
        struct sim_op *op = self.queue.at[0];
        self.queue.n--;
        for (unsigned i = 0; i < self.queue.n; i++)
            self.queue.at[i] = self.queue.at[i + 1];
        call_one(op);
        sim_op_unref(op);
    }
    return unused;
}

void sim_hostfn_start(struct sim_op *op)
{
    sigset_t all, old;
    pthread_t thread;

    sim_ops_add(&self.queue, op);
    if (!self.started) {
        self.started = true;
        (void)sigfillset(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, &old);
        if (pthread_create(&thread, NULL, serve, NULL) == 0)
            (void)pthread_detach(thread);
        (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
    (void)pthread_cond_signal(&self.more);
}
