"""Small JAX programs for eight devices whose collectives the combiners combine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

BY_ROWS = P("d")
TWO_RESULTS = (P("d"), P())

COMBINER = "collective-permute-combiner,gpu-all-reduce-combiner"


def ring(count: int) -> list[tuple[int, int]]:
    return [(i, (i + 1) % count) for i in range(count)]


def two_permutes(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Per device: two permutes and two sums of one kind each."""
    a = jax.lax.ppermute(x, "d", ring(8))
    b = jax.lax.ppermute(x * 2, "d", ring(8))
    total = jax.lax.psum(x, "d") + jnp.sin(jax.lax.psum(x * 3, "d"))
    return a + b.sum(), total


def over_devices(
    devices: Sequence[Any],
    function: Callable[..., Any] = two_permutes,
    out_specs: Any = TWO_RESULTS,
    in_specs: Any = BY_ROWS,
) -> Callable[..., Any]:
    """The function per device, mapped over a mesh of them."""
    mesh = Mesh(np.array(devices[:8]), ("d",))
    mapped = jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs)
    mapped.__name__ = getattr(function, "__name__", "mapped")
    return mapped


def rows() -> jax.Array:
    return jnp.asarray(np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8))


def same_bits(one: Any, other: Any) -> bool:
    """Whether two pytrees of arrays are equal to the last bit."""
    left, right = jax.tree.leaves(one), jax.tree.leaves(other)
    return len(left) == len(right) and all(
        np.asarray(a).tobytes() == np.asarray(b).tobytes()
        for a, b in zip(left, right, strict=True)
    )
