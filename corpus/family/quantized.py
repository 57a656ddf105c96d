"""Collectives of values that are narrow before or after them."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def _jitted(devices, function, dtypes, shape=(64, 32)):
    mesh = Mesh(np.array(devices), ("x",))
    rows = PartitionSpec("x")
    jitted = jax.jit(
        jax.shard_map(
            function, mesh=mesh, in_specs=rows, out_specs=rows, check_vma=False
        )
    )
    sharding = NamedSharding(mesh, rows)
    return jitted, tuple(
        jax.ShapeDtypeStruct(shape, dtype, sharding=sharding) for dtype in dtypes
    )


def _ring(devices):
    return [(i, (i + 1) % len(devices)) for i in range(len(devices))]


def widened_then_gathered(devices):
    """Narrow values are widened and gathered, exchanged and sent."""

    def run(x, y):
        a = jax.lax.all_gather(x.astype(jnp.float32), "x", tiled=True)[:8]
        b = jax.lax.all_to_all(y.astype(jnp.float32), "x", 0, 0, tiled=True)
        c = jax.lax.ppermute(y.astype(jnp.float32), "x", _ring(devices))
        return a * 2 + jnp.sin(b) + jnp.cos(c)

    return _jitted(devices, run, (jnp.bfloat16, jnp.float8_e4m3fn))


def gathered_then_narrowed(devices):
    """What was gathered, exchanged and sent is read in few bits."""

    def run(x):
        a = jax.lax.all_gather(x, "x", tiled=True).astype(jnp.bfloat16)[:8]
        b = jax.lax.all_to_all(jnp.sin(x), "x", 0, 0, tiled=True)
        c = jax.lax.ppermute(jnp.cos(x), "x", _ring(devices))
        return a + b.astype(jnp.bfloat16) * c.astype(jnp.bfloat16)

    return _jitted(devices, run, (jnp.float32,))


def scaled_and_clamped(devices):
    """A scaled, clamped and narrowed gather with one scale for all."""

    def run(x):
        a = jax.lax.all_gather(jnp.sin(x), "x", tiled=True)
        a = jnp.clip(a * 3.0, -448.0, 448.0).astype(jnp.float8_e4m3fn)
        return a.astype(jnp.float32)[:8] * 0.5

    return _jitted(devices, run, (jnp.float32,))


def scaled_before(devices):
    """Narrow values are widened, scaled by a constant, and gathered."""

    def run(x):
        wide = x.astype(jnp.float32) * 0.25
        return jax.lax.all_gather(wide, "x", tiled=True)[:8]

    return _jitted(devices, run, (jnp.float8_e4m3fn,))


def scaled_by_each(devices):
    """The scale is another on each device: it cannot move."""

    def run(x):
        scale = jax.lax.axis_index("x").astype(jnp.float32) + 1.0
        wide = x.astype(jnp.float32) * scale
        return jax.lax.all_gather(wide, "x", tiled=True)[:8]

    return _jitted(devices, run, (jnp.float8_e4m3fn,))


def reshaped_between(devices):
    """A reshape and a slice lie between gather and conversion."""

    def run(x):
        whole = jax.lax.all_gather(jnp.sin(x), "x", tiled=True)
        return whole.reshape(32, 64).astype(jnp.bfloat16)[:8]

    return _jitted(devices, run, (jnp.float32,))


def integers(devices):
    """Integers are narrowed after an exchange, and widened before one."""

    def run(x, y):
        a = jax.lax.all_to_all(x, "x", 0, 0, tiled=True).astype(jnp.int8)
        b = jax.lax.all_gather(y.astype(jnp.int32), "x", tiled=True)[:8]
        return a.astype(jnp.int32) + b

    return _jitted(devices, run, (jnp.int32, jnp.int8))


def two_readers(devices):
    """The wide result is read as well: nothing may be narrowed."""

    def run(x):
        whole = jax.lax.all_gather(jnp.sin(x), "x", tiled=True)[:8]
        return whole.astype(jnp.bfloat16), whole

    return _jitted(devices, run, (jnp.float32,))


def one_scale_for_all(devices):
    """The scale is an argument that all devices have alike."""
    mesh = Mesh(np.array(devices), ("x",))
    rows, same = PartitionSpec("x"), PartitionSpec()

    def run(x, scale):
        whole = jax.lax.all_gather(jnp.sin(x), "x", tiled=True)
        return (whole * scale).astype(jnp.float8_e4m3fn).astype(jnp.float32)[:8]

    mapped = jax.shard_map(
        run, mesh=mesh, in_specs=(rows, same), out_specs=rows, check_vma=False
    )
    return jax.jit(mapped), (
        jax.ShapeDtypeStruct((64, 32), jnp.float32, sharding=NamedSharding(mesh, rows)),
        jax.ShapeDtypeStruct((), jnp.float32, sharding=NamedSharding(mesh, same)),
    )
