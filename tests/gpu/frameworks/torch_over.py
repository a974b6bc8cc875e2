"""PyTorch: a transformer that needs more memory than the limit allows. Each step's loss, or its sum, with all digits, and
how long each step took.

usage: torch_over.py train|train-fused|train-foreach|infer LAYERS WIDTH STEPS
    train   AdamW, one parameter at a time, so that its states are used once a step: 16 layers of 2048 need 13.7 GiB;
            or many of them in one kernel, by PyTorch's own one or by several
    infer   the weights in turn: 24 layers of 4096 need 9.1 GiB; a quarter as many words
prints lines of "step N VALUE", "peak_mib N", and "ms N TIME" for each step, learning included.
"""
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError:
    sys.exit(77)

HEAD, WORDS, LENGTH = 128, 1000, 1024


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.before_attention, self.before_net = nn.LayerNorm(width), nn.LayerNorm(width)
        self.projections, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.net = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        heads = self.projections(self.before_attention(x)).view(batch, length, 3, width // HEAD, HEAD)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.net(self.before_net(x))


def training(net, batches, **how):
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, **how)

    def step(i):
        words = batches[i % len(batches)]
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(net(words).float().view(-1, WORDS), words.view(-1))
        loss.backward()
        optimizer.step()
        return loss.item()
    return step


def inference(net, batches):
    net.eval()

    def step(i):
        with torch.no_grad():
            return net(batches[i % len(batches)]).float().sum().item()
    return step


def main():
    what, layers, width, steps = sys.argv[1], *map(int, sys.argv[2:5])
    batch = 2 if what == "infer" else 8
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        net = nn.Sequential(nn.Embedding(WORDS, width), *(Block(width) for _ in range(layers)), nn.Linear(width, WORDS))
        batches = [torch.randint(0, WORDS, (batch, LENGTH)) for _ in range(4)]
    how = {"train": {"foreach": False}, "train-fused": {"fused": True}, "train-foreach": {"foreach": True}}
    step = inference(net, batches) if what == "infer" else training(net, batches, **how[what])
    times = []
    for i in range(steps):
        torch.cuda.synchronize()
        began = time.perf_counter()
        print("step", i, step(i).hex())
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    print("peak_mib", torch.cuda.max_memory_allocated() >> 20)
    for i, seconds in enumerate(times):
        print("ms", i, "%.1f" % (1e3 * seconds))


main()
