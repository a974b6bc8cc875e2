/* replay.h: what the parts of the program of iterations share. */
#ifndef REPLAY_H
#define REPLAY_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#define STATE_BYTES 512u
#define STEPS       12u /* of an iteration */
#define SIGNAL_AT \
    4u /* before that one, a kernel writes the number of the iteration where the host sees it */

extern CUfunction kernel_step, kernel_other, kernel_signal;
extern CUmodule module_of_steps;
extern CUdeviceptr state; /* what the steps change */
extern volatile uint32_t *sign;

void load_steps(bool swapped); /* swapped: the functions are looked up the other way round */
CUresult step_to(CUdeviceptr p, CUfunction function, CUstream stream, uint32_t id, uint32_t value);
void step(CUstream stream, uint32_t id, uint32_t value);
void send_signal(CUstream stream, uint32_t value);
/* Without any call of the driver. */
bool signal_comes(uint32_t value, unsigned ms);
void tell_of(const char *what, CUdeviceptr p);
void part_of_iteration(CUstream stream, uint32_t iteration, unsigned from, unsigned last);
void iterations(CUstream stream, unsigned n);
CUstream new_stream(unsigned flags);

/* replay_flush.c: a call of the driver with work outstanding: does the work go on by itself
 * afterwards? "": all of them; otherwise the one named. */
int flushing(const char *name);

#endif
