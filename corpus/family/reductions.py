"""Sums of sums, of converted values, of parts that only one device reads."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_BOTH = ("host", "gpu")


def _jitted(devices, function, dtypes, shape=(64, 32)):
    mesh = Mesh(np.array(devices).reshape(2, -1), ("host", "gpu"))
    rows = PartitionSpec(_BOTH)
    jitted = jax.jit(
        jax.shard_map(
            function, mesh=mesh, in_specs=rows, out_specs=rows, check_vma=False
        )
    )
    sharding = NamedSharding(mesh, rows)
    return jitted, tuple(
        jax.ShapeDtypeStruct(shape, dtype, sharding=sharding) for dtype in dtypes
    )


def sum_of_sum(devices):
    """Within a host, then across the hosts; and the other way round."""

    def run(x, y):
        a = jax.lax.psum(jax.lax.psum(x, "gpu"), "host")
        b = jax.lax.pmax(jax.lax.pmax(y, "host"), "gpu")
        return a * b

    return _jitted(devices, run, (jnp.float32, jnp.float32))


def sums_added(devices):
    """Sums over the same devices are added, multiplied, compared."""

    def run(x, y):
        a = jax.lax.psum(x, _BOTH) + jax.lax.psum(y, _BOTH)
        b = jax.lax.pmax(x, "gpu")
        c = jnp.maximum(b, jax.lax.pmax(y, "gpu"))
        d = jax.lax.psum(jnp.sin(x), "gpu") + jax.lax.psum(jnp.cos(y), "host")
        return a + c + d

    return _jitted(devices, run, (jnp.float32, jnp.float32))


def converted_sums_added(devices):
    """Sums in sixteen bits are widened and added."""

    def run(x, y):
        a = jax.lax.psum(x, _BOTH).astype(jnp.float32)
        b = jax.lax.psum(y, _BOTH).astype(jnp.float32)
        return a + b

    return _jitted(devices, run, (jnp.bfloat16, jnp.bfloat16))


def own_part_of_a_sum(devices):
    """Every device reads its own rows of the sum."""

    def run(x):
        total = jax.lax.psum(jnp.sin(x), _BOTH)
        return jax.lax.dynamic_slice_in_dim(total, jax.lax.axis_index(_BOTH), 1)

    return _jitted(devices, run, (jnp.float32,))


def own_part_of_a_host_sum(devices):
    """The sum is over a host; rows go by the place in it."""

    def run(x):
        total = jax.lax.psum(jnp.sin(x), "gpu")
        return jax.lax.dynamic_slice_in_dim(total, jax.lax.axis_index("gpu") * 2, 2)

    return _jitted(devices, run, (jnp.float32,))


def own_part_reversed(devices):
    """Rows go to the devices in the other order: no reduce-scatter does that."""

    def run(x):
        total = jax.lax.psum(jnp.sin(x), _BOTH)
        at = len(devices) - 1 - jax.lax.axis_index(_BOTH)
        return jax.lax.dynamic_slice_in_dim(total, at, 1)

    return _jitted(devices, run, (jnp.float32,))


def scatters_added(devices):
    """Two scattered sums are added."""

    def run(x, y):
        a = jax.lax.psum_scatter(jnp.sin(x), _BOTH, tiled=True)
        b = jax.lax.psum_scatter(jnp.cos(y), _BOTH, tiled=True)
        return a + b

    return _jitted(devices, run, (jnp.float32, jnp.float32))


def small_integers(devices):
    """Sums, maxima and scatters of integers of eight and sixteen bits."""

    def run(x, y, z):
        a = jax.lax.psum(x, _BOTH)
        b = jax.lax.pmax(y, "gpu")
        c = jax.lax.psum_scatter(z, "gpu", tiled=True)
        d = jax.lax.psum(y, "host")
        return a.astype(jnp.int32), b + d, c

    return _jitted(devices, run, (jnp.int8, jnp.int16, jnp.uint16))


def sums_of_constants(devices):
    """Every device has the same: the sum is a product."""

    def run(x):
        ones = jax.lax.psum(jnp.ones((4, 4)), _BOTH)
        index = jax.lax.psum(jax.lax.axis_index(_BOTH), _BOTH)
        return x + ones[0, 0] + index.astype(jnp.float32)

    return _jitted(devices, run, (jnp.float32,))


def many_types(devices):
    """Sums of many types, some of which combine."""

    def run(*xs):
        return tuple(jax.lax.psum(x, _BOTH) for x in xs)

    return _jitted(
        devices,
        run,
        (jnp.float32, jnp.float32, jnp.bfloat16, jnp.int32, jnp.float16, jnp.bfloat16),
    )


def hierarchical_sum(devices):
    """Scatter in a host, sum across, gather in the host."""

    def run(x):
        part = jax.lax.psum_scatter(jnp.sin(x), "gpu", tiled=True)
        return jax.lax.all_gather(jax.lax.psum(part, "host"), "gpu", tiled=True)

    return _jitted(devices, run, (jnp.float32,))
