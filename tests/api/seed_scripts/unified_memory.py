# Written after the documentation of Megatron-LM's core.inference.unified_memory, for PyTorch with a GPU as it is and for
# tests/api/fake_cuda.py: the import below is all that names Allograft. Runs on either.

import enum
import os
import signal
import time
import unittest

import torch

import allograft.compat.unified_memory as um

AT_FIRST = (um._compilation_state, um._alloc, um._mod, um._so_path, um._ctypes_lib, um._compilation_error)
ALL_IS_MANAGED = os.environ.get('ALLOGRAFT_POLICY') == 'managed'
CALLS = (um.prefetch_managed_tensor, um.advise_managed_tensor_preferred_location, um.advise_managed_tensor_accessed_by)


class Model(torch.nn.Module):
    """Three weights, two of them tied, and a buffer."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Parameter(torch.full((64, 64), 1.0, device='cuda'))
        self.large = torch.nn.Parameter(torch.full((768, 1024), 2.0, device='cuda'))
        self.tied = torch.nn.Parameter(self.first.data)
        self.register_buffer('table', torch.full((32,), 3.0, device='cuda'))


def values(tensor):
    """What is in the tensor now, each value once."""
    torch.cuda.synchronize()
    return [float(value) for value in tensor.data.cpu().unique()]


class Parts(unittest.TestCase):
    def test_states(self):
        self.assertTrue(issubclass(um.CompilationState, enum.Enum))
        self.assertEqual([state.name for state in um.CompilationState], ['UNATTEMPTED', 'FAILURE', 'SUCCESS'])
        self.assertEqual(um.UnifiedMemoryUnsupportedError.__bases__, (Exception,))
        self.assertEqual(um.UnifiedMemoryCompileTimeoutError.__bases__, (um.UnifiedMemoryUnsupportedError,))

    def test_module_data(self):
        self.assertEqual(AT_FIRST, (um.CompilationState.UNATTEMPTED, None, None, None, None, None))
        self.assertFalse(um._ctypes_lock.locked())
        self.assertIsNone(um.compile_allocator())
        self.assertIsNone(um.compile_allocator())
        self.assertIs(um._compilation_state, um.CompilationState.SUCCESS)
        self.assertIsNone(um._compilation_error)
        for there in (um._alloc, um._mod, um._so_path):
            self.assertIsNotNone(there)
        self.assertIs(um._get_ctypes_lib(), um._get_ctypes_lib())
        self.assertIs(um._get_ctypes_lib(), um._ctypes_lib)

    def test_timeout(self):
        before = signal.getsignal(signal.SIGALRM)
        with um._compile_timeout(60):
            pass
        with self.assertRaises(um.UnifiedMemoryCompileTimeoutError), um._compile_timeout(1):
            time.sleep(30)
        self.assertIs(signal.getsignal(signal.SIGALRM), before)
        self.assertEqual(signal.alarm(0), 0)

    def test_what_is_no_tensor_of_a_gpu(self):
        for call in CALLS:
            self.assertIsNone(call(None, device=0))
            self.assertIsNone(call(torch.empty((0,)), device=0))
            self.assertRaisesRegex(TypeError, 'torch.Tensor', call, 'text', device=0)
            self.assertRaisesRegex(ValueError, 'CUDA tensor', call, torch.full((4,), 1.0), device=0)
            self.assertRaises(TypeError, call, None)  # the device has no default
            self.assertRaises(TypeError, call, None, 0)  # and is named

    def test_no_module(self):
        self.assertEqual(um.prefetch_managed_module_parameters(None, device=0), 0)
        self.assertIsNone(um.advise_managed_module_parameters_preferred_location(None, device=0))


class Pooled(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.pool = um.create_unified_mempool()
        with torch.cuda.use_mem_pool(cls.pool):
            cls.model = Model()

    @classmethod
    def tearDownClass(cls):
        del cls.model, cls.pool

    def test_pools(self):
        other = um.create_unified_mempool()
        self.assertIsNot(other, self.pool)
        self.assertNotEqual(other.id, self.pool.id)

    def test_prefetch(self):
        for tensor, value in ((self.model.first, 1.0), (self.model.large, 2.0)):
            address, stream = tensor.data_ptr(), torch.cuda.Stream()
            for device, on in ((-1, None), (0, stream), (-1, torch.cuda.current_stream()), (0, None)):
                self.assertIsNone(um.prefetch_managed_tensor(tensor.data, device=device, stream=on))
                self.assertEqual(values(tensor), [value])
                self.assertEqual(tensor.data_ptr(), address)

    def test_preferred_location(self):
        for tensor, value in ((self.model.first, 1.0), (self.model.large, 2.0)):
            for device in (-1, 0):
                self.assertIsNone(um.advise_managed_tensor_preferred_location(tensor.data, device=device))
            self.assertRaises(RuntimeError, um.advise_managed_tensor_preferred_location, tensor.data, device=99)
            self.assertEqual(values(tensor), [value])

    def test_accessed_by(self):
        self.assertIsNone(um.advise_managed_tensor_accessed_by(self.model.large.data, device=0))
        self.assertRaises(RuntimeError, um.advise_managed_tensor_accessed_by, self.model.large.data, device=-1)
        self.assertEqual(values(self.model.large), [2.0])

    def test_modules(self):
        model = self.model
        weights = model.first.nbytes + model.large.nbytes
        for device in (-1, 0):
            self.assertEqual(um.prefetch_managed_module_parameters(model, device=device), weights)
            self.assertEqual(um.prefetch_managed_module_parameters(model, device=device, include_buffers=True),
                             weights + model.table.nbytes)
            for more in ({}, {'include_buffers': True}):
                self.assertIsNone(um.advise_managed_module_parameters_preferred_location(model, device=device, **more))
        self.assertEqual([values(t) for t in (model.first, model.large, model.tied, model.table)],
                         [[1.0], [2.0], [1.0], [3.0]])

    @unittest.skipIf(ALL_IS_MANAGED, 'all memory is managed')
    def test_other_memory(self):
        outside = Model()
        for call in CALLS:
            self.assertRaises(RuntimeError, call, outside.large.data, device=0)
        for call in (um.prefetch_managed_module_parameters, um.advise_managed_module_parameters_preferred_location):
            self.assertRaisesRegex(RuntimeError, 'first', call, outside, device=0)


if __name__ == '__main__':
    unittest.main(verbosity=0)
