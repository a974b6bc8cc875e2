"""Triton: a jitted kernel over tensors of many sizes, and a loop of launches that goes on without a
wait; bytes summed up on the host."""
import sys

try:
    import torch
    import triton
    import triton.language as tl
except ImportError:
    sys.exit(77)


@triton.jit
def softplus_kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    a = tl.load(x + i, mask=inside, other=0.0)
    b = tl.load(y + i, mask=inside, other=0.0)
    tl.store(out + i, tl.log(1.0 + tl.exp(a)) * b, mask=inside)


def softplus(x, y, out):
    softplus_kernel[(triton.cdiv(x.numel(), 512),)](x, y, out, x.numel(), BLOCK=512)


def sum_of(tensor):
    return tensor.cpu().double().sum().item().hex()


def many_sizes():
    for k in range(40):
        n = 1000 + 77777 * (k % 13)
        generator = torch.Generator().manual_seed(k)
        x = torch.randn(n, generator=generator).cuda()
        y = torch.randn(n, generator=generator).cuda()
        out = torch.empty_like(x)
        softplus(x, y, out)
        print(k, n, sum_of(out))


def one_loop():
    generator = torch.Generator().manual_seed(99)
    x, y = (0.9 * torch.rand(20000, generator=generator).cuda() for _ in range(2))
    layers = [torch.empty_like(x) for _ in range(12)]
    for i in range(150):
        before = x
        for out in layers:
            softplus(before, y, out)
            before = out
        torch.add(before, 0.01 * i, out=x)
        if i % 25 == 24:
            print("loop", i, sum_of(x))


many_sizes()
one_loop()
