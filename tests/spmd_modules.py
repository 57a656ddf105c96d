"""Random SPMD modules: HLO text of programs that any number of devices can run.

    draw = random.Random(7)
    text = spmd_module(draw, devices=8)

Every value is an array of eight rows; collectives of all kinds, equal and unequal
permutes, loops, in-place updates and tuples are mixed so that combining, splitting,
common subexpressions and dead code all occur. Values stay finite: floating results are
bounded by `tanh` after each sum or product.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

ROWS = 8
COLUMNS = (4, 8)
TYPES = ("f32", "s32", "f32", "bf16")
#: Reductions by name, with the computation that each needs.
REDUCTIONS = ("add", "maximum", "minimum")


@dataclass(slots=True)
class _Builder:
    """Lines of one computation, and the values at hand by shape."""

    draw: random.Random
    devices: int
    channels: list[int]
    prefix: str
    lines: list[str] = field(default_factory=list)
    values: dict[str, list[str]] = field(default_factory=dict)
    count: int = 0

    def add(self, shape: str, right: str) -> str:
        """One instruction; its name."""
        name = f"{self.prefix}{self.count}"
        self.count += 1
        self.lines.append(f"  %{name} = {shape} {right}")
        self.values.setdefault(shape, []).append(name)
        return name

    def channel(self) -> str:
        """`channel_id=N, ` with a number of its own."""
        self.channels[0] += 1
        return f"channel_id={self.channels[0]}, "

    def some_shape(self) -> str:
        """A shape of which there is a value."""
        return self.draw.choice([s for s, v in self.values.items() if v])

    def some_value(self, shape: str) -> str:
        """A value of that shape, recent ones more likely."""
        values = self.values[shape]
        return values[-1 - int(self.draw.triangular(0, len(values), 0)) % len(values)]

    def groups(self) -> str:
        """Groups over all devices: one, or all of one size."""
        size = self.draw.choice(
            [d for d in (1, 2, 4, 8) if self.devices % d == 0 and d <= self.devices]
        )
        if self.draw.random() < 0.5:
            return f"[{self.devices // size},{size}]<=[{self.devices}]"
        ids = list(range(self.devices))
        self.draw.shuffle(ids)
        rows = [ids[k : k + size] for k in range(0, self.devices, size)]
        return "{" + ",".join("{" + ",".join(map(str, r)) + "}" for r in rows) + "}"

    def pairs(self) -> str:
        """Pairs of a shift, of a swap, or of some devices only."""
        n = self.devices
        shift = self.draw.choice((1, n - 1))
        pairs = [(i, (i + shift) % n) for i in range(n)]
        if self.draw.random() < 0.3:
            pairs = pairs[: max(1, n - 1)]
        return "{" + ",".join(f"{{{a},{b}}}" for a, b in pairs) + "}"


def _element_type(shape: str) -> str:
    return shape[: shape.index("[")]


def _columns(shape: str) -> int:
    return int(shape[shape.index(",") + 1 : shape.index("]")])


def _elementwise(b: _Builder) -> None:
    shape = b.some_shape()
    a, c = b.some_value(shape), b.some_value(shape)
    if _element_type(shape) == "s32":
        b.add(
            shape, f"{b.draw.choice(('add', 'subtract', 'xor', 'maximum'))}(%{a}, %{c})"
        )
        return
    summed = b.add(
        shape, f"{b.draw.choice(('add', 'multiply', 'maximum'))}(%{a}, %{c})"
    )
    b.add(shape, f"tanh(%{summed})")


def _permutes(b: _Builder) -> None:
    """One to four permutes, most with equal pairs: what the combiner looks for."""
    pairs = b.pairs()
    for _ in range(b.draw.randint(1, 4)):
        if b.draw.random() < 0.2:
            pairs = b.pairs()
        shape = b.some_shape()
        operand = b.some_value(shape)
        key = ""
        if b.draw.random() < 0.15:
            key = f', frontend_attributes={{combiner_key="{b.draw.choice("ab")}"}}'
        b.add(
            shape,
            f"collective-permute(%{operand}), {b.channel()}"
            f"source_target_pairs={pairs}{key}",
        )


def _all_reduce(b: _Builder) -> None:
    shape = b.some_shape()
    kind, element = b.draw.choice(REDUCTIONS), _element_type(shape)
    result = b.add(
        shape,
        f"all-reduce(%{b.some_value(shape)}), {b.channel()}"
        f"replica_groups={b.groups()}, use_global_device_ids=true, "
        f"to_apply=%{kind}_{element}",
    )
    if element != "s32":
        b.add(shape, f"tanh(%{result})")


def _gather_and_scatter(b: _Builder) -> None:
    """All-gather of columns, then reduce-scatter back to the shape."""
    shape = b.some_shape()
    element, columns = _element_type(shape), _columns(shape)
    ids = f"[1,{b.devices}]<=[{b.devices}]"
    wide = f"{element}[{ROWS},{columns * b.devices}]{{1,0}}"
    gathered = b.add(
        wide,
        f"all-gather(%{b.some_value(shape)}), {b.channel()}replica_groups={ids}, "
        "dimensions={1}, use_global_device_ids=true",
    )
    b.values[wide].remove(gathered)
    b.add(
        shape,
        f"reduce-scatter(%{gathered}), {b.channel()}replica_groups={ids}, "
        f"use_global_device_ids=true, dimensions={{1}}, to_apply=%maximum_{element}",
    )


def _all_to_all(b: _Builder) -> None:
    shape = b.some_shape()
    b.add(
        shape,
        f"all-to-all(%{b.some_value(shape)}), {b.channel()}"
        f"replica_groups=[1,{b.devices}]<=[{b.devices}], dimensions={{0}}",
    )


def _update(b: _Builder) -> None:
    """An update in place, of a value that may be read again later."""
    shape = b.some_shape()
    element, columns = _element_type(shape), _columns(shape)
    row = f"{element}[1,{columns}]{{1,0}}"
    start = b.draw.randrange(ROWS)
    piece = b.add(
        row,
        f"slice(%{b.some_value(shape)}), slice={{[{start}:{start + 1}], [0:{columns}]}}",
    )
    b.values[row].remove(piece)
    at, zero = (b.add("s32[]", f"constant({v})") for v in (b.draw.randrange(ROWS), 0))
    del b.values["s32[]"]
    target = b.some_value(shape)
    b.add(shape, f"dynamic-update-slice(%{target}, %{piece}, %{at}, %{zero})")


def _tuple_trip(b: _Builder) -> None:
    """Through a tuple and out again."""
    shape, other = b.some_shape(), b.some_shape()
    made = f"({shape}, {other})"
    name = b.add(made, f"tuple(%{b.some_value(shape)}, %{b.some_value(other)})")
    del b.values[made]
    b.add(shape, f"get-tuple-element(%{name}), index=0")
    b.add(other, f"get-tuple-element(%{name}), index=1")


_STEPS = (
    (_elementwise, 5),
    (_permutes, 5),
    (_all_reduce, 2),
    (_gather_and_scatter, 1),
    (_all_to_all, 1),
    (_update, 2),
    (_tuple_trip, 2),
)


def _fill(b: _Builder, steps: int) -> None:
    kinds, weights = zip(*_STEPS, strict=True)
    for step in b.draw.choices(kinds, weights, k=steps):
        step(b)


def _reduction(kind: str, element: str) -> str:
    name = f"{kind}_{element}"
    return (
        f"%{name} (x.{name}: {element}[], y.{name}: {element}[]) -> {element}[] {{\n"
        f"  %x.{name} = {element}[] parameter(0)\n"
        f"  %y.{name} = {element}[] parameter(1)\n"
        f"  ROOT %r.{name} = {element}[] {kind}(%x.{name}, %y.{name})\n}}\n\n"
    )


def _loop(b: _Builder, name: str, trips: int) -> str:
    """A counted loop in `b` over two values of one shape; its two computations."""
    shape = b.some_shape()
    carried = f"(s32[], {shape}, {shape})"
    body = _Builder(b.draw, b.devices, b.channels, f"{name}.b.")
    body.lines.append(f"  %{name}.p = {carried} parameter(0)")
    body.lines.append(f"  %{name}.i = s32[] get-tuple-element(%{name}.p), index=0")
    for k in (1, 2):
        body.add(shape, f"get-tuple-element(%{name}.p), index={k}")
    _fill(body, b.draw.randint(2, 5))
    body.lines.append(f"  %{name}.one = s32[] constant(1)")
    body.lines.append(f"  %{name}.n = s32[] add(%{name}.i, %{name}.one)")
    first, second = (body.draw.choice(body.values[shape]) for _ in range(2))
    body.lines.append(
        f"  ROOT %{name}.r = {carried} tuple(%{name}.n, %{first}, %{second})"
    )
    plain = carried.replace("{1,0}", "")
    zero = b.add("s32[]", "constant(0)")
    del b.values["s32[]"]
    made = b.add(
        carried, f"tuple(%{zero}, %{b.some_value(shape)}, %{b.some_value(shape)})"
    )
    loop = b.add(
        carried, f"while(%{made}), condition=%{name}.condition, body=%{name}.body"
    )
    del b.values[carried]
    for k in (1, 2):
        b.add(shape, f"get-tuple-element(%{loop}), index={k}")
    return (
        f"%{name}.body ({name}.p: {plain}) -> {plain} {{\n"
        + "\n".join(body.lines)
        + f"\n}}\n\n%{name}.condition ({name}.q: {plain}) -> pred[] {{\n"
        f"  %{name}.q = {carried} parameter(0)\n"
        f"  %{name}.c = s32[] get-tuple-element(%{name}.q), index=0\n"
        f"  %{name}.limit = s32[] constant({trips})\n"
        f"  ROOT %{name}.less = pred[] compare(%{name}.c, %{name}.limit), direction=LT\n"
        "}\n\n"
    )


def spmd_module(draw: random.Random, devices: int) -> str:
    """HLO text of a random module for `devices` partitions."""
    b = _Builder(draw, devices, [0], "v")
    shapes = [
        f"{t}[{ROWS},{c}]{{1,0}}"
        for t, c in {(draw.choice(TYPES), draw.choice(COLUMNS)) for _ in range(3)}
    ]
    shapes.sort()
    parameters = [
        b.add(shape, f"parameter({k})") for k, shape in enumerate(shapes + shapes[:1])
    ]
    callees = ""
    for k in range(draw.randint(1, 3)):
        _fill(b, draw.randint(2, 7))
        if draw.random() < 0.4:
            callees += _loop(b, f"w{k}", draw.randint(1, 3))
    kept = [(s, draw.choice(v)) for s, v in sorted(b.values.items()) if v]
    kept += [(s, v[-1]) for s, v in sorted(b.values.items()) if v]
    result = f"({', '.join(s for s, _ in kept)})"
    names = ", ".join(f"%{n}" for _, n in kept)
    b.lines.append(f"  ROOT %result = {result} tuple({names})")
    reductions = "".join(
        _reduction(kind, element)
        for kind in REDUCTIONS
        for element in sorted(set(TYPES))
    )
    signature = ", ".join(
        f"{n}: {s.replace('{1,0}', '')}"
        for n, s in zip(parameters, shapes + shapes[:1], strict=True)
    )
    return (
        f"HloModule random_spmd, num_partitions={devices}\n\n{reductions}{callees}"
        f"ENTRY %main ({signature}) -> {result.replace('{1,0}', '')} {{\n"
        + "\n".join(b.lines)
        + "\n}\n"
    )


#: Passes of which random pipelines are made.
PASSES = (
    "collective-permute-combiner",
    "collective-permute-combiner{threshold-count=2}",
    "collective-permute-combiner{threshold-bytes=256}",
    "collective-permute-combiner{past-dependence=true}",
    "collective-permute-splitter",
    "async-collective-creator",
    "convert-async-collectives-to-sync",
    "hlo-cse",
    "hlo-dce",
    "tuple-simplifier",
)


def random_pipeline(draw: random.Random) -> str:
    """One to six passes in any order."""
    return ",".join(draw.choices(PASSES, k=draw.randint(1, 6)))
