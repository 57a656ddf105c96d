"""Layers in a loop, collectives in its body."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_LAYERS, _WIDTH, _BATCH = 6, 16, 16


def _array(mesh, shape, *axes):
    sharding = NamedSharding(mesh, PartitionSpec(*axes))
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)


def scan_layers(devices):
    """FSDP forward: each iteration gathers its layer's two weights."""
    mesh = Mesh(np.array(devices), ("data",))

    def forward(ups, downs, x):
        def layer(x, weights):
            up, down = (jax.lax.all_gather(w, "data", tiled=True) for w in weights)
            return x + jnp.tanh(x @ up) @ down, jnp.sum(x)

        x, sums = jax.lax.scan(layer, x, (ups, downs))
        return x, jax.lax.psum(sums, "data")

    weights, rows = PartitionSpec(None, "data"), PartitionSpec("data")
    mapped = jax.shard_map(
        forward,
        mesh=mesh,
        in_specs=(weights, weights, rows),
        out_specs=(rows, PartitionSpec()),
    )
    stack = _array(mesh, (_LAYERS, _WIDTH, _WIDTH), None, "data")
    return jax.jit(mapped), (stack, stack, _array(mesh, (_BATCH, _WIDTH), "data"))


def scan_layers_train(devices):
    """A training step over stacked layers on a mesh of data and model."""
    mesh = Mesh(np.array(devices).reshape(2, -1), ("data", "model"))

    def loss(weights, x):
        def layer(x, pair):
            up, down = pair
            return x + jax.nn.relu(x @ up) @ down, None

        x, _ = jax.lax.scan(layer, x, weights)
        return jnp.mean(x * x)

    def step(weights, x):
        gradients = jax.grad(loss)(weights, x)
        return jax.tree.map(lambda w, g: w - 0.01 * g, weights, gradients)

    weights = (
        _array(mesh, (_LAYERS, _WIDTH, 2 * _WIDTH), None, None, "model"),
        _array(mesh, (_LAYERS, 2 * _WIDTH, _WIDTH), None, "model"),
    )
    outputs = jax.tree.map(lambda a: a.sharding, weights)
    x = _array(mesh, (_BATCH, _WIDTH), "data")
    return jax.jit(step, out_shardings=outputs, donate_argnums=0), (weights, x)
