"""Scalars of a loop as expressions of its state.

    %i = s32[] get-tuple-element(%state), index=0
    %next = s32[] add(%i, %one)         Apply('add', State((0,)), Constant(1))

An expression is followed through tuples, copies, fusions and calls to the state of the
loop (the parameter of its body or condition) and to constants. Only integers of 8 to 64
bits and booleans count, and only operations whose result is the same on every device:
no floating type, no collective, no random number.

Source of the operations: openxla/xla `docs/operation_semantics.md`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from hlo_passes.errors import HloError
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.element_types import integer_range
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.literals import Literal, parse_literal
from hlo_passes.ir.shapes import Shape

Path = tuple[int, ...]

#: Larger and deeper expressions are not followed.
MOST_NODES: Final = 2000
_DEEPEST: Final = 150
_INTEGERS: Final = frozenset(
    f"{sign}{bits}" for sign in "su" for bits in (8, 16, 32, 64)
)
#: Opcodes whose result is their operand, as far as one element is concerned.
_SAME_VALUE: Final = frozenset(
    {"add-dependency", "bitcast", "broadcast", "copy", "opt-barrier", "reshape",
     "reverse", "transpose"}
)  # fmt: skip
#: Targets of custom calls that hand their operand on.
_SAME_TARGETS: Final = frozenset(
    {'"Sharding"', '"SPMDFullToShardShape"', '"SPMDShardToFullShape"'}
)


class NotKnownError(Exception):
    """A value depends on something that is no scalar of the loop; says on what."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A known value."""

    type: str
    value: int


@dataclass(frozen=True, slots=True)
class State:
    """An element of the loop's state."""

    type: str
    path: Path


@dataclass(frozen=True, slots=True, eq=False)
class Apply:
    """An operation.

    Attributes:
        type: of the result.
        opcode: what is done.
        operands: in order.
        direction: of a comparison.
    """

    type: str
    opcode: str
    operands: tuple[Expression, ...]
    direction: str = ""


Expression = Constant | State | Apply


def scalar_type(shape: Shape) -> str:
    """The type of a shape with one integer or boolean; '' for anything else."""
    if shape.is_tuple or shape.element_type not in (*_INTEGERS, "pred"):
        return ""
    return shape.element_type if shape.element_count == 1 else ""


@dataclass(slots=True)
class Scope:
    """A computation whose parameters are read in a certain way.

    Attributes:
        computation: whose instructions are followed.
        parameter: the expression of an element of a parameter. Raises NotKnownError.
    """

    computation: Computation
    parameter: Callable[[Instruction, Path], Expression]
    _known: dict[tuple[Instruction, Path], Expression] = field(default_factory=dict)
    _callees: dict[Instruction, Scope] = field(default_factory=dict)

    def root(self, path: Path = (), depth: int = 0) -> Expression:
        """The expression of an element of the result. Raises NotKnownError."""
        return self.of(self.computation.root, path, depth)

    def of(self, instruction: Instruction, path: Path, depth: int = 0) -> Expression:
        """The expression of an element of an instruction. Raises NotKnownError."""
        key = instruction, path
        found = self._known.get(key)
        if found is None:
            if depth > _DEEPEST or len(self._known) > MOST_NODES:
                raise NotKnownError("an expression that is too large")
            found = self._known[key] = self._follow(instruction, path, depth + 1)
        return found

    def _follow(self, instruction: Instruction, path: Path, depth: int) -> Expression:
        opcode, operands = instruction.opcode, instruction.operands
        # What only hands values on keeps the path into tuples.
        if opcode == "parameter":
            return self.parameter(instruction, path)
        if opcode == "tuple" and path and path[0] < len(operands):
            return self.of(operands[path[0]], path[1:], depth)
        if opcode == "get-tuple-element":
            inner = (instruction.tuple_index, *path)
            return self.of(operands[0], inner, depth)
        if opcode == "copy-start" and path and path[0] in (0, 1):
            return self.of(operands[0], path[1:], depth)
        if opcode == "copy-done":
            return self.of(operands[0], (0, *path), depth)
        if opcode in ("call", "fusion"):
            return self._callee(instruction, depth).root(path, depth)
        if opcode == "constant":
            return _constant(instruction, path)
        if self._hands_on(instruction, path):
            return self.of(operands[0], path, depth)
        # Everything else is one number.
        kind = scalar_type(instruction.shape)
        if path or not kind or opcode not in _OPERATIONS:
            raise NotKnownError(f"%{instruction.name} ({opcode})")
        parts = tuple(self.of(operand, (), depth) for operand in operands)
        if len(parts) != _OPERATIONS[opcode]:
            raise NotKnownError(f"%{instruction.name} ({opcode})")
        return Apply(kind, opcode, parts, _direction(instruction, parts))

    def _hands_on(self, instruction: Instruction, path: Path) -> bool:
        if not instruction.operands:
            return False
        opcode = instruction.opcode
        if opcode == "custom-call":
            target = instruction.attributes.get("custom_call_target")
            if target not in _SAME_TARGETS:
                return False
        elif opcode not in _SAME_VALUE:
            return False
        mine, whose = instruction.shape, instruction.operands[0].shape
        if mine.is_tuple or path:
            return opcode in ("opt-barrier", "copy", "add-dependency")
        return scalar_type(mine) != "" and scalar_type(mine) == scalar_type(whose)

    def _callee(self, caller: Instruction, depth: int) -> Scope:
        known = self._callees.get(caller)
        if known is None:
            callees = caller.called_computations
            if len(callees) != 1:
                raise NotKnownError(f"%{caller.name} ({caller.opcode})")

            def parameter(inner: Instruction, path: Path) -> Expression:
                number = inner.parameter_number
                if number >= len(caller.operands):
                    raise NotKnownError(f"%{caller.name} ({caller.opcode})")
                return self.of(caller.operands[number], path, depth + 1)

            known = self._callees[caller] = Scope(callees[0], parameter)
        return known


def state_scope(computation: Computation) -> Scope:
    """A body or condition, whose parameter is the state of the loop."""

    def parameter(inner: Instruction, path: Path) -> Expression:
        shape = inner.shape
        for index in path:
            if not shape.is_tuple or index >= len(shape.elements):
                raise NotKnownError(f"element {spelled(path)}")
            shape = shape.elements[index]
        kind = scalar_type(shape)
        if not kind:
            raise NotKnownError(f"element {spelled(path)} of the state, {shape.text}")
        return State(kind, path)

    return Scope(computation, parameter)


def spelled(path: Path) -> str:
    """An element of nested tuples as people write it: '1.0'."""
    return ".".join(map(str, path)) or "0"


def _constant(instruction: Instruction, path: Path) -> Constant:
    unknown = NotKnownError(f"%{instruction.name} (constant)")
    shape = instruction.shape
    for index in path:
        if not shape.is_tuple or index >= len(shape.elements):
            raise unknown
        shape = shape.elements[index]
    kind = scalar_type(shape)
    if not kind or instruction.literal is None:
        raise unknown
    try:
        literal: Literal = parse_literal(instruction.literal, instruction.shape)
    except HloError:
        raise unknown from None
    for index in path:
        literal = literal.elements[index]
    if literal.array is None:
        raise unknown
    return Constant(kind, int(literal.array.reshape(-1)[0]))


def _direction(instruction: Instruction, operands: tuple[Expression, ...]) -> str:
    """Of a comparison that compares its operands as their type says; '' for others."""
    if instruction.opcode != "compare":
        return ""
    attributes = instruction.attributes
    order = attributes.get("type", "").strip()
    kind = operands[0].type
    natural = "SIGNED" if kind.startswith("s") else "UNSIGNED"
    direction = attributes.get("direction", "").strip()
    if (order and order != natural) or direction not in COMPARISONS:
        raise NotKnownError(f"%{instruction.name} (compare)")
    return direction


# -- values ------------------------------------------------------------------------

COMPARISONS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "EQ": operator.eq, "NE": operator.ne, "LT": operator.lt,
    "LE": operator.le, "GT": operator.gt, "GE": operator.ge,
}  # fmt: skip

#: Operation -> number of operands.
_OPERATIONS: Final = {
    "abs": 1, "add": 2, "and": 2, "clamp": 3, "compare": 2, "convert": 1, "divide": 2,
    "maximum": 2, "minimum": 2, "multiply": 2, "negate": 1, "not": 1, "or": 2,
    "remainder": 2, "select": 3, "shift-left": 2, "shift-right-arithmetic": 2,
    "shift-right-logical": 2, "sign": 1, "subtract": 2, "xor": 2,
}  # fmt: skip
_OF_BOOLEANS: Final = frozenset(
    {"and", "compare", "convert", "maximum", "minimum", "not", "or", "select", "xor"}
)


def wrapped(kind: str, value: int) -> int:
    """A number as a type keeps it: its lowest bits."""
    if kind == "pred":
        return int(value != 0)
    bits = int(kind[1:])
    low = value & ((1 << bits) - 1)
    return low - (1 << bits) if kind[0] == "s" and low >> (bits - 1) else low


def in_range(kind: str, value: int) -> bool:
    """Whether a type holds a number."""
    low, high = (0, 1) if kind == "pred" else integer_range(kind)
    return low <= value <= high


def apply(node: Apply, values: list[int]) -> int:
    """The value of an operation. Raises NotKnownError where booleans have none."""
    kind, opcode = node.type, node.opcode
    if kind == "pred" and opcode not in _OF_BOOLEANS:
        raise NotKnownError(f"{opcode} of booleans")
    return wrapped(kind, _raw(node, opcode, values))


def _raw(node: Apply, opcode: str, values: list[int]) -> int:
    if opcode == "compare":
        return int(COMPARISONS[node.direction](values[0], values[1]))
    if opcode == "select":
        return values[1] if values[0] else values[2]
    if opcode == "clamp":
        low, value, high = values
        return min(max(value, low), high)
    if opcode in _UNARY:
        return _UNARY[opcode](values[0])
    if opcode == "not":
        return 1 - values[0] if node.type == "pred" else ~values[0]
    if opcode.startswith("shift"):
        return _shifted(node.type, opcode, values[0], values[1])
    if opcode in ("divide", "remainder"):
        return _divided(opcode, values[0], values[1])
    return _BINARY[opcode](values[0], values[1])


_UNARY: Final[Mapping[str, Callable[[int], int]]] = {
    "abs": abs, "convert": int, "negate": operator.neg,
    "sign": lambda a: (a > 0) - (a < 0),
}  # fmt: skip
_BINARY: Final[Mapping[str, Callable[[int, int], int]]] = {
    "add": operator.add, "and": operator.and_, "maximum": max, "minimum": min,
    "multiply": operator.mul, "or": operator.or_, "subtract": operator.sub,
    "xor": operator.xor,
}  # fmt: skip


def _divided(opcode: str, a: int, b: int) -> int:
    """Toward zero; by zero all bits are set, or the dividend remains."""
    if b == 0:
        return -1 if opcode == "divide" else a
    quotient = abs(a) // abs(b)
    quotient = quotient if (a < 0) == (b < 0) else -quotient
    return quotient if opcode == "divide" else a - quotient * b


def _shifted(kind: str, opcode: str, a: int, by: int) -> int:
    """By as many bits as the type has, or by a negative number: nothing is left."""
    bits = int(kind[1:])
    whole = not 0 <= by < bits
    if opcode == "shift-left":
        return 0 if whole else a << by
    if opcode == "shift-right-logical":
        return 0 if whole else (a & ((1 << bits) - 1)) >> by
    signed = wrapped(f"s{bits}", a)
    return (-1 if signed < 0 else 0) if whole else signed >> by


class Evaluation:
    """Evaluates some expressions again and again, each node once a time."""

    def __init__(self, roots: list[Expression]) -> None:
        """Sort the nodes below `roots`, operands first."""
        self.places: dict[int, int] = {}
        self.nodes: list[Expression] = []
        for root in roots:
            self._sort(root)
        self._operands = [
            [self.places[id(o)] for o in n.operands] if isinstance(n, Apply) else []
            for n in self.nodes
        ]

    def _sort(self, root: Expression) -> None:
        work: list[tuple[Expression, bool]] = [(root, False)]
        while work:
            node, is_ready = work.pop()
            if id(node) in self.places:
                continue
            if isinstance(node, Apply) and not is_ready:
                work.append((node, True))
                work += [(operand, False) for operand in node.operands]
            else:
                self.places[id(node)] = len(self.nodes)
                self.nodes.append(node)

    def run(self, state: Mapping[Path, int]) -> list[int]:
        """The values of all nodes. Raises NotKnownError."""
        values: list[int] = []
        for node, operands in zip(self.nodes, self._operands, strict=True):
            if isinstance(node, Constant):
                values.append(node.value)
            elif isinstance(node, State):
                values.append(state[node.path])
            else:
                values.append(apply(node, [values[k] for k in operands]))
        return values
