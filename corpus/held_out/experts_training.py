"""Mixture of experts of a real size: exchanges beside a dense branch."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_LAYERS, _TOKENS, _WIDTH, _HIDDEN = 3, 4096, 2048, 4096


def _layer(x, router, shared, ups, downs, experts):
    """One expert per device, a dense branch on all tokens meanwhile."""
    capacity = x.shape[0] // experts
    gates = jax.nn.softmax((x @ router).astype(jnp.float32))
    order = jnp.argsort(jnp.argmax(gates, axis=-1))
    sent = x[order].reshape(experts, capacity, _WIDTH)
    received = jax.lax.all_to_all(sent, "expert", 0, 0)
    dense = jax.nn.relu(x @ shared) @ shared.T
    worked = jax.nn.relu(received @ ups) @ downs
    back = jax.lax.all_to_all(worked, "expert", 0, 0).reshape(x.shape)
    restored = jnp.zeros_like(x).at[order].set(back)
    top = jnp.max(gates, axis=-1, keepdims=True).astype(x.dtype)
    return x + dense + restored * top


def experts_training(devices):
    """Gradients and their sums over all devices, three layers written out."""
    mesh = Mesh(np.array(devices), ("expert",))
    count = len(devices)
    split, whole = PartitionSpec("expert"), PartitionSpec()

    def array(shape, spec):
        sharding = NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding)

    def local_loss(weights, x):
        for router, shared, ups, downs in weights:
            x = _layer(x, router, shared, ups[0], downs[0], count)
        return jax.lax.pmean(jnp.mean(jnp.square(x.astype(jnp.float32))), "expert")

    one = (whole, whole, split, split)
    weights = tuple(
        (
            array((_WIDTH, count), whole),
            array((_WIDTH, _HIDDEN), whole),
            array((count, _WIDTH, _HIDDEN), split),
            array((count, _HIDDEN, _WIDTH), split),
        )
        for _ in range(_LAYERS)
    )
    specs = (one,) * _LAYERS
    loss = jax.shard_map(
        local_loss, mesh=mesh, in_specs=(specs, split), out_specs=whole
    )
    x = array((count * _TOKENS, _WIDTH), split)
    return jax.jit(jax.value_and_grad(loss)), (weights, x)
