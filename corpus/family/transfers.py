"""Permutes in loops and chains: rings, lines, halves, and permutes done twice."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def _jitted(devices, function, count, shape=(64, 64)):
    mesh = Mesh(np.array(devices), ("x",))
    rows = PartitionSpec("x")
    jitted = jax.jit(jax.shard_map(function, mesh=mesh, in_specs=rows, out_specs=rows))
    sharding = NamedSharding(mesh, rows)
    return jitted, (
        jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding),
    ) * count


def _ring(devices, step=1):
    count = len(devices)
    return [(i, (i + step) % count) for i in range(count)]


def _line(devices):
    return _ring(devices)[:-1]


def _looped(pairs_of):
    def program(devices):
        pairs = pairs_of(devices)

        def run(x, w):
            def turn(i, carried):
                x, total = carried
                x = jax.lax.ppermute(x, "x", pairs)
                return x, total + jnp.tanh(x) * w * i

            return jax.lax.fori_loop(0, 6, turn, (x, w))[1]

        return _jitted(devices, run, 2)

    return program


ring_in_loop = _looped(_ring)
ring_by_three_in_loop = _looped(lambda devices: _ring(devices, 3))
line_in_loop = _looped(_line)
back_line_in_loop = _looped(lambda d: [(j, i) for i, j in _line(d)])
swaps_in_loop = _looped(lambda d: [(i, i ^ 1) for i in range(len(d))])
one_edge_in_loop = _looped(lambda d: [(0, len(d) - 1)])
halves_in_loop = _looped(
    lambda devices: [(i, (i + 1) % 4 + i // 4 * 4) for i in range(len(devices))]
)


def permute_at_the_end(devices):
    """The permute of a step's result is read in the next step."""

    def run(x, w):
        def turn(_, x):
            return jax.lax.ppermute(jnp.tanh(x * w) + w, "x", _ring(devices))

        return jax.lax.fori_loop(0, 7, turn, x)

    return _jitted(devices, run, 2)


def stages_of_a_pipeline(devices):
    """Microbatches move along a line; the last stage sends its results to the first."""

    def run(x, w):
        def turn(i, carried):
            x, done = carried
            y = jnp.tanh(x * w)
            first = jax.lax.ppermute(y, "x", [(len(devices) - 1, 0)])
            onward = jax.lax.ppermute(y, "x", _line(devices))
            at_start = jax.lax.axis_index("x") == 0
            return jnp.where(at_start, first, onward), done + y * i

        return jax.lax.fori_loop(0, 9, turn, (x, w))[1]

    return _jitted(devices, run, 2)


def same_permutes(devices):
    """The same value is sent twice, and once in another shape."""

    def run(x, w):
        a = jax.lax.ppermute(x, "x", _ring(devices))
        b = jax.lax.ppermute(x, "x", _ring(devices))
        c = jax.lax.ppermute(x[:4], "x", _ring(devices))
        d = jax.lax.ppermute(w, "x", _ring(devices, -1))
        return a * w + b + jnp.pad(c, ((0, 4), (0, 0))) + d

    return _jitted(devices, run, 2)


def permute_of_permute(devices):
    """Two rings after one another, forward and back."""

    def run(x):
        y = jax.lax.ppermute(x, "x", _ring(devices))
        return jax.lax.ppermute(y, "x", _ring(devices, -1)) + y

    return _jitted(devices, run, 1)
