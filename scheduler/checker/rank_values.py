"""Scalars that a device can compute by itself from partition-id and replica-id.

    %id = u32[] partition-id()
    %even = pred[] compare(%and, %zero), direction=EQ     true on 0, 2, ...
    conditional(%even, ...)                               branches differ by device

Only what follows from the ids and from constants has a value; everything else is
unknown, and callers take it to be equal on all devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from hlo_passes.analysis.integers import constant_integers
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import BITS, SIGNED

Values = tuple[int, ...]
#: By operand number, its values, or those of its elements if it is a `tuple`.
Context = tuple[tuple[int, Values | tuple[Values | None, ...] | None], ...]

#: Calls that are evaluated for one device; what others return counts as unknown.
_MOST_RESULTS: Final = 4096
#: No integer is wider; a shift by more leaves nothing, in XLA as here.
_WIDEST: Final = 64

_BINARY: Final[dict[str, Callable[[int, int], int]]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "maximum": max,
    "minimum": min,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "divide": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "remainder": lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),
    "shift-left": lambda a, b: a << b if 0 <= b < _WIDEST else 0,
}
_COMPARE: Final[dict[str, Callable[[int, int], bool]]] = {
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
}
_SAME: Final = frozenset(
    "bitcast broadcast convert copy opt-barrier reshape transpose".split()
)
_INTEGERS: Final = ("s", "u", "p")


@dataclass(frozen=True, slots=True)
class Frame:
    """The call that a computation runs in, for one device.

    Attributes:
        replica: of the device.
        partition: of the device.
        given: the callers' operands by parameter number; missing ones are unknown.
        outer: the frame of those operands.
        known: values found so far.
        results: of calls with equal operands, shared by all frames of the device.
    """

    replica: int
    partition: int
    given: Mapping[int, Instruction] = field(default_factory=dict)
    outer: Frame | None = None
    known: dict[Instruction, Values | None] = field(default_factory=dict)
    results: dict[tuple[Computation, Context], Values | None] = field(
        default_factory=dict
    )

    def inside(self, given: Mapping[int, Instruction]) -> Frame:
        """The frame of a computation that is called with those operands."""
        return Frame(self.replica, self.partition, given, self, results=self.results)

    @property
    def context(self) -> Context:
        """What is known of the operands; one computation knows the same with it."""
        outer = self.outer
        if outer is None:
            return ()
        return tuple(
            (number, tuple(outer.values(o) for o in given.operands))
            if given.opcode == "tuple"
            else (number, outer.values(given))
            for number, given in self.given.items()
        )

    def scalar(self, instruction: Instruction) -> int | None:
        """The value of an integer or predicate of one element; None if unknown."""
        values = self.values(instruction)
        return values[0] if values is not None and len(values) == 1 else None

    def values(self, instruction: Instruction) -> Values | None:
        """The elements of a small array in order, one for a scalar; None if unknown."""
        pending = [instruction]
        while pending:
            current = pending[-1]
            if current in self.known:
                pending.pop()
                continue
            # Only small integers are worth following.
            missing = (
                [o for o in current.operands if o not in self.known]
                if _may_be_known(current)
                else []
            )
            if missing:
                pending += missing
            else:
                self.known[current] = (
                    self._evaluate(current) if _may_be_known(current) else None
                )
        return self.known[instruction]

    def _evaluate(self, instruction: Instruction) -> Values | None:
        opcode = instruction.opcode
        if opcode == "partition-id":
            return (self.partition,)
        if opcode == "replica-id":
            return (self.replica,)
        if opcode == "parameter":
            outer = self.given.get(instruction.parameter_number)
            return None if outer is None or self.outer is None else (
                self.outer.values(outer)
            )  # fmt: skip
        if opcode == "constant":
            return constant_integers(instruction)
        if opcode == "get-tuple-element":
            return self._element(instruction)
        if opcode in ("fusion", "call"):
            return self._called(instruction)
        operands = [self.known[o] for o in instruction.operands]
        found = [o for o in operands if o is not None]
        if len(found) != len(operands):
            return None
        return _compute(instruction, found)

    def _called(self, caller: Instruction) -> Values | None:
        """The result of a call, evaluated once for equal operands."""
        callee = caller.called_computations[0]
        frame = self.inside(dict(enumerate(caller.operands)))
        key = (callee, frame.context)
        if key not in self.results:
            if len(self.results) >= _MOST_RESULTS:
                return None
            self.results[key] = frame.values(callee.root)
        return self.results[key]

    def _element(self, instruction: Instruction) -> Values | None:
        source = instruction.operands[0]
        if source.opcode == "tuple":
            return self.values(source.operands[instruction.tuple_index])
        if source.opcode == "parameter" and self.outer is not None:
            outer = self.given.get(source.parameter_number)
            if outer is not None and outer.opcode == "tuple":
                return self.outer.values(outer.operands[instruction.tuple_index])
        return None


def _may_be_known(instruction: Instruction) -> bool:
    """Whether its kind, type and size are followed."""
    shape = instruction.shape
    if not shape.is_array or shape.element_type[0] not in _INTEGERS:
        return False
    if instruction.opcode == "constant":
        return "..." not in (instruction.literal or "")
    return shape.element_count == 1


def _compute(
    instruction: Instruction, operands: list[tuple[int, ...]]
) -> Values | None:
    opcode = instruction.opcode
    if opcode == "dynamic-slice":
        table, *at = operands
        if instruction.operands[0].shape.rank != 1:
            return None
        return (table[max(0, min(at[0][0], len(table) - 1))],)
    if any(len(o) != 1 for o in operands):
        return None
    scalars = [o[0] for o in operands]
    element_type = instruction.shape.element_type
    if opcode in _SAME:
        return (_wrapped(scalars[0], element_type),)
    if opcode == "select":
        return (scalars[1] if scalars[0] else scalars[2],)
    if opcode == "not":
        return (int(not scalars[0]),) if element_type == "pred" else None
    if opcode == "compare":
        compare = _COMPARE.get(instruction.attributes.get("direction", ""))
        return None if compare is None else (int(compare(*scalars)),)
    if opcode == "shift-right-logical":
        value, by = scalars[0] & (1 << BITS[element_type]) - 1, scalars[1]
        return (_wrapped(value >> by if 0 <= by < _WIDEST else 0, element_type),)
    operation = _BINARY.get(opcode)
    if operation is None or (opcode in ("divide", "remainder") and not scalars[1]):
        return None
    return (_wrapped(operation(*scalars), element_type),)


def _wrapped(value: int, element_type: str) -> int:
    """What an integer becomes in a type that it may not fit; a `pred` is 0 or 1."""
    if element_type == "pred":
        return int(value != 0)
    full = 1 << BITS[element_type]
    value %= full
    return value - full if element_type in SIGNED and 2 * value >= full else value
