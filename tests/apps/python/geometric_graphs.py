#!/usr/bin/env python3
"""A graph convolutional net of torch-geometric trained on random graphs of other sizes each time."""
import os
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch  # noqa: E402
from torch_geometric.nn import GCNConv, global_mean_pool  # noqa: E402


def main():
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    layers = torch.nn.ModuleList([GCNConv(16, 64), GCNConv(64, 64)]).cuda()
    head = torch.nn.Linear(64, 4).cuda()
    optimizer = torch.optim.Adam([*layers.parameters(), *head.parameters()], lr=0.01)
    for step in range(80):
        if step == 5:
            begun = time.perf_counter()
        n = 100 + 37 * (step % 9)
        x, edges = torch.randn(n, 16).cuda(), torch.randint(n, (2, 4 * n)).cuda()
        batch, target = (torch.arange(n) * 8 // n).cuda(), torch.randint(4, (8,)).cuda()
        for layer in layers:
            x = layer(x, edges).relu()
        loss = torch.nn.functional.cross_entropy(head(global_mean_pool(x, batch)), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item().hex())
    print(f"stepping took {time.perf_counter() - begun:.4f} s")


main()
