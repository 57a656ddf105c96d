"""Activations that wait in the host's memory between forward and backward."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_LAYERS, _ROWS, _WIDTH = 4, 2048, 2048


def host_offload(devices):
    """FSDP layers whose inputs are moved to the host and fetched again."""
    mesh = Mesh(np.array(devices), ("data",))
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=["input"],
        offload_src="device",
        offload_dst="pinned_host",
    )

    def layer(x, weight):
        x = checkpoint_name(x, "input")
        return jnp.tanh(x @ weight) @ weight.T

    def loss(weights, x):
        turn = jax.checkpoint(lambda x, w: (layer(x, w), None), policy=policy)
        x, _ = jax.lax.scan(turn, x, weights)
        return jnp.mean(jnp.square(x.astype(jnp.float32)))

    def array(shape, *axes):
        sharding = NamedSharding(mesh, PartitionSpec(*axes))
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding)

    weights = array((_LAYERS, _WIDTH, _WIDTH), None, "data")
    x = array((len(devices) * _ROWS, _WIDTH), "data")
    return jax.jit(jax.grad(loss), out_shardings=weights.sharding), (weights, x)
