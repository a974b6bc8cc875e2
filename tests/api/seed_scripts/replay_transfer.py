# Written after the documentation of UniLab's unilab.ipc.replay_pipelines.transfer, for PyTorch with a GPU as it is and
# for tests/api/fake_cuda.py: the import below is all that names Allograft. Runs on either.

import random
import threading
import types
import unittest

import torch

from allograft.compat.replay_transfer import (ReplayTransferBackend, XpuReplayTransferBackend,
                                              build_replay_transfer_backend)

BATCHES, SHAPE, DEPTH = 300, (32, 16), 2
PROPERTIES = {'device_family': str, 'h2d_submitter': str, 'host_memory_kind': str, 'host_pinned': bool,
              'direct_pinned_shared': bool, 'supports_async_submit': bool, 'supports_timing_events': bool}
METADATA = types.SimpleNamespace(tick_id=3, snapshot_ptr=1, snapshot_size=2, sample_seed=4, sample_count=5,
                                 batch_host_slot=0, batch_gpu_slot=1)


class Recorder:
    """Of UniLab's: it takes two events around a copy."""

    def __init__(self):
        self.spans = []

    def add_cuda_pending_span(self, name, *, category, cpu_begin_ns, start_event, end_event, args):
        self.spans.append((start_event, end_event, args))


def values(tensor):
    """What is in the tensor now, each value once."""
    return [float(value) for value in tensor.cpu().unique()]


def host_slots(count, shape=SHAPE):
    return [torch.empty(shape, dtype=torch.float32).share_memory_() for _ in range(count)]


class Case(unittest.TestCase):
    def submit(self, backend, slot, dst, src, recorder=None):
        seconds = backend.submit_h2d(slot=slot, dst=dst, src=src, metadata=METADATA, trace_recorder=recorder,
                                     trace_cuda_events=recorder is not None, h2d_bytes=src.nbytes,
                                     pack_layout='packed', pack_executor='collector_thread')
        self.assertIsInstance(seconds, float)
        self.assertGreaterEqual(seconds, 0)

    def build(self, name='cuda:0'):
        device = torch.device(name)
        backend = build_replay_transfer_backend(device=device, ring_depth=DEPTH)
        self.assertEqual(backend.device, device)
        for name, kind in PROPERTIES.items():
            self.assertIs(type(getattr(backend, name)), kind, name)
        self.addCleanup(backend.close)
        return backend


class Backends(Case):
    def test_protocol(self):
        for method in ('register_host_slots', 'allocate_device_slots', 'submit_h2d', 'clear_ready', 'ready_query',
                       'synchronize_ready', 'wait_current_stream_for_ready', 'close'):
            self.assertTrue(callable(getattr(ReplayTransferBackend, method)), method)
        self.assertEqual(set(ReplayTransferBackend.__annotations__), {'device', *PROPERTIES})
        self.assertRaises(TypeError, ReplayTransferBackend)  # a protocol has no instances

    def test_cpu(self):
        backend = self.build('cpu')
        self.assertEqual([getattr(backend, name) for name in list(PROPERTIES)[3:]], [False] * 4)

    def test_xpu(self):
        self.assertEqual([getattr(XpuReplayTransferBackend, name) for name in PROPERTIES],
                         ['xpu', 'torch_xpu_copy_stream', 'pageable_shared', False, False, True, False])
        if getattr(torch, 'xpu', None) is None or not torch.xpu.is_available():
            self.assertRaises(RuntimeError, XpuReplayTransferBackend, device=torch.device('xpu'), ring_depth=2)
            self.assertRaises(RuntimeError, build_replay_transfer_backend, device=torch.device('xpu'), ring_depth=2)

    def test_submodules(self):
        from allograft.compat.replay_transfer import base, cuda_like, factory, torch_copy, xpu
        self.assertIs(base.ReplayTransferBackend, ReplayTransferBackend)
        self.assertIs(factory.build_replay_transfer_backend, build_replay_transfer_backend)
        self.assertIs(xpu.XpuReplayTransferBackend, XpuReplayTransferBackend)
        self.assertEqual([type(self.build(name)).__module__ for name in ('cuda:0', 'cpu')],
                         [cuda_like.__name__, torch_copy.__name__])


class Transfers(Case):
    def test_before_any_submit(self):
        for name in ('cuda:0', 'cpu'):
            backend = self.build(name)
            for slot in range(DEPTH):
                self.assertIsNone(backend.synchronize_ready(slot))
                self.assertIsNone(backend.wait_current_stream_for_ready(slot))
                self.assertIsNone(backend.clear_ready(slot))

    def test_one_by_one(self):
        """Host and device slots of other numbers than there are ready slots, and two transfers to one slot."""
        for name in ('cuda:0', 'cpu'):
            backend, hosts, small = self.build(name), host_slots(5), host_slots(1, (8, 4))
            self.assertIsNone(backend.register_host_slots(hosts))
            self.assertIsNone(backend.register_host_slots(small))
            devices = backend.allocate_device_slots(count=3, shape=SHAPE, dtype=torch.float32)
            more, = backend.allocate_device_slots(count=1, shape=(8, 4), dtype=torch.float32)
            self.assertEqual([tuple(slot.shape) for slot in devices], [SHAPE] * 3)
            self.assertEqual(len({slot.data_ptr() for slot in devices}), 3)
            for i in range(20):
                host, device, slot = hosts[i % 5], devices[i % 3], i % DEPTH
                host.fill_(float(i))
                small[0].fill_(100.0 + i)
                backend.clear_ready(slot)
                self.submit(backend, slot, device, host)
                self.submit(backend, slot, more, small[0])
                backend.synchronize_ready(slot)
                self.assertIs(backend.ready_query(slot), True)
                backend.wait_current_stream_for_ready(slot)
                self.assertEqual((values(device), values(more)), ([float(i)], [100.0 + i]))

    def test_trace_recorder(self):
        backend, recorder, host = self.build(), Recorder(), host_slots(1)[0]
        self.assertTrue(backend.supports_timing_events)
        device, = backend.allocate_device_slots(count=1, shape=SHAPE, dtype=torch.float32)
        for _ in range(3):
            self.submit(backend, 0, device, host.fill_(1.0), recorder)
        backend.synchronize_ready(0)
        torch.cuda.synchronize()
        self.assertEqual(len(recorder.spans), 3)
        for start, end, args in recorder.spans:
            self.assertGreaterEqual(start.elapsed_time(end), 0)
            self.assertEqual((args['h2d_bytes'], args['tick_id'], args['slot']), (host.nbytes, 3, 0))

    def test_other_shapes_and_types(self):
        for name in ('cuda:0', 'cpu'):
            backend = self.build(name)
            device, = backend.allocate_device_slots(count=1, shape=(4, 4), dtype=torch.float32)
            self.assertRaises(RuntimeError, self.submit, backend, 0, device, torch.full((4, 5), 1.0))
            self.assertIs(backend.ready_query(0), False)
            self.submit(backend, 0, device, torch.full((4, 4), 7, dtype=torch.int32))  # PyTorch converts
            backend.synchronize_ready(0)
            self.assertEqual(values(device), [7.0])
            self.assertRaises((IndexError, ValueError), backend.ready_query, DEPTH)

    def test_close(self):
        for name in ('cuda:0', 'cpu'):
            backend = self.build(name)
            backend.register_host_slots(host_slots(2))
            for _ in range(2):
                self.assertIsNone(backend.close())
                self.assertFalse(backend.host_pinned or backend.direct_pinned_shared)

    def test_no_batch_is_torn(self):
        """A collector fills and submits while a learner reads, with delays on both sides, on a stream of its own."""
        backend, chance = self.build(), random.Random(7)
        hosts, done = host_slots(DEPTH), [threading.Semaphore(1) for _ in range(DEPTH)]
        full = [threading.Semaphore(0) for _ in range(DEPTH)]
        backend.register_host_slots(hosts)
        devices = backend.allocate_device_slots(count=DEPTH, shape=SHAPE, dtype=torch.float32)
        results = torch.empty((BATCHES, *SHAPE), dtype=torch.float32, device='cuda:0')
        scratch, failed = torch.empty((256, 256), device='cuda:0'), []
        torch.cuda.synchronize()

        def collect():
            try:
                for i in range(BATCHES):
                    slot = i % DEPTH
                    done[slot].acquire()
                    backend.synchronize_ready(slot)  # the host slot has been read
                    hosts[slot].fill_(float(i))
                    backend.clear_ready(slot)
                    self.submit(backend, slot, devices[slot], hosts[slot])
                    full[slot].release()
            except BaseException as error:
                failed.append(error)
                for semaphore in full:
                    semaphore.release()

        collector = threading.Thread(target=collect)
        collector.start()
        with torch.cuda.stream(torch.cuda.Stream()):
            for i in range(BATCHES):
                slot = i % DEPTH
                full[slot].acquire()
                if failed:
                    break
                if chance.random() < 0.3:
                    backend.synchronize_ready(slot)
                backend.wait_current_stream_for_ready(slot)
                for _ in range(chance.randrange(4)):
                    scratch.copy_(scratch, non_blocking=True)
                results[i].copy_(devices[slot], non_blocking=True)
                done[slot].release()
        collector.join()
        self.assertEqual(failed, [])
        torch.cuda.synchronize()
        self.assertEqual([i for i in range(BATCHES) if values(results[i]) != [float(i)]], [])


if __name__ == '__main__':
    unittest.main(verbosity=0)
