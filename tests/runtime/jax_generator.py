"""Random JAX programs for meshes of one and two axes.

    program = random_program(7, devices)
    jitted, arguments = program.jitted(), program.arguments()

A program is a function of one device's arrays under `jax.shard_map`, or one of whole
arrays, which XLA's partitioner divides. It draws its steps while JAX traces it, from a
seed, so every trace gives the same program: element-wise work, shapes, gathers and scatters, products, sorts, collectives of all kinds, loops and
branches with collectives in them, callbacks, zero-sized and scalar arrays, and narrow,
complex and boolean types. Values stay finite.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

#: Shapes of the meshes; three and six devices do not divide what they share.
MESHES: Final = ((2,), (3,), (4,), (8,), (2, 2), (2, 4), (4, 2), (2, 3), (1, 4), (1,))
AXES: Final = ("x", "y")
TYPES: Final = (
    "float32", "float32", "float32", "int32", "int32", "bfloat16", "float16", "int8",
    "uint8", "uint32", "int16", "bool", "complex64", "float8_e4m3fn", "float8_e5m2",
    "int4",
)  # fmt: skip
SHAPES: Final = ((), (4,), (8,), (4, 6), (8, 4), (2, 3, 4), (0,), (0, 4), (4, 0), (1,))
#: Floating values stay within this, which every type holds.
_BOUND: Final = 8
_MOST_ELEMENTS: Final = 600


def _narrow(value: jax.Array) -> jax.Array:
    """The value, brought back into the range in which all types are exact enough."""
    if value.dtype == jnp.bool_:
        return value
    if jnp.issubdtype(value.dtype, jnp.complexfloating):
        return lax.complex(
            jnp.clip(value.real, -_BOUND, _BOUND), jnp.clip(value.imag, -_BOUND, _BOUND)
        )
    if jnp.issubdtype(value.dtype, jnp.integer):
        return value
    wide = value.astype(jnp.float32)
    return jnp.clip(wide, -_BOUND, _BOUND).astype(value.dtype)


def _is_narrow(dtype: Any) -> bool:
    """Whether JAX computes little in the type: a float of 8 bits, an int of 4."""
    return jnp.dtype(dtype).name.startswith("float8") or jnp.dtype(dtype).name == "int4"


@dataclass
class _Writer:
    """Draws the steps of one function, and keeps the values at hand."""

    draw: random.Random
    axes: dict[str, int]
    values: list[jax.Array] = field(default_factory=list)
    depth: int = 0
    #: Whether all devices run this code, so that collectives may stand in it.
    is_uniform: bool = True
    #: The mesh, where the values are whole arrays.
    mesh: Mesh | None = None

    # -- choosing -------------------------------------------------------------

    def some(self, *, rank: int | None = None, arithmetic: bool = False) -> jax.Array:
        """A value, recent ones more likely; of at least that rank."""
        found = [
            v
            for v in self.values
            if (rank is None or v.ndim >= rank)
            and not (arithmetic and (_is_narrow(v.dtype) or v.dtype == jnp.bool_))
        ]
        if not found:
            shape = (4, 6, 2)[: max(rank or 0, 1)]
            return jnp.ones(shape, jnp.float32)
        return found[int(self.draw.triangular(0, len(found), len(found))) % len(found)]

    def like(self, value: jax.Array) -> jax.Array:
        """Another value of the same shape and type."""
        found = [
            v for v in self.values if v.shape == value.shape and v.dtype == value.dtype
        ]
        return self.draw.choice(found) if found else value

    def keep(self, *values: jax.Array) -> None:
        """Keep values, unless they are very large."""
        self.values += [_narrow(v) for v in values if v.size <= _MOST_ELEMENTS]

    def some_axes(self) -> tuple[str, ...]:
        """One axis of the mesh, or all of them."""
        names = list(self.axes)
        return self.draw.choice([(name,) for name in names] + [tuple(names)])

    def size(self, axes: Sequence[str]) -> int:
        """Devices along the axes."""
        return math.prod(self.axes[a] for a in axes)

    # -- steps ----------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Draw and do that many steps."""
        kinds, weights = zip(*_STEPS, strict=True)
        for _ in range(steps):
            step = self.draw.choices(kinds, weights)[0]
            if step in _NEEDS_ALL_DEVICES and self.mesh is not None:
                step = _Writer.divide
            elif step in _NEEDS_ALL_DEVICES and not self.is_uniform:
                step = _Writer.elementwise
            step(self)

    def inner(self, values: Sequence[jax.Array], seed: int) -> _Writer:
        """The writer of a nested function; it draws the same at every trace."""
        return _Writer(
            random.Random(seed), self.axes, list(values), self.depth + 1,
            self.is_uniform, self.mesh,
        )  # fmt: skip

    def elementwise(self) -> None:
        """Arithmetic, comparison, selection."""
        a = self.some()
        b = self.like(a)
        if a.dtype == jnp.bool_:
            way = self.draw.choice((jnp.logical_and, jnp.logical_xor, jnp.equal))
            return self.keep(way(a, b))
        if _is_narrow(a.dtype):
            wide = jnp.int32 if a.dtype == jnp.int4 else jnp.float32
            return self.keep((a.astype(wide) + b.astype(wide)).astype(a.dtype))
        if jnp.issubdtype(a.dtype, jnp.complexfloating):
            way = self.draw.choice((jnp.add, jnp.multiply, jnp.subtract))
            return self.keep(way(a, b))
        way = self.draw.randrange(6)
        if way == 0:
            return self.keep(a < b)
        if way == 1:
            return self.keep(jnp.where(a > b, a, b * 2))
        if way == 2 and jnp.issubdtype(a.dtype, jnp.floating):
            return self.keep(self.draw.choice((jnp.abs, jnp.floor, jnp.negative))(a))
        binary = (jnp.add, jnp.multiply, jnp.maximum, jnp.subtract, jnp.minimum)
        return self.keep(self.draw.choice(binary)(a, b))

    def convert(self) -> None:
        """Another type, or the same bits as another type."""
        a = self.some()
        if jnp.issubdtype(a.dtype, jnp.complexfloating):
            return self.keep(self.draw.choice((jnp.real, jnp.imag))(a))
        same = {"float32": jnp.int32, "int8": jnp.uint8, "uint32": jnp.int32}
        if a.dtype.name in same and self.draw.random() < 0.3:
            return self.keep(lax.bitcast_convert_type(a, same[a.dtype.name]))
        return self.keep(a.astype(self.draw.choice(TYPES)))

    def reshape(self) -> None:
        """Other dimensions, in another order."""
        a = self.some(rank=1)
        way = self.draw.randrange(6)
        if way == 0:
            self.keep(a.reshape(-1))
        elif way == 1:
            self.keep(jnp.transpose(a))
        elif way == 2:
            self.keep(jnp.flip(a, self.draw.randrange(a.ndim)))
        elif way == 3:
            self.keep(jnp.broadcast_to(a, (2, *a.shape)))
        elif way == 4:
            self.keep(jnp.concatenate([a, self.like(a)], self.draw.randrange(a.ndim)))
        else:
            low, high = self.draw.randrange(2), self.draw.randrange(3)
            self.keep(jnp.pad(a, [(low, high)] + [(0, 0)] * (a.ndim - 1)))

    def slice(self) -> None:
        """A part, fixed or where a value says; perhaps an empty one."""
        a = self.some(rank=1)
        axis = self.draw.randrange(a.ndim)
        size = a.shape[axis]
        if self.draw.random() < 0.5 or not size:
            first = self.draw.randint(0, size)
            step = self.draw.choice((1, 1, 2))
            last = self.draw.randint(first, size)
            return self.keep(lax.slice_in_dim(a, first, last, step, axis))
        width = self.draw.randint(1, size)
        at = self.index()
        part = lax.dynamic_slice_in_dim(a, at, width, axis)
        if self.draw.random() < 0.5:
            self.keep(lax.dynamic_update_slice_in_dim(self.like(a), part, at, axis))
        return self.keep(part)

    def index(self) -> jax.Array:
        """A scalar number, perhaps another one on each device, perhaps out of range."""
        if self.draw.random() < 0.4 and self.mesh is None:
            return lax.axis_index(self.draw.choice(list(self.axes)))
        found = [v for v in self.values if v.dtype == jnp.int32 and v.size]
        if not found:
            return jnp.int32(self.draw.randrange(-1, 9))
        return self.draw.choice(found).reshape(-1)[0] % 11 - 1

    def indexed(self) -> None:
        """A gather or a scatter."""
        a = self.some(rank=1)
        if not a.shape[0]:
            return self.slice()
        count = self.draw.choice((0, 1, 3, 5))
        places = jnp.arange(count, dtype=jnp.int32) * self.draw.choice((0, 1, 2))
        places = places + self.index()
        mode = self.draw.choice(("clip", "fill", "wrap"))
        if self.draw.random() < 0.5:
            fill = {"fill_value": 0} if mode == "fill" else {}
            return self.keep(jnp.take(a, places, axis=0, mode=mode, **fill))
        rows = jnp.ones((count, *a.shape[1:]), a.dtype)
        at = a.at[places]
        if a.dtype == jnp.bool_ or _is_narrow(a.dtype) or self.draw.random() < 0.4:
            return self.keep(a.at[self.index()].set(rows[0] if count else a[0]))
        chosen = mode if mode != "wrap" else "drop"
        if jnp.issubdtype(a.dtype, jnp.complexfloating) or self.draw.random() < 0.6:
            return self.keep(at.add(rows, mode=chosen))
        return self.keep(at.max(rows, mode=chosen))

    def reduce(self) -> None:
        """Sums, extremes, running sums, orders."""
        a = self.some(rank=1, arithmetic=True)
        axis = self.draw.choice((None, self.draw.randrange(a.ndim)))
        is_complex = jnp.issubdtype(a.dtype, jnp.complexfloating)
        way = self.draw.randrange(5)
        if way == 0 and a.size and not is_complex:
            return self.keep(jnp.max(a, axis))
        if way == 1 and a.size and not is_complex and axis is not None:
            return self.keep(jnp.argmax(a, axis).astype(jnp.int32))
        if way == 2 and axis is not None:
            return self.keep(jnp.cumsum(a, axis, dtype=a.dtype))
        if way == 3 and not is_complex:
            return self.keep(jnp.sort(a, axis if axis is not None else -1))
        if way == 4 and not is_complex:
            keys = self.like(a)
            both = lax.sort((keys, a), dimension=a.ndim - 1, num_keys=1)
            return self.keep(both[self.draw.randrange(2)])
        return self.keep(jnp.sum(a, axis, dtype=a.dtype))

    def product(self) -> None:
        """A product of matrices, perhaps over nothing, perhaps of a batch."""
        a = self.some(rank=2, arithmetic=True)
        if jnp.issubdtype(a.dtype, jnp.complexfloating):
            return self.keep(a * a)
        b = jnp.swapaxes(self.like(a), -1, -2)
        scale = 1 if jnp.issubdtype(a.dtype, jnp.integer) else 0.125
        return self.keep(jnp.matmul(a, b) * jnp.asarray(scale, a.dtype))

    # -- collectives ----------------------------------------------------------

    def divide(self) -> None:
        """Say how a whole array is divided over the mesh."""
        assert self.mesh is not None
        a = self.some()
        names: list[Any] = [None] * a.ndim
        for name in self.axes:
            if a.ndim and self.draw.random() < 0.7:
                at = self.draw.randrange(a.ndim)
                if names[at] is None and a.shape[at] % self.axes[name] == 0:
                    names[at] = name
        self.keep(lax.with_sharding_constraint(a, NamedSharding(self.mesh, P(*names))))

    def groups(self, size: int, *, equal: bool) -> list[list[int]] | None:
        """Groups along an axis; None for one group of all, as most often."""
        if self.draw.random() < 0.6 or size < 2:
            return None
        ids = list(range(size))
        self.draw.shuffle(ids)
        if equal:
            parts = self.draw.choice([k for k in range(1, size + 1) if size % k == 0])
            return [ids[k : k + parts] for k in range(0, size, parts)]
        cut = self.draw.randrange(1, size)
        return [ids[:cut], ids[cut:]]

    def dimensions(self, value: jax.Array) -> list[int]:
        """Where it can be gathered and scattered: StableHLO refuses a size of 0."""
        return [k for k in range(value.ndim) if value.shape[k]]

    def all_reduce(self) -> None:
        """A sum, mean or extreme over devices."""
        a = self.some()
        if _is_narrow(a.dtype) or a.dtype == jnp.bool_:
            a = a.astype(jnp.int32)
        axes = self.some_axes()
        way = self.draw.choice((lax.psum, lax.psum, lax.pmax, lax.pmin, lax.pmean))
        if jnp.issubdtype(a.dtype, jnp.complexfloating):
            way = lax.psum
        if way is lax.pmean and not jnp.issubdtype(a.dtype, jnp.floating):
            way = lax.psum
        groups = self.groups(self.size(axes), equal=self.draw.random() < 0.7)
        if len(axes) > 1 or way is lax.pmean:
            groups = None
        given: Any = [a, self.some_number()] if self.draw.random() < 0.3 else a
        found = way(given, axes, axis_index_groups=groups)
        self.keep(*jax.tree.leaves(found))

    def some_number(self) -> jax.Array:
        """A value that can be summed over devices with any other."""
        return self.some(arithmetic=True).real.astype(jnp.float32)

    def permute(self) -> None:
        """One to three permutes; of all devices, of some, of none, to themselves."""
        axes = self.some_axes()
        n = self.size(axes)
        for _ in range(self.draw.choice((1, 1, 2, 3))):
            ids = list(range(n))
            targets = ids[:]
            way = self.draw.randrange(3)
            if way == 0:
                self.draw.shuffle(targets)
            else:
                shift = self.draw.choice((1, n - 1, 0))
                targets = [(i + shift) % n for i in ids]
            pairs = list(zip(ids, targets, strict=True))
            self.draw.shuffle(pairs)
            if self.draw.random() < 0.4:
                pairs = pairs[: self.draw.randint(0, n)]
            self.keep(lax.ppermute(self.some(), axes, pairs))

    def gather(self) -> None:
        """All-gather, one axis more or a longer one."""
        a, axes = self.some(), self.some_axes()
        along = self.dimensions(a)
        tiled = bool(along) and self.draw.random() < 0.6
        axis = self.draw.choice(along) if tiled else 0
        groups = self.groups(self.size(axes), equal=True) if len(axes) == 1 else None
        self.keep(
            lax.all_gather(a, axes, axis=axis, tiled=tiled, axis_index_groups=groups)
        )

    def scatter(self) -> None:
        """Reduce-scatter of what all have, made long enough first."""
        a, axes = self.some(rank=1, arithmetic=True), self.some_axes()
        n = self.size(axes)
        groups = self.groups(n, equal=True) if len(axes) == 1 else None
        n = len(groups[0]) if groups else n
        if not (along := self.dimensions(a)):
            return self.keep(lax.psum(a, axes))
        axis = self.draw.choice(along)
        long = jnp.concatenate([a] * n, axis)
        return self.keep(
            lax.psum_scatter(
                long, axes, scatter_dimension=axis, tiled=True, axis_index_groups=groups
            )
        )

    def exchange(self) -> None:
        """All-to-all."""
        a, axes = self.some(rank=1), self.some_axes()
        n = self.size(axes)
        groups = self.groups(n, equal=True) if len(axes) == 1 else None
        n = len(groups[0]) if groups else n
        split, joined = self.draw.randrange(a.ndim), self.draw.randrange(a.ndim)
        long = jnp.concatenate([a] * n, split)
        self.keep(
            lax.all_to_all(
                long, axes, split, joined, tiled=True, axis_index_groups=groups
            )
        )

    # -- control --------------------------------------------------------------

    def carried(self) -> tuple[jax.Array, ...]:
        """What a loop carries: one to three values."""
        return tuple(self.some() for _ in range(self.draw.randint(1, 3)))

    def body(self, seed: int, steps: int) -> Callable[..., tuple[jax.Array, ...]]:
        """A function of carried values to values of the same shapes and types."""

        def run(*carried: jax.Array) -> tuple[jax.Array, ...]:
            inner = self.inner(carried, seed)
            inner.run(steps)
            results = []
            for value in carried:
                alike = inner.like(value)
                alike = alike if alike is not value else inner.values[-1]
                same = alike.shape == value.shape and alike.dtype == value.dtype
                results.append(alike if same else value)
            return tuple(results)

        return run

    def loop(self) -> None:
        """A scan, a counted loop, or a while whose end all devices agree on."""
        if self.depth > 1:
            return self.elementwise()
        start = self.carried()
        seed, steps = self.draw.randrange(1 << 30), self.draw.randint(1, 4)
        run = self.body(seed, steps)
        meets = self.is_uniform and self.mesh is None
        way = self.draw.randrange(4 if meets else 3)
        trips = self.draw.randrange(4)
        if way == 0:
            rows = jnp.arange(trips * 3, dtype=jnp.float32).reshape(trips, 3)

            def scanned(c: Any, row: jax.Array) -> tuple[Any, Any]:
                after = run(*c)
                return after, (row * 2, after[0])

            last, (each, firsts) = lax.scan(
                scanned, start, rows, reverse=self.draw.random() < 0.3,
                unroll=self.draw.choice((1, 1, 2)),
            )  # fmt: skip
            return self.keep(*last, each, firsts)
        if way == 1:
            return self.keep(*lax.fori_loop(0, trips, lambda _, c: run(*c), start))
        if way == 2:
            # A bound that is not known before the program runs.
            bound = self.index() % 4 if self.mesh is not None else jnp.int32(trips)
            if meets:
                shared = lax.pmax(self.index(), tuple(self.axes)) % 4
                bound = jnp.maximum(bound, shared.astype(jnp.int32))
            first = jnp.zeros((), bound.dtype)
            return self.keep(*lax.fori_loop(first, bound, lambda _, c: run(*c), start))

        axes = self.some_axes()

        def goes_on(state: Any) -> jax.Array:
            trip, carried = state
            first = carried[0].reshape(-1)[:1].real.astype(jnp.float32)
            total = lax.psum(jnp.sum(first) * 0 + 1, tuple(self.axes))
            total = total + lax.pmax(trip, axes).astype(jnp.float32)
            return (trip < trips) & (total > 0)

        def once(state: Any) -> Any:
            trip, carried = state
            return trip + 1, run(*carried)

        return self.keep(*lax.while_loop(goes_on, once, (jnp.int32(0), start))[1])

    def branch(self) -> None:
        """A conditional: by what all devices share, or by what each one has."""
        if self.depth > 1:
            return self.elementwise()
        start = self.carried()
        uniform = self.is_uniform and self.draw.random() < 0.5
        chosen = self.index()
        if uniform and self.mesh is None:
            chosen = lax.pmax(chosen, tuple(self.axes))
        before, self.is_uniform = self.is_uniform, uniform
        count = self.draw.choice((2, 2, 3))
        ways = [
            self.body(self.draw.randrange(1 << 30), self.draw.randint(1, 3))
            for _ in range(count)
        ]
        if count == 2:
            found = lax.cond(chosen % 2 == 0, *ways, *start)
        else:
            found = lax.switch(chosen % 5 - 1, ways, *start)
        self.is_uniform = before
        return self.keep(*found)

    def derivative(self) -> None:
        """A gradient, through rematerialization or a rule of the program's own."""
        a = self.some(arithmetic=True)
        if a.dtype != jnp.float32 or not self.is_uniform:
            return self.elementwise()
        axes = self.some_axes()

        def loss(x: jax.Array) -> jax.Array:
            return jnp.sum(lax.psum(x * 2, axes) * x)

        @jax.custom_vjp
        def own(x: jax.Array) -> jax.Array:
            return jnp.sum(x)

        own.defvjp(lambda x: (own(x), x), lambda kept, g: (kept * g,))
        way = self.draw.randrange(3)
        if way == 0:
            value, slope = jax.value_and_grad(jax.checkpoint(loss))(a)
        elif way == 1:
            value, slope = jax.value_and_grad(own)(a)
        else:
            value, slope = jax.jvp(loss, (a,), (a,))
        return self.keep(value, slope)

    def call(self) -> None:
        """A jitted function inside, or an optimization barrier."""
        start = self.carried()
        if self.draw.random() < 0.4:
            return self.keep(*lax.optimization_barrier(start))
        run = self.body(self.draw.randrange(1 << 30), 2)
        return self.keep(*jax.jit(run, inline=self.draw.random() < 0.5)(*start))

    def callback(self) -> None:
        """A call of Python: seldom, since no program with one can be loaded."""
        if self.draw.random() > 0.06 or self.depth:
            return self.elementwise()
        a = self.some(arithmetic=True)
        way = self.draw.randrange(3)
        if way == 0:
            return jax.debug.callback(lambda _: None, a)
        result = jax.ShapeDtypeStruct(a.shape, a.dtype)
        if way == 1:
            return self.keep(jax.pure_callback(_negated, result, a))
        return self.keep(io_callback(_negated, result, a))


def _negated(value: Any) -> Any:
    return (-np.asarray(value)).astype(value.dtype)


_Step = Callable[[_Writer], None]
_STEPS: Final[tuple[tuple[_Step, int], ...]] = (
    (_Writer.elementwise, 6), (_Writer.convert, 3), (_Writer.reshape, 3),
    (_Writer.slice, 3), (_Writer.indexed, 2), (_Writer.reduce, 2), (_Writer.product, 2),
    (_Writer.all_reduce, 4), (_Writer.permute, 5), (_Writer.gather, 2),
    (_Writer.scatter, 2), (_Writer.exchange, 2), (_Writer.loop, 3), (_Writer.branch, 2),
    (_Writer.derivative, 1), (_Writer.call, 1), (_Writer.callback, 1),
)  # fmt: skip
_NEEDS_ALL_DEVICES: Final = frozenset(
    (_Writer.all_reduce, _Writer.permute, _Writer.gather, _Writer.scatter,
     _Writer.exchange, _Writer.derivative)
)  # fmt: skip


@dataclass(frozen=True)
class Program:
    """A random program.

    Attributes:
        seed: that it was drawn from.
        mesh: the devices.
        shapes: (shape, type) of each argument on one device.
        specs: how each argument lies over the mesh.
        donated: numbers of the arguments that are donated.
        steps: at the top.
        is_divided: by XLA's partitioner; else it is written for one device.
    """

    seed: int
    mesh: Mesh
    shapes: tuple[tuple[tuple[int, ...], str], ...]
    specs: tuple[P, ...]
    donated: tuple[int, ...]
    steps: int
    is_divided: bool = False

    def __call__(self, *arguments: jax.Array) -> tuple[jax.Array, ...]:
        """The program, of one device or of whole arrays."""
        draw = random.Random(f"steps of {self.seed}")
        sizes = dict(zip(self.mesh.axis_names, self.mesh.devices.shape, strict=True))
        writer = _Writer(draw, sizes, [_narrow(a) for a in arguments])
        writer.mesh = self.mesh if self.is_divided else None
        writer.run(self.steps)
        kept = writer.values[-3:]
        kept += draw.choices(writer.values, k=draw.randint(1, 3))
        if draw.random() < 0.2:
            kept.append(arguments[0])
        if draw.random() < 0.1:
            kept.append(jnp.zeros((2, 3)))
        return tuple(kept)

    def _on_one_device(self, *arguments: jax.Array) -> tuple[jax.Array, ...]:
        """Each result with an axis of its own first, over which devices are stacked."""
        return tuple(value[None] for value in self(*arguments))

    def jitted(self, **options: Any) -> Any:
        """The jitted function; a new one, so that nothing is compiled already."""
        everywhere = P(self.mesh.axis_names)
        mapped = jax.shard_map(
            self._on_one_device, mesh=self.mesh, in_specs=self.specs,
            out_specs=everywhere, check_vma=False,
        )  # fmt: skip

        def program(*arguments: jax.Array) -> Any:
            return self(*arguments) if self.is_divided else mapped(*arguments)

        if self.is_divided:
            options["out_shardings"] = NamedSharding(self.mesh, P())
        return jax.jit(
            program, donate_argnums=self.donated, keep_unused=True, **options
        )

    def arguments(self) -> list[jax.Array]:
        """New arrays, always the same."""
        generator = np.random.default_rng(self.seed)
        return [
            self._argument(generator, shape, dtype, spec)
            for (shape, dtype), spec in zip(self.shapes, self.specs, strict=True)
        ]

    def _argument(
        self,
        generator: np.random.Generator,
        shape: tuple[int, ...],
        dtype: str,
        spec: P,
    ) -> jax.Array:
        sizes = dict(zip(self.mesh.axis_names, self.mesh.devices.shape, strict=True))
        rows = math.prod(sizes[a] for names in spec for a in (names or ()))
        whole = (rows * shape[0], *shape[1:]) if shape and rows > 1 else shape
        drawn: Any = generator.integers(-4, 5, whole)
        if dtype.startswith(("float", "bfloat", "complex")):
            drawn = drawn / 2
        if dtype.startswith("u"):
            drawn = np.abs(drawn)
        if dtype == "complex64":
            drawn = drawn + 0.5j
        array = jnp.asarray(drawn).astype(dtype)
        return jax.device_put(array, NamedSharding(self.mesh, spec))

    def rows_of(self, array: jax.Array) -> np.ndarray:
        """What each device of the mesh holds of an array, stacked."""
        held = {shard.device: shard.data for shard in array.addressable_shards}
        return np.stack([np.asarray(held[d]) for d in self.mesh.devices.flat])


def random_program(seed: int, devices: Sequence[Any]) -> Program:
    """The program of a seed."""
    draw = random.Random(f"program {seed}")
    shape = draw.choice([m for m in MESHES if math.prod(m) <= len(devices)])
    chosen = list(devices[: math.prod(shape)])
    names = AXES[: len(shape)]
    mesh = Mesh(np.array(chosen).reshape(shape), names)
    shapes = tuple(
        (draw.choice(SHAPES), draw.choice(TYPES)) for _ in range(draw.randint(1, 4))
    )
    ways: list[P] = [P(), P(names)] + [P((name,)) for name in names]
    specs = tuple(draw.choice(ways) if s else P() for s, _ in shapes)
    numbers = range(len(shapes))
    donated = tuple(k for k in numbers if draw.random() < 0.25)
    steps, is_divided = draw.randint(3, 12), draw.random() < 0.2
    return Program(seed, mesh, shapes, specs, donated, steps, is_divided)
