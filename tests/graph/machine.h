/* machine.h: a host and a device that are nothing but two clocks. Each call of the driver charges
 * what it was measured to cost (docs/performance.md, "A model of loops"), so that tests can say how
 * long a loop would take, the same on every machine. It computes nothing, and has one context and
 * one thread.
 *
 * It is a model: what it leaves out is in no figure that it gives. */
#ifndef MACHINE_H
#define MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/replayer.h"
#include "interpose/core/driver/abi.h"

/* ns */
struct machine_costs {
    /* of the host */
    uint64_t program;      /* the program and CUDA's runtime, for each operation */
    uint64_t inspected;    /* more for an operation that replay looks at, and that passes */
    uint64_t withheld;     /* an operation that is withheld */
    uint64_t prepared;     /* the first operation of a stream that replay looks at */
    uint64_t launch;       /* the driver's call for one kernel */
    uint64_t copy;         /* for one copy from pinned memory */
    uint64_t graph_launch; /* for one graph */
    uint64_t update;       /* setting a node's parameters */
    uint64_t add, instantiate, upload; /* for each node */
    uint64_t destroy;                  /* of an executable */
    uint64_t create, end;              /* creating a stream, destroying it */
    uint64_t wait;                     /* a wait for the stream, beyond the device's end */
    /* of the device */
    uint64_t first;   /* from a call to the device's beginning, when that is idle */
    uint64_t kernel;  /* a kernel that was launched by itself */
    uint64_t node;    /* the same kernel as a node */
    uint64_t graph;   /* more for each graph that follows other work */
    uint64_t updated; /* more for each node that was updated before this launch */
};

extern struct machine {
    struct machine_costs costs;
    uint64_t now, busy_until;
    /* what was called */
    uint64_t launches, graph_launches, updates, nodes_built;
} machine;

/* A fresh machine and replay with these settings ("NAME=value" without the prefix; NULL at the
 * end). */
void machine_begin(const char *const *settings);
/* Forgets all streams. */
void machine_end(void);
CUstream machine_stream(void); /* creates one, as a program does */
void machine_destroy(CUstream stream);
/* From now on the program's calls go past replay. */
void machine_go_past(bool past);
/* A kernel with three parameters, as the hooks submit it. */
void machine_launch(CUstream stream, unsigned function, uint64_t a, uint64_t b, uint64_t c);
/* A copy to the device from pinned memory. */
void machine_copy(CUstream stream, uint64_t to, uint64_t from, uint64_t bytes);
void machine_free(void); /* of memory: flushes, and waits for nothing */
void machine_wait(CUstream stream);
/* A graph of n nodes that the program captured itself. */
void machine_launch_own(uint32_t n);

#endif
