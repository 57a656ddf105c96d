"""Permutes in loops and branches."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def control_flow(devices):
    """A loop that ends when all agree; each turn goes one way or the other."""
    mesh = Mesh(np.array(devices), ("x",))
    count = len(devices)
    right = [(i, (i + 1) % count) for i in range(count)]
    left = [(i, (i - 1) % count) for i in range(count)]

    def send_right(a, b):
        return jax.lax.ppermute(a, "x", right), jax.lax.ppermute(b, "x", right)

    def send_left(a, b):
        return jax.lax.ppermute(a, "x", left), jax.lax.ppermute(b, "x", left) + 1

    def run(a, b):
        def unfinished(state):
            turn, size, _, _ = state
            return (turn < 6) & (size > -1.0)

        def turn(state):
            turn, _, a, b = state
            a, b = jax.lax.cond(turn % 2 == 0, send_right, send_left, a, b)
            a = jax.lax.ppermute(a * 0.5, "x", right)
            return turn + 1, jax.lax.pmax(jnp.max(jnp.abs(a)), "x"), a, b

        start = (jnp.int32(0), jnp.float32(1.0), a, b)
        _, size, a, b = jax.lax.while_loop(unfinished, turn, start)
        return size[None], a, b

    rows = PartitionSpec("x")
    mapped = jax.shard_map(
        run, mesh=mesh, in_specs=rows, out_specs=(PartitionSpec(), rows, rows)
    )
    sharding = NamedSharding(mesh, rows)
    return jax.jit(mapped), (
        jax.ShapeDtypeStruct((16, 8), jnp.float32, sharding=sharding),
        jax.ShapeDtypeStruct((16,), jnp.int32, sharding=sharding),
    )


def swap_in_loop(devices):
    """Two buffers change places in every turn while both travel round the ring."""
    mesh = Mesh(np.array(devices), ("x",))
    count = len(devices)
    right = [(i, (i + 1) % count) for i in range(count)]

    def run(a, b):
        def turn(_, state):
            a, b = state
            return jax.lax.ppermute(b, "x", right), jax.lax.ppermute(a, "x", right)

        return jax.lax.fori_loop(0, 5, turn, (a, b))

    rows = PartitionSpec("x")
    mapped = jax.shard_map(run, mesh=mesh, in_specs=rows, out_specs=rows)
    sharding = NamedSharding(mesh, rows)
    array = jax.ShapeDtypeStruct((16, 4), jnp.float32, sharding=sharding)
    return jax.jit(mapped), (array, array)
