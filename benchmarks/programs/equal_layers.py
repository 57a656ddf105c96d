"""A training step of a perceptron with many equal layers, no scan, weights sharded.

    all-gather of the weights -> two products -> ... -> reduce-scatter of gradients

Every layer is in the entry computation, so that a scheduler may move a collective over
several of them.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

WIDTH, HIDDEN, TOKENS = 4096, 16384, 2048
_RATE = 0.01


def _step(devices, layers):
    """`layers` equal ones; TOKENS rows for each device."""
    mesh = Mesh(np.array(devices), ("data",))
    spec = PartitionSpec("data")

    def array(*shape):
        sharding = NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding)

    def loss(weights, x, y):
        for up, down in weights:
            whole_up, whole_down = (
                jax.lax.all_gather(part, "data", tiled=True) for part in (up, down)
            )
            x = x + jax.nn.relu(x @ whole_up) @ whole_down
        return jax.lax.pmean(jnp.mean(jnp.square(x - y)), "data")

    def step(weights, x, y):
        value, gradients = jax.value_and_grad(loss)(weights, x, y)
        return jax.tree.map(lambda w, g: w - _RATE * g, weights, gradients), value

    mapped = jax.shard_map(
        step, mesh=mesh, in_specs=spec, out_specs=(spec, PartitionSpec())
    )
    rows = TOKENS * len(devices)
    weights = [(array(WIDTH, HIDDEN), array(HIDDEN, WIDTH)) for _ in range(layers)]
    arguments = weights, array(rows, WIDTH), array(rows, WIDTH)
    return jax.jit(mapped, donate_argnums=0), arguments


def six_layers(devices):
    """A step of 6 layers."""
    return _step(devices, 6)


def twelve_layers(devices):
    """A step of 12 layers."""
    return _step(devices, 12)


def twenty_four_layers(devices):
    """A step of 24 layers."""
    return _step(devices, 24)
