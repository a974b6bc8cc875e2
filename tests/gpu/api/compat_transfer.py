"""allograft.compat.replay_transfer with PyTorch: a collector and a learner as UniLab's, 10,000 batches of which none is
torn or stale, and copies at the rate of the bus beside a device that computes."""
import random
import statistics
import threading

from api_common import expect, prepare, torch

from allograft.compat.replay_transfer import build_replay_transfer_backend

BATCHES, ROWS, COLUMNS, DEPTH = 10000, 256, 64, 2
BLOCK = (4096, 4096)  # 64 MiB
NEAR = 0.9


class Recorder:
    """Of UniLab's: it is given two events around each copy."""

    def __init__(self):
        self.spans = []

    def add_cuda_pending_span(self, name, *, category, cpu_begin_ns, start_event, end_event, args):
        self.spans.append((start_event, end_event))

    def ms(self):
        return [start.elapsed_time(end) for start, end in self.spans]


def submit(backend, slot, dst, src, recorder=None):
    return backend.submit_h2d(slot=slot, dst=dst, src=src, metadata=None, trace_recorder=recorder,
                              trace_cuda_events=recorder is not None, h2d_bytes=src.nbytes, pack_layout="packed",
                              pack_executor="collector_thread")


def host_slots(shape):
    return [torch.empty(shape, dtype=torch.float32).share_memory_() for _ in range(DEPTH)]


def build():
    torch.cuda.init()  # until PyTorch has begun with the device, it says of no memory that it is pinned
    return build_replay_transfer_backend(device=torch.device("cuda", 0), ring_depth=DEPTH)


def batches():
    """Each batch is a number, all over. The collector fills a host slot as soon as it has been read; the learner takes
    its time, on two streams."""
    random.seed(1)
    backend, hosts = build(), host_slots((ROWS, COLUMNS))
    backend.register_host_slots(hosts)
    expect(backend.host_pinned and hosts[0].is_pinned(), "shared memory is pinned")
    devices = backend.allocate_device_slots(count=DEPTH, shape=(ROWS, COLUMNS), dtype=torch.float32)
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    streams = [torch.cuda.Stream() for _ in range(2)]
    taken, full = ([threading.Semaphore(n) for _ in range(DEPTH)] for n in (1, 0))
    failed = []
    torch.cuda.synchronize()

    def collect():
        try:
            for i in range(BATCHES):
                slot = i % DEPTH
                taken[slot].acquire()
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
    for i in range(BATCHES):
        slot, stream = i % DEPTH, random.choice(streams)
        full[slot].acquire()
        if failed:
            break
        with torch.cuda.stream(stream):
            backend.wait_current_stream_for_ready(slot)
            if random.random() < 0.2:
                torch.cuda._sleep(random.randrange(200000))
            wrong += (devices[slot] != float(i)).sum()
        streams[0].wait_stream(streams[1])  # `wrong` is one
        streams[1].wait_stream(streams[0])
        taken[slot].release()
    collector.join()
    expect(not failed, f"the collector: {failed}")
    torch.cuda.synchronize()
    backend.close()
    expect(not backend.host_pinned and not hosts[0].is_pinned(), "unpinned at the end")
    expect(wrong.item() == 0, f"{wrong.item()} words of {BATCHES} batches are wrong")


def pinned_ms():
    """A copy of a block from PyTorch's pinned memory."""
    source = torch.empty(BLOCK, dtype=torch.float32, pin_memory=True)
    target, times = torch.empty(BLOCK, dtype=torch.float32, device="cuda"), []
    for _ in range(20):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        target.copy_(source, non_blocking=True)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def rate():
    """Copies out of shared memory beside products on the current stream, compared with the bus."""
    reference, recorder = pinned_ms(), Recorder()
    backend, hosts = build(), host_slots(BLOCK)
    backend.register_host_slots(hosts)
    devices = backend.allocate_device_slots(count=DEPTH, shape=BLOCK, dtype=torch.float32)
    for slot in range(DEPTH):
        hosts[slot].fill_(slot + 1.0)
    a = torch.randn(4096, 4096, device="cuda")
    for i in range(40):
        a = torch.mm(a, a).clamp_(-1, 1)  # the device is busy
        backend.synchronize_ready(i % DEPTH)
        backend.clear_ready(i % DEPTH)
        submit(backend, i % DEPTH, devices[i % DEPTH], hosts[i % DEPTH], recorder)
    for slot in range(DEPTH):
        backend.wait_current_stream_for_ready(slot)
        expect(bool((devices[slot] == slot + 1.0).all()), "what is in a block")
    torch.cuda.synchronize()
    times = recorder.ms()
    expect(len(times) == 40, "all copies are timed")
    backend.close()
    return statistics.median(times[2:]), reference


def main():
    prepare()
    batches()
    ms, reference = rate()
    size = BLOCK[0] * BLOCK[1] * 4
    text = (f"{BATCHES} batches, {size / ms / 1e6:.1f} GB/s beside work, "
            f"{size / reference / 1e6:.1f} from pinned memory")
    expect(reference >= NEAR * ms, text)
    print(text)


main()
