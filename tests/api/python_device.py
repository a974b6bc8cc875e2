# The driver by ctypes, as a program without frameworks uses it, for the Python package's tests.

import ctypes
import os
from ctypes import byref, c_size_t, c_uint, c_uint64, c_void_p

cu = ctypes.CDLL('libcuda.so.1')
sim = ctypes.CDLL(os.path.join(os.environ['PYTHON_SIM'], 'libcuda.so.1'))


def need(name, *args):
    code = getattr(cu, name)(*args)
    if code:
        raise AssertionError('%s: %d' % (name, code))


def open_device():
    context = c_void_p()
    need('cuInit', 0)
    need('cuDevicePrimaryCtxRetain', byref(context), 0)
    need('cuCtxSetCurrent', context)


def new_stream():
    stream = c_void_p()
    need('cuStreamCreate', byref(stream), 1)
    return stream.value


def synchronize(stream=None):
    need('cuCtxSynchronize') if stream is None else need('cuStreamSynchronize', c_void_p(stream))


def is_capturing(stream):
    status = ctypes.c_int()
    need('cuStreamIsCapturing', c_void_p(stream), byref(status))
    return status.value != 0


def alloc(n):
    address = c_uint64()
    need('cuMemAlloc_v2', byref(address), c_size_t(n))
    return address.value


def free(address):
    need('cuMemFree_v2', c_uint64(address))


def fill(address, value, words, stream):
    need('cuMemsetD32Async', c_uint64(address), c_uint(value), c_size_t(words), c_void_p(stream))


def copy(target, source, n, stream):
    need('cuMemcpyDtoDAsync_v2', c_uint64(target), c_uint64(source), c_size_t(n), c_void_p(stream))


class MemsetNode(ctypes.Structure):
    """CUDA_MEMSET_NODE_PARAMS"""

    _fields_ = [('dst', c_uint64), ('pitch', c_size_t), ('value', c_uint), ('elementSize', c_uint),
                ('width', c_size_t), ('height', c_size_t)]


def add_fill(graph, address, value, words):
    """A node that fills words, after nothing."""
    node, context = c_void_p(), c_void_p()
    need('cuCtxGetCurrent', byref(context))
    need('cuGraphAddMemsetNode', byref(node), c_void_p(graph), None, c_size_t(0),
         byref(MemsetNode(address, 0, value, 4, words, 1)), context)


def read(address, n):
    """The bytes there, when all work is done."""
    block = ctypes.create_string_buffer(n)
    synchronize()
    need('cuMemcpyDtoH_v2', block, c_uint64(address), c_size_t(n))
    return block.raw


def word(address):
    return int.from_bytes(read(address, 4), 'little')


def violations():
    return sim.sim_violations()
