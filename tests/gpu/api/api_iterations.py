"""FullIterationGraph around forward, backward and optimizer of a small GPT, beside the same steps eagerly.

usage: api_iterations.py losses | resets
"""
import gc
import statistics
import sys
import time

from api_common import Gpt, allograft, expect, prepare, torch

STEPS, TIMES = 50, 3.0


class Run:
    """A small GPT that is trained and asked."""

    def __init__(self):
        torch.manual_seed(0)
        self.net = Gpt(words=512, width=128, heads=4, length=64, layers=6).cuda().eval()  # without dropout
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=3e-4, capturable=True)
        generator = torch.Generator().manual_seed(1)
        self.text = torch.randint(0, 512, (16, 4, 65), generator=generator)

    def batch(self, i):
        return {"words": self.text[i % 16][:, :-1], "next": self.text[i % 16][:, 1:]}

    def loss_of(self, batch):
        logits = self.net(batch["words"].cuda())
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["next"].cuda().flatten())

    def train(self, batch):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss_of(batch)
        loss.backward()
        self.optimizer.step()
        return {"loss": loss.detach()}

    @torch.no_grad()
    def ask(self, batch):
        return {"loss": self.loss_of(batch)}

    def go(self, train, ask):
        """Losses of all steps with all digits, every fifth one asked too; and the median ms of a step."""
        losses, times = [], []
        for i in range(STEPS):
            torch.cuda.synchronize()
            start = time.perf_counter()
            loss = train(self.batch(i))["loss"]
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
            losses.append(loss.item().hex())
            if i % 5 == 4:
                losses.append("asked " + ask(self.batch(i + 1))["loss"].item().hex())
        return losses, 1000 * statistics.median(times[STEPS // 2:])


def recorded():
    run = Run()

    def step(batch, forward_only=False):
        return run.ask(batch) if forward_only else run.train(batch)

    graph = allograft.FullIterationGraph(step, warmup_steps=3, single_pool=True)
    result = run.go(graph, lambda batch: graph(batch, forward_only=True))
    expect(graph.is_recorded() and graph.is_recorded("validation"), "both stages are recorded")
    expect((graph.current_iteration(), graph.next_iteration("validation")) == (STEPS - 1, STEPS // 5), "numbers")
    before = [p.detach().clone() for p in run.net.parameters()]
    graph.reset()
    expect(not graph.is_recorded() and graph.next_iteration() == 0, "reset")
    expect(all(torch.equal(a, b) for a, b in zip(before, run.net.parameters())), "a reset changes no parameter")
    for i in range(8):
        expect(bool(torch.isfinite(graph(run.batch(i))["loss"])), "a loss after a reset")
    expect(graph.is_recorded(), "recorded again")
    return result


def losses():
    eager, again = Run(), Run()
    wanted, eager_ms = eager.go(eager.train, eager.ask)
    expect(wanted == again.go(again.train, again.ask)[0], "eager steps give the same losses twice")
    got, ms = recorded()
    for i, (a, b) in enumerate(zip(wanted, got)):
        expect(a == b, f"loss {i}: {b}, eager {a}")
    text = f"{len(got)} losses equal, a step {ms:.3f} ms, eager {eager_ms:.3f} ms: {eager_ms / ms:.1f}x"
    expect(eager_ms >= TIMES * ms, text)
    print(text)


def used():
    free, total = torch.cuda.mem_get_info()
    return total - free


def resets(n=1000):
    torch.manual_seed(0)
    net = torch.nn.Linear(512, 512).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step(x):
        optimizer.zero_grad(set_to_none=True)
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    graph = allograft.FullIterationGraph(step, single_pool="single" in sys.argv)
    x = torch.randn(256, 512)
    gc.collect()
    gc.freeze()  # what is there by now need not be looked through a thousand times
    early = None
    for i in range(n):
        for _ in range(3):
            graph(x)
        graph.reset()
        if i == n // 10:
            early = used(), torch.cuda.memory_reserved()
    late = used(), torch.cuda.memory_reserved()
    grown = [b - a for a, b in zip(early, late)]
    expect(max(grown) <= 32 << 20, f"memory grew by {grown} bytes")
    print(f"{n} resets, {late[0] >> 20} MiB used, grown by {grown[0]} bytes")


def main():
    prepare()
    {"losses": losses, "resets": resets}[sys.argv[1]]()


main()
