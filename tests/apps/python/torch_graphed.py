#!/usr/bin/env python3
"""A net of PyTorch trained with AdamW, each step a graph that PyTorch captured. Arguments: layers, width."""
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch  # noqa: E402
from torch import nn  # noqa: E402

STEPS = 12


def main():
    layers, width = map(int, sys.argv[1:3] or (4, 256))
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    with torch.device("cuda"):
        net = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(layers)))
        samples = torch.randn(1024, width)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, capturable=True)

    def step():
        loss = (net(samples) - samples).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return loss

    beside = torch.cuda.Stream()
    with torch.cuda.stream(beside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for i in range(STEPS):
        graph.replay()
        print(i, loss.item().hex())
    print(f"stepping took {time.perf_counter() - begun:.4f} s")


main()
