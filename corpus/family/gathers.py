"""Gathers of gathers, of broadcasts, of slices, and what is taken out of them again."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def _jitted(devices, function, shapes, out_specs=None, dtype=jnp.float32):
    mesh = Mesh(np.array(devices).reshape(2, -1), ("host", "gpu"))
    rows = PartitionSpec(("host", "gpu"))
    jitted = jax.jit(
        jax.shard_map(
            function,
            mesh=mesh,
            in_specs=rows,
            out_specs=rows if out_specs is None else out_specs,
            check_vma=False,
        )
    )
    sharding = NamedSharding(mesh, rows)
    return jitted, tuple(
        jax.ShapeDtypeStruct(shape, dtype, sharding=sharding) for shape in shapes
    )


_BOTH = ("host", "gpu")


def gather_of_gather(devices):
    """First within a host, then across the hosts."""

    def run(x):
        near = jax.lax.all_gather(x, "gpu", tiled=True)
        return jnp.sin(jax.lax.all_gather(near, "host", tiled=True))

    return _jitted(devices, run, ((64, 32),))


def gathers_of_one_value(devices):
    """Once over all, once within a host, once along columns."""

    def run(x):
        a = jax.lax.all_gather(x, _BOTH, tiled=True)
        b = jax.lax.all_gather(x, "gpu", tiled=True)
        c = jax.lax.all_gather(x, "gpu", axis=1, tiled=True)
        return a[:8] + b[:8] * c[:, :32]

    return _jitted(devices, run, ((64, 32),))


def own_part_of_a_gather(devices):
    """Every device takes back its own rows."""

    def run(x):
        whole = jax.lax.all_gather(jnp.sin(x), _BOTH, tiled=True)
        own = jax.lax.axis_index(_BOTH) * x.shape[0]
        return jax.lax.dynamic_slice_in_dim(whole, own, x.shape[0])

    return _jitted(devices, run, ((64, 32),))


def next_part_of_a_gather(devices):
    """Every device takes the rows of the next one."""

    def run(x):
        whole = jax.lax.all_gather(jnp.sin(x), _BOTH, tiled=True)
        at = (jax.lax.axis_index(_BOTH) + 1) % len(devices) * x.shape[0]
        return jax.lax.dynamic_slice_in_dim(whole, at, x.shape[0])

    return _jitted(devices, run, ((64, 32),))


def table_of_parts(devices):
    """A table says whose rows a device takes."""
    table = np.array([3, 2, 1, 0, 7, 6, 5, 4], np.int32)

    def run(x):
        whole = jax.lax.all_gather(jnp.sin(x), _BOTH, tiled=True)
        at = jnp.asarray(table)[jax.lax.axis_index(_BOTH)] * x.shape[0]
        return jax.lax.dynamic_slice_in_dim(whole, at, x.shape[0])

    return _jitted(devices, run, ((64, 32),))


def sums_of_gathers(devices):
    """Two gathered values are added, and two multiplied."""

    def run(x, y):
        a = jax.lax.all_gather(x, _BOTH, tiled=True)
        b = jax.lax.all_gather(y, _BOTH, tiled=True)
        c = jax.lax.all_gather(jnp.sin(x), "gpu", tiled=True)
        d = jax.lax.all_gather(jnp.cos(y), "gpu", tiled=True)
        return (a + b)[:8] + (c * d)[:8]

    return _jitted(devices, run, ((64, 32), (64, 32)))


def gather_of_a_broadcast(devices):
    """The gathered rows are copies of one vector."""

    def run(x):
        wide = jnp.broadcast_to(x.sum(0)[:, None, None], (32, 4, 16))
        return jax.lax.all_gather(wide, _BOTH, tiled=True)[:8]

    return _jitted(devices, run, ((64, 32),))


def gather_with_ones(devices):
    """The gathered array has dimensions of size one."""

    def run(x):
        thin = jnp.sin(x).reshape(1, 8, 1, 32)
        wide = jax.lax.all_gather(thin, _BOTH, axis=1, tiled=True)
        return wide.reshape(64, 32)[:8]

    return _jitted(devices, run, ((64, 32),))


def gather_of_columns(devices):
    """Gathered along the last dimension, then transposed."""

    def run(x):
        wide = jax.lax.all_gather(jnp.sin(x), _BOTH, axis=1, tiled=True)
        return wide.T[:8]

    return _jitted(devices, run, ((64, 32),))


def padded_part_of_a_gather(devices):
    """A window over the gathered rows with zeros around them."""

    def run(x):
        whole = jax.lax.all_gather(x, _BOTH, tiled=True)
        padded = jnp.pad(whole, ((8, 0), (0, 0)))
        own = jax.lax.axis_index(_BOTH) * x.shape[0]
        return jax.lax.dynamic_slice_in_dim(padded, own, x.shape[0])

    return _jitted(devices, run, ((64, 32),))


def gathers_in_a_loop(devices):
    """One gather that does not change, and one that does."""

    def run(x, y):
        def turn(i, x):
            fixed = jax.lax.all_gather(y, "gpu", tiled=True)
            varying = jax.lax.all_gather(x, "gpu", tiled=True)
            return jnp.tanh(x + fixed[:8] * varying[8:16]) * i

        return jax.lax.fori_loop(1, 5, turn, x)

    return _jitted(devices, run, ((64, 32), (64, 32)))


def four_bits(devices):
    """Gathers of integers of four bits."""

    def run(x):
        whole = jax.lax.all_gather(x, _BOTH, tiled=True)
        return whole.astype(jnp.int32)[:8]

    return _jitted(devices, run, ((64, 32),), dtype=jnp.int4)
