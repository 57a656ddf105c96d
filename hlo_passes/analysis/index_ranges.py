"""Between which numbers an index moves while a loop counts.

    %i = s32[] get-tuple-element(%state), index=0       0 to 4
    %j = s32[] subtract(s32[] constant(9), %i)          5 to 9, linear

Known are the counter, constants, and sums, differences, products with a constant and
decided choices of what is known. An element of the state that the body hands on
unchanged is what the loop starts with.

Source: openxla/xla `xla/service/value_range.cc`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from hlo_passes.analysis.counted_loops import known_integer
from hlo_passes.analysis.scalar_expressions import wrapped
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction

_SCALARS: Final = frozenset(
    ["pred", *(f"{sign}{bits}" for sign in "su" for bits in (8, 16, 32, 64))]
)
#: Deeper expressions are not followed.
_DEEPEST: Final = 200


@dataclass(frozen=True, slots=True)
class IndexRange:
    """The smallest and largest value of an index, and how it moves between them.

    Attributes:
        first: the smallest value.
        last: the largest one.
        is_linear: whether the steps are equal.
        step: how large they are, as XLA follows it; None if it does not know.
    """

    first: int
    last: int
    is_linear: bool = True
    step: int | None = 1

    @property
    def is_one_value(self) -> bool:
        """Whether it never moves."""
        return self.first == self.last


@dataclass(slots=True)
class IndexRanges:
    """Ranges of scalars, each found when it is asked for.

    Attributes:
        known: ranges that are given, of get-tuple-elements of a body.
        loop_of: the only `while` that runs a body; None for other computations.
        fusion_of: the fusion whose body it is, to look through its parameters; None for
            other computations.
        turns: a negative factor exchanges the ends of a range, as in XLA of 0.12.
    """

    known: dict[Instruction, IndexRange]
    loop_of: Callable[[Computation], Instruction | None]
    fusion_of: Callable[[Computation], Instruction | None] = lambda _: None
    turns: bool = False
    _found: dict[Instruction, IndexRange | None] = field(default_factory=dict)

    def of(self, index: Instruction, depth: int = 0) -> IndexRange | None:
        """The range of a scalar; None if nothing is known about it."""
        shape = index.shape
        if not (shape.is_array and not shape.rank and shape.element_type in _SCALARS):
            return None
        source = _source(index)
        if source in self.known:
            return self.known[source]
        if source not in self._found:
            self._found[source] = None
            if depth < _DEEPEST:
                self._found[source] = self._follow(source, depth + 1)
        return self._found[source]

    def _follow(self, index: Instruction, depth: int) -> IndexRange | None:
        opcode = index.opcode
        if opcode == "get-tuple-element":
            return self._element(index, depth)
        if opcode == "constant":
            return _constant(index)
        if opcode == "parameter":
            fusion = self.fusion_of(index.computation)
            if fusion is None:
                return None
            return self.of(fusion.operands[index.parameter_number], depth)
        parts = [self.of(operand, depth) for operand in index.operands]
        if opcode == "select" and parts[0] is not None and parts[0].is_one_value:
            return parts[1 if parts[0].first else 2]
        if not parts or not all(part is not None for part in parts):
            return None
        known = [part for part in parts if part is not None]
        return _combined(index, known, turns=self.turns)

    def _element(self, element: Instruction, depth: int) -> IndexRange | None:
        """The range of an element of the state."""
        state = element.operands[0]
        if state.opcode != "parameter":
            return None
        loop = self.loop_of(element.computation)
        root = element.computation.root
        number = element.tuple_index
        if loop is not None and root.opcode == "tuple":
            start, kept = loop.operands[0], root.operands[number]
            if (
                start.opcode == "tuple"
                and kept.tuple_index_or_none == number
                and kept.operands[0] is state
            ):
                return self.of(start.operands[number], depth)
        for other, values in self.known.items():
            if other.operands[0] is state and other.tuple_index == number:
                return values
        return None


def _source(instruction: Instruction) -> Instruction:
    """What tuples and barriers hand on."""
    while True:
        operands = instruction.operands
        if instruction.opcode == "opt-barrier" and not instruction.shape.is_tuple:
            instruction = operands[0]
            continue
        if instruction.opcode != "get-tuple-element":
            return instruction
        source = operands[0]
        if source.opcode == "opt-barrier":
            source = source.operands[0]
        if source.opcode != "tuple":
            return instruction
        instruction = source.operands[instruction.tuple_index]


def _constant(constant: Instruction) -> IndexRange | None:
    if constant.shape.element_type == "pred":
        value: int | None = int((constant.literal or "").strip() in ("true", "1"))
    else:
        value = known_integer(constant)
    return None if value is None else IndexRange(value, value)


def _combined(
    node: Instruction, parts: list[IndexRange], *, turns: bool
) -> IndexRange | None:
    opcode, kind = node.opcode, node.shape.element_type
    is_linear = all(part.is_linear for part in parts)
    if opcode == "compare":
        return _compared(node.attributes.get("direction", "").strip(), *parts)
    if opcode == "negate":
        (part,) = parts
        first, last = wrapped(kind, -part.last), wrapped(kind, -part.first)
        step = 1 if part.is_one_value else None
        return IndexRange(first, last, is_linear, step)
    if opcode == "multiply":
        one, moving = parts if parts[0].is_one_value else parts[::-1]
        if not one.is_one_value:
            return None
        first = wrapped(kind, moving.first * one.first)
        last = wrapped(kind, moving.last * one.first)
        if turns and one.first < 0:
            first, last = last, first
        step = None if moving.step is None else moving.step * one.first or 1
        return IndexRange(first, last, is_linear, step)
    if opcode not in ("add", "subtract"):
        return None
    a, b = parts
    if opcode == "add":
        first, last = a.first + b.first, a.last + b.last
    else:
        first, last = a.first - b.last, a.last - b.first
    first, last = wrapped(kind, first), wrapped(kind, last)
    step = _common_step(a, b)
    return IndexRange(first, last, is_linear, step) if first <= last else None


def _common_step(a: IndexRange, b: IndexRange) -> int | None:
    """The step of a sum or difference."""
    if a.step is None or b.step is None:
        return None
    if a.is_one_value:
        return b.step
    return a.step if b.is_one_value or a.step == b.step else None


def _compared(direction: str, a: IndexRange, b: IndexRange) -> IndexRange | None:
    if direction == "LT" and a.last < b.first:
        return IndexRange(1, 1)
    if direction == "LT" and a.first >= b.last:
        return IndexRange(0, 0)
    return None
