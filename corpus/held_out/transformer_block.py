"""Transformer layers of a real size, weights split over data and model axes."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_LAYERS, _WIDTH, _HIDDEN, _HEADS, _BATCH, _TOKENS = 4, 2048, 8192, 16, 8, 1024


def _weights(mesh):
    def array(shape, *axes):
        sharding = NamedSharding(mesh, PartitionSpec(None, *axes))
        return jax.ShapeDtypeStruct((_LAYERS, *shape), jnp.bfloat16, sharding=sharding)

    return {
        "query_key_value": array((3, _WIDTH, _WIDTH), None, "data", "model"),
        "output": array((_WIDTH, _WIDTH), "model", "data"),
        "up": array((_WIDTH, _HIDDEN), "data", "model"),
        "gate": array((_WIDTH, _HIDDEN), "data", "model"),
        "down": array((_HIDDEN, _WIDTH), "model", "data"),
        "scale": array((2, _WIDTH)),
    }


def _normalized(x, scale):
    square = jnp.mean(jnp.square(x.astype(jnp.float32)), axis=-1, keepdims=True)
    return (x * jax.lax.rsqrt(square + 1e-6).astype(x.dtype)) * scale


def _attention(x, weights):
    batch, tokens, _ = x.shape
    heads = jnp.einsum("btd,cdh->cbth", x, weights["query_key_value"])
    query, key, value = heads.reshape(3, batch, tokens, _HEADS, _WIDTH // _HEADS)
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) * (_WIDTH // _HEADS) ** -0.5
    causal = jnp.tril(jnp.ones((tokens, tokens), bool))
    shares = jax.nn.softmax(jnp.where(causal, scores.astype(jnp.float32), -1e30))
    mixed = jnp.einsum("bhqk,bkhd->bqhd", shares.astype(x.dtype), value)
    return mixed.reshape(batch, tokens, _WIDTH) @ weights["output"]


def _layer(x, weights):
    x = x + _attention(_normalized(x, weights["scale"][0]), weights)
    normal = _normalized(x, weights["scale"][1])
    hidden = jax.nn.silu(normal @ weights["gate"]) * (normal @ weights["up"])
    return x + hidden @ weights["down"]


def _train(devices, run_layers):
    mesh = Mesh(np.array(devices).reshape(-1, 4), ("data", "model"))
    weights = _weights(mesh)
    rows = NamedSharding(mesh, PartitionSpec("data"))
    x = jax.ShapeDtypeStruct((_BATCH, _TOKENS, _WIDTH), jnp.bfloat16, sharding=rows)

    def loss(weights, x):
        return jnp.mean(jnp.square(run_layers(weights, x).astype(jnp.float32)))

    def step(weights, x):
        value, gradients = jax.value_and_grad(loss)(weights, x)
        new = jax.tree.map(
            lambda w, g: w - (0.01 * g).astype(w.dtype), weights, gradients
        )
        return new, value

    shardings = (jax.tree.map(lambda a: a.sharding, weights), None)
    return jax.jit(step, donate_argnums=0, out_shardings=shardings), (weights, x)


def transformer_scan(devices):
    """A training step, layers in a loop, activations computed again."""

    def run_layers(weights, x):
        turn = jax.checkpoint(lambda x, one: (_layer(x, one), None))
        return jax.lax.scan(turn, x, weights)[0]

    return _train(devices, run_layers)


def transformer_unrolled(devices):
    """A training step, layers written out: one large computation."""

    def run_layers(weights, x):
        for number in range(_LAYERS):
            x = _layer(x, jax.tree.map(lambda w, n=number: w[n], weights))
        return x

    return _train(devices, run_layers)
