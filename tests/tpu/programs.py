"""Programs for TPUs: what the corpus lacks, in sizes that overlap.

FUNCTION(devices) returns (jitted function, abstract arguments), as in the corpus.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_WIDTH = 2048


def _line(devices):
    return Mesh(np.array(devices), ("d",))


def _grid(devices):
    return Mesh(np.array(devices).reshape(2, -1), ("x", "y"))


def _array(mesh, spec, *shape, dtype=jnp.bfloat16):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))


def _over(mesh, function, inputs, outputs):
    mapped = jax.shard_map(
        function, mesh=mesh, in_specs=inputs, out_specs=outputs, check_vma=False
    )
    return jax.jit(mapped)


def _round(mesh, axis, step):
    count = mesh.shape[axis]
    return [(i, (i + step) % count) for i in range(count)]


def layers_gathered(devices):
    """Weights gathered before each product."""
    mesh = _line(devices)
    whole, rows = PartitionSpec(), PartitionSpec("d")

    def step(x, weights):
        for weight in weights:
            full = jax.lax.with_sharding_constraint(weight, NamedSharding(mesh, whole))
            x = jax.nn.relu(x @ full)
        return x

    weights = [_array(mesh, rows, _WIDTH, _WIDTH) for _ in range(4)]
    return jax.jit(step), (_array(mesh, rows, _WIDTH, _WIDTH), weights)


def permutes_and_products(devices):
    """Two permutes beside two products, and reductions of their results."""
    mesh = _line(devices)
    pairs = _round(mesh, "d", 1)

    def step(a, b, w):
        a2, b2 = (jax.lax.ppermute(x, "d", pairs) for x in (a, b))
        c, d = jnp.tanh(a @ w), jnp.sin(b @ w)
        return a2 + c, b2 * d, jax.lax.psum(c.sum(0), "d")

    rows, whole = PartitionSpec("d"), PartitionSpec()
    shapes = (
        _array(mesh, rows, 2 * _WIDTH, _WIDTH, dtype=jnp.float32),
        _array(mesh, rows, 2 * _WIDTH, _WIDTH, dtype=jnp.float32),
        _array(mesh, whole, _WIDTH, _WIDTH, dtype=jnp.float32),
    )
    return _over(mesh, step, (rows, rows, whole), (rows, rows, whole)), shapes


def both_ways(devices):
    """Permutes in both directions of a ring, products between them."""
    mesh = _line(devices)

    def step(x, w):
        left = right = x
        total = jnp.zeros_like(x)
        for _ in range(3):
            left = jax.lax.ppermute(left, "d", _round(mesh, "d", 1))
            right = jax.lax.ppermute(right, "d", _round(mesh, "d", -1))
            total = total + jnp.tanh(left @ w) + jnp.sin(right @ w)
        return total

    rows, whole = PartitionSpec("d"), PartitionSpec()
    shapes = (_array(mesh, rows, _WIDTH, _WIDTH), _array(mesh, whole, _WIDTH, _WIDTH))
    return _over(mesh, step, (rows, whole), rows), shapes


def dependent_permutes(devices):
    """Each permute sends what was computed from the one before, twice side by side."""
    mesh = _line(devices)
    pairs = _round(mesh, "d", 1)

    def step(x, y, w):
        for _ in range(4):
            x = jnp.tanh(jax.lax.ppermute(x, "d", pairs)) * 2
            y = jnp.sin(jax.lax.ppermute(y, "d", pairs)) + 1
        return x @ w + y @ w

    rows, whole = PartitionSpec("d"), PartitionSpec()
    shapes = (
        _array(mesh, rows, _WIDTH, _WIDTH),
        _array(mesh, rows, _WIDTH, _WIDTH),
        _array(mesh, whole, _WIDTH, _WIDTH),
    )
    return _over(mesh, step, (rows, rows, whole), rows), shapes


def every_kind(devices):
    """All kinds of collectives over two axes, beside products."""
    mesh = _grid(devices)
    both = PartitionSpec("x", "y")

    def step(a, w):
        total = jnp.zeros((), jnp.float32)
        for k in range(3):
            gathered = jax.lax.all_gather(w * (k + 1), "x", axis=0, tiled=True)
            summed = jax.lax.psum(jnp.sin(w * k), "y")
            moved = jax.lax.ppermute(a * k, "y", _round(mesh, "y", 1))
            turned = jax.lax.all_to_all(a + k, "y", 0, 1, tiled=True)
            parts = jax.lax.psum_scatter(jnp.tanh(w + k), "y", tiled=True)
            product = (moved @ a.T) @ turned.reshape(a.shape)
            pieces = (gathered, summed, parts, product)
            total = total + sum(p.astype(jnp.float32).sum() for p in pieces)
        return a + total.astype(a.dtype)

    shapes = (_array(mesh, both, 1024, _WIDTH), _array(mesh, both, _WIDTH, _WIDTH))
    return _over(mesh, step, (both, both), both), shapes


def gradients_reduced(devices):
    """Data parallelism: sums of gradients beside the backward pass."""
    mesh = _line(devices)
    whole = PartitionSpec()

    def loss(weights, x):
        for weight in weights:
            x = jax.nn.gelu(x @ weight)
        return jnp.mean(jnp.square(x.astype(jnp.float32)))

    def step(weights, x):
        gradients = jax.grad(loss)(weights, x)
        return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)]

    weights = [_array(mesh, whole, _WIDTH, _WIDTH) for _ in range(4)]
    outputs = [NamedSharding(mesh, whole)] * len(weights)
    rows = PartitionSpec("d")
    return (
        jax.jit(step, out_shardings=outputs),
        (weights, _array(mesh, rows, 2 * _WIDTH, _WIDTH)),
    )


def gathered_and_scattered(devices):
    """Fully sharded training by hand: gathers forwards, scatters backwards."""
    mesh = _line(devices)
    rows = PartitionSpec("d")
    layers = 4

    def step(weights, x):
        def loss(weights):
            y = x
            for k in range(layers):
                whole = jax.lax.all_gather(weights[k], "d", tiled=True)
                y = jax.nn.gelu(y @ whole)
            return jnp.mean(jnp.square(y.astype(jnp.float32)))

        weights = weights.reshape(layers, -1, _WIDTH)
        new = weights - 0.1 * jax.grad(loss)(weights)
        return new.reshape(-1, _WIDTH)

    shapes = (
        _array(mesh, rows, layers * _WIDTH, _WIDTH),
        _array(mesh, rows, _WIDTH, _WIDTH),
    )
    return _over(mesh, step, (rows, rows), rows), shapes


def scan_of_gathers(devices):
    """A loop over layers that gathers each one's weights."""
    mesh = _line(devices)
    rows = PartitionSpec("d")

    def step(stacked, x):
        def layer(x, weight):
            whole = jax.lax.with_sharding_constraint(
                weight, NamedSharding(mesh, PartitionSpec())
            )
            return jax.nn.relu(x @ whole), None

        return jax.lax.scan(layer, x, stacked)[0]

    stacked = _array(mesh, PartitionSpec(None, "d"), 6, _WIDTH, _WIDTH)
    return jax.jit(step), (stacked, _array(mesh, rows, _WIDTH, _WIDTH))


def ring_in_a_loop(devices):
    """Blocks that go round a ring in a loop while they are multiplied."""
    mesh = _line(devices)
    rows, whole = PartitionSpec("d"), PartitionSpec()

    def step(x, w):
        def turn(carried, _):
            total, block = carried
            following = jax.lax.ppermute(block, "d", _round(mesh, "d", 1))
            return (total + jnp.tanh(block @ w), following), None

        first = jnp.zeros_like(x)
        return jax.lax.scan(turn, (first, x), None, length=mesh.size)[0][0]

    shapes = (_array(mesh, rows, _WIDTH, _WIDTH), _array(mesh, whole, _WIDTH, _WIDTH))
    return _over(mesh, step, (rows, whole), rows), shapes


def weights_in_host_memory(devices):
    """Weights that lie in the host's memory and are brought in for each product."""
    mesh = _line(devices)
    spread = NamedSharding(mesh, PartitionSpec("d", None))
    away = spread.with_memory_kind("pinned_host")

    def step(x, weights):
        for weight in weights:
            x = jnp.tanh(x @ jax.device_put(weight, spread))
        return x

    weights = [
        jax.ShapeDtypeStruct((_WIDTH, _WIDTH), jnp.bfloat16, sharding=away)
        for _ in range(3)
    ]
    return jax.jit(step), (_array(mesh, PartitionSpec(), 1024, _WIDTH), weights)


PROGRAMS = (
    layers_gathered,
    permutes_and_products,
    both_ways,
    dependent_permutes,
    every_kind,
    gradients_reduced,
    gathered_and_scattered,
    scan_of_gathers,
    ring_in_a_loop,
    weights_in_host_memory,
)
