"""One step of a tensor-parallel decoder: eight sequences, one new token each."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

LAYERS, BATCH, WIDTH, HEADS, HEAD, HIDDEN, LENGTH = 8, 8, 4096, 32, 128, 14336, 2048


def step(devices):
    """A jitted step and its arguments, over all devices."""
    mesh = Mesh(np.array(devices), ("model",))

    def layer(x, weights):
        into, cache, out, up, down = weights
        # Attention of the new token to the cached ones, by the heads of this device.
        query = (x @ into).reshape(BATCH, -1, HEAD)
        score = jnp.einsum("bhd,bthd->bht", query, cache[0]) / HEAD**0.5
        share = jax.nn.softmax(score.astype(jnp.float32)).astype(x.dtype)
        found = jnp.einsum("bht,bthd->bhd", share, cache[1]).reshape(BATCH, -1)
        x = x + jax.lax.psum(found @ out, "model")
        # A perceptron, whose hidden features are divided.
        return x + jax.lax.psum(jax.nn.gelu(x @ up) @ down, "model"), None

    def run(x, weights):
        return jax.lax.scan(layer, x, weights)[0]

    specs = (
        P(None, None, "model"),
        P(None, None, None, None, "model", None),
        P(None, "model", None),
        P(None, None, "model"),
        P(None, "model", None),
    )
    shapes = (
        (LAYERS, WIDTH, WIDTH),
        (LAYERS, 2, BATCH, LENGTH, HEADS, HEAD),
        (LAYERS, WIDTH, WIDTH),
        (LAYERS, WIDTH, HIDDEN),
        (LAYERS, HIDDEN, WIDTH),
    )

    def array(shape, spec):
        sharding = NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding)

    mapped = jax.shard_map(run, mesh=mesh, in_specs=(P(), specs), out_specs=P())
    weights = tuple(map(array, shapes, specs))
    return jax.jit(mapped), (array((BATCH, WIDTH), P()), weights)
