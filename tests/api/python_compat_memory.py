# allograft.compat.unified_memory and replay_transfer beyond what their documentation says: what is different on purpose,
# and every way to fail. With tests/api/fake_cuda.py; run by test_seed_memory.py.

import contextlib
import gc
import os
import sys
import types
import unittest
import warnings
from ctypes import byref, c_void_p
from unittest import mock

import fake_cuda
from fake_cuda import need

torch = fake_cuda.install()

import allograft  # noqa: E402: PyTorch is there before
from allograft.compat import replay_transfer  # noqa: E402
from allograft.compat import unified_memory as um  # noqa: E402

PRELOADED = os.environ['PYTHON_PRELOADED'] == '1'


@contextlib.contextmanager
def capturing(stream):
    graph = c_void_p()
    need('cuStreamBeginCapture_v2', c_void_p(stream.cuda_stream), 2)
    try:
        yield
    finally:
        need('cuStreamEndCapture', c_void_p(stream.cuda_stream), byref(graph))
        need('cuGraphDestroy', graph)


class Unified(unittest.TestCase):
    def setUp(self):
        for name, value in (('_compilation_state', um.CompilationState.UNATTEMPTED), ('_compilation_error', None)):
            patch = mock.patch.object(um, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def unsupported(self, text):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter('always')
            for call in (um.create_unified_mempool, um._get_ctypes_lib,
                         lambda: um.prefetch_managed_tensor(torch.empty((4,), device='cuda'), device=0)):
                with self.assertRaisesRegex(um.UnifiedMemoryUnsupportedError, text):
                    call()
        self.assertEqual(um._compilation_state, um.CompilationState.FAILURE)
        return [str(one.message) for one in told]

    def test_a_version_without_pools(self):
        with mock.patch.object(um, '_has_mem_pool', False):
            told = self.unsupported('MemPool')
        self.assertEqual(len(told), 1)
        self.assertIn('MemPool', um._compilation_error)

    def test_pytorch_has_no_pools(self):
        with mock.patch.object(torch.cuda, 'MemPool', None), mock.patch.object(torch.cuda.memory, 'MemPool', None):
            self.unsupported('PyTorch 2.11.0 has no torch.cuda.MemPool')

    def test_no_library(self):
        with mock.patch.object(allograft.memory, 'library', side_effect=allograft.NotLoaded(1, 'not in this process')), \
                mock.patch.object(allograft.memory, '_allocator', None):
            self.unsupported('not in this process')

    def test_why_is_not_known(self):
        um._compilation_state = um.CompilationState.FAILURE
        self.assertRaisesRegex(um.UnifiedMemoryUnsupportedError, 'Unknown reason', um.create_unified_mempool)
        um._compilation_error = 'mine'
        self.assertRaisesRegex(um.UnifiedMemoryUnsupportedError, 'mine', um.create_unified_mempool)

    def test_expandable_segments(self):
        with mock.patch.dict(os.environ, PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True'):
            self.assertRaisesRegex(um.UnifiedMemoryUnsupportedError, 'expandable', um.create_unified_mempool)
        self.assertIs(um._compilation_state, um.CompilationState.SUCCESS) # that may change

    def test_dropped_pools_give_their_memory_back(self):
        before = allograft.stats()['current_bytes']['managed']
        for n in range(1, 6):
            pool = um.create_unified_mempool()
            with torch.cuda.use_mem_pool(pool):
                tensors = [torch.empty((1 << 20,), device='cuda') for _ in range(n)]
            held = allograft.stats()['current_bytes']['managed'] - before
            self.assertEqual(held, n * (4 << 20))
            del pool
            gc.collect()
            self.assertEqual(allograft.stats()['current_bytes']['managed'] - before, held) # the tensors are there
            tensors.clear()
            gc.collect()
            self.assertEqual(allograft.stats()['current_bytes']['managed'], before)

    def test_a_module_larger_than_the_limit(self):
        if os.environ.get('ALLOGRAFT_LIMIT') != '8MiB':
            self.skipTest('no limit')
        module = torch.nn.Module()
        with torch.cuda.use_mem_pool(um.create_unified_mempool()):
            for i in range(6):
                setattr(module, 'weight%d' % i, torch.nn.Parameter(torch.full((1 << 20,), float(i), device='cuda')))
        self.assertEqual(um.prefetch_managed_module_parameters(module, device=-1), 24 << 20)
        um.advise_managed_module_parameters_preferred_location(module, device=0)
        self.assertEqual(um.prefetch_managed_module_parameters(module, device=0), 24 << 20)
        self.assertEqual([weight.unique() for weight in module.parameters()], [[float(i)] for i in range(6)])
        with self.assertRaisesRegex(AssertionError, 'cuMemAlloc_v2: 2'): # while the device's own memory is limited
            fake_cuda.allocate_device(24 << 20)

    def test_in_a_capture(self):
        with torch.cuda.use_mem_pool(um.create_unified_mempool()):
            module = torch.nn.Module()
            module.weight = torch.nn.Parameter(torch.full((1 << 20,), 5.0, device='cuda'))
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream), capturing(stream):
            for call, what in ((um.prefetch_managed_tensor, module.weight),
                               (um.advise_managed_tensor_preferred_location, module.weight),
                               (um.advise_managed_tensor_accessed_by, module.weight),
                               (um.prefetch_managed_module_parameters, module),
                               (um.advise_managed_module_parameters_preferred_location, module)):
                self.assertRaises(allograft.Capturing, call, what, device=0)
            self.assertRaises(allograft.Capturing, um.create_unified_mempool)
        self.assertEqual(module.weight.unique(), [5.0])

    def test_what_a_patched_function_answers(self):
        with torch.cuda.use_mem_pool(um.create_unified_mempool()):
            module = torch.nn.Module()
            module.weight = torch.nn.Parameter(torch.empty((16,), device='cuda'))
        for name, call, text in (
                ('prefetch_managed_tensor', um.prefetch_managed_module_parameters, 'cudaMemPrefetchAsync failed'),
                ('advise_managed_tensor_preferred_location', um.advise_managed_module_parameters_preferred_location,
                 'cudaMemAdvise')):
            with mock.patch.object(um, name, return_value=42):
                self.assertRaisesRegex(RuntimeError, text + ".*'weight'.*42", call, module, device=0)


def submit(backend, slot, dst, src):
    return backend.submit_h2d(slot=slot, dst=dst, src=src, metadata=None, trace_recorder=None, trace_cuda_events=True,
                              h2d_bytes=src.nbytes, pack_layout='packed', pack_executor='collector_thread')


class Transfer(unittest.TestCase):
    def setUp(self):
        self.backend = replay_transfer.build_replay_transfer_backend(device=torch.device('cuda'), ring_depth=2)
        self.addCleanup(self.backend.close)
        self.device = self.backend.allocate_device_slots(count=1, shape=(64, 64), dtype=torch.float32)[0]
        self.host = torch.full((64, 64), 1.0)

    def test_what_it_is(self):
        self.assertEqual([getattr(self.backend, name) for name in (
            'device_family', 'h2d_submitter', 'host_memory_kind', 'host_pinned', 'direct_pinned_shared',
            'supports_async_submit', 'supports_timing_events')],
            ['cuda', 'allograft_ring', 'registered_pinned_shared', False, False, True, True])
        self.backend.register_host_slots([self.host])
        self.assertTrue(self.backend.host_pinned and self.backend.direct_pinned_shared)

    def test_ready_slots(self):
        self.assertFalse(self.backend.ready_query(0))
        submit(self.backend, 0, self.device, self.host)
        self.backend.synchronize_ready(0)
        self.assertEqual((self.backend.ready_query(0), self.backend.ready_query(1)), (True, False))
        self.backend.clear_ready(0)
        torch.cuda.synchronize()
        self.assertFalse(self.backend.ready_query(0))
        self.backend.synchronize_ready(0)
        self.backend.wait_current_stream_for_ready(0)
        self.assertEqual(self.device.unique(), [1.0])

    def test_it_counts(self):
        before = allograft.stats()
        for _ in range(3):
            submit(self.backend, 0, self.device, self.host)
        after = allograft.stats()
        self.assertEqual((after['api_copies'] - before['api_copies'],
                          after['api_copied_bytes'] - before['api_copied_bytes']), (3, 3 * self.host.nbytes))

    def test_closed_and_used_again(self):
        self.backend.register_host_slots([self.host])
        submit(self.backend, 0, self.device, self.host)
        for _ in range(2):
            self.backend.close()
            self.assertFalse(self.backend.host_pinned or self.backend.direct_pinned_shared)
        need('cuMemHostRegister_v2', c_void_p(self.host.data_ptr()), self.host.nbytes, 0) # it is not pinned any more
        need('cuMemHostUnregister', c_void_p(self.host.data_ptr()))
        self.assertFalse(self.backend.ready_query(0))
        self.backend.synchronize_ready(0)
        self.backend.clear_ready(0)
        self.backend.register_host_slots([self.host.fill_(2.0)])
        submit(self.backend, 0, self.device, self.host)
        self.backend.synchronize_ready(0)
        self.assertEqual(self.device.unique(), [2.0])

    def test_what_cannot_be_pinned(self):
        with self.assertRaises(RuntimeError):
            self.backend.register_host_slots([self.device])
        self.assertFalse(self.backend.host_pinned)

    def test_a_reader_that_is_captured_now(self):
        """Its stream cannot be waited for meanwhile; the submit goes on, and the next one after the capture waits."""
        stream = torch.cuda.Stream()
        submit(self.backend, 0, self.device, self.host)
        with torch.cuda.stream(stream):
            self.backend.wait_current_stream_for_ready(0)
            out = torch.empty((64, 64), device='cuda')
            with capturing(stream):
                submit(self.backend, 0, self.device, self.host)
            self.assertEqual(len(self.backend._readers[0]), 1)
            out.copy_(self.device, non_blocking=True)
        self.backend.clear_ready(0)
        self.assertEqual(self.backend._readers[0], [])
        submit(self.backend, 0, self.device, self.host.fill_(9.0))
        torch.cuda.synchronize()
        self.assertEqual(out.unique(), [1.0])

    def test_device_slots_may_be_in_use(self):
        """Memory that the allocator gives again is still read on the current stream when it is given."""
        wrong = []
        self.backend.register_host_slots([self.host])
        for i in range(40):
            old, out = torch.full((64, 64), 3.0, device='cuda'), torch.empty((64, 64), device='cuda')
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream), mock.patch.object(torch, 'empty', lambda *a, **k: old):
                for _ in range(4):
                    out.copy_(old, non_blocking=True)
                slot, = self.backend.allocate_device_slots(count=1, shape=(64, 64), dtype=torch.float32)
            submit(self.backend, i % 2, slot, self.host)
            torch.cuda.synchronize()
            wrong += [] if out.unique() == [3.0] else [i]
        self.assertEqual(wrong, [])

    def test_rocm(self):
        with mock.patch.object(torch.version, 'hip', '6.4'):
            self.assertRaisesRegex(allograft.Unsupported, 'ROCm', replay_transfer.build_replay_transfer_backend,
                                   device=torch.device('cuda:0'), ring_depth=2)

    def test_no_library(self):
        with mock.patch.object(allograft._library, 'library', side_effect=allograft.NotLoaded(1, 'no library')):
            self.assertRaisesRegex(RuntimeError, 'no library', replay_transfer.build_replay_transfer_backend,
                                   device=torch.device('cuda:0'), ring_depth=2)

    def test_bad_depth(self):
        self.assertRaisesRegex(ValueError, 'depth 0', replay_transfer.build_replay_transfer_backend,
                               device=torch.device('cuda:0'), ring_depth=0)


class Xpu(unittest.TestCase):
    """With torch.xpu: streams and events as those of torch.cuda."""

    def setUp(self):
        xpu = types.SimpleNamespace(Stream=torch.cuda.Stream, Event=Query, stream=torch.cuda.stream,
                                    current_stream=torch.cuda.current_stream)
        patch = mock.patch.object(torch, 'xpu', xpu, create=True)
        patch.start()
        self.addCleanup(patch.stop)

    def test_transfer(self):
        for without in ((), ('wait_event',)):
            backend = replay_transfer.build_replay_transfer_backend(device=torch.device('xpu:0'), ring_depth=2)
            self.assertIsInstance(backend, replay_transfer.XpuReplayTransferBackend)
            backend.device = torch.device('cuda:0') # there is no other
            backend.register_host_slots([])
            device = backend.allocate_device_slots(count=1, shape=(8, 8), dtype=torch.float32)[0]
            self.assertFalse(backend.ready_query(1))
            backend.synchronize_ready(1)
            backend.wait_current_stream_for_ready(1)
            for i in range(4):
                submit(backend, 1, device, torch.full((8, 8), float(i)))
                with contextlib.ExitStack() as stack:
                    for name in without: # as older versions
                        stack.enter_context(mock.patch.object(fake_cuda.ExternalStream, name, None))
                    backend.wait_current_stream_for_ready(1)
                backend.synchronize_ready(1)
                self.assertTrue(backend.ready_query(1))
                self.assertEqual(device.unique(), [float(i)])
            backend.clear_ready(1)
            self.assertFalse(backend.ready_query(1))
            backend.close()

    def test_a_pytorch_for_others(self):
        """It has torch.xpu all the same."""
        with mock.patch.object(torch.xpu, 'is_available', lambda: False, create=True):
            self.assertRaisesRegex(RuntimeError, 'sees no such device', replay_transfer.XpuReplayTransferBackend,
                                   device=torch.device('xpu'), ring_depth=2)

    def test_what_is_missing_is_named(self):
        with mock.patch.object(torch.xpu, 'Event', None):
            self.assertRaisesRegex(RuntimeError, 'no Event', replay_transfer.build_replay_transfer_backend,
                                   device=torch.device('xpu'), ring_depth=2)


class Query(fake_cuda.Event):
    def query(self):
        self.synchronize()
        return True


if __name__ == '__main__':
    done = unittest.main(exit=False, verbosity=0).result
    if fake_cuda.driver.violations():
        print('%d violations' % fake_cuda.driver.violations(), file=sys.stderr)
    sys.stdout.flush()
    sys.exit(not done.wasSuccessful() or fake_cuda.driver.violations())
