"""Mixed precision: bf16 work, f32 master weights, gradients reduced in bf16."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_WIDTH, _BATCH, _LAYERS = 16, 32, 4


def bf16_step(devices):
    """Data-parallel training step with momentum."""
    mesh = Mesh(np.array(devices), ("data",))

    def array(shape, dtype, *axes):
        sharding = NamedSharding(mesh, PartitionSpec(*axes))
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    def loss(weights, x):
        for w in weights:
            x = jnp.tanh(x @ w)
        return jnp.mean(x.astype(jnp.float32) ** 2)

    def step(weights, momenta, x):
        halves = [
            jax.lax.pcast(w.astype(jnp.bfloat16), "data", to="varying") for w in weights
        ]
        gradients = jax.grad(loss)(halves, x)
        gradients = [jax.lax.psum(g, "data").astype(jnp.float32) for g in gradients]
        momenta = [0.9 * m + g for m, g in zip(momenta, gradients, strict=True)]
        weights = [w - 0.01 * m for w, m in zip(weights, momenta, strict=True)]
        return weights, momenta

    whole = PartitionSpec()
    mapped = jax.shard_map(
        step, mesh=mesh, in_specs=(whole, whole, PartitionSpec("data")), out_specs=whole
    )
    weights = [array((_WIDTH, _WIDTH), jnp.float32)] * _LAYERS
    x = array((_BATCH, _WIDTH), jnp.bfloat16, "data")
    return jax.jit(mapped, donate_argnums=(0, 1)), (weights, weights, x)
