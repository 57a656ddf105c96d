"""Counted loops of many bounds and steps around collectives that can leave them.

The body gathers a layer's weights, sums or scatters its result and stores it, or adds
up what all devices computed.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_LAYERS = 12


def _jitted(devices, function, shapes, specs, out_specs):
    mesh = Mesh(np.array(devices), ("x",))
    jitted = jax.jit(
        jax.shard_map(
            function, mesh=mesh, in_specs=specs, out_specs=out_specs, check_vma=False
        )
    )
    arguments = tuple(
        jax.ShapeDtypeStruct(s, jnp.float32, sharding=NamedSharding(mesh, p))
        for s, p in zip(shapes, specs, strict=True)
    )
    return jitted, arguments


def _loop(start, bound, step, turn, state):
    def unfinished(carried):
        return carried[0] < bound if step > 0 else carried[0] > bound

    def body(carried):
        i, *rest = carried
        return (i + step, *turn(i, *rest))

    return jax.lax.while_loop(unfinished, body, (jnp.int32(start), *state))[1:]


def _gathered(start, bound, step, *, layer=lambda i: i):
    def program(devices):
        def run(weights, x):
            def turn(i, x):
                shard = jax.lax.dynamic_index_in_dim(weights, layer(i), keepdims=False)
                whole = jax.lax.all_gather(shard, "x", tiled=True)
                return (jnp.tanh(x @ whole),)

            return _loop(start, bound, step, turn, (x,))[0]

        shapes = ((_LAYERS, 64, 64), (64, 64))
        specs = (PartitionSpec(None, "x"), PartitionSpec("x"))
        return _jitted(devices, run, shapes, specs, PartitionSpec("x"))

    return program


def _stored(start, bound, step, *, scatters=False):
    def program(devices):
        def run(table, x):
            def turn(i, table, x):
                row = jax.lax.dynamic_index_in_dim(table, i, keepdims=False)
                product = jnp.sin(row @ x)
                if scatters:
                    part = jax.lax.psum_scatter(product, "x", tiled=True)
                    total = jnp.concatenate([part] * len(devices))
                else:
                    total = jax.lax.psum(product, "x")
                table = jax.lax.dynamic_update_index_in_dim(table, total * 0.5, i, 0)
                return table, x

            return _loop(start, bound, step, turn, (table, x))[0]

        shapes = ((_LAYERS, 64, 64), (64, 64))
        specs = (PartitionSpec(None, None, None), PartitionSpec())
        return _jitted(devices, run, shapes, specs, PartitionSpec())

    return program


gathered_ahead = _gathered(0, _LAYERS, 1)
gathered_from_three = _gathered(3, 11, 1)
gathered_by_two = _gathered(0, _LAYERS, 2)
gathered_by_five = _gathered(1, _LAYERS, 5)
gathered_backward = _gathered(11, -1, -1)
gathered_backward_by_three = _gathered(10, -1, -3)
gathered_mirrored = _gathered(0, _LAYERS, 1, layer=lambda i: 11 - i)
gathered_at_double = _gathered(0, 6, 1, layer=lambda i: 2 * i + 1)
gathered_once = _gathered(4, 5, 1)
gathered_never = _gathered(5, 5, 1)
stored_ahead = _stored(0, _LAYERS, 1)
stored_by_two = _stored(0, _LAYERS, 2)
stored_by_five = _stored(0, _LAYERS, 5)
stored_backward = _stored(11, -1, -1)
stored_inside = _stored(2, 9, 1)
scattered_ahead = _stored(0, _LAYERS, 1, scatters=True)
scattered_by_three = _stored(0, _LAYERS, 3, scatters=True)
scattered_backward = _stored(11, -1, -1, scatters=True)


def accumulated_sums(devices):
    """Three gradients are summed over devices in every step, and over steps."""

    def run(xs, w):
        def turn(i, a, b, c):
            x = jax.lax.dynamic_index_in_dim(xs, i, keepdims=False)
            y = jnp.tanh(x @ w)
            a = a + jax.lax.psum(y.T @ x, "x")
            b = b + jax.lax.psum(y.sum(0), "x")
            c = jax.lax.psum(y.max(), "x") + c
            return a, b, c

        return _loop(0, 8, 1, turn, (jnp.zeros((64, 64)), jnp.zeros(64), 0.0))

    specs = (PartitionSpec(None, "x"), PartitionSpec())
    return _jitted(devices, run, ((8, 64, 64), (64, 64)), specs, (PartitionSpec(),) * 3)


def accumulated_scatters(devices):
    """Gradients are scattered over devices in every step, and added up."""

    def run(xs, w):
        def turn(i, a):
            x = jax.lax.dynamic_index_in_dim(xs, i, keepdims=False)
            y = jnp.tanh(x @ w)
            return (a + jax.lax.psum_scatter(y.T @ x, "x", tiled=True),)

        return _loop(0, 8, 1, turn, (jnp.zeros((64 // len(devices), 64)),))[0]

    specs = (PartitionSpec(None, "x"), PartitionSpec())
    return _jitted(devices, run, ((8, 64, 64), (64, 64)), specs, PartitionSpec("x"))


def accumulated_in_nested_loops(devices):
    """Sums of an inner loop are added up by an outer one."""

    def run(xs, w):
        def outer(i, total):
            def inner(j, part):
                x = jax.lax.dynamic_index_in_dim(xs, 2 * i + j, keepdims=False)
                return (part + jax.lax.psum(jnp.tanh(x @ w), "x"),)

            (part,) = _loop(0, 2, 1, inner, (jnp.zeros((8, 64)),))
            return (total + part,)

        return _loop(0, 4, 1, outer, (jnp.zeros((8, 64)),))[0]

    specs = (PartitionSpec(None, "x"), PartitionSpec())
    return _jitted(devices, run, ((8, 64, 64), (64, 64)), specs, PartitionSpec())


def stored_by_unknown_bound(devices):
    """The bound is an argument: nobody knows how often the loop runs."""

    def run(table, bound):
        def turn(i, table):
            row = jax.lax.dynamic_index_in_dim(table, i, keepdims=False)
            total = jax.lax.psum(jnp.sin(row), "x")
            return (jax.lax.dynamic_update_index_in_dim(table, total, i, 0),)

        return _loop(0, bound[0].astype(jnp.int32), 1, turn, (table,))[0]

    specs = (PartitionSpec(), PartitionSpec())
    return _jitted(devices, run, ((_LAYERS, 64), (1,)), specs, PartitionSpec())


def scanned_layers(devices):
    """A scan with gathered weights forward and scattered gradients backward."""

    def run(weights, x):
        def loss(weights):
            def layer(x, shard):
                whole = jax.lax.all_gather(shard, "x", tiled=True)
                return jnp.tanh(x @ whole), None

            return jax.lax.scan(layer, x, weights)[0].sum()

        return jax.grad(loss)(weights)

    specs = (PartitionSpec(None, "x"), PartitionSpec("x"))
    return _jitted(
        devices, run, ((_LAYERS, 64, 64), (64, 64)), specs, PartitionSpec(None, "x")
    )
