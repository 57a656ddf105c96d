"""Fully sharded data parallelism: parameters gathered for use, gradients scattered."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_WIDTH, _HIDDEN, _BATCH, _LAYERS, _RATE = 16, 32, 32, 3, 0.01


def _shapes(mesh, spec):
    sharding = NamedSharding(mesh, spec)

    def array(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

    layers = [
        {
            "up": array(_WIDTH, _HIDDEN),
            "bias": array(_HIDDEN),
            "down": array(_HIDDEN, _WIDTH),
        }
        for _ in range(_LAYERS)
    ]
    return layers, array(_BATCH, _WIDTH), array(_BATCH, _WIDTH)


def _block(layer, x):
    return x + jax.nn.gelu(x @ layer["up"] + layer["bias"]) @ layer["down"]


def fsdp_mlp(devices):
    """A training step by hand: all-gather of each layer, reduce-scatter backwards."""
    mesh = Mesh(np.array(devices), ("data",))
    spec = PartitionSpec("data")

    def loss(layers, x, y):
        for layer in layers:
            whole = jax.tree.map(
                lambda p: jax.lax.all_gather(p, "data", tiled=True), layer
            )
            x = _block(whole, x)
        return jax.lax.pmean(jnp.mean((x - y) ** 2), "data")

    def step(layers, x, y):
        value, gradients = jax.value_and_grad(loss)(layers, x, y)
        return jax.tree.map(lambda p, g: p - _RATE * g, layers, gradients), value

    mapped = jax.shard_map(
        step, mesh=mesh, in_specs=spec, out_specs=(spec, PartitionSpec())
    )
    return jax.jit(mapped, donate_argnums=0), _shapes(mesh, spec)


def fsdp_mlp_partitioner(devices):
    """The same step written for one device, cut up by the partitioner."""
    mesh = Mesh(np.array(devices), ("data",))
    spec = PartitionSpec("data")

    def loss(layers, x, y):
        for layer in layers:
            x = _block(layer, x)
            x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))
        return jnp.mean((x - y) ** 2)

    def step(layers, x, y):
        value, gradients = jax.value_and_grad(loss)(layers, x, y)
        return jax.tree.map(lambda p, g: p - _RATE * g, layers, gradients), value

    arguments = _shapes(mesh, spec)
    outputs = (
        jax.tree.map(lambda a: a.sharding, arguments[0]),
        NamedSharding(mesh, PartitionSpec()),
    )
    return jax.jit(step, out_shardings=outputs), arguments
