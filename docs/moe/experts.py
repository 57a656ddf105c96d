"""A sparse layer of experts: rows go to their experts' devices and come back.

`step` is the first layer of the table in docs/moe.md. On each device, `layer` takes
tokens [tokens, width], chooses `top_k` experts for each, and gives the sum of what
these make of it, weighted by a softmax over the chosen logits.

An expert has room for `room` rows. The first ones count, in order of device, then of
token, then of choice; later ones are dropped and add nothing.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Of one device; `experts` of each device."""

    tokens: int
    width: int
    hidden: int
    experts: int
    top_k: int
    room: int
    dtype: str = "bfloat16"


#: One wide expert on each device; several; many narrow ones.
WIDE = Sizes(tokens=8192, width=4096, hidden=14336, experts=1, top_k=2, room=20480)
SEVERAL = Sizes(tokens=4096, width=4096, hidden=4096, experts=8, top_k=4, room=2560)
MANY = Sizes(tokens=4096, width=7168, hidden=2048, experts=32, top_k=8, room=1280)
SMALL = Sizes(tokens=512, width=2048, hidden=2048, experts=8, top_k=2, room=160)


def layer(x, router, up, down, *, sizes):
    """What one device computes: [tokens, width] -> [tokens, width]."""
    here, room = sizes.experts, sizes.room
    copies = sizes.tokens * sizes.top_k
    # The router: which experts, and how much of each.
    logits, chosen = jax.lax.top_k(x @ router, sizes.top_k)
    weights = jax.nn.softmax(logits.astype(jnp.float32)).astype(x.dtype)
    # Copies of the tokens, in order of their experts.
    expert = chosen.reshape(-1)
    order = jnp.argsort(expert, stable=True)
    rows = x[order // sizes.top_k]
    # How many rows each device has for each expert, where they begin, and how many of
    # them find room behind those of the devices before.
    counts = jnp.zeros(router.shape[1], jnp.int32).at[expert].add(1)
    everyone = jax.lax.all_gather(counts, "expert")
    starts = jnp.cumsum(everyone, axis=1) - everyone
    before = jnp.minimum(jnp.cumsum(everyone, axis=0) - everyone, room)
    sizes_of_all = jnp.minimum(everyone, room - before)
    place = before + jnp.arange(router.shape[1]) % here * room
    me = jax.lax.axis_index("expert")
    own = (starts[me], sizes_of_all[me], place[me])

    def of_my_experts(table):
        return jax.lax.dynamic_slice_in_dim(table, me * here, here, 1).reshape(-1)

    theirs = tuple(map(of_my_experts, (starts, sizes_of_all, place)))
    # There, through the experts, and back.
    arrived = jax.lax.ragged_all_to_all(
        rows,
        jnp.zeros((here * room, sizes.width), x.dtype),
        own[0],
        own[1],
        own[2],
        theirs[1],
        axis_name="expert",
    )
    batch = arrived.reshape(here, room, sizes.width)
    inner = jax.nn.relu(jnp.einsum("ecd,edf->ecf", batch, up))
    worked = jnp.einsum("ecf,efd->ecd", inner, down)
    back = jax.lax.ragged_all_to_all(
        worked.reshape(here * room, sizes.width),
        jnp.zeros((copies, sizes.width), x.dtype),
        theirs[2],
        theirs[1],
        theirs[0],
        own[1],
        axis_name="expert",
    )
    weighted = back * weights.reshape(-1)[order][:, None]
    return jnp.zeros_like(x).at[order // sizes.top_k].add(weighted)


def program(devices, sizes):
    """The jitted layer and abstract arguments."""
    mesh = Mesh(np.array(devices), ("expert",))
    split, whole = PartitionSpec("expert"), PartitionSpec()
    count = len(devices)

    def array(shape, spec):
        sharding = NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct(shape, sizes.dtype, sharding=sharding)

    mapped = jax.shard_map(
        lambda *given: layer(*given, sizes=sizes),
        mesh=mesh,
        in_specs=(split, whole, split, split),
        out_specs=split,
        check_vma=False,
    )
    arguments = (
        array((count * sizes.tokens, sizes.width), split),
        array((sizes.width, count * sizes.experts), whole),
        array((count * sizes.experts, sizes.width, sizes.hidden), split),
        array((count * sizes.experts, sizes.hidden, sizes.width), split),
    )
    return jax.jit(mapped), arguments


def step(devices):
    """The layer with one wide expert on each device."""
    return program(devices, WIDE)
