#!/usr/bin/env python3
"""A Gaussian process of gpytorch fitted to a curve."""
import time

import gpytorch
import torch


class Curve(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean = gpytorch.means.ConstantMean()
        self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


def main():
    torch.manual_seed(0)
    x = torch.linspace(0, 1, 400).cuda()
    y = torch.sin(12 * x) + 0.1 * torch.randn(400).cuda()
    likelihood = gpytorch.likelihoods.GaussianLikelihood().cuda()
    model = Curve(x, y, likelihood).cuda()
    model.train()
    likelihood.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    for step in range(40):
        if step == 5:
            begun = time.perf_counter()
        optimizer.zero_grad()
        loss = -objective(model(x), y)
        loss.backward()
        optimizer.step()
        print(step, loss.item().hex())
    print(f"stepping took {time.perf_counter() - begun:.4f} s")
    model.eval()
    likelihood.eval()
    with torch.no_grad():
        said = likelihood(model(torch.linspace(0, 1, 51).cuda()))
    print(said.mean.double().sum().item().hex(), said.variance.double().sum().item().hex())


main()
