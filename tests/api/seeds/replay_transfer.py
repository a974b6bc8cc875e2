# Written against the documentation of UniLab's unilab.ipc.replay_pipelines.transfer, and nothing else: the module whose
# name is given is imported. With PyTorch and a GPU, or with tests/api/fake_cuda.py and the simulated driver.

import importlib
import random
import sys
import threading
import types

import torch

transfer = importlib.import_module(sys.argv[1])
BATCHES = int(sys.argv[2]) if len(sys.argv) > 2 else 300
SHAPE, DEPTH = (32, 16), 2
PROPERTIES = {'device_family': str, 'h2d_submitter': str, 'host_memory_kind': str, 'host_pinned': bool,
              'direct_pinned_shared': bool, 'supports_async_submit': bool, 'supports_timing_events': bool}
METADATA = types.SimpleNamespace(tick_id=3, snapshot_ptr=1, snapshot_size=2, sample_seed=4, sample_count=5,
                                 batch_host_slot=0, batch_gpu_slot=1)


class Recorder:
    def __init__(self):
        self.spans = []

    def add_cuda_pending_span(self, name, *, category, cpu_begin_ns, start_event, end_event, args):
        self.spans.append((name, category, cpu_begin_ns, start_event, end_event, args))


def submit(backend, slot, dst, src, recorder=None):
    seconds = backend.submit_h2d(slot=slot, dst=dst, src=src, metadata=METADATA, trace_recorder=recorder,
                                 trace_cuda_events=recorder is not None, h2d_bytes=src.nbytes, pack_layout='packed',
                                 pack_executor='collector_thread')
    assert isinstance(seconds, float) and seconds >= 0


def values(tensor):
    """What is in the tensor now, each value once."""
    return [float(value) for value in tensor.cpu().unique()]


def host_slots(count, shape=SHAPE):
    return [torch.empty(shape, dtype=torch.float32).share_memory_() for _ in range(count)]


def build(name='cuda:0'):
    device = torch.device(name)
    backend = transfer.build_replay_transfer_backend(device=device, ring_depth=DEPTH)
    assert backend.device == device
    for name, kind in PROPERTIES.items():
        assert type(getattr(backend, name)) is kind, name
    return backend


def test_one_by_one(name):
    """Host and device slots of other numbers than there are ready slots, and two transfers to one slot."""
    backend = build(name)
    hosts, recorder = host_slots(5), Recorder()
    backend.register_host_slots(hosts)
    devices = backend.allocate_device_slots(count=3, shape=SHAPE, dtype=torch.float32)
    assert [tuple(slot.shape) for slot in devices] == [SHAPE] * 3
    assert len({slot.data_ptr() for slot in devices}) == 3
    more = backend.allocate_device_slots(count=1, shape=(8, 4), dtype=torch.float32)[0]
    small = host_slots(1, (8, 4))
    backend.register_host_slots(small)
    for slot in range(DEPTH):  # before any submit
        assert backend.synchronize_ready(slot) is None
        assert backend.wait_current_stream_for_ready(slot) is None
        assert backend.clear_ready(slot) is None
    for i in range(20):
        host, device, slot = hosts[i % 5], devices[i % 3], i % DEPTH
        host.fill_(float(i))
        small[0].fill_(100.0 + i)
        backend.clear_ready(slot)
        submit(backend, slot, device, host, recorder if i % 2 else None)
        submit(backend, slot, more, small[0])
        backend.synchronize_ready(slot)
        assert backend.ready_query(slot) is True
        backend.wait_current_stream_for_ready(slot)
        assert (values(device), values(more)) == ([float(i)], [100.0 + i])
    if backend.supports_timing_events:
        assert len(recorder.spans) == 10
        for _, _, _, start, end, args in recorder.spans:
            assert start.elapsed_time(end) >= 0 and args['h2d_bytes'] == hosts[0].nbytes and args['tick_id'] == 3
    backend.close()
    assert backend.host_pinned is False and backend.direct_pinned_shared is False
    backend.close()


def test_what_cannot_be_copied(name):
    backend = build(name)
    device = backend.allocate_device_slots(count=1, shape=(4, 4), dtype=torch.float32)[0]
    try:
        submit(backend, 0, device, torch.full((4, 5), 1.0))
    except RuntimeError:
        pass
    else:
        raise AssertionError('other shapes')
    submit(backend, 0, device, torch.full((4, 4), 7, dtype=torch.int32))  # PyTorch converts
    backend.synchronize_ready(0)
    assert values(device) == [7.0]
    try:
        backend.ready_query(DEPTH)
    except (IndexError, ValueError):
        pass
    else:
        raise AssertionError('a slot that there is not')
    backend.close()


def test_no_batch_is_torn():
    """A collector fills and submits while a learner reads, with delays on both sides, on a stream of its own."""
    backend, chance = build(), random.Random(7)
    hosts, done = host_slots(DEPTH), [threading.Semaphore(1) for _ in range(DEPTH)]
    full = [threading.Semaphore(0) for _ in range(DEPTH)]
    backend.register_host_slots(hosts)
    devices = backend.allocate_device_slots(count=DEPTH, shape=SHAPE, dtype=torch.float32)
    results = torch.empty((BATCHES, *SHAPE), dtype=torch.float32, device='cuda:0')
    scratch, failed = torch.empty((256, 256), device='cuda:0'), []

    def collect():
        try:
            for i in range(BATCHES):
                slot = i % DEPTH
                done[slot].acquire()
                backend.synchronize_ready(slot)  # the host slot has been read
                hosts[slot].fill_(float(i))
                backend.clear_ready(slot)
                submit(backend, slot, devices[slot], hosts[slot])
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
    assert not failed, failed
    torch.cuda.synchronize()
    torn = [i for i in range(BATCHES) if values(results[i]) != [float(i)]]
    assert not torn, torn
    backend.close()


def test_other_devices():
    backend = build('cpu')
    assert backend.device_family == 'cpu' and not backend.supports_async_submit and not backend.host_pinned
    backend.close()
    assert transfer.XpuReplayTransferBackend.device_family == 'xpu'
    assert transfer.XpuReplayTransferBackend.h2d_submitter == 'torch_xpu_copy_stream'
    assert transfer.XpuReplayTransferBackend.host_memory_kind == 'pageable_shared'
    assert [getattr(transfer.XpuReplayTransferBackend, name) for name in list(PROPERTIES)[3:]] == [
        False, False, True, False]
    for missing in (lambda: build('xpu'),
                    lambda: transfer.XpuReplayTransferBackend(device=torch.device('xpu'), ring_depth=2)):
        if hasattr(torch, 'xpu') and torch.xpu.is_available():
            break
        try:
            missing()
        except RuntimeError:
            continue
        raise AssertionError('without torch.xpu')


def test_protocol():
    for method in ('register_host_slots', 'allocate_device_slots', 'submit_h2d', 'clear_ready', 'ready_query',
                   'synchronize_ready', 'wait_current_stream_for_ready', 'close'):
        assert callable(getattr(transfer.ReplayTransferBackend, method)), method
    assert set(transfer.ReplayTransferBackend.__annotations__) == {'device', *PROPERTIES}
    try:
        transfer.ReplayTransferBackend()
    except TypeError:
        pass
    else:
        raise AssertionError('a protocol has no instances')


test_protocol()
for DEVICE in ('cuda:0', 'cpu'):
    test_one_by_one(DEVICE)
    test_what_cannot_be_copied(DEVICE)
test_no_batch_is_torn()
test_other_devices()
print('replay transfer: right')
