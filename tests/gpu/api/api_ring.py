"""allograft.TransferRing: no batch torn or stale, copies at the rate of the bus beside a device that computes."""
import random
import statistics
from multiprocessing import shared_memory

from api_common import allograft, expect, prepare, torch

BATCHES, WORDS = 10000, 16384
BLOCK = 64 << 20


def batches():
    """Each batch is a number, all over; consumers of two streams take their time."""
    random.seed(1)
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    with allograft.TransferRing(2, {"words": (WORDS, "int32")}) as ring:
        views = [torch.frombuffer(ring.register(slot), dtype=torch.int32)[:WORDS] for slot in range(2)]
        for i in range(BATCHES):
            slot, stream = i % 2, random.choice(streams)
            if i >= 2:
                ring.wait_host(slot)
            views[slot].fill_(i)
            ring.clear(slot)
            expect(not ring.query(slot), "a cleared slot is ready")
            ring.submit(slot)
            with torch.cuda.stream(stream), ring.reading(slot) as batch:
                if random.random() < 0.2:
                    torch.cuda._sleep(random.randrange(200000))
                wrong += (batch["words"] != i).sum()
            streams[0].wait_stream(streams[1])  # `wrong` is one
            streams[1].wait_stream(streams[0])
        torch.cuda.synchronize()
        backend = ring.properties(0).backend
        del views, batch
    expect(wrong.item() == 0, f"{wrong.item()} words of {BATCHES} batches are wrong")
    return backend


def pinned_ms():
    """A copy of a block from PyTorch's pinned memory."""
    source, target = torch.empty(BLOCK, dtype=torch.uint8, pin_memory=True), torch.empty(BLOCK, dtype=torch.uint8,
                                                                                        device="cuda")
    times = []
    for _ in range(20):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        target.copy_(source, non_blocking=True)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def rate():
    """Copies out of shared memory beside products on another stream, compared with the bus."""
    reference = pinned_ms()
    blocks = [shared_memory.SharedMemory(create=True, size=BLOCK) for _ in range(2)]
    try:
        with allograft.TransferRing(2, slot_bytes=BLOCK, timing=True) as ring:
            for slot, block in enumerate(blocks):
                block.buf[:] = bytes([slot + 1]) * BLOCK
                ring.register(slot, block)
                expect(ring.properties(slot).backend == "pinned", f"shared memory is {ring.properties(slot)}")
            a = torch.randn(4096, 4096, device="cuda")
            for i in range(40):
                a = torch.mm(a, a).clamp_(-1, 1)  # the device is busy
                if i >= 2:
                    ring.wait_host(i % 2)
                ring.submit(i % 2)
            torch.cuda.synchronize()
            for slot in range(2):
                ring.wait_host(slot)
                expect(bool((ring.device_bytes(slot) == slot + 1).all()), "bytes of a block")
            times = [record.copy_ms for record in ring.trace()[2:]]
            expect(None not in times, "all copies are timed")
    finally:
        for block in blocks:
            block.close()
            block.unlink()
    return statistics.median(times), reference


def main():
    prepare()
    backend = batches()
    ms, reference = rate()
    text = (f"{BATCHES} batches ({backend}), {BLOCK / ms / 1e6:.1f} GB/s beside work, "
            f"{BLOCK / reference / 1e6:.1f} from pinned memory")
    expect(reference >= 0.9 * ms, text)
    print(text)


main()
