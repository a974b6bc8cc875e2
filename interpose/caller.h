/* Who called: the library behind a return address. */
#ifndef AG_CALLER_H
#define AG_CALLER_H

enum ag_caller {
    AG_CALLER_PROGRAM = 1,
    AG_CALLER_CUDA_LIBRARY, /* CUDA's own mathematics: what it keeps for itself nobody else reads */
    AG_CALLER_EXPORTER,     /* hands its memory to other processes or devices: NCCL, UCX, MPI, ... */
};

/* Of the return address of a hook. A few nanoseconds for an address met before. */
enum ag_caller ag_caller_of(const void *address);

#endif
