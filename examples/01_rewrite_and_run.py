"""Rewrite a jitted function's HLO and prove on eight emulated devices that it is equal.

python examples/01_rewrite_and_run.py
"""

from hlo_passes import runtime

runtime.emulate(8)  # before JAX starts a backend

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

import hlo_passes  # noqa: E402

mesh = Mesh(np.array(jax.devices()), ("x",))
sharded = NamedSharding(mesh, PartitionSpec("x"))
RING = [(i, (i + 1) % 8) for i in range(8)]


def step(a, b):
    """Send two arrays to the right neighbor; two permutes with equal pairs."""
    a = jax.lax.ppermute(a, "x", RING)
    b = jax.lax.ppermute(b, "x", RING)
    return a * 2.0, b + 1


jitted = jax.jit(
    jax.shard_map(
        step, mesh=mesh, in_specs=PartitionSpec("x"), out_specs=PartitionSpec("x")
    )
)
arguments = (
    jax.ShapeDtypeStruct((64, 4), jnp.float32, sharding=sharded),
    jax.ShapeDtypeStruct((64,), jnp.int32, sharding=sharded),
)

before = runtime.lower(jitted, *arguments, stage="partitioned")
after = before.clone()
result = hlo_passes.Pipeline.parse("collective-permute-combiner,hlo-dce").run(after)
for run in result.passes:
    print(f"{run.name}: changed={run.changed} {run.statistics}")

for computation in after.computations:
    for instruction in computation.instructions:
        if instruction.opcode == "collective-permute":
            print(f"{instruction.name}: {instruction.shape}")

comparison = runtime.compare(before, after, seed=0)
print(f"bitwise equal on 8 devices: {comparison.bitwise_equal}")
