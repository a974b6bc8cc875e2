#!/usr/bin/env python3
"""Bodies that attract each other, by numba-cuda: arrays that come and go each step, straight from the driver."""
import time

import numpy

if not hasattr(numpy, "row_stack"):
    numpy.row_stack = numpy.vstack  # numba asks for it when it is imported, by the name it had before NumPy 2.5
from numba import cuda  # noqa: E402


@cuda.jit
def forces(places, pulls):
    i = cuda.grid(1)
    if i >= places.shape[0]:
        return
    x = y = 0.0
    for j in range(places.shape[0]):
        dx, dy = places[j, 0] - places[i, 0], places[j, 1] - places[i, 1]
        far = dx * dx + dy * dy + 0.01
        x += dx / far
        y += dy / far
    pulls[i, 0], pulls[i, 1] = x, y


@cuda.jit
def move(places, speeds, pulls):
    i = cuda.grid(1)
    if i < places.shape[0]:
        for k in range(2):
            speeds[i, k] += 1e-5 * pulls[i, k]
            places[i, k] += speeds[i, k]


def main():
    n = 1024
    generator = numpy.random.default_rng(0)
    places = cuda.to_device(generator.random((n, 2)))
    speeds = cuda.to_device(numpy.zeros((n, 2)))
    for step in range(1000):
        if step == 21:
            begun = time.perf_counter()
        pulls = cuda.device_array((n, 2))
        forces[(n + 127) // 128, 128](places, pulls)
        move[(n + 127) // 128, 128](places, speeds, pulls)
        if step % 20 == 0:
            print(step, places.copy_to_host().sum().hex(), pulls.copy_to_host().sum().hex())
    cuda.synchronize()
    print(f"stepping took {time.perf_counter() - begun:.4f} s")


main()
