"""Training steps whose layers are a loop, with the collectives in its body.

Each function gives what `hlo-passes lower` asks for: a jitted function and arguments.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

_LAYERS, _WIDTH, _HIDDEN, _TOKENS = 8, 4096, 16384, 2048


def _lowerable(step, devices, shape, names, arguments, results):
    """Map a step over a mesh; arguments and results are (dims, specification) each."""
    mesh = Mesh(np.array(devices).reshape(shape), names)
    mapped = jax.shard_map(
        step,
        mesh=mesh,
        in_specs=tuple(spec for _, spec in arguments),
        out_specs=results,
        check_vma=False,
    )
    arrays = tuple(
        jax.ShapeDtypeStruct(dims, jnp.bfloat16, sharding=NamedSharding(mesh, spec))
        for dims, spec in arguments
    )
    return jax.jit(mapped), arrays


def fsdp(devices):
    """Each iteration gathers its layer's weights; backward scatters its gradients."""

    def loss(weights, x):
        def layer(x, pair):
            up, down = (jax.lax.all_gather(w, "data", tiled=True) for w in pair)
            return x + jax.nn.relu(x @ up) @ down, None

        x, _ = jax.lax.scan(jax.checkpoint(layer), x, weights)
        return jnp.mean(jnp.square(x.astype(jnp.float32)))

    rows, cut = P("data"), P(None, "data")
    return _lowerable(
        lambda up, down, x: jax.grad(loss)((up, down), x),
        devices,
        (-1,),
        ("data",),
        [
            ((_LAYERS, _WIDTH, _HIDDEN), cut),
            ((_LAYERS, _HIDDEN, _WIDTH), cut),
            ((_TOKENS * len(devices), _WIDTH), rows),
        ],
        (cut, cut),
    )


def tensor_parallel(devices):
    """Layers cut over four devices, tokens over the rest; gradients summed."""

    def step(up, down, x):
        def layer(x, pair):
            up, down = pair
            return x + jax.lax.psum(jax.nn.relu(x @ up) @ down, "model"), x

        x, inputs = jax.lax.scan(layer, x, (up, down))

        def back(g, saved):
            up, down, x = saved
            hidden = x @ up
            to_down = jax.nn.relu(hidden).T @ g
            to_hidden = jnp.where(hidden > 0, g @ down.T, 0)
            sums = jax.lax.psum(x.T @ to_hidden, "data"), jax.lax.psum(to_down, "data")
            return g + jax.lax.psum(to_hidden @ up.T, "model"), sums

        _, gradients = jax.lax.scan(back, x, (up, down, inputs), reverse=True)
        return gradients

    columns, rows = P(None, None, "model"), P(None, "model")
    return _lowerable(
        step,
        devices,
        (-1, 4),
        ("data", "model"),
        [
            ((_LAYERS, _WIDTH, _HIDDEN), columns),
            ((_LAYERS, _HIDDEN, _WIDTH), rows),
            ((_TOKENS * len(devices) // 4, _WIDTH), P("data")),
        ],
        (columns, rows),
    )


def pipeline_parallel(devices):
    """Each device is a stage; in each tick it sends what it has done to the next."""
    stages = len(devices)

    def step(up, down, parts):
        stage = jax.lax.axis_index("stage")

        def tick(carried, part):
            x = jnp.where(stage == 0, part, carried)
            y = x + jax.nn.relu(x @ up[0]) @ down[0]
            sent = jax.lax.ppermute(
                y, "stage", [(k, (k + 1) % stages) for k in range(stages)]
            )
            return sent, y

        _, results = jax.lax.scan(tick, jnp.zeros_like(parts[0]), parts)
        return results

    parts = (2 * stages, _TOKENS, _WIDTH)
    return _lowerable(
        step,
        devices,
        (-1,),
        ("stage",),
        [
            ((stages, _WIDTH, _HIDDEN), P("stage")),
            ((stages, _HIDDEN, _WIDTH), P("stage")),
            (parts, P()),
        ],
        P("stage"),
    )
