"""Two layers whose weights are sharded over all devices: each is gathered for its use.

`step` and `small_step` are what `hlo-passes lower` asks for: given devices, a jitted
function and its arguments. Abstract arguments do; nothing of their size is allocated.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def _lowerable(devices, tokens: int, width: int, hidden: int):
    mesh = Mesh(np.array(devices), ("data",))
    sharded = NamedSharding(mesh, PartitionSpec("data"))
    whole = NamedSharding(mesh, PartitionSpec())

    def gathered(weight):
        return jax.lax.with_sharding_constraint(weight, whole)

    def forward(x, layers):
        for up, down in layers:
            x = x + jax.nn.relu(x @ gathered(up)) @ gathered(down)
        return x

    def array(*dims: int):
        return jax.ShapeDtypeStruct(dims, jnp.bfloat16, sharding=sharded)

    layer = (array(width, hidden), array(hidden, width))
    arguments = (array(tokens * len(devices), width), [layer, layer])
    return jax.jit(forward, out_shardings=sharded), arguments


def step(devices):
    """2,048 tokens a device."""
    return _lowerable(devices, tokens=2048, width=4096, hidden=16384)


def small_step(devices):
    """The same program, small enough to run on a laptop."""
    return _lowerable(devices, tokens=16, width=32, hidden=64)
