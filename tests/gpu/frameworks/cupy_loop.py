"""CuPy: element-wise, matrix and raw kernels in a loop; `nopool` takes its memory pool away."""
import sys

try:
    import cupy
    import numpy as np
except ImportError:
    sys.exit(77)

RAW = cupy.RawKernel(
    r"""
extern "C" __global__ void rotate(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = x[(i + 1) % n] * 0.5f + x[i];
}
""",
    "rotate",
)


def main():
    if "nopool" in sys.argv:
        cupy.cuda.set_allocator(None)
        cupy.cuda.set_pinned_memory_allocator(None)
    rng = np.random.default_rng(0)
    state = cupy.asarray(rng.standard_normal((200, 300)), dtype=cupy.float32)
    weights = cupy.asarray(rng.standard_normal((300, 300)) / 20, dtype=cupy.float32)
    for i in range(60):
        state = cupy.tanh(state @ weights) + cupy.float32(0.01 * i)
        rotated = cupy.empty_like(state)
        RAW(((state.size + 255) // 256,), (256,), (state, rotated, np.int32(state.size)))
        state = rotated[::-1].copy()
        if i % 10 == 0:
            wide = cupy.repeat(state, 1 + i // 10, axis=0)
            print(i, float(np.float64(cupy.asnumpy(wide).astype(np.float64).sum())).hex())
    order = cupy.argsort(state.ravel())
    print("order", int(order[0]), int(order[-1]))
    with cupy.cuda.Stream(non_blocking=True) as stream:
        other = cupy.sqrt(cupy.abs(state)).sum(axis=1)
        stream.synchronize()
    print("sum", float(cupy.asnumpy(other).astype(np.float64).sum()).hex())


main()
