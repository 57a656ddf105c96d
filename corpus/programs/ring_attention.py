"""Ring attention: keys and values travel round the ring while queries stay."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_HEADS, _TOKENS, _WIDTH = 2, 64, 16


def _attention(query, key, value, devices):
    """Softmax attention over all blocks; the running maximum keeps it stable."""
    count = len(devices)
    ring = [(i, (i + 1) % count) for i in range(count)]
    scale = _WIDTH**-0.5
    highest = query[..., :1] * 0 - 1e30
    total = query[..., :1] * 0
    output = query * 0
    for _ in range(count):
        scores = jnp.einsum("hqd,hkd->hqk", query, key) * scale
        new = jnp.maximum(highest, scores.max(-1, keepdims=True))
        weights, keep = jnp.exp(scores - new), jnp.exp(highest - new)
        output = output * keep + jnp.einsum("hqk,hkd->hqd", weights, value)
        total = total * keep + weights.sum(-1, keepdims=True)
        highest = new
        key = jax.lax.ppermute(key, "ring", ring)
        value = jax.lax.ppermute(value, "ring", ring)
    return output / total


def _setting(devices):
    mesh = Mesh(np.array(devices), ("ring",))
    spec = PartitionSpec(None, "ring")
    block = jax.ShapeDtypeStruct(
        (_HEADS, _TOKENS, _WIDTH), jnp.float32, sharding=NamedSharding(mesh, spec)
    )
    return mesh, spec, block


def ring_attention(devices):
    """Forward."""
    mesh, spec, block = _setting(devices)

    def forward(query, key, value):
        return _attention(query, key, value, devices)

    mapped = jax.shard_map(forward, mesh=mesh, in_specs=spec, out_specs=spec)
    return jax.jit(mapped), (block,) * 3


def ring_attention_grad(devices):
    """Gradients for queries, keys and values."""
    mesh, spec, block = _setting(devices)

    def forward(query, key, value):
        return _attention(query, key, value, devices)

    mapped = jax.shard_map(forward, mesh=mesh, in_specs=spec, out_specs=spec)

    def loss(query, key, value):
        return jnp.sum(mapped(query, key, value) ** 2)

    return jax.jit(jax.grad(loss, argnums=(0, 1, 2))), (block,) * 3
