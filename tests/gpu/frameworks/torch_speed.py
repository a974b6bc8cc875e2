"""PyTorch: a transformer that keeps the GPU busy; every loss with all its digits, and the time of a step."""
import os
import statistics
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
try:
    import torch
except ImportError:
    sys.exit(77)

LAYERS, WIDTH, HEADS, LENGTH, BATCH, WORDS, STEPS = 6, 1024, 16, 512, 16, 8192, 40


class Block(torch.nn.Module):
    """Attention by plain products: the fused kernels are not deterministic backwards."""

    def __init__(self):
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.out = torch.nn.Linear(WIDTH, WIDTH)
        self.wide = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        """x: batch, length, width."""
        heads = self.qkv(self.norms[0](x)).view(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        weights = (heads[0] @ heads[1].transpose(-1, -2)) * (WIDTH // HEADS) ** -0.5
        mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=x.device).triu(1)
        mixed = weights.masked_fill(mask, float("-inf")).softmax(-1) @ heads[2]
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.wide(self.norms[1](x))


def main():
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    model = torch.nn.Sequential(
        torch.nn.Embedding(WORDS, WIDTH), *(Block() for _ in range(LAYERS)),
        torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, WORDS)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    generator = torch.Generator().manual_seed(1)
    text = torch.randint(0, WORDS, (4, BATCH, LENGTH + 1), generator=generator).cuda()
    times = []
    for step in range(STEPS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        words = text[step % 4]
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            answers = model(words[:, :-1])
        loss = torch.nn.functional.cross_entropy(answers.flatten(0, 1).float(), words[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
        print("loss", step, loss.item().hex())
    print("step_ms", f"{1000 * statistics.median(times[5:]):.3f}")


main()
