"""Mixture of experts: tokens go to their expert's device and come back."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_TOKENS, _WIDTH, _HIDDEN, _CAPACITY = 16, 8, 16, 4


def _expert_layer(devices):
    experts = len(devices)

    def layer(x, router, up, down):
        gates = jax.nn.softmax(x @ router)
        choice = jnp.argmax(gates, axis=-1)
        chosen = jax.nn.one_hot(choice, experts, dtype=x.dtype)
        place = (jnp.cumsum(chosen, axis=0) - 1) * chosen
        slots = jax.nn.one_hot(place.astype(jnp.int32), _CAPACITY, dtype=x.dtype)
        dispatch = slots * chosen[..., None]
        sent = jnp.einsum("tec,td->ecd", dispatch, x)
        received = jax.lax.all_to_all(sent, "expert", 0, 0, tiled=True)
        worked = jax.nn.relu(received @ up[0]) @ down[0]
        back = jax.lax.all_to_all(worked, "expert", 0, 0, tiled=True)
        weight = dispatch * jnp.max(gates, axis=-1)[:, None, None]
        return x + jnp.einsum("tec,ecd->td", weight, back)

    return layer


def _setting(devices):
    mesh = Mesh(np.array(devices), ("expert",))
    split, whole = PartitionSpec("expert"), PartitionSpec()

    def array(shape, spec):
        sharding = NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

    count = len(devices)
    arguments = (
        array((count * _TOKENS, _WIDTH), split),
        array((_WIDTH, count), whole),
        array((count, _WIDTH, _HIDDEN), split),
        array((count, _HIDDEN, _WIDTH), split),
    )
    mapped = jax.shard_map(
        _expert_layer(devices),
        mesh=mesh,
        in_specs=(split, whole, split, split),
        out_specs=split,
    )
    return mapped, arguments


def moe(devices):
    """One layer, forward."""
    mapped, arguments = _setting(devices)
    return jax.jit(mapped), arguments


def moe_grad(devices):
    """Gradients of one layer for its router and its experts."""
    mapped, arguments = _setting(devices)

    def loss(x, router, up, down):
        return jnp.sum(mapped(x, router, up, down) ** 2)

    return jax.jit(jax.grad(loss, argnums=(1, 2, 3))), arguments
