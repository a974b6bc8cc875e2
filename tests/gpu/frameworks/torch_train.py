"""PyTorch: MLP with Adam, 200 steps, every loss with all its digits."""
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
try:
    import torch
except ImportError:
    sys.exit(77)

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def data(step):
    """One batch; its size varies so that allocations do too."""
    rows = 64 + 32 * (step % 5)
    generator = torch.Generator().manual_seed(1000 + step % 20)
    x = torch.randn(rows, 256, generator=generator).to(DEVICE)
    return x, (x[:, :10].sin() + x[:, 10:20].cos())


def main():
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Dropout(0.1),
        torch.nn.Linear(512, 512), torch.nn.GELU(), torch.nn.Linear(512, 10),
    ).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(200):
        x, y = data(step)
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        print(step, loss.item().hex())
    for name, parameter in model.named_parameters():
        print(name, parameter.detach().double().sum().item().hex())


main()
