"""PyTorch, eager: training of a GPT-2-like net and of an MLP with dropout, inference of ResNet-18, generate() of
transformers.

Every loss with all its digits, and `step_ms_NAME` lines with the median time of a step.
usage: torch_replay.py [turns] [gpt2_train|gpt2|mlp|resnet|generate]...   (none: gpt2 mlp resnet)
  turns: the steps of each net go to two streams in turns, ten at a time: one of normal priority,
         `step_ms_NAME_plain`, and one of high priority, `step_ms_NAME_marked`; `step_ms_NAME_plain_to_marked`
         is how many times as long the former take: of each turn of both, the median of that. With only
         the latter marked for replay both ways are measured in one process, next to each other: one
         process of Python is as much quicker than the next as what is looked for, and for seconds the
         host is slower for all.
"""
import contextlib
import os
import statistics
import sys
import time

try:
    import torch
except ImportError:
    sys.exit(77)
from torch import nn
from torch.nn import functional as F

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SMALL = "small" in sys.argv  # to see on a CPU that it runs at all
TURNS = "turns" in sys.argv


def wait():
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def timed_in_turns(name, n_steps, step, every):
    """As timed, with as many steps in each of two streams."""
    n = max(10, every)
    kinds = ("plain", "marked")
    streams = [torch.cuda.stream(torch.cuda.Stream(priority=-i)) if DEVICE.type == "cuda" else contextlib.nullcontext()
               for i in range(2)]
    times = {kind: [] for kind in kinds}  # a list for each turn
    for i in range(0, 2 * n_steps // n * n, n):
        kind, shown = kinds[i // n % 2], []
        times[kind].append([])
        with streams[i // n % 2]:
            start = time.perf_counter()
            for j in range(n):
                shown.append(step(i + j))
                if j % every == every - 1:
                    wait()
                    now = time.perf_counter()
                    times[kind][-1].append((now - start) / every)
                    start = now
            for value in shown:
                print(name, kind, value.double().sum().item().hex())
            wait()
    turns = [[statistics.median(turn) for turn in times[kind][len(times[kind]) // 3:]] for kind in kinds]
    for kind, seconds in zip(kinds, turns):
        print(f"step_ms_{name}_{kind}", f"{1000 * statistics.median(seconds):.4f}")
    ratio = statistics.median(plain / marked for plain, marked in zip(*turns))
    print(f"step_ms_{name}_plain_to_marked", f"{ratio:.4f}")


def timed(name, n_steps, step, every=1):
    """Runs step(i) and prints what it returns; waits, and takes the time, behind each `every`-th step."""
    if TURNS:
        timed_in_turns(name, n_steps, step, every)
        return
    times, shown, start = [], [], time.perf_counter()
    for i in range(n_steps // 10 if SMALL else n_steps):
        shown.append(step(i))
        if i % every == every - 1:
            wait()
            now = time.perf_counter()
            times.append((now - start) / every)
            for j, value in enumerate(shown):
                print(name, i - len(shown) + 1 + j, value.double().sum().item().hex())
            shown = []
            start = time.perf_counter()
    print(f"step_ms_{name}", f"{1000 * statistics.median(times[len(times) // 3:]):.4f}")


class Block(nn.Module):
    """Attention by plain products: the fused kernels are not deterministic backwards."""

    def __init__(self, width, heads, length):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("mask", torch.ones(length, length, dtype=torch.bool).triu(1))

    def forward(self, x):
        """x: batch, length, width."""
        q, k, v = self.qkv(self.norm1(x)).view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
        mixed = weights.masked_fill(self.mask, float("-inf")).softmax(-1) @ v
        x = x + F.dropout(self.out(mixed.transpose(1, 2).reshape(x.shape)), 0.1, self.training)
        return x + F.dropout(self.narrow(F.gelu(self.wide(self.norm2(x)), approximate="tanh")), 0.1, self.training)


class Gpt(nn.Module):
    """Token and position embeddings, six blocks, logits."""

    def __init__(self, words=2048, width=384, heads=6, length=128, layers=6):
        super().__init__()
        self.words, self.length = words, length
        self.token, self.position = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, length) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, text):
        x = self.token(text) + self.position.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def gpt2():
    torch.manual_seed(0)
    net = Gpt().to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-4)
    generator = torch.Generator().manual_seed(1)
    text = torch.randint(0, net.words, (8, 8, net.length + 1), generator=generator)

    def step(i):
        words = text[i % 8].to(DEVICE)
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(net(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    timed("gpt2_train", 150, step)
    return net, text


def gpt2_and_inference():
    net, text = gpt2()
    net.eval()
    with torch.no_grad():
        timed("gpt2_infer", 300, lambda i: net(text[i % 8][:, :-1].to(DEVICE)))


def mlp():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(256, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 512), nn.GELU(), nn.Dropout(0.1),
        nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, foreach=False)
    generator = torch.Generator().manual_seed(2)
    data = [torch.randn(64, 256, generator=generator) for _ in range(16)]

    def step(i):
        x = data[i % 16].to(DEVICE)
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(net(x), x[:, :10].sin())
        loss.backward()
        optimizer.step()
        return loss.detach()

    timed("mlp_train", 300, step)
    timed("mlp_unwaited", 400, step, every=20)


class Residual(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, n_in, n_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(n_out), nn.BatchNorm2d(n_out)
        self.around = nn.Identity() if stride == 1 and n_in == n_out else nn.Sequential(
            nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))

    def forward(self, x):
        return F.relu(self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x))))) + self.around(x))


def resnet18():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    n_in = 64
    for n_out in (64, 128, 256, 512):
        layers += [Residual(n_in, n_out, 1 if n_out == 64 else 2), Residual(n_out, n_out, 1)]
        n_in = n_out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def resnet():
    torch.manual_seed(0)
    net = resnet18().to(DEVICE).eval()
    generator = torch.Generator().manual_seed(3)
    images = [torch.randn(1, 3, 224, 224, generator=generator) for _ in range(4)]
    with torch.no_grad():
        timed("resnet_infer", 150, lambda i: net(images[i % 4].to(DEVICE)))
        timed("resnet_unwaited", 200, lambda i: net(images[i % 4].to(DEVICE)), every=20)


def generate():
    """Greedy, with a key and value cache that grows by a word each time."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    net = GPT2LMHeadModel(GPT2Config(vocab_size=2048, n_positions=128, n_embd=256, n_layer=4, n_head=4, bos_token_id=None,
                                     eos_token_id=None)).to(DEVICE).eval()
    words = torch.arange(8).view(1, 8).to(DEVICE)
    with torch.no_grad():
        timed("generate", 20, lambda i: net.generate(
            words + i % 4, attention_mask=torch.ones_like(words), max_new_tokens=48, do_sample=False, pad_token_id=0))


PARTS = {"gpt2_train": gpt2, "gpt2": gpt2_and_inference, "mlp": mlp, "resnet": resnet, "generate": generate}


def run(names):
    # Every kernel used here adds in the same order each time. use_deterministic_algorithms would have every new tensor
    # filled and parse a setting by a regular expression at each product: twice the launches, and half as fast.
    torch.backends.cudnn.deterministic = True
    torch.set_num_threads(1)
    for name in names:
        PARTS[name]()


if __name__ == "__main__":
    run([name for name in sys.argv[1:] if name in PARTS] or ["gpt2", "mlp", "resnet"])
