"""Matrix products on a mesh of two axes."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_SIZE = 32


def matmul_2d(devices):
    """A chain of products whose operands lie in blocks; the partitioner moves them."""
    mesh = Mesh(np.array(devices).reshape(2, -1), ("x", "y"))
    blocks = NamedSharding(mesh, PartitionSpec("x", "y"))
    turned = NamedSharding(mesh, PartitionSpec("y", "x"))

    def chain(a, b, c):
        product = jax.lax.with_sharding_constraint(a @ b, blocks)
        return product @ c, jnp.sum(product, axis=0)

    a = jax.ShapeDtypeStruct((_SIZE, _SIZE), jnp.float32, sharding=blocks)
    b = jax.ShapeDtypeStruct((_SIZE, _SIZE), jnp.float32, sharding=turned)
    outputs = (blocks, NamedSharding(mesh, PartitionSpec("y")))
    return jax.jit(chain, out_shardings=outputs), (a, b, a)


def cannon_matmul(devices):
    """Rows and columns shifted round a 2 x 4 mesh between partial products."""
    mesh = Mesh(np.array(devices).reshape(2, -1), ("x", "y"))
    columns = len(devices) // 2
    east = [(i, (i + 1) % columns) for i in range(columns)]
    south = [(0, 1), (1, 0)]

    def shift(a, b):
        total = a @ b
        for _ in range(columns - 1):
            a = jax.lax.ppermute(a, "y", east)
            b = jax.lax.ppermute(b, "x", south)
            total = total + a @ b
        return total

    spec = PartitionSpec("x", "y")
    mapped = jax.shard_map(shift, mesh=mesh, in_specs=spec, out_specs=spec)
    sharding = NamedSharding(mesh, spec)
    a = jax.ShapeDtypeStruct((16, 8 * columns), jnp.float32, sharding=sharding)
    b = jax.ShapeDtypeStruct((16, 8 * columns), jnp.float32, sharding=sharding)
    return jax.jit(mapped), (a, b)
