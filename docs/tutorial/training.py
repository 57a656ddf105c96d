"""A training step of twelve equal layers in one scan, whose weights are sharded.

`step` is what `hlo-passes lower` asks for: given devices, a jitted function and its
arguments, which are abstract. The forward scan gathers each layer's weights, the
backward scan gathers them again and scatters the gradients; the step donates its state.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

LAYERS, WIDTH, HIDDEN, TOKENS = 12, 4096, 14336, 4096


def step(devices):
    """4,096 tokens a device."""
    mesh = Mesh(np.array(devices), ("data",))
    rows = NamedSharding(mesh, PartitionSpec("data"))
    stacked = NamedSharding(mesh, PartitionSpec(None, "data"))
    whole = NamedSharding(mesh, PartitionSpec())

    def layer(x, weights):
        up, down = (
            jax.lax.with_sharding_constraint(weights[name].astype(jnp.bfloat16), whole)
            for name in ("up", "down")
        )
        return x + jax.nn.relu(x @ up) @ down, None

    def loss(params, x):
        x, _ = jax.lax.scan(jax.checkpoint(layer), x, params["layers"])
        return jnp.mean(jnp.square(x.astype(jnp.float32)))

    def train(params, momentum, x):
        gradients = jax.grad(loss)(params, x)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
        params = jax.tree.map(lambda p, m: p - 1e-3 * m, params, momentum)
        return params, momentum

    def array(dims, kind, sharding):
        return jax.ShapeDtypeStruct(dims, kind, sharding=sharding)

    layers = {
        "up": array((LAYERS, WIDTH, HIDDEN), jnp.float32, stacked),
        "down": array((LAYERS, HIDDEN, WIDTH), jnp.float32, stacked),
    }
    x = array((TOKENS * len(devices), WIDTH), jnp.bfloat16, rows)
    jitted = jax.jit(train, donate_argnums=(0, 1))
    return jitted, ({"layers": layers}, {"layers": layers}, x)
