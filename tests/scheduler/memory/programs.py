"""Random programs for what memory has to follow: loops, branches, calls, in-place work.

    text = random_program(random.Random(7))

They are read and verified, never run: values need no meaning. Functions may be called
several times, which XLA's own pipeline has flattened by the time that it schedules.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

ARRAYS = ("f32[4]{0}", "f32[16]{0}", "f32[64]{0}", "f32[16]{0:S(5)}")
STATE = f"(s32[], {ARRAYS[0]}, {ARRAYS[1]}, {ARRAYS[1]}, {ARRAYS[2]})"
_ELEMENTS = ("s32[]", ARRAYS[0], ARRAYS[1], ARRAYS[1], ARRAYS[2])


@dataclass(slots=True)
class _Module:
    draw: random.Random
    calls_repeat: bool
    computations: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    count: int = 0

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}.{self.count}"


@dataclass(slots=True)
class _Body:
    """Lines of one computation, and the values at hand by shape."""

    module: _Module
    depth: int
    lines: list[str] = field(default_factory=list)
    values: dict[str, list[str]] = field(default_factory=dict)

    def add(self, shape: str, right: str) -> str:
        name = self.module.name("v")
        self.lines.append(f"  %{name} = {shape} {right}")
        self.values.setdefault(shape, []).append(name)
        return name

    def some(self, shape: str) -> str:
        known = self.values.get(shape)
        if not known or self.module.draw.random() < 0.1:
            one = self.add("s32[]", "constant(1)") if shape == "s32[]" else None
            return one or self.add(shape, f"custom-call(), custom_call_target={_NEW}")
        return self.module.draw.choice(known)

    def state(self) -> str:
        """A tuple of the state's shape: any values of the right shapes."""
        operands = ", ".join(f"%{self.some(s)}" for s in _ELEMENTS)
        return self.add(STATE, f"tuple({operands})")

    def open_state(self, state: str) -> None:
        for k, shape in enumerate(_ELEMENTS):
            if self.module.draw.random() < 0.8:
                self.add(shape, f"get-tuple-element(%{state}), index={k}")

    def text(self, name: str, header: str, root: str, *, entry: bool = False) -> str:
        lines = [
            line.replace("  %", "  ROOT %", 1)
            if line.startswith(f"  %{root} = ")
            else line
            for line in self.lines
        ]
        mark = "ENTRY " if entry else ""
        return "\n".join([f"{mark}%{name} {header} {{", *lines, "}"])


_NEW = '"new"'
_UPDATE = """%{name} (a: f32[16], b: f32[4], i: s32[]) -> f32[16] {{
  %a.{name} = f32[16]{{0}} parameter(0)
  %b.{name} = f32[4]{{0}} parameter(1)
  %i.{name} = s32[] parameter(2)
  ROOT %u.{name} = f32[16]{{0}} dynamic-update-slice(%a.{name}, %b.{name}, %i.{name})
}}"""


def random_program(
    draw: random.Random, *, size: int = 12, calls_repeat: bool = False
) -> str:
    """HLO text of one module.

    Args:
        draw: decides everything.
        size: about how many steps each computation has.
        calls_repeat: let several instructions call one function.
    """
    module = _Module(draw, calls_repeat)
    body = _Body(module, depth=0)
    state = module.name("p")
    body.lines.append(f"  %{state} = {STATE} parameter(0)")
    other = module.name("p")
    body.lines.append(f"  %{other} = {ARRAYS[1]} parameter(1)")
    body.values[ARRAYS[1]] = [other]
    body.open_state(state)
    _steps(body, size)
    root = body.state()
    entry = body.text(
        "main", f"(p: {_plain(STATE)}, q: f32[16]) -> {_plain(STATE)}", root, entry=True
    )
    alias = ""
    if draw.random() < 0.5:
        alias = ", input_output_alias={ {2}: (1, {}, may-alias), {4}: (0, {4}) }"
    header = f"HloModule random, is_scheduled=true{alias}"
    return "\n\n".join([header, *module.computations, entry, ""])


def _plain(shape: str) -> str:
    """A shape without layouts, as headers have it."""
    for layout in ("{0:S(5)}", "{0}"):
        shape = shape.replace(layout, "")
    return shape


def _steps(body: _Body, size: int) -> None:
    draw = body.module.draw
    for _ in range(draw.randint(size // 2, size)):
        draw.choice(_STEPS if body.depth < 2 else _FLAT_STEPS)(body)


def _elementwise(body: _Body) -> None:
    shape = body.module.draw.choice(ARRAYS)
    body.add(shape, f"add(%{body.some(shape)}, %{body.some(shape)})")


def _new(body: _Body) -> None:
    shape = body.module.draw.choice(ARRAYS)
    body.add(shape, f"custom-call(), custom_call_target={_NEW}")


def _forward(body: _Body) -> None:
    shape = body.module.draw.choice(ARRAYS)
    opcode = body.module.draw.choice(["bitcast", "opt-barrier", "copy"])
    body.add(shape, f"{opcode}(%{body.some(shape)})")


def _barrier(body: _Body) -> None:
    state = body.state()
    inner = body.add(STATE, f"opt-barrier(%{state})")
    body.open_state(inner)


def _update(body: _Body) -> None:
    operands = (
        f"%{body.some(ARRAYS[1])}, %{body.some(ARRAYS[0])}, %{body.some('s32[]')}"
    )
    if body.module.draw.random() < 0.5:
        body.add(ARRAYS[1], f"dynamic-update-slice({operands})")
        return
    name = body.module.name("fused")
    body.module.computations.append(_UPDATE.format(name=name))
    body.add(ARRAYS[1], f"fusion({operands}), kind=kLoop, calls=%{name}")


def _in_place_call(body: _Body) -> None:
    shape = ARRAYS[2]
    body.add(
        shape,
        f"custom-call(%{body.some(shape)}), custom_call_target={_NEW}, "
        "output_to_operand_aliasing={{}: (0, {})}",
    )


def _all_gather(body: _Body) -> None:
    small, large = ARRAYS[0], ARRAYS[1]
    start = body.add(
        f"({small}, {large})",
        f"all-gather-start(%{body.some(small)}), replica_groups={{{{0,1,2,3}}}}, "
        "dimensions={0}",
    )
    _elementwise(body)
    body.add(large, f"all-gather-done(%{start})")


def _permute(body: _Body) -> None:
    shape = ARRAYS[2]
    start = body.add(
        f"({shape}, {shape}, u32[], u32[])",
        f"collective-permute-start(%{body.some(shape)}), "
        "source_target_pairs={{0,1}}",
    )
    _elementwise(body)
    body.add(shape, f"collective-permute-done(%{start})")


def _wrapped(body: _Body) -> None:
    """A generic asynchronous collective: its computation makes the result."""
    small, large = ARRAYS[1], ARRAYS[2]
    name = body.module.name("wrapped")
    body.module.computations.append(
        f"%{name} (a: f32[16]) -> f32[64] {{\n"
        f"  %a.{name} = {small} parameter(0)\n"
        f"  ROOT %r.{name} = {large} all-gather(%a.{name}), "
        "replica_groups={{0,1,2,3}}, dimensions={0}\n}"
    )
    start = body.add(
        f"(({small}), {large})",
        f"async-start(%{body.some(small)}), calls=%{name}",
    )
    _elementwise(body)
    body.add(large, f"async-done(%{start})")


def _copied(body: _Body) -> None:
    shape = ARRAYS[1]
    start = body.add(f"({shape}, {shape}, u32[])", f"copy-start(%{body.some(shape)})")
    _elementwise(body)
    body.add(shape, f"copy-done(%{start})")


def _function(body: _Body, parameters: int) -> tuple[str, _Body, list[str]]:
    """A computation of the state, its body begun."""
    inner = _Body(body.module, depth=body.depth + 1)
    names = []
    for k in range(parameters):
        name = body.module.name("p")
        inner.lines.append(f"  %{name} = {STATE} parameter({k})")
        names.append(name)
        inner.open_state(name)
    return body.module.name("f"), inner, names


def _finish(inner: _Body, name: str, parameters: int, root: str) -> None:
    shape = _plain(STATE)
    header = ", ".join(f"p{k}: {shape}" for k in range(parameters))
    inner.module.computations.append(inner.text(name, f"({header}) -> {shape}", root))


def _loop(body: _Body) -> None:
    draw = body.module.draw
    initial = body.state()
    name, inner, (parameter,) = _function(body, 1)
    _steps(inner, 4)
    # Some parts go through unchanged, some change places.
    places = [0, 1, *draw.sample([2, 3], 2), 4]
    operands = []
    for k, shape in zip(places, _ELEMENTS, strict=True):
        if draw.random() < 0.5:
            operands.append(
                inner.add(shape, f"get-tuple-element(%{parameter}), index={k}")
            )
        else:
            operands.append(inner.some(shape))
    root = inner.add(STATE, f"tuple({', '.join(f'%{o}' for o in operands)})")
    if draw.random() < 0.1:
        root = parameter
    _finish(inner, name, 1, root)
    condition = body.module.name("c")
    body.module.computations.append(
        f"%{condition} (p: {_plain(STATE)}) -> pred[] {{\n"
        f"  %p.{condition} = {STATE} parameter(0)\n"
        f"  %i.{condition} = s32[] get-tuple-element(%p.{condition}), index=0\n"
        f"  %n.{condition} = s32[] constant(3)\n"
        f"  ROOT %r.{condition} = pred[] compare(%i.{condition}, %n.{condition}), "
        "direction=LT\n}"
    )
    loop = body.add(STATE, f"while(%{initial}), condition=%{condition}, body=%{name}")
    body.open_state(loop)


def _branches(body: _Body) -> None:
    one, other = body.state(), body.state()
    names = []
    for _ in range(2):
        name, inner, (parameter,) = _function(body, 1)
        _steps(inner, 4)
        root = parameter if body.module.draw.random() < 0.3 else inner.state()
        _finish(inner, name, 1, root)
        names.append(name)
    index = body.some("s32[]")
    result = body.add(
        STATE,
        f"conditional(%{index}, %{one}, %{other}), "
        f"branch_computations={{%{names[0]}, %{names[1]}}}",
    )
    body.open_state(result)


def _call(body: _Body) -> None:
    module = body.module
    operands = f"%{body.state()}, %{body.state()}"
    if module.functions and module.calls_repeat and module.draw.random() < 0.6:
        name = module.draw.choice(module.functions)
    else:
        name, inner, parameters = _function(body, 2)
        _steps(inner, 4)
        passes_on = module.draw.random() < 0.4
        root = module.draw.choice(parameters) if passes_on else inner.state()
        _finish(inner, name, 2, root)
        module.functions.append(name)
    body.open_state(body.add(STATE, f"call({operands}), to_apply=%{name}"))


_FLAT_STEPS = (
    _elementwise, _elementwise, _new, _forward, _forward, _barrier, _update, _update,
    _in_place_call, _all_gather, _permute, _wrapped, _copied,
)  # fmt: skip
_STEPS = (*_FLAT_STEPS, _loop, _loop, _branches, _call, _call)
