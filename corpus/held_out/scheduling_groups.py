"""What the user wants side by side, said with scheduling groups."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_ROWS, _WIDTH, _STEPS = 2048, 2048, 4


def _group(number):
    return set_xla_metadata(_scheduling_group_id=str(number))


def _setting(devices):
    mesh = Mesh(np.array(devices), ("x",))
    spec = PartitionSpec("x")

    def array(*shape):
        sharding = NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding)

    return mesh, spec, array


def grouped_exchange(devices):
    """Two exchanges, each in a group with the product that is to hide it."""
    mesh, spec, array = _setting(devices)

    def run(x, y, w):
        w = w[0]
        with _group(0):
            exchanged = jax.lax.all_to_all(x, "x", 0, 0, tiled=True)
            first = y @ w
        between = jnp.tanh(first) @ w
        with _group(1):
            returned = jax.lax.all_to_all(exchanged * 2, "x", 0, 0, tiled=True)
            second = between @ w
        total = jax.lax.psum(jnp.sum(second, dtype=jnp.float32), "x")
        return returned + second * total.astype(second.dtype)

    mapped = jax.shard_map(run, mesh=mesh, in_specs=spec, out_specs=spec)
    count = len(devices)
    rows = array(count * _ROWS, _WIDTH)
    return jax.jit(mapped), (rows, rows, array(count, _WIDTH, _WIDTH))


def grouped_loop(devices):
    """A group in the body of a loop: the permute with the product beside it."""
    mesh, spec, array = _setting(devices)
    count = len(devices)
    ring = [(i, (i + 1) % count) for i in range(count)]

    def run(x, w):
        w = w[0]

        def turn(_, state):
            travelling, total = state
            with _group(7):
                moved = jax.lax.ppermute(travelling, "x", ring)
                product = travelling @ w
            return moved, total + jnp.tanh(product)

        return jax.lax.fori_loop(0, count, turn, (x, x))[1]

    mapped = jax.shard_map(run, mesh=mesh, in_specs=spec, out_specs=spec)
    return jax.jit(mapped), (array(count * _ROWS, _WIDTH), array(count, _WIDTH, _WIDTH))


def grouped_gathers(devices):
    """Weights for the next layer gathered in a group with this layer's product."""
    mesh, spec, array = _setting(devices)
    count = len(devices)

    def run(x, weights):
        def layer(carried, following):
            x, gathered = carried
            with _group(3):
                product = x @ gathered
                gathered = jax.lax.all_gather(following, "x", tiled=True)
            return (x + jnp.tanh(product), gathered), None

        first = jax.lax.all_gather(weights[0, 0], "x", tiled=True)
        (x, last), _ = jax.lax.scan(layer, (x, first), weights[0, 1:])
        return x @ last

    mapped = jax.shard_map(run, mesh=mesh, in_specs=spec, out_specs=spec)
    split = array(count, _STEPS, _WIDTH // count, _WIDTH)
    return jax.jit(mapped), (array(count * _ROWS, _WIDTH), split)
