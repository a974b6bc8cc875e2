/* device.h: what the programs linked with the simulated driver share: a context, and kernels. */
#ifndef DEVICE_H
#define DEVICE_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "sim.h"

/* Initialises the driver and makes the primary context of device 0 current. */
CUcontext device_open(void);

/* Kernels, registered and loaded by device_open. Each is given a device pointer and words. */
extern CUfunction kernel_fill;  /* p, n, value: writes value + i to word i */
extern CUfunction kernel_check; /* p, n, value, result: adds the number of wrong words to *result */
extern CUfunction kernel_speak; /* number: prints "kernel: <number>" from the device */

void launch_fill(CUstream stream, CUdeviceptr p, uint32_t n, uint32_t value);
void launch_check(CUstream stream, CUdeviceptr p, uint32_t n, uint32_t value, CUdeviceptr result);
void launch_speak(CUstream stream, uint32_t number);
/* A kernel that runs until the host has written something other than 0 to *flag. */
void launch_spin(CUstream stream, const _Atomic uint32_t *flag);

/* Words of [p, p + n) that are not value + i, read back by a copy. */
uint32_t count_wrong(CUdeviceptr p, uint32_t n, uint32_t value);
/* The same of words of the host, which the device may write. */
uint32_t wrong_words(const volatile uint32_t *words, uint32_t n, uint32_t value);

#endif
