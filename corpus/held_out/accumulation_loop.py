"""Gradient accumulation, sharded optimiser, clipping by a branch."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_MICROBATCHES, _ROWS, _LAYERS, _WIDTH = 4, 1024, 3, 2048


def accumulation_loop(devices):
    """Gathered weights, a loop over microbatches, scattered sums, a branch."""
    count = len(devices)
    mesh = Mesh(np.array(devices), ("data",))

    def loss(weights, x):
        for weight in weights:
            x = x + jax.nn.gelu(x @ weight)
        return jnp.mean(jnp.square(x.astype(jnp.float32)))

    def step(shards, moments, batches):
        whole = [jax.lax.all_gather(s, "data", tiled=True) for s in shards]

        def turn(number, sums):
            gradients = jax.grad(loss)(whole, batches[number])
            return [s + g for s, g in zip(sums, gradients, strict=True)]

        start = [w * 0 for w in whole]
        sums = jax.lax.fori_loop(0, _MICROBATCHES, turn, start)
        own = [jax.lax.psum_scatter(s, "data", tiled=True) for s in sums]
        square = sum(jnp.sum(jnp.square(g.astype(jnp.float32))) for g in own)
        norm = jnp.sqrt(jax.lax.psum(square, "data"))

        def clipped(own):
            return [(g / norm.astype(g.dtype)) for g in own]

        own = jax.lax.cond(norm > 1.0, clipped, lambda own: own, own)
        moments = [0.9 * m + 0.1 * g for m, g in zip(moments, own, strict=True)]
        shards = [s - 0.01 * m for s, m in zip(shards, moments, strict=True)]
        return shards, moments, norm[None]

    split = PartitionSpec("data")
    rows = PartitionSpec(None, "data")
    mapped = jax.shard_map(
        step, mesh=mesh, in_specs=(split, split, rows), out_specs=split
    )

    def array(shape, spec):
        sharding = NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding)

    shards = [array((_WIDTH, _WIDTH), split) for _ in range(_LAYERS)]
    batches = array((_MICROBATCHES, count * _ROWS, _WIDTH), rows)
    return jax.jit(mapped, donate_argnums=(0, 1)), (shards, list(shards), batches)
