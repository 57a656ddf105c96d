"""Ring attention with a causal mask: blocks that see nothing are skipped."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_HEADS, _TOKENS, _WIDTH = 8, 8192, 128


def _loss(devices, *, unrolled):
    count = len(devices)
    mesh = Mesh(np.array(devices), ("ring",))
    ring = [(i, (i + 1) % count) for i in range(count)]

    def attend(state, key, value, query, own, other):
        def block(state):
            output, highest, total = state
            scores = jnp.einsum("hqd,hkd->hqk", query, key).astype(jnp.float32)
            place = jnp.arange(query.shape[1])
            seen = (place[:, None] >= place[None, :]) | (own != other)
            scores = jnp.where(seen, scores * _WIDTH**-0.5, -1e30)
            new = jnp.maximum(highest, scores.max(-1, keepdims=True))
            shares, keep = jnp.exp(scores - new), jnp.exp(highest - new)
            mixed = jnp.einsum("hqk,hkd->hqd", shares.astype(value.dtype), value)
            return (
                output * keep + mixed,
                new,
                total * keep + shares.sum(-1, keepdims=True),
            )

        return jax.lax.cond(other <= own, block, lambda state: state, state)

    def forward(query, key, value):
        own = jax.lax.axis_index("ring")

        def turn(carried, step):
            state, key, value = carried
            following = tuple(jax.lax.ppermute(x, "ring", ring) for x in (key, value))
            state = attend(state, key, value, query, own, (own - step) % count)
            return (state, *following), None

        wide = query.astype(jnp.float32)
        start = (wide * 0, wide[..., :1] * 0 - 1e30, wide[..., :1] * 0)
        carried = (start, key, value)
        if unrolled:
            for step in range(count):
                carried, _ = turn(carried, jnp.int32(step))
        else:
            carried, _ = jax.lax.scan(turn, carried, jnp.arange(count))
        output, _, total = carried[0]
        return output / total

    spec = PartitionSpec(None, "ring")
    sharding = NamedSharding(mesh, spec)
    block = jax.ShapeDtypeStruct(
        (_HEADS, _TOKENS, _WIDTH), jnp.bfloat16, sharding=sharding
    )
    mapped = jax.shard_map(forward, mesh=mesh, in_specs=spec, out_specs=spec)

    def loss(query, key, value):
        return jnp.sum(jnp.square(mapped(query, key, value)))

    return jax.jit(jax.grad(loss, argnums=(0, 1, 2))), (block,) * 3


def causal_ring_loop(devices):
    """The ring as a loop, with a branch in its body."""
    return _loss(devices, unrolled=False)


def causal_ring_unrolled(devices):
    """The ring written out: chains of permutes beside branches."""
    return _loss(devices, unrolled=True)
