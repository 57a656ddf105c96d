"""Pipeline parallelism: each device is a stage and passes its result on."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_WIDTH, _ROWS, _MICROBATCHES = 16, 4, 4


def _setting(devices):
    mesh = Mesh(np.array(devices), ("stage",))
    weights = jax.ShapeDtypeStruct(
        (len(devices), _WIDTH, _WIDTH),
        jnp.float32,
        sharding=NamedSharding(mesh, PartitionSpec("stage")),
    )
    batches = jax.ShapeDtypeStruct(
        (_MICROBATCHES, _ROWS, _WIDTH),
        jnp.float32,
        sharding=NamedSharding(mesh, PartitionSpec()),
    )
    forward = [(i, i + 1) for i in range(len(devices) - 1)]
    return mesh, weights, batches, forward


def _mapped(mesh, function):
    stage, whole = PartitionSpec("stage"), PartitionSpec()
    return jax.shard_map(function, mesh=mesh, in_specs=(stage, whole), out_specs=stage)


def pipeline_unrolled(devices):
    """Ticks written out: a chain of permutes, activation and its scale together."""
    mesh, weights, batches, forward = _setting(devices)

    def run(weight, batch):
        first = jax.lax.axis_index("stage") == 0
        carried = weight[0, :_ROWS] * 0
        scale = carried[:, 0]
        results = []
        for tick in range(_MICROBATCHES + 2):
            fresh = batch[min(tick, _MICROBATCHES - 1)]
            value = jnp.tanh(jnp.where(first, fresh, carried) @ weight[0])
            results.append(value * (1 + scale[:, None]))
            carried = jax.lax.ppermute(value, "stage", forward)
            scale = jax.lax.ppermute(jnp.max(value, axis=1), "stage", forward)
        return jnp.stack(results)[None]

    return jax.jit(_mapped(mesh, run)), (weights, batches)


def pipeline_scan(devices):
    """Ticks in a loop: the permutes are in the loop's body."""
    mesh, weights, batches, forward = _setting(devices)
    ticks = _MICROBATCHES + len(devices) - 1

    def run(weight, batch):
        first = jax.lax.axis_index("stage") == 0

        def tick(carried, t):
            value, norm = carried
            fresh = batch[jnp.minimum(t, _MICROBATCHES - 1)]
            value = jnp.tanh(jnp.where(first, fresh, value) @ weight[0])
            norm = norm + jnp.sum(value * value)
            passed = (
                jax.lax.ppermute(value, "stage", forward),
                jax.lax.ppermute(norm, "stage", forward),
            )
            return passed, value

        start = weight[0, :_ROWS] * 0
        _, values = jax.lax.scan(tick, (start, start[0, 0]), jnp.arange(ticks))
        return values[None]

    return jax.jit(_mapped(mesh, run)), (weights, batches)
