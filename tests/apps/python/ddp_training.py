#!/usr/bin/env python3
"""Data-parallel training in PyTorch, every loss with all its digits: by NCCL, or by gloo where ranks share a GPU."""
import os

import torch
from torch import distributed, nn


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    n_devices = torch.cuda.device_count()
    torch.cuda.set_device(rank % n_devices)
    distributed.init_process_group("nccl" if world <= n_devices else "gloo")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 16)).cuda()
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(60):
        samples = torch.randn(256, 512, generator=generator).cuda()
        loss = (model(samples) - samples[:, :16]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        os.write(1, f"rank {rank} step {step} {loss.item().hex()}\n".encode())  # whole lines, whoever else prints
    distributed.destroy_process_group()


main()
