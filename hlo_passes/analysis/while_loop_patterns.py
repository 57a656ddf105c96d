"""What XLA's own analysis of loops recognizes, with its surprises.

    induction_variable(loop, release)   0: the element of the state that counts
    loop_range(loop, 0)                 LoopRange(first=0, last=125, step=1)
    xla_trip_count(loop, 0, release)    126

The pass `while-loop-trip-count-annotator` writes these facts.
`analysis/trip_counts.py` knows more loops, and is right where this is not: XLA takes
`i > 10` for `i < 10`. XLA's interpreter also runs loops over floating types and arrays,
which are not evaluated here.

Source: openxla/xla `xla/hlo/analysis/while_loop_analysis.cc`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hlo_passes.analysis.integers import constant_integer
from hlo_passes.analysis.scalar_expressions import (
    Evaluation,
    NotKnownError,
    State,
    in_range,
    scalar_type,
    state_scope,
    wrapped,
)
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.opcodes import facts
from hlo_passes.ir.shapes import INTEGRAL, Shape
from hlo_passes.xla_release import XlaRelease

#: Iterations that XLA runs at most.
_MOST_RUN: Final = 128
#: The body and the condition.
_CALLEES: Final = 2
_COPIES: Final = frozenset({"copy", "copy-start", "copy-done"})
_NEVER_SCALAR: Final = frozenset(
    {"custom-call", "send", "send-done", "recv", "recv-done"}
)
_INT64: Final = "s64"


@dataclass(frozen=True, slots=True)
class LoopRange:
    """The values of a variable that grows by a constant, as XLA counts them."""

    first: int
    last: int
    step: int


# -- the induction variable --------------------------------------------------------


def induction_variable(loop: Instruction, release: XlaRelease) -> int | None:
    """The element of the state that alone decides when a loop ends; None without one.

    It is the only one that the condition reads, and the body computes it from itself
    alone, through scalars.
    """
    callees = loop.called_computations
    if len(callees) != _CALLEES or not all(c.parameters for c in callees):
        return None
    body, condition = callees
    start = loop.operands[0]
    read = _elements_read(condition.root, condition.parameters[0], release)
    if start.opcode != "tuple" or read is None or len(read) != 1:
        return None
    (index,) = read
    if body.root.opcode != "tuple" or index >= len(body.root.operands):
        return None
    update = _behind_copies(body.root.operands[index])
    again = _elements_read(update, body.parameters[0], release)
    return index if again == {index} else None


def _behind_copies(instruction: Instruction) -> Instruction:
    """What copies and elements of tuples hand on."""
    while True:
        operands = instruction.operands
        if instruction.opcode == "get-tuple-element" and operands[0].opcode == "tuple":
            instruction = operands[0].operands[instruction.tuple_index]
        elif instruction.opcode in _COPIES:
            instruction = operands[0]
        else:
            return instruction


def _elements_read(
    out: Instruction, state: Instruction, release: XlaRelease
) -> set[int] | None:
    """Elements of `state` that `out` is computed from; None where others are, too."""
    if not release.loop_variables_are_scalars:
        plain = _operand_elements(out, state)
        if plain is not None:
            return plain
    if out.computation is not state.computation or not state.shape.is_tuple:
        return None
    found: set[int] = set()
    seen: set[Instruction] = set()
    work = [out]
    while work:
        instruction = work.pop()
        if instruction in seen:
            continue
        seen.add(instruction)
        if instruction is state or instruction.opcode == "parameter":
            return None
        operands = instruction.operands
        if instruction.opcode == "get-tuple-element":
            if not _is_scalar(instruction.shape):
                return None
            source = operands[0]
            while source.opcode == "copy":
                source = source.operands[0]
            if source is state:
                found.add(instruction.tuple_index)
            elif source.opcode == "tuple":
                work += source.operands
            elif source.opcode not in ("fusion", "call") or not _enter(
                source, state, instruction.tuple_index, work, found, is_checked=False
            ):
                return None
        elif instruction.opcode == "copy":
            work += operands[:1]
        elif not _is_scalar_operation(instruction):
            return None
        elif instruction.opcode in ("fusion", "call"):
            if not _enter(instruction, state, None, work, found, is_checked=True):
                return None
        else:
            work += operands
    return found or None


def _operand_elements(out: Instruction, state: Instruction) -> set[int] | None:
    """Elements that an operation of nothing but elements and constants reads."""
    found: set[int] = set()
    for operand in out.operands:
        if operand.opcode == "constant":
            continue
        element = operand.operands[0] if operand.opcode == "copy" else operand
        if element.opcode != "get-tuple-element" or element.operands[0] is not state:
            return None
        found.add(element.tuple_index)
    return found


def _enter(
    caller: Instruction,
    state: Instruction,
    index: int | None,
    work: list[Instruction],
    found: set[int],
    *,
    is_checked: bool,
) -> bool:
    """Go on at the arguments of a call; False where it reads something else."""
    reached = _parameters_read(caller.called_computations[0], index, is_checked)
    if reached is None:
        return False
    for number, element in reached:
        argument = caller.operands[number]
        if element is None:
            work.append(argument)
            continue
        while argument.opcode == "copy":
            argument = argument.operands[0]
        if argument is not state:
            return False
        found.add(element)
    return True


def _parameters_read(
    computation: Computation, index: int | None, is_checked: bool
) -> set[tuple[int, int | None]] | None:
    """(number, element) of the parameters that a result is computed from."""
    found: set[tuple[int, int | None]] = set()
    seen: set[tuple[Instruction, int | None]] = set()
    work: list[tuple[Instruction, int | None]] = [(computation.root, index)]
    while work:
        at = work.pop()
        if at in seen:
            continue
        seen.add(at)
        instruction, element = at
        shape, operands = instruction.shape, instruction.operands
        if not (shape.is_tuple if element is not None else _is_scalar(shape)):
            return None
        if instruction.opcode == "parameter":
            found.add((instruction.parameter_number, element))
        elif instruction.opcode == "tuple":
            if element is None or element >= len(operands):
                return None
            work.append((operands[element], None))
        elif instruction.opcode == "get-tuple-element":
            work.append((operands[0], instruction.tuple_index))
        elif instruction.opcode == "copy":
            work.append((operands[0], element))
        elif instruction.opcode in ("fusion", "call"):
            callee = instruction.called_computations[0]
            inner = _parameters_read(callee, element, is_checked)
            if inner is None:
                return None
            work += [(operands[number], deeper) for number, deeper in inner]
        elif element is not None or not (
            is_checked or _is_scalar_operation(instruction)
        ):
            return None
        else:
            work += [(operand, None) for operand in operands]
    return found


def _is_scalar(shape: Shape) -> bool:
    return shape.is_array and not shape.dimensions


def _is_scalar_operation(instruction: Instruction) -> bool:
    """Whether XLA would evaluate it while compiling, with all that it calls."""
    work = [instruction]
    seen: set[Computation] = set()
    while work:
        one = work.pop()
        row = facts(one.opcode)
        if (
            row.is_collective
            or one.opcode in _NEVER_SCALAR
            or not _is_scalar(one.shape)
        ):
            return False
        for computation in one.called_computations:
            if computation not in seen:
                seen.add(computation)
                work += computation.instructions
    return True


# -- counts ------------------------------------------------------------------------


def loop_range(loop: Instruction, index: int) -> LoopRange | None:
    """The values that the variable takes where the body adds a constant to it.

    The comparison may have its operands either way around, and XLA takes GT for LT and
    GE for LE.
    """
    body, condition = loop.called_computations[:2]
    first = first_value(loop, index)
    step = _step(body.root.operands[index], body, index)
    compared = _comparison(condition, index)
    if first is None or step is None or compared is None:
        return None
    bound, direction = compared
    limit = signed_integer(bound)
    if limit is None or direction not in ("LT", "GT", "LE", "GE"):
        return None
    if direction in ("LT", "GT"):
        limit = wrapped(_INT64, limit - 1)
    # The last value differs from the first one by a multiple of the step.
    last = wrapped(_INT64, limit - (limit - first) % step)
    return LoopRange(first, wrapped(bound.shape.element_type, last), step)


def xla_trip_count(loop: Instruction, index: int, release: XlaRelease) -> int | None:
    """How often XLA says that a loop runs where it knows no range."""
    first = _start_value(loop, index)
    if first is None:
        return None
    count = xla_divided_trip_count(loop, index, release)
    if count is not None:
        return count
    body, condition = loop.called_computations[:2]
    return _run_by_xla(body, condition, index, first[1])


def xla_divided_trip_count(
    loop: Instruction, index: int, release: XlaRelease
) -> int | None:
    """How often XLA says that a loop runs, from start, step and bound alone."""
    first = first_value(loop, index)
    if first is None:
        return None
    body, condition = loop.called_computations[:2]
    return _matched_count(body, condition, index, first, release)


def first_value(loop: Instruction, index: int) -> int | None:
    """What the variable starts with, if it is an integer of 64 bits with sign."""
    first = _start_value(loop, index)
    if first is None or first[0] not in INTEGRAL or not in_range(_INT64, first[1]):
        return None
    return first[1]


def _start_value(loop: Instruction, index: int) -> tuple[str, int] | None:
    """(type, value) of its start: a constant, or an operation of constants."""
    start = _behind_copies(loop.operands[0].operands[index])
    kind = scalar_type(start.shape)
    if not kind or start.opcode == "parameter":
        return None
    if not all(o.opcode == "constant" for o in start.operands):
        return None
    try:
        return kind, _operation(start)(0)
    except NotKnownError:
        return None


def _operation(instruction: Instruction) -> Callable[[int], int]:
    """An operation of constants and at most one element of the state.

    Raises NotKnownError, as what it returns does.
    """
    expression = state_scope(instruction.computation).of(instruction, ())
    evaluation = Evaluation([expression])
    paths = [node.path for node in evaluation.nodes if isinstance(node, State)]
    place = evaluation.places[id(expression)]

    def value(element: int) -> int:
        return evaluation.run(dict.fromkeys(paths, element))[place]

    return value


def start_constant(start: Instruction, index: int) -> int | None:
    """The integer constant that an element of the state starts with."""
    if start.opcode != "tuple" or index >= len(start.operands):
        return None
    return signed_integer(start.operands[index])


def unique_element(computation: Computation, index: int) -> Instruction | None:
    """The only get-tuple-element of the state with this index."""
    found = [
        user
        for user in computation.parameters[0].users
        if user.tuple_index_or_none == index
    ]
    return found[0] if len(found) == 1 else None


def _other_operand(instruction: Instruction) -> Instruction | None:
    """The only operand that is no constant; it may occur several times."""
    found = {o for o in instruction.operands if o.opcode != "constant"}
    return found.pop() if len(found) == 1 else None


def _step(update: Instruction, body: Computation, index: int) -> int | None:
    """What the body adds to the variable, if that is a constant greater than 0."""
    variable = _other_operand(update)
    if variable is None or variable is not unique_element(body, index):
        return None
    return _added(update, variable)


def _added(update: Instruction, variable: Instruction) -> int | None:
    if update.opcode != "add":
        return None
    others = [o for o in update.operands if o is not variable]
    step = signed_integer(others[0]) if len(others) == 1 else None
    return step if step is not None and step > 0 else None


def _comparison(condition: Computation, index: int) -> tuple[Instruction, str] | None:
    """(the constant bound, the direction) that ends a loop, whichever side it is on."""
    variable, root = unique_element(condition, index), condition.root
    if variable is None or len(root.operands) != 2 or variable not in root.operands:
        return None
    bound = root.operands[root.operands[0] is variable]
    if bound.opcode != "constant":
        return None
    return bound, root.attributes.get("direction", "").strip()


def signed_integer(constant: Instruction) -> int | None:
    """The value of an integer constant of one element that fits 64 bits with sign."""
    if scalar_type(constant.shape) not in INTEGRAL:
        return None
    value = constant_integer(constant)
    return value if value is not None and in_range(_INT64, value) else None


def runs_at_most_once(loop: Instruction) -> bool:
    """Whether the body sets what ends the loop: a constant, the only element read."""
    body, condition = loop.called_computations[:2]
    read, root = condition.parameters[0].users, body.root
    if len(read) != 1 or root.opcode != "tuple":
        return False
    index = read[0].tuple_index_or_none
    end = None if index is None else constant_integer(root.operands[index])
    if end is None:
        return False
    try:
        return not _operation(condition.root)(end)
    except NotKnownError:
        return False


def _matched_count(
    body: Computation,
    condition: Computation,
    index: int,
    first: int,
    release: XlaRelease,
) -> int | None:
    """The count of `i < N` or `i <= N` by division, where copies are in between."""
    update = _behind_copies(body.root.operands[index])
    variable = _other_operand(update)
    if variable is None or _behind_copies(variable) is not unique_element(body, index):
        return None
    step = _added(update, variable)
    compared = _comparison(condition, index)
    if step is None or compared is None:
        return None
    bound, direction = compared
    limit = signed_integer(bound)
    if limit is None or condition.root.operands[1] is not bound:
        return None
    distance = limit - first
    if not in_range(_INT64, distance):
        return None
    if release.divides_trip_counts_rightly and direction in ("LT", "LE"):
        values = distance + (direction == "LE")
        right = max(0, -(-values // step))
        return right if in_range(_INT64, right) else None
    quotient = abs(distance) // step * (1 if distance >= 0 else -1)
    more = quotient + 1
    # XLA divides as floating numbers.
    if direction == "LT" and int(math.remainder(distance, step)) == 0:
        return max(0, quotient)
    if direction not in ("LT", "LE") or not in_range(_INT64, more):
        return None
    return max(0, more if direction == "LE" or more < limit else quotient)


def _run_by_xla(
    body: Computation, condition: Computation, index: int, first: int
) -> int | None:
    """The count by running condition and update, each one operation, 128 times."""
    update, decides = body.root.operands[index], condition.root
    variable, read = _other_operand(update), _other_operand(decides)
    if variable is None or variable is not unique_element(body, index):
        return None
    if read is None or read is not unique_element(condition, index):
        return None
    value = first
    try:
        goes_on, following = _operation(decides), _operation(update)
        for count in range(_MOST_RUN + 1):
            if not goes_on(value):
                return count
            value = following(value)
    except NotKnownError:
        return None
    return None
