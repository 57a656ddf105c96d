"""Gradients of several microbatches added up in a loop, reduced once after it."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_WIDTH, _BATCH, _MICROBATCHES = 16, 16, 4


def gradient_accumulation(devices):
    """Two weights, a bias, and the reduction of all three after the loop."""
    mesh = Mesh(np.array(devices), ("data",))

    def loss(parameters, x):
        up, bias, down = parameters
        return jnp.mean((jnp.tanh(x @ up + bias) @ down) ** 2)

    def step(parameters, batches):
        local = jax.tree.map(
            lambda p: jax.lax.pcast(p, "data", to="varying"), parameters
        )

        def add(total, x):
            return jax.tree.map(jnp.add, total, jax.grad(loss)(local, x)), None

        zero = jax.tree.map(lambda p: p * 0, local)
        total, _ = jax.lax.scan(add, zero, batches)
        return jax.tree.map(
            lambda p, g: p - 0.01 * jax.lax.psum(g, "data"), parameters, total
        )

    whole, split = PartitionSpec(), PartitionSpec(None, "data")
    mapped = jax.shard_map(step, mesh=mesh, in_specs=(whole, split), out_specs=whole)

    def array(shape, spec):
        sharding = NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

    parameters = (
        array((_WIDTH, 2 * _WIDTH), whole),
        array((2 * _WIDTH,), whole),
        array((2 * _WIDTH, _WIDTH), whole),
    )
    batches = array((_MICROBATCHES, _BATCH, _WIDTH), split)
    return jax.jit(mapped, donate_argnums=0), (parameters, batches)
