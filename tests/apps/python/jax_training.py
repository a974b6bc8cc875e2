#!/usr/bin/env python3
"""A net of JAX trained with optax's Adam. Arguments: layers, width, and the GiB that JAX takes at once; 0: as it grows."""
import ctypes
import os
import sys
import time

layers, width, gib = map(int, sys.argv[1:4] or (4, 256, 0))


def device_bytes():
    """What JAX takes a fraction of."""
    cuda, free, total, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_void_p()
    cuda.cuInit(0)
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    cuda.cuCtxSetCurrent(context)
    cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    return total.value


os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "true" if gib else "false"
if gib:
    os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{(gib << 30) / device_bytes():.6f}"
os.environ["XLA_FLAGS"] = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import optax  # noqa: E402

STEPS = 16


def main():
    keys = jax.random.split(jax.random.PRNGKey(0), layers + 1)
    net = [jax.random.normal(key, (width, width)) / width**0.5 for key in keys[:-1]]
    samples = jax.random.normal(keys[-1], (1024, width))
    rule = optax.adam(1e-4)
    state = rule.init(net)

    def loss_of(net):
        x = samples
        for weights in net:
            x = jax.nn.gelu(x @ weights)
        return jnp.mean((x - samples) ** 2)

    def step(net, state):
        loss, slopes = jax.value_and_grad(loss_of)(net)
        changes, state = rule.update(slopes, state)
        return optax.apply_updates(net, changes), state, loss

    step = jax.jit(step, donate_argnums=(0, 1))
    net, state, loss = step(net, state)
    print(0, float(loss).hex())
    begun = time.perf_counter()
    for i in range(1, STEPS):
        net, state, loss = step(net, state)
        print(i, float(loss).hex())
    print(f"stepping took {time.perf_counter() - begun:.4f} s")


main()
