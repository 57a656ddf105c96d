"""A test that fails when a change exposes communication, or makes the step longer."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from hlo_passes import runtime


def layer(x, w, v):
    return jnp.tanh(x @ w) @ v


def test_the_gathers_hide(host_devices):
    mesh = Mesh(host_devices(8), ("data",))
    rows = NamedSharding(mesh, PartitionSpec("data"))
    step = jax.jit(layer, in_shardings=(rows, rows, rows), out_shardings=rows)
    x = jax.ShapeDtypeStruct((65536, 8192), jnp.bfloat16)
    w = jax.ShapeDtypeStruct((8192, 8192), jnp.bfloat16)
    on = {"args": (x, w, w), "target": "h100_sxm"}
    timeline = runtime.assert_exposed_below(step, "15%", **on)
    assert timeline.worst(1)[0].opcode == "all-gather"
    runtime.assert_step_within(step, "3.5ms", **on)
