"""Halo exchange: neighbours swap the edges of several fields at once.

Each field sends one row to the right and one to the left; the permutes of one
direction have equal pairs and do not depend on one another, so they combine.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def _pairs(devices, step):
    count = len(devices)
    return [(i, (i + step) % count) for i in range(count)]


def _with_halo(field, left_to_right, right_to_left):
    from_left = jax.lax.ppermute(field[-1:], "x", left_to_right)
    from_right = jax.lax.ppermute(field[:1], "x", right_to_left)
    return jnp.concatenate([from_left, field, from_right])


def _jitted(devices, function, fields):
    mesh = Mesh(np.array(devices), ("x",))
    rows = PartitionSpec("x")
    sharding = NamedSharding(mesh, rows)
    jitted = jax.jit(jax.shard_map(function, mesh=mesh, in_specs=rows, out_specs=rows))
    return jitted, tuple(
        jax.ShapeDtypeStruct(shape, dtype, sharding=sharding) for shape, dtype in fields
    )


def halo_exchange(devices):
    """Three fields of one physics step: f32, bf16 and s32."""
    right, left = _pairs(devices, 1), _pairs(devices, -1)

    def step(height, speed, kind):
        h = _with_halo(height, right, left)
        v = _with_halo(speed, right, left)
        k = _with_halo(kind, right, left)
        smooth = (h[:-2] + 2 * h[1:-1] + h[2:]) * 0.25
        slope = (v[2:] - v[:-2]) * jnp.bfloat16(0.5)
        edge = jnp.maximum(jnp.maximum(k[:-2], k[1:-1]), k[2:])
        return smooth, speed + slope, edge

    fields = (((64, 32), jnp.float32), ((64, 16), jnp.bfloat16), ((64, 8), jnp.int32))
    return _jitted(devices, step, fields)


def halo_exchange_steps(devices):
    """Four steps one after another: the permutes of each depend on the last step's."""
    right, left = _pairs(devices, 1), _pairs(devices, -1)

    def steps(height, speed):
        for _ in range(4):
            h = _with_halo(height, right, left)
            v = _with_halo(speed, right, left)
            height = height + 0.125 * (v[2:] - v[:-2])
            speed = speed + 0.125 * (h[2:] - 2 * h[1:-1] + h[:-2])
        return height, speed

    return _jitted(devices, steps, (((64, 32), jnp.float32),) * 2)


def halo_exchange_many_types(devices):
    """Seven fields of as many types, one direction, open ends: no wrap-around."""
    right = _pairs(devices, 1)[:-1]

    def step(*fields):
        return tuple(jax.lax.ppermute(field, "x", right) for field in fields)

    types = (
        jnp.float32,
        jnp.bfloat16,
        jnp.float16,
        jnp.int32,
        jnp.uint8,
        jnp.bool_,
        jnp.complex64,
    )
    fields = tuple(((16, 4 + k), dtype) for k, dtype in enumerate(types))
    return _jitted(devices, step, fields)
