"""Passes inside jax.jit's own compilation: the four-line plug-in, and one function.

python examples/03_in_the_compiler.py
"""

import jax
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from hlo_passes import runtime

runtime.emulate(8)

RING = [(i, (i + 1) % 8) for i in range(8)]


def step(x):
    """Two exchanges with the neighbor that could be one."""
    return jax.lax.ppermute(x, "d", RING) + jax.lax.ppermute(x * 2, "d", RING)


mesh = Mesh(np.array(jax.devices()), ("d",))
mapped = jax.shard_map(step, mesh=mesh, in_specs=P("d"), out_specs=P("d"))
x = np.arange(64, dtype=np.float32).reshape(8, 8)
plain = jax.jit(mapped)(x)

# The plug-in: every program that is compiled inside has the passes.
with runtime.install("collective-permute-combiner") as installed:
    combined = jax.jit(mapped)(x)
print(f"fired {installed.fired}, changed {installed.changed} of {installed.seen}")
print(installed.reports[-1].result.passes[0].statistics)
print(f"bitwise equal: {np.array_equal(plain, combined)}")

# One function only.
step_with_passes = runtime.jit(mapped, passes="collective-permute-combiner")
text = step_with_passes.lower(x).compile().as_text()
print(f"permutes with passes: {text.count(' collective-permute(')}")
text = jax.jit(mapped).lower(x).compile().as_text()
print(f"permutes without: {text.count(' collective-permute(')}")
