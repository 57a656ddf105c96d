"""Pipeline parallel training: permutes in a loop and in its transpose."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_WIDTH, _ROWS, _MICROBATCHES, _LAYERS = 2048, 512, 8, 2


def pipeline_training(devices):
    """Stages x data: activations go on by permutes, gradients are summed."""
    mesh = Mesh(np.array(devices).reshape(4, -1), ("stage", "data"))
    ticks = _MICROBATCHES + 3
    ring = [(i, (i + 1) % 4) for i in range(4)]

    def local_loss(weights, batches):
        stage = jax.lax.axis_index("stage")

        def layers(x):
            for up, down in zip(*weights, strict=True):
                x = x + jax.nn.gelu(x @ up) @ down
            return x

        def tick(carried, t):
            fresh = jax.lax.dynamic_index_in_dim(
                batches, jnp.minimum(t, _MICROBATCHES - 1), keepdims=False
            )
            value = jax.checkpoint(layers)(jnp.where(stage == 0, fresh, carried))
            counted = jnp.where((stage == 3) & (t >= 3), 1.0, 0.0)
            error = jnp.mean(jnp.square(value.astype(jnp.float32))) * counted
            return jax.lax.ppermute(value, "stage", ring), error

        start = jax.lax.pcast(
            jnp.zeros((_ROWS, _WIDTH), jnp.bfloat16), ("stage", "data"), to="varying"
        )
        _, errors = jax.lax.scan(tick, start, jnp.arange(ticks))
        return jax.lax.psum(jnp.sum(errors), ("stage", "data"))

    def array(shape, *axes):
        sharding = NamedSharding(mesh, PartitionSpec(*axes))
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding)

    weight = (array((4 * _LAYERS, _WIDTH, _WIDTH), "stage"),) * 2
    data = mesh.shape["data"]
    batches = array((_MICROBATCHES, data * _ROWS, _WIDTH), None, "data")
    stage, rows = PartitionSpec("stage"), PartitionSpec(None, "data")
    loss = jax.shard_map(
        local_loss,
        mesh=mesh,
        in_specs=((stage, stage), rows),
        out_specs=PartitionSpec(),
    )
    return jax.jit(jax.value_and_grad(loss)), (weight, batches)
