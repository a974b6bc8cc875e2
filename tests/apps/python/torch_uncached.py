#!/usr/bin/env python3
"""A convolutional net of PyTorch trained without its caching allocator: each tensor is a cudaMalloc and a cudaFree."""
import os
import time

os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
import torch  # noqa: E402
from torch import nn  # noqa: E402


def main():
    torch.manual_seed(0)
    torch.backends.cudnn.deterministic = True
    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
                        nn.Flatten(), nn.Linear(32 * 16 * 16, 10)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    images, labels = torch.randn(8, 32, 3, 32, 32), torch.randint(10, (8, 32))
    for step in range(300):
        if step == 5:
            begun = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(net(images[step % 8].cuda()), labels[step % 8].cuda())
        loss.backward()
        optimizer.step()
        print(step, loss.item().hex())
    print(f"stepping took {time.perf_counter() - begun:.4f} s")


main()
