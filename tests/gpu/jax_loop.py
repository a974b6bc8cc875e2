"""JAX: a jitted training loop, every loss with all its digits."""
import os
import sys

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", ".05")
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_autotune_level=0 --xla_gpu_deterministic_ops=true")
try:
    import jax
    import jax.numpy as jnp
    import numpy as np
except ImportError:
    sys.exit(77)


def loss_of(parameters, x, y):
    hidden = jnp.tanh(x @ parameters["w1"] + parameters["b1"])
    return jnp.mean((hidden @ parameters["w2"] - y) ** 2)


@jax.jit
def step(parameters, x, y):
    loss, gradient = jax.value_and_grad(loss_of)(parameters, x, y)
    return loss, jax.tree.map(lambda p, g: p - 0.05 * g, parameters, gradient)


def main():
    rng = np.random.default_rng(0)
    parameters = {
        "w1": jnp.asarray(rng.standard_normal((128, 256)) / 11, dtype=jnp.float32),
        "b1": jnp.zeros(256, dtype=jnp.float32),
        "w2": jnp.asarray(rng.standard_normal((256, 8)) / 16, dtype=jnp.float32),
    }
    for i in range(100):
        rows = 64 if i % 3 else 96
        x = jnp.asarray(rng.standard_normal((rows, 128)), dtype=jnp.float32)
        y = jnp.sin(x[:, :8])
        loss, parameters = step(parameters, x, y)
        print(i, float(loss).hex())
    for name in sorted(parameters):
        print(name, float(np.asarray(parameters[name], dtype=np.float64).sum()).hex())


if jax.default_backend() != "gpu" and "--any-backend" not in sys.argv:
    sys.exit(77)
main()
