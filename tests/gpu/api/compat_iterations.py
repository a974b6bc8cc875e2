"""FullCudaGraphWrapper around the iterations of a small GPT, trained and evaluated as Megatron's loop does it, beside
the same loop without it: the same losses, one recording of each stage, and how much faster.

usage: compat_iterations.py losses | random | failed
"""
import statistics
import sys
import time
import types

from api_common import Gpt, expect, prepare, refused, torch

from allograft.compat.full_cuda_graph import FullCudaGraphWrapper, StaticBufferLoader, get_shared_capture_stream

STEPS, EVALUATE_EVERY, EVALUATIONS, MICROBATCHES, TIMES = 200, 20, 3, 4, 3.0
STAGES = ("training", "validation")


class Job:
    """A small GPT, its optimizer, its data, and the function that a schedule of Megatron is."""

    def __init__(self):
        torch.manual_seed(0)
        self.net = Gpt(words=512, width=128, heads=4, length=64, layers=6).cuda().eval()  # without dropout
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=3e-4, fused=True)
        self.calls = dict.fromkeys(STAGES, 0)
        generator = torch.Generator().manual_seed(1)
        self.text = torch.randint(0, 512, (64, 2, 65), generator=generator)

    def batches(self, first):
        n = first
        while True:
            yield {"tokens": self.text[n % 64][:, :-1].contiguous(), "labels": self.text[n % 64][:, 1:].contiguous(),
                   "number": n, "kind": "of the test"}
            n += 1

    def forward_backward(self, *, forward_step_func, data_iterator, model, num_microbatches, seq_length,
                         micro_batch_size, forward_only):
        self.calls[STAGES[forward_only]] += 1
        if not forward_only:
            self.optimizer.zero_grad(set_to_none=False)
        losses = []
        for _ in range(num_microbatches):
            with torch.set_grad_enabled(not forward_only):
                loss = forward_step_func(data_iterator[0], model[0])
            if not forward_only:
                (loss / num_microbatches).backward()
            losses.append({"lm loss": loss.detach()})
        return losses


def forward_step(data_iterator, model):
    data = next(data_iterator)
    logits = model(data["tokens"].cuda())
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), data["labels"].cuda().flatten())


def as_it_is(function):
    return function


def train(wrap):
    """The losses of all iterations with all digits, the calls of each stage, and the median ms of an iteration."""
    job, losses, times = Job(), [], []
    training, validation = job.batches(0), job.batches(7)

    def run(step, data, forward_only):
        found = step(forward_step_func=lambda *args: forward_step(*args), data_iterator=[data], model=[job.net],
                     num_microbatches=MICROBATCHES, seq_length=64, micro_batch_size=2, forward_only=forward_only)
        if not forward_only:
            job.optimizer.step()
        return found

    step = wrap(job.forward_backward)
    for i in range(STEPS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        found = run(step, training, False)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
        losses.append([entry["lm loss"].item().hex() for entry in found])
        if i % EVALUATE_EVERY == EVALUATE_EVERY - 1:
            evaluate = wrap(job.forward_backward)
            for _ in range(EVALUATIONS):
                losses.append(["asked", *[entry["lm loss"].item().hex() for entry in run(evaluate, validation, True)]])
    return losses, job.calls, 1000 * statistics.median(times[STEPS // 2:])


def start_anew():
    FullCudaGraphWrapper(None).reset_cuda_graph()
    for buffers in StaticBufferLoader.static_buffers.values():
        buffers.clear()
    torch.cuda.empty_cache()


def same(wanted, got, what):
    expect(len(wanted) == len(got), what + ": as many")
    for i, (a, b) in enumerate(zip(wanted, got)):
        expect(a == b, f"{what}, iteration {i}: {b}, eager {a}")


def losses():
    wanted, _, eager_ms = train(as_it_is)
    same(wanted, train(as_it_is)[0], "eager losses twice")
    told = []
    for warmup, single in ((1, False), (3, True)):
        start_anew()
        got, calls, ms = train(lambda function: FullCudaGraphWrapper(function, warmup, use_single_mempool=single))
        same(wanted, got, f"warm-up {warmup}")
        expect(calls == dict.fromkeys(STAGES, warmup + 1), f"one recording of each stage: {calls}")
        expect(FullCudaGraphWrapper.curr_iteration == {"training": STEPS, "validation": 30}, "counts")
        told.append(f"an iteration {ms:.3f} ms, eager {eager_ms:.3f} ms: {eager_ms / ms:.1f}x")
        expect(eager_ms >= TIMES * ms, told[-1])
    print(f"{len(wanted)} iterations equal; " + "; ".join(told))


def random():
    """Random numbers of a tracker's generator, and of the default one, are those of eager iterations."""
    torch.cuda.init()  # before it torch has no generators of the devices
    def numbers(wrap):
        generator = torch.cuda.default_generators[torch.cuda.current_device()].clone_state()
        generator.manual_seed(17)
        tracker = types.SimpleNamespace(get_all_rng_states=lambda: {"model-parallel-rng": generator})
        sys.modules["megatron.core.tensor_parallel.random"] = tracker
        torch.manual_seed(5)
        out = torch.zeros(2, 1000, device="cuda")

        def function(**kwargs):
            out[0].copy_(torch.rand(1000, device="cuda", generator=generator))
            out[1].copy_(torch.rand(1000, device="cuda"))
            return out

        step = wrap(function)
        return [step(model="m", data_iterator=None, num_microbatches=1, seq_length=1, forward_only=True).clone()
                for _ in range(8)]

    wanted = numbers(as_it_is)
    start_anew()
    got = numbers(FullCudaGraphWrapper)
    expect(FullCudaGraphWrapper.cuda_graph["validation"] is not None, "recorded")
    for i, (a, b) in enumerate(zip(wanted, got)):
        expect(torch.equal(a, b), f"random numbers of iteration {i}")
    expect(not torch.equal(got[-1], got[-2]), "they go on")
    print("random numbers of 8 iterations equal")


def failed():
    """What cannot be recorded runs on, with any shapes, and PyTorch is where it was."""
    def function(data_iterator, **kwargs):
        x = next(data_iterator[0])["x"]
        return x * x.sum().item()

    wrapper, before = FullCudaGraphWrapper(function), torch.cuda.current_stream()

    def call(n):
        data = iter([{"x": torch.ones(n)}])
        return wrapper(model="m", data_iterator=data, num_microbatches=1, seq_length=n, forward_only=False)

    expect(call(3).tolist() == [3.0] * 3, "the first")
    refused(RuntimeError, lambda: call(4))
    torch.cuda.synchronize()
    expect(torch.cuda.current_stream() == before, "the stream is the one before")
    for n in range(5, 25):
        expect(call(n).tolist() == [float(n)] * n, f"{n} numbers")
    expect(FullCudaGraphWrapper.cuda_graph["training"] is None, "nothing is recorded")
    with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=get_shared_capture_stream()):
        torch.zeros(8, device="cuda")
    print("20 iterations after a recording that failed")


def main():
    prepare()
    start_anew()
    {"losses": losses, "random": random, "failed": failed}[sys.argv[1]]()


main()
