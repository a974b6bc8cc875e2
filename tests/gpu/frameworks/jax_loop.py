"""JAX: jitted training loops, one that reads every loss and one that goes on without a wait.

`kernels` as an argument: XLA launches kernel by kernel, where it would make graphs of its own.
"""
import functools
import os
import sys

FLAGS = ["--xla_gpu_autotune_level=0", "--xla_gpu_deterministic_ops=true"]
if "kernels" in sys.argv:
    FLAGS.append("--xla_gpu_enable_command_buffer=")
os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", ".05")
os.environ.setdefault("XLA_FLAGS", " ".join(FLAGS))
try:
    import jax
    import jax.numpy as jnp
    import numpy as np
except ImportError:
    sys.exit(77)


def random(rng, *shape):
    return jnp.asarray(rng.standard_normal(shape) / shape[0] ** 0.5, dtype=jnp.float32)


def loss_of(parameters, x, y):
    hidden = jnp.tanh(x @ parameters["w1"] + parameters["b1"])
    return jnp.mean((hidden @ parameters["w2"] - y) ** 2)


@jax.jit
def step(parameters, x, y):
    loss, gradient = jax.value_and_grad(loss_of)(parameters, x, y)
    return loss, jax.tree.map(lambda p, g: p - 0.05 * g, parameters, gradient)


def read_every_loss(rng):
    parameters = {
        "w1": random(rng, 128, 256),
        "b1": jnp.zeros(256, dtype=jnp.float32),
        "w2": random(rng, 256, 8),
    }
    for i in range(100):
        rows = 64 if i % 3 else 96
        x = jnp.asarray(rng.standard_normal((rows, 128)), dtype=jnp.float32)
        y = jnp.sin(x[:, :8])
        loss, parameters = step(parameters, x, y)
        print(i, float(loss).hex())
    for name in sorted(parameters):
        print(name, float(np.asarray(parameters[name], dtype=np.float64).sum()).hex())


def deep_loss_of(layers, x, y):
    for w, b in layers[:-1]:
        x = jnp.tanh(x @ w + b)
    w, b = layers[-1]
    return jnp.mean((x @ w + b - y) ** 2)


@functools.partial(jax.jit, donate_argnums=0)
def deep_step(layers, x, y):
    loss, gradient = jax.value_and_grad(deep_loss_of)(layers, x, y)
    return loss, jax.tree.map(lambda p, g: p - 0.05 * g, layers, gradient)


def go_on_without_a_wait(rng):
    sizes = [64, 128, 128, 128, 128, 8]
    layers = [(random(rng, m, n), jnp.zeros(n, dtype=jnp.float32)) for m, n in zip(sizes, sizes[1:])]
    x, y = random(rng, 64, 64), random(rng, 64, 8)
    for i in range(300):
        loss, layers = deep_step(layers, x, y)
        if i % 100 == 99:
            print("deep", i, float(loss).hex())
    for i, (w, b) in enumerate(layers):
        print("layer", i, *(float(np.asarray(p, dtype=np.float64).sum()).hex() for p in (w, b)))


def main():
    rng = np.random.default_rng(0)
    read_every_loss(rng)
    go_on_without_a_wait(rng)


if jax.default_backend() != "gpu" and "--any-backend" not in sys.argv:
    sys.exit(77)
main()
