# A Python program of known leaks, which prints where Python itself says that each was made:
# [[bytes, [[function, line], ...]], ...]. With PyDLL, the interpreter's lock is held in the calls.

import ctypes
import json
import sys
import threading
import traceback

cu = (ctypes.PyDLL if 'locked' in sys.argv else ctypes.CDLL)('libcuda.so.1')
context = ctypes.c_void_p()
expected = []


def note(size):
    stack = traceback.extract_stack()[:-1]
    expected.append([size, [[frame.name, frame.lineno] for frame in reversed(stack)]])


def take(size):
    memory = ctypes.c_uint64()
    result = (note(size), cu.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(size)))[1]
    assert result == 0
    return memory.value


class Model:
    def __init__(self, size):
        # A call of several lines, some long: where it is counts.
        self.parts = [
            take(size),
            take(
                size + 4096)]

    def grow(self, size):
        def inner(n):
            return take(n) if n == size else inner(n + 1)
        return inner(size - 3)


def çafé_日本(size):
    return take(size)


def generate(size):
    for i in range(2):
        yield take(size + 4096 * i)


def by_callback(size):
    return sorted([2, 1], key=lambda i: take(size * i) * 0)


def by_qsort(size):
    """C code that calls back, between two functions of Python."""
    numbers, taken = (ctypes.c_int * 2)(2, 1), []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
    def compared(a, b):
        if not taken:  # a sanitizer's qsort compares more often
            taken.append(take(size))
        return a[0] - b[0]
    ctypes.CDLL(None).qsort(numbers, ctypes.c_size_t(2), ctypes.c_size_t(4), compared)


def in_thread(size):
    assert cu.cuCtxSetCurrent(context) == 0
    take(size)


def freed(n):
    for _ in range(n):
        memory = ctypes.c_uint64()
        assert cu.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 20)) == 0
        assert cu.cuMemFree_v2(memory) == 0


def main():
    assert cu.cuInit(0) == 0
    assert cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cu.cuCtxSetCurrent(context) == 0
    Model(10 << 20).grow(9 << 20)
    çafé_日本(8 << 20)
    list(generate(7 << 20))
    by_callback(3 << 20)
    by_qsort(11 << 20)
    freed(50)
    thread = threading.Thread(target=in_thread, args=(5 << 20,))
    thread.start()
    thread.join()
    eval('take(2 << 20)')
    print(json.dumps(expected))


main()
