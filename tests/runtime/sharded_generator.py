"""Random JAX programs with annotations in GSPMD's words, for eight devices.

    program = random_program(random.Random(7))
    program.jitted      jax.jit(f, in_shardings=...), over a mesh of one or two axes
    program.inputs      whole arrays

Integers wrap around, so that no order of additions changes a result.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

SIZES: Final = (8, 16, 24, 32)
MESHES: Final = (
    ((8,), ("x",)),
    ((2, 4), ("x", "y")),
    ((4, 2), ("x", "y")),
)
LARGEST: Final = 1 << 14


@dataclass(frozen=True, slots=True)
class Program:
    """A jitted function and what to call it with."""

    jitted: Any
    inputs: list[np.ndarray]
    steps: list[str]
    is_exact: bool


Step = Callable[[Sequence[Any]], Any]


class _NothingFitsError(Exception):
    """No array has a shape that a step needs."""


class _Maker:
    """Draws steps; each computes one more array of those that are there."""

    def __init__(self, draw: random.Random, mesh: Mesh, dtype: Any) -> None:
        self.draw = draw
        self.mesh = mesh
        self.dtype = dtype
        self.steps: list[tuple[str, Step]] = []
        self.shapes: list[tuple[int, ...]] = []

    def spec(self, shape: tuple[int, ...]) -> NamedSharding:
        """A random division of an array."""
        names: list[list[str]] = [[] for _ in shape]
        parts = [1] * len(shape)
        for axis, size in zip(
            self.mesh.axis_names, self.mesh.devices.shape, strict=True
        ):
            places = [d for d, n in enumerate(shape) if n % (parts[d] * size) == 0]
            if places and self.draw.random() < 0.75:
                place = self.draw.choice(places)
                names[place].append(axis)
                parts[place] *= size
        if self.draw.random() < 0.1:
            return NamedSharding(self.mesh, PartitionSpec())
        return NamedSharding(
            self.mesh, PartitionSpec(*(tuple(n) if n else None for n in names))
        )

    def pick(self, fits: Callable[[tuple[int, ...]], bool]) -> int:
        """An array whose shape fits, most often a late one."""
        found = [k for k, shape in enumerate(self.shapes) if fits(shape)]
        if not found:
            raise _NothingFitsError
        return found[-1] if self.draw.random() < 0.6 else self.draw.choice(found)

    def add(self, what: str, shape: tuple[int, ...], step: Step) -> None:
        """Take a step over."""
        self.steps.append((f"{len(self.shapes)}: {what} -> {list(shape)}", step))
        self.shapes.append(shape)

    # -- steps -----------------------------------------------------------------

    def annotate(self) -> None:
        k = self.pick(lambda s: len(s) > 0)
        sharding = self.spec(self.shapes[k])
        self.add(
            f"annotate {k} {sharding.spec}",
            self.shapes[k],
            lambda a: lax.with_sharding_constraint(a[k], sharding),
        )

    def unary(self) -> None:
        k = self.pick(lambda s: True)
        name, function = self.draw.choice(
            [
                ("negate", lambda x: -x),
                ("abs", jnp.abs),
                ("add 3", lambda x: x + 3),
                ("square", lambda x: x * x),
            ]
        )
        self.add(f"{name} {k}", self.shapes[k], lambda a: function(a[k]))

    def binary(self) -> None:
        k = self.pick(lambda s: True)
        j = self.draw.choice(
            [j for j, s in enumerate(self.shapes) if s == self.shapes[k]]
        )
        name, function = self.draw.choice(
            [("add", jnp.add), ("subtract", jnp.subtract), ("maximum", jnp.maximum),
             ("select", lambda x, y: jnp.where(x > y, x - y, y))]
        )  # fmt: skip
        self.add(f"{name} {k} {j}", self.shapes[k], lambda a: function(a[k], a[j]))

    def vector(self) -> None:
        """A smaller array is repeated along the others' first dimensions."""
        k = self.pick(lambda s: len(s) >= 2)
        shape = self.shapes[k]
        found = [j for j, s in enumerate(self.shapes) if s == shape[1:]]
        if found:
            j = self.draw.choice(found)
            self.add(f"broadcast {j} to {k}", shape, lambda a: a[k] + a[j])

    def transpose(self) -> None:
        k = self.pick(lambda s: len(s) >= 2)
        order = list(range(len(self.shapes[k])))
        self.draw.shuffle(order)
        shape = tuple(self.shapes[k][d] for d in order)
        self.add(f"transpose {k} {order}", shape, lambda a: jnp.transpose(a[k], order))

    def reshape(self) -> None:
        k = self.pick(lambda s: len(s) >= 1)
        shape = list(self.shapes[k])
        d = self.draw.randrange(len(shape))
        if self.draw.random() < 0.5 and len(shape) < 3 and shape[d] % 8 == 0:
            shape[d : d + 1] = [shape[d] // 4, 4] if self.draw.random() < 0.5 else [
                4, shape[d] // 4]  # fmt: skip
        elif d + 1 < len(shape):
            shape[d : d + 2] = [shape[d] * shape[d + 1]]
        else:
            return
        new = tuple(shape)
        self.add(f"reshape {k}", new, lambda a: jnp.reshape(a[k], new))

    def dot(self) -> None:
        k = self.pick(lambda s: len(s) == 2)
        shape = self.shapes[k]
        found = [
            j for j, s in enumerate(self.shapes) if len(s) == 2 and s[0] == shape[1]
        ]
        if not found:
            return
        j = self.draw.choice(found)
        # Values of floating programs stay near 1.
        scale = 1 if self.dtype == np.int32 else np.float32(1 / shape[1])
        self.add(
            f"dot {k} {j}",
            (shape[0], self.shapes[j][1]),
            lambda a: (a[k] @ a[j]) * scale,
        )

    def batch_dot(self) -> None:
        k = self.pick(lambda s: len(s) == 3)
        b, m, _ = self.shapes[k]
        self.add(
            f"batched dot {k}",
            (b, m, m),
            lambda a: jnp.einsum("bmk,bnk->bmn", a[k], a[k]),
        )

    def reduce(self) -> None:
        k = self.pick(lambda s: len(s) >= 2)
        d = self.draw.randrange(len(self.shapes[k]))
        shape = self.shapes[k][:d] + self.shapes[k][d + 1 :]
        name, function = self.draw.choice([("sum", jnp.sum), ("max", jnp.max)])
        self.add(f"{name} {k} over {d}", shape, lambda a: function(a[k], axis=d))

    def concatenate(self) -> None:
        k = self.pick(lambda s: len(s) >= 1)
        d = self.draw.randrange(len(self.shapes[k]))
        shape = list(self.shapes[k])
        shape[d] *= 2
        self.add(
            f"concatenate {k} along {d}",
            tuple(shape),
            lambda a: jnp.concatenate([a[k], -a[k]], axis=d),
        )

    def slice(self) -> None:
        k = self.pick(lambda s: any(n >= 16 for n in s))
        d = self.draw.choice([d for d, n in enumerate(self.shapes[k]) if n >= 16])
        start = self.draw.choice([0, 8])
        shape = list(self.shapes[k])
        shape[d] = 8
        self.add(
            f"slice {k} along {d} from {start}",
            tuple(shape),
            lambda a: lax.slice_in_dim(a[k], start, start + 8, axis=d),
        )

    def pad(self) -> None:
        k = self.pick(lambda s: len(s) >= 1)
        d = self.draw.randrange(len(self.shapes[k]))
        config = [(0, 0, 0)] * len(self.shapes[k])
        config[d] = self.draw.choice([(8, 0, 0), (0, 8, 0)])
        shape = list(self.shapes[k])
        shape[d] += 8
        zero = np.zeros((), self.dtype)
        self.add(
            f"pad {k} along {d}",
            tuple(shape),
            lambda a: lax.pad(a[k], zero, config),
        )

    def iota(self) -> None:
        k = self.pick(lambda s: len(s) >= 1)
        shape = self.shapes[k]
        d = self.draw.randrange(len(shape))
        self.add(
            f"iota along {d} added to {k}",
            shape,
            lambda a: a[k] + lax.broadcasted_iota(self.dtype, shape, d),
        )

    def constant(self) -> None:
        k = self.pick(lambda s: len(s) >= 1)
        shape = self.shapes[k]
        period = self.draw.choice([2, 4, 7, 8])
        values = (np.arange(prod(shape)) % period).astype(self.dtype).reshape(shape)
        self.add(
            f"constant of period {period} added to {k}", shape, lambda a: a[k] + values
        )

    def dynamic_slice(self) -> None:
        k = self.pick(lambda s: any(n >= 16 for n in s))
        d = self.draw.choice([d for d, n in enumerate(self.shapes[k]) if n >= 16])
        shape = list(self.shapes[k])
        shape[d] = 8
        self.add(
            f"dynamic slice {k} along {d}",
            tuple(shape),
            lambda a: lax.dynamic_slice_in_dim(a[k], _index(a[k], 8), 8, axis=d),
        )

    def dynamic_update_slice(self) -> None:
        k = self.pick(lambda s: any(n >= 16 for n in s))
        d = self.draw.choice([d for d, n in enumerate(self.shapes[k]) if n >= 16])

        def step(a: Sequence[Any]) -> Any:
            part = lax.slice_in_dim(a[k], 0, 8, axis=d) + 1
            return lax.dynamic_update_slice_in_dim(a[k], part, _index(a[k], 8), axis=d)

        self.add(f"update slice of {k} along {d}", self.shapes[k], step)

    def take(self) -> None:
        k = self.pick(lambda s: len(s) >= 1)
        d = self.draw.randrange(len(self.shapes[k]))
        size = self.shapes[k][d]
        count = self.draw.choice([8, 16, 32])
        places = [j for j, s in enumerate(self.shapes) if s == (count,)]
        shape = list(self.shapes[k])
        shape[d] = count
        if prod(shape) > LARGEST:
            return
        fixed = np.array([self.draw.randrange(size) for _ in range(count)], np.int32)
        j = self.draw.choice(places) if places and self.draw.random() < 0.5 else None

        def step(a: Sequence[Any]) -> Any:
            where = jnp.asarray(fixed)
            if j is not None:
                where = (jnp.abs(a[j]).astype(np.int32) % size + where) % size
            return jnp.take(a[k], where, axis=d, mode="clip")

        self.add(f"take {count} of {k} along {d} by {j}", tuple(shape), step)

    def scatter(self) -> None:
        k = self.pick(lambda s: len(s) >= 1)
        size = self.shapes[k][0]
        count = min(8, size)
        where = np.array([self.draw.randrange(size) for _ in range(count)], np.int32)

        def step(a: Sequence[Any]) -> Any:
            return a[k].at[where].add(a[k][:count] + 1)

        self.add(f"scatter into {k}", self.shapes[k], step)

    def sort(self) -> None:
        k = self.pick(lambda s: len(s) >= 1)
        d = self.draw.randrange(len(self.shapes[k]))
        self.add(f"sort {k} along {d}", self.shapes[k], lambda a: jnp.sort(a[k], d))

    def flip(self) -> None:
        k = self.pick(lambda s: len(s) >= 1)
        d = self.draw.randrange(len(self.shapes[k]))
        self.add(f"flip {k} along {d}", self.shapes[k], lambda a: jnp.flip(a[k], d))

    def running(self) -> None:
        k = self.pick(lambda s: len(s) >= 2)
        d = self.draw.randrange(len(self.shapes[k]))
        self.add(
            f"running maximum of {k} along {d}",
            self.shapes[k],
            lambda a: lax.cummax(a[k], axis=d),
        )

    def call(self) -> None:
        """One function twice, as JAX lowers it: once, called twice."""
        k = self.pick(lambda s: True)
        j = self.draw.choice(
            [j for j, s in enumerate(self.shapes) if s == self.shapes[k]]
        )
        inner = jax.jit(lambda x: jnp.abs(x) + 1)
        self.add(
            f"call with {k} and {j}",
            self.shapes[k],
            lambda a: inner(a[k]) - inner(a[j]),
        )

    def loop(self) -> None:
        k = self.pick(lambda s: len(s) >= 1)
        j = self.draw.choice(
            [j for j, s in enumerate(self.shapes) if s == self.shapes[k]]
        )
        kind = self.draw.choice(["add", "swap", "sum"])

        def body(_: Any, state: Any) -> Any:
            x, y = state
            if kind == "swap":
                return y, x + 1
            if kind == "sum":
                return x + jnp.max(x, axis=0, keepdims=True), y
            return x + y, y

        self.add(
            f"loop of {kind} over {k} and {j}",
            self.shapes[k],
            lambda a: lax.fori_loop(0, 3, body, (a[k], a[j]))[0],
        )

    def branch(self) -> None:
        k = self.pick(lambda s: len(s) >= 1)
        self.add(
            f"branch on {k}",
            self.shapes[k],
            lambda a: lax.cond(
                jnp.sum(a[k]) > 0, lambda x: x + 1, lambda x: jnp.flip(x, 0), a[k]
            ),
        )


def _index(array: Any, limit: int) -> Any:
    """A number below the limit that depends on an array's first element."""
    return jnp.abs(array.ravel()[0]).astype(np.int32) % limit


_KINDS: Final = (
    ("annotate", 5), ("unary", 3), ("binary", 4), ("vector", 3), ("transpose", 3),
    ("reshape", 3), ("dot", 5), ("batch_dot", 2), ("reduce", 3), ("concatenate", 1),
    ("slice", 2), ("pad", 1), ("iota", 2), ("constant", 2), ("dynamic_slice", 1),
    ("dynamic_update_slice", 1), ("take", 2), ("scatter", 1), ("sort", 1), ("flip", 1),
    ("running", 1), ("call", 1), ("loop", 2), ("branch", 1),
)  # fmt: skip


def random_program(draw: random.Random, *, only: Sequence[str] = ()) -> Program:
    """A program of 5 to 14 steps on two to four arrays; `only` limits the steps."""
    sizes, names = draw.choice(MESHES)
    mesh = Mesh(np.array(jax.devices()[: prod(sizes)]).reshape(sizes), names)
    dtype = draw.choice([np.int32, np.float32])
    maker = _Maker(draw, mesh, dtype)
    for _ in range(draw.randint(2, 4)):
        rank = draw.choice([1, 2, 2, 2, 3])
        pool = SIZES if rank < 3 else (8, 16)
        maker.shapes.append(tuple(draw.choice(pool) for _ in range(rank)))
    given = len(maker.shapes)
    shardings = [maker.spec(s) if draw.random() < 0.8 else None for s in maker.shapes]
    kinds = [(name, often) for name, often in _KINDS if not only or name in only]
    for _ in range(draw.randint(5, 14)):
        (name,) = draw.choices([n for n, _ in kinds], [often for _, often in kinds])
        before = len(maker.steps)
        with contextlib.suppress(_NothingFitsError):
            getattr(maker, name)()
        if len(maker.steps) > before and (
            prod(maker.shapes[-1]) > LARGEST or not maker.shapes[-1]
        ):
            maker.steps.pop()
            maker.shapes.pop()
    steps = [step for _, step in maker.steps]
    last = len(maker.shapes) - 1
    wanted = sorted({last, last - 1, last - 2, draw.randrange(last)})

    def function(*inputs: Any) -> Any:
        arrays = list(inputs)
        for step in steps:
            arrays.append(step(arrays))
        return [arrays[k] for k in wanted]

    numbers = np.random.default_rng(draw.getrandbits(32))
    inputs = []
    for shape in maker.shapes[:given]:
        if dtype == np.int32:
            inputs.append(numbers.integers(-9, 9, shape).astype(dtype))
        else:
            inputs.append(numbers.standard_normal(shape).astype(dtype))
    described = [
        f"{k}: input {list(s)} {None if h is None else h.spec}"
        for k, (s, h) in enumerate(zip(maker.shapes[:given], shardings, strict=True))
    ]
    described += [what for what, _ in maker.steps] + [f"results {wanted}"]
    return Program(
        jax.jit(function, in_shardings=tuple(shardings), keep_unused=True),
        inputs,
        described,
        dtype == np.int32,
    )
