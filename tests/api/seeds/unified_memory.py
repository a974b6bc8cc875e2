# Written against the documentation of Megatron-LM's core.inference.unified_memory, and nothing else: the module whose
# name is given is imported. With PyTorch and a GPU, or with tests/api/fake_cuda.py and the simulated driver.

import enum
import importlib
import signal
import sys
import time

import torch

um = importlib.import_module(sys.argv[1])


def raises(kinds, call, *args, **more):
    try:
        call(*args, **more)
    except kinds as error:
        return error
    raise AssertionError('%s raised nothing' % call)


class Model(torch.nn.Module):
    """Three weights, two of them tied, and a buffer."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Parameter(torch.full((64, 64), 1.0, device='cuda'))
        self.large = torch.nn.Parameter(torch.full((768, 1024), 2.0, device='cuda'))
        self.tied = torch.nn.Parameter(self.first.data)
        self.register_buffer('table', torch.full((32,), 3.0, device='cuda'))


def test_states():
    assert issubclass(um.CompilationState, enum.Enum)
    assert [state.name for state in um.CompilationState] == ['UNATTEMPTED', 'FAILURE', 'SUCCESS']
    assert um.UnifiedMemoryUnsupportedError.__bases__ == (Exception,)
    assert um.UnifiedMemoryCompileTimeoutError.__bases__ == (um.UnifiedMemoryUnsupportedError,)
    assert um._compilation_state is um.CompilationState.UNATTEMPTED
    assert (um._alloc, um._mod, um._so_path, um._ctypes_lib, um._compilation_error) == (None,) * 5
    assert not um._ctypes_lock.locked()


def test_timeout():
    before = signal.getsignal(signal.SIGALRM)
    with um._compile_timeout(60):
        pass

    def take_long():
        with um._compile_timeout(1):
            time.sleep(30)

    raises(um.UnifiedMemoryCompileTimeoutError, take_long)
    assert signal.getsignal(signal.SIGALRM) is before and signal.alarm(0) == 0


def test_pools():
    pool = um.create_unified_mempool()
    assert um._compilation_state is um.CompilationState.SUCCESS and um._compilation_error is None
    assert um._alloc is not None and um._mod is not None and um._so_path
    um.compile_allocator()
    assert um._get_ctypes_lib() is um._get_ctypes_lib() is um._ctypes_lib
    other = um.create_unified_mempool()
    assert pool is not other and pool.id != other.id
    del other
    return pool


def test_tensors(model):
    for tensor, first in ((model.first, 1.0), (model.large, 2.0)):
        address = tensor.data_ptr()
        stream = torch.cuda.Stream()
        for device, on in ((-1, None), (0, stream), (-1, torch.cuda.current_stream()), (0, None)):
            assert um.prefetch_managed_tensor(tensor.data, device=device, stream=on) is None
            torch.cuda.synchronize()
            assert tensor.data_ptr() == address and tensor.data.cpu().unique().__len__() == 1
        assert um.advise_managed_tensor_preferred_location(tensor.data, device=-1) is None
        assert um.advise_managed_tensor_preferred_location(tensor.data, device=0) is None
        assert um.advise_managed_tensor_accessed_by(tensor.data, device=0) is None
        raises(RuntimeError, um.advise_managed_tensor_accessed_by, tensor.data, device=-1)
        raises(RuntimeError, um.advise_managed_tensor_preferred_location, tensor.data, device=99)
        assert float(tensor.data.cpu().unique()[0]) == first


def test_what_is_no_managed_tensor():
    calls = (um.prefetch_managed_tensor, um.advise_managed_tensor_preferred_location,
             um.advise_managed_tensor_accessed_by)
    for call in calls:
        assert call(None, device=0) is None
        assert call(torch.empty((0,)), device=0) is None
        assert 'torch.Tensor' in str(raises(TypeError, call, 'text', device=0))
        assert 'CUDA tensor' in str(raises(ValueError, call, torch.full((4,), 1.0), device=0))
        raises(TypeError, call, None)  # the device has no default
        raises(TypeError, call, None, 0)  # and is named
    if len(sys.argv) < 3:  # else all memory is managed
        for call in calls:
            raises(RuntimeError, call, torch.full((4,), 1.0, device='cuda'), device=0)


def test_modules(model):
    weights = model.first.nbytes + model.large.nbytes
    for device in (-1, 0):
        assert um.prefetch_managed_module_parameters(model, device=device) == weights
        assert um.prefetch_managed_module_parameters(model, device=device, include_buffers=True) == \
            weights + model.table.nbytes
        assert um.advise_managed_module_parameters_preferred_location(model, device=device) is None
        assert um.advise_managed_module_parameters_preferred_location(model, device=device,
                                                                      include_buffers=True) is None
    assert um.prefetch_managed_module_parameters(None, device=0) == 0
    assert um.advise_managed_module_parameters_preferred_location(None, device=0) is None
    if len(sys.argv) < 3:
        outside = Model()
        for call in (um.prefetch_managed_module_parameters, um.advise_managed_module_parameters_preferred_location):
            assert 'first' in str(raises(RuntimeError, call, outside, device=0))


test_states()
test_timeout()
POOL = test_pools()
with torch.cuda.use_mem_pool(POOL):
    MODEL = Model()
test_tensors(MODEL)
test_what_is_no_managed_tensor()
test_modules(MODEL)
del MODEL, POOL
print('unified memory: right')
