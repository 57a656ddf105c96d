"""Tensor parallelism: columns, then rows of the weights; all-reduce per block."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_WIDTH, _HIDDEN, _BATCH, _RATE = 16, 64, 8, 0.01


def tensor_parallel_mlp(devices):
    """A training step of two blocks, cut up by the partitioner."""
    mesh = Mesh(np.array(devices), ("model",))

    def array(shape, *axes):
        sharding = NamedSharding(mesh, PartitionSpec(*axes))
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

    block = {
        "up": array((_WIDTH, _HIDDEN), None, "model"),
        "down": array((_HIDDEN, _WIDTH), "model"),
        "scale": array((_WIDTH,)),
    }

    def loss(blocks, x, y):
        for b in blocks:
            x = x + jax.nn.relu((x * b["scale"]) @ b["up"]) @ b["down"]
        return jnp.mean((x - y) ** 2)

    def step(blocks, x, y):
        value, gradients = jax.value_and_grad(loss)(blocks, x, y)
        return jax.tree.map(lambda p, g: p - _RATE * g, blocks, gradients), value

    blocks = [block, block]
    outputs = (
        jax.tree.map(lambda a: a.sharding, blocks),
        NamedSharding(mesh, PartitionSpec()),
    )
    data = array((_BATCH, _WIDTH))
    return jax.jit(step, out_shardings=outputs), (blocks, data, data)


def sequence_parallel_mlp(devices):
    """Activations sharded between blocks: all-gather before, reduce-scatter after."""
    mesh = Mesh(np.array(devices), ("model",))
    rows, columns = PartitionSpec("model"), PartitionSpec(None, "model")

    def forward(x, ups, downs):
        for up, down in zip(ups, downs, strict=True):
            whole = jax.lax.all_gather(x, "model", tiled=True)
            partial = jax.nn.silu(whole @ up) @ down
            x = x + jax.lax.psum_scatter(partial, "model", tiled=True)
        return x

    def array(shape, spec):
        sharding = NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

    mapped = jax.shard_map(
        forward, mesh=mesh, in_specs=(rows, columns, rows), out_specs=rows
    )
    ups = [array((_WIDTH, _HIDDEN), columns)] * 3
    downs = [array((_HIDDEN, _WIDTH), rows)] * 3
    return jax.jit(mapped), (array((32, _WIDTH), rows), ups, downs)
