"""Triton: a jitted kernel over tensors of many sizes, bytes summed up on the host."""
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


def main():
    for k in range(40):
        n = 1000 + 77777 * (k % 13)
        generator = torch.Generator().manual_seed(k)
        x = torch.randn(n, generator=generator).cuda()
        y = torch.randn(n, generator=generator).cuda()
        out = torch.empty_like(x)
        softplus_kernel[(triton.cdiv(n, 512),)](x, y, out, n, BLOCK=512)
        print(k, n, out.cpu().double().sum().item().hex())


main()
