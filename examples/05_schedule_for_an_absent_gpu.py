"""Schedules from XLA and from us for a GPU that you do not have.

python examples/05_schedule_for_an_absent_gpu.py

Needs JAX's CUDA plug-in (the extra gpu-aot), but neither a GPU nor CUDA.
"""

import sys

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlo_passes
from hlo_passes import runtime, scheduler

runtime.emulate(8)


def layer(x, w):
    """A matrix product whose operand is gathered while the one before runs."""
    return jax.numpy.tanh(x @ jax.lax.all_gather(w, "d", tiled=True))


mesh = Mesh(np.array(jax.devices()), ("d",))


def two_layers(x, v, w):
    """Two of them."""
    return layer(layer(x, v), w)


mapped = jax.shard_map(
    two_layers, mesh=mesh, in_specs=(P("d"), P("d"), P("d")), out_specs=P("d")
)
sharding = NamedSharding(mesh, P("d"))
array = jax.ShapeDtypeStruct((4096, 4096), np.float32, sharding=sharding)
try:
    module = runtime.lower(
        jax.jit(mapped), array, array, array, stage="gpu-scheduled", target="h100_sxm"
    )
except hlo_passes.HloError as problem:
    print(f"no schedule: {problem.message}")
    sys.exit(0)
by_xla = scheduler.simulate(module, target="h100_sxm", hosts=1)
print(f"XLA's schedule: {module.instruction_count} instructions")
print(f"simulated step time: {by_xla.step_time_us:.1f} us")
context = hlo_passes.PassContext(target="h100_sxm", hosts=1)
hlo_passes.Pipeline.parse("latency-hiding-scheduler", context).run(module)
by_us = scheduler.simulate(module, target="h100_sxm", hosts=1)
print(f"with our schedule: {by_us.step_time_us:.1f} us")
