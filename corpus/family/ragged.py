"""Exchanges of parts of unequal length."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def _jitted(devices, function):
    mesh = Mesh(np.array(devices), ("x",))
    rows = PartitionSpec("x")
    jitted = jax.jit(
        jax.shard_map(
            function, mesh=mesh, in_specs=rows, out_specs=rows, check_vma=False
        )
    )
    sharding = NamedSharding(mesh, rows)
    count = len(devices)
    table = jax.ShapeDtypeStruct((count * count,), jnp.int32, sharding=sharding)
    data = jax.ShapeDtypeStruct((count * 32, 16), jnp.float32, sharding=sharding)
    return jitted, (data, data, table, table, table, table)


def dispatch(devices):
    """Each device sends a part of its rows to each other one."""

    def run(x, out, at, sizes, to, received):
        return jax.lax.ragged_all_to_all(x, out, at, sizes, to, received, axis_name="x")

    return _jitted(devices, run)


def dispatch_and_combine(devices):
    """There, through a layer, and back."""

    def run(x, out, at, sizes, to, received):
        there = jax.lax.ragged_all_to_all(
            jnp.sin(x), out, at, sizes, to, received, axis_name="x"
        )
        return jax.lax.ragged_all_to_all(
            jnp.tanh(there), x, to, received, at, sizes, axis_name="x"
        )

    return _jitted(devices, run)


def dispatch_in_loop(devices):
    """Three layers exchange the same parts."""

    def run(x, out, at, sizes, to, received):
        def turn(_, carried):
            return jax.lax.ragged_all_to_all(
                jnp.sin(carried), out, at, sizes, to, received, axis_name="x"
            )

        return jax.lax.fori_loop(0, 3, turn, x)

    return _jitted(devices, run)
