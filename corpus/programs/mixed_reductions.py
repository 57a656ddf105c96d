"""Reductions of several types, operators and groups side by side."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def _arrays(mesh, spec, fields):
    sharding = NamedSharding(mesh, spec)
    return tuple(
        jax.ShapeDtypeStruct(shape, dtype, sharding=sharding) for shape, dtype in fields
    )


def mixed_reductions(devices):
    """Sums, maxima and minima of f32, bf16 and s32 over all devices."""
    mesh = Mesh(np.array(devices), ("x",))

    def reductions(a, b, c, d):
        return (
            jax.lax.psum(a, "x"),
            jax.lax.psum(b, "x"),
            jax.lax.psum(c, "x"),
            jax.lax.psum(d, "x"),
            jax.lax.pmax(a, "x"),
            jax.lax.pmax(d, "x"),
            jax.lax.pmin(b, "x"),
        )

    spec = PartitionSpec("x")
    mapped = jax.shard_map(
        reductions, mesh=mesh, in_specs=spec, out_specs=PartitionSpec()
    )
    fields = (
        ((32, 4), jnp.float32),
        ((16, 8), jnp.float32),
        ((16, 4), jnp.bfloat16),
        ((8, 8), jnp.int32),
    )
    return jax.jit(mapped), _arrays(mesh, spec, fields)


def grouped_reductions(devices):
    """Sums over either axis of a mesh and over both: three kinds of groups."""
    mesh = Mesh(np.array(devices).reshape(2, -1), ("x", "y"))

    def reductions(a, b):
        rows = jax.lax.psum(a, "y") + jax.lax.psum(b, "y")
        columns = jax.lax.psum(a * 2, "x"), jax.lax.psum(b * 3, "x")
        return rows, *columns, jax.lax.psum(jnp.sum(a * b), ("x", "y"))

    spec = PartitionSpec("x", "y")
    x, y = PartitionSpec("x"), PartitionSpec(None, "y")
    mapped = jax.shard_map(
        reductions, mesh=mesh, in_specs=spec, out_specs=(x, y, y, PartitionSpec())
    )
    return jax.jit(mapped), _arrays(mesh, spec, (((8, 16), jnp.float32),) * 2)
