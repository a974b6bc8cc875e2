#!/usr/bin/env python3
"""Waves on a plate with CuPy's arrays, whose temporaries CuPy's own pool keeps. Argument: the plate's width."""
import sys
import time

import cupy


def main():
    n = int((sys.argv[1:] or [256])[0])
    now = cupy.zeros((n, n), dtype=cupy.float32)
    now[n // 2, n // 2] = 1
    before = now.copy()
    for step in range(24):
        if step == 2:
            begun = time.perf_counter()
        spread = cupy.zeros_like(now)
        spread[1:-1, 1:-1] = now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:] - 4 * now[1:-1, 1:-1]
        before, now = now, 2 * now - before + 0.2 * spread
        print(step, float(cupy.abs(now).max()).hex())
    cupy.cuda.Device().synchronize()
    print(f"stepping took {time.perf_counter() - begun:.4f} s")


main()
