"""Large arrays of one number, written into later: when they are filled."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_SIDE, _ROWS = 1024, 8
_MIB_ELEMENTS = 1 << 18


def large_fills(devices):
    """Fills below and above 1 MiB, a ramp, one with two users, a loop's result."""
    mesh = Mesh(np.array(devices), ("x",))

    def run(x, places, weight):
        exchanged = jax.lax.all_to_all(x, "x", 0, 0, tiled=True)
        values = jnp.tanh(exchanged @ weight[0])
        results = []
        for k, size in enumerate((64, _MIB_ELEMENTS - 1, _MIB_ELEMENTS)):
            filled = jnp.full((size,), k + 1.0)
            results.append(filled.at[places].set(values[k, :_ROWS]))
        ramp = jnp.arange(_MIB_ELEMENTS + 1)
        results.append(ramp.at[places].set(values[4, :_ROWS].astype(jnp.int32)))
        spread = jnp.broadcast_to(values[0, 0], (_MIB_ELEMENTS + 2,))
        results.append(spread.at[places].set(values[5, :_ROWS]))
        twice = jnp.full((512, _SIDE), 3.0)
        results.append(twice.at[places].set(values[:_ROWS]))
        results.append(twice.at[places + 1].set(values[_ROWS : 2 * _ROWS]))

        def turn(carried, _):
            carried = jnp.tanh(carried @ weight[0])
            return carried, carried

        _, stacked = jax.lax.scan(turn, values, jnp.arange(3))
        results.append(stacked)
        back = jax.lax.all_to_all(values * 2, "x", 0, 0, tiled=True)
        return tuple(r[None] for r in results), back

    split, whole = PartitionSpec("x"), PartitionSpec()
    mapped = jax.shard_map(
        run,
        mesh=mesh,
        in_specs=(split, whole, split),
        out_specs=split,
        check_vma=False,
    )

    def array(shape, kind, spec):
        sharding = NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct(shape, kind, sharding=sharding)

    count = len(devices)
    return jax.jit(mapped), (
        array((count * _SIDE, _SIDE), jnp.float32, split),
        array((_ROWS,), jnp.int32, whole),
        array((count, _SIDE, _SIDE), jnp.float32, split),
    )
