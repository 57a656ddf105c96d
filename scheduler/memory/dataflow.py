"""Which value is at which position: XLA's dataflow analysis in SSA form.

    t = (f32[4], s32[]) tuple(a, i)     defines its table; parts hold a's and i's value
    w = while(t), body=%body            the parameter of body holds t's values, or one
                                        of its own if the body changes them
    g = f32[4] get-tuple-element(w)     defines nothing: holds w's value there

Unlike XLA it does not iterate: it visits each computation once, callees first.

Source: openxla/xla `xla/hlo/analysis/hlo_dataflow_analysis.cc` (Aug 2026).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hlo_passes.analysis.post_order import post_order
from hlo_passes.errors import UnsupportedHloError
from hlo_passes.ir.opcodes import facts
from hlo_passes.scheduler.memory import call_values
from hlo_passes.scheduler.memory.buffer_sizes import Parts, parts_of
from hlo_passes.scheduler.memory.reached import Reached
from hlo_passes.scheduler.memory.value_table import NO_VALUE, ValueTable

if TYPE_CHECKING:
    from hlo_passes.ir.instruction import Instruction

#: Returns the values of all parts of an instruction whose first position is known.
Rule = Callable[[ValueTable, "Instruction", int], list[int]]

#: As many operands are searched faster one by one.
_FEW_OPERANDS: Final = 8
#: Opcodes whose result is their first operand.
FORWARDING: Final = frozenset(
    "bitcast opt-barrier add-dependency domain all-reduce-done".split()
)


class OperandNumbers:
    """Where instructions read others: a table of each that has many operands."""

    def __init__(self) -> None:
        """Tables are made when they are first needed."""
        self._known: dict[Instruction, dict[Instruction, list[int]]] = {}

    def of(self, user: Instruction, operand: Instruction) -> list[int]:
        """Numbers of the user's operands that are this one."""
        if len(user.operands) <= _FEW_OPERANDS:
            return [k for k, one in enumerate(user.operands) if one is operand]
        table = self._known.get(user)
        if table is None:
            table = self._known[user] = {}
            for k, one in enumerate(user.operands):
                table.setdefault(one, []).append(k)
        return table.get(operand, [])


@dataclass(frozen=True, slots=True)
class Dataflow:
    """Values of all reached computations.

    Attributes:
        reached: the computations, with the numbering used throughout.
        start: number -> first position; it has one more entry than there are
            instructions.
        value: position -> value, or `NO_VALUE`.
        merged: pairs of values that loops and branches force into one buffer.
        joined: value -> the values that it represents, if a computation with several
            callers receives different ones; such a value has no own memory.
        phis: values that loops and branches define: XLA numbers them last.
        uses: where instructions read others.
    """

    reached: Reached
    start: list[int]
    value: list[int]
    merged: list[tuple[int, int]]
    joined: dict[int, list[int]]
    phis: set[int]
    uses: OperandNumbers = field(default_factory=OperandNumbers)

    def parts(self, n: int) -> Parts:
        """The parts of what instruction `n` produces."""
        return parts_of(self.reached.instructions[n].shape)

    def position(self, instruction: Instruction, path: tuple[int, ...]) -> int:
        """The position of a part of an instruction."""
        offset = parts_of(instruction.shape).offsets[path]
        return self.start[self.reached.number[instruction]] + offset

    def owner(self, position: int) -> int:
        """Number of the instruction that a position belongs to."""
        return bisect_right(self.start, position) - 1

    def part_size_bytes(self, position: int) -> tuple[int, bool]:
        """(bytes, whether in device memory) of the part at a position."""
        n = self.owner(position)
        parts, k = self.parts(n), position - self.start[n]
        return parts.sizes_bytes[k], parts.is_default_space[k]


class ValueRanks:
    """Sorts values as XLA numbers them.

    The order is by instruction in post order, callees first; phis come after all.
    """

    def __init__(self, flow: Dataflow) -> None:
        """Post orders are made when they are first needed."""
        self._flow = flow
        self._place: dict[Instruction, int] = {}

    def __call__(self, value: int) -> tuple[int, int]:
        """The key of one value."""
        flow = self._flow
        reached = flow.reached
        if value in flow.phis:
            return len(reached.instructions), value
        n = flow.owner(value)
        instruction = reached.instructions[n]
        if instruction not in self._place:
            computation = instruction.computation
            first = reached.block[computation].start
            for k, i in enumerate(post_order(computation)):
                self._place[i] = first + k
        return self._place[instruction], value - flow.start[n]


def build_dataflow(reached: Reached) -> Dataflow:
    """Find the values of everything that the entry reaches.

    Raises UnsupportedHloError S301 if a shape does not fit the values around it.
    """
    return _filled(reached, FORWARDING, _RULES, _SUGAR)


def build_points_to(reached: Reached) -> Dataflow:
    """What each position points to by the older analysis, which looks at no callee.

    Loops, branches and calls make all that they return, and so do the starts and dones
    of collectives; of the generic ones the start makes the results.

    Source: openxla/xla `xla/hlo/analysis/tuple_points_to_analysis.cc` (Aug 2026).
    """
    return _filled(reached, _POINTING, _POINTS_TO_RULES, _POINTS_TO_SUGAR)


def _filled(
    reached: Reached,
    forwarding: frozenset[str],
    rules: Mapping[str, Rule],
    sugar: Mapping[str, Rule],
) -> Dataflow:
    table = ValueTable(reached)
    number, start, value = reached.number, table.start, table.value
    for instruction in reached.instructions:
        base = len(value)
        start.append(base)
        opcode = instruction.opcode
        if opcode in forwarding:
            source = number[instruction.operands[0]]
            value += value[start[source] : start[source + 1]]
        elif opcode in rules:
            value += rules[opcode](table, instruction, base)
        elif instruction.shape.element_type == "tuple":
            rule = _sugar_rule(opcode, sugar) or _define_all
            value += rule(table, instruction, base)
        else:
            rule = _sugar_rule(opcode, sugar)
            value += rule(table, instruction, base) if rule else (base,)
        shape = instruction.shape
        expected = 1 if not shape.elements else parts_of(shape).count
        if len(value) != base + expected:
            raise UnsupportedHloError(
                f"%{instruction.name}: the shape {shape.text} does not fit the values "
                f"that {opcode} passes on",
                code="S301",
                location=instruction.location,
                hint="run the verifier on the module",
            )
    start.append(len(value))
    table.settle()
    return Dataflow(reached, start, table.value, table.merged, table.joined, table.phis)


# -- rules by opcode --------------------------------------------------------


def _define_all(table: ValueTable, instruction: Instruction, base: int) -> list[int]:
    del table
    return list(range(base, base + parts_of(instruction.shape).count))


def _element(table: ValueTable, instruction: Instruction, base: int) -> list[int]:
    del base
    return table.below(instruction.operands[0], (instruction.tuple_index,))


def _tuple(table: ValueTable, instruction: Instruction, base: int) -> list[int]:
    found = [base]
    for operand in instruction.operands:
        found += table.of(operand)
    return found


def _copy(table: ValueTable, instruction: Instruction, base: int) -> list[int]:
    return [base, *table.of(instruction.operands[0])[1:]]


def _copy_start(table: ValueTable, instruction: Instruction, base: int) -> list[int]:
    found = _define_all(table, instruction, base)
    found[2] = table.of(instruction.operands[0])[0]
    return found


def _copy_done(table: ValueTable, instruction: Instruction, base: int) -> list[int]:
    del base
    return table.below(instruction.operands[0], (0,))


def _send(table: ValueTable, instruction: Instruction, base: int) -> list[int]:
    found = _define_all(table, instruction, base)
    sent = table.of(instruction.operands[0])
    found[1 : 1 + len(sent)] = sent
    return found


def _recv_done(table: ValueTable, instruction: Instruction, base: int) -> list[int]:
    found = _define_all(table, instruction, base)
    received = table.below(instruction.operands[0], (0,))
    found[1 : 1 + len(received)] = received
    return found


def _all_gather_start(
    table: ValueTable, instruction: Instruction, base: int
) -> list[int]:
    found = _define_all(table, instruction, base)
    offsets = parts_of(instruction.shape).offsets
    operands = instruction.operands
    for k, operand in enumerate(operands):
        path = (0, k) if len(operands) > 1 else (0,)
        found[offsets[path]] = table.of(operand)[0]
    return found


def _all_gather_done(
    table: ValueTable, instruction: Instruction, base: int
) -> list[int]:
    found = table.below(instruction.operands[0], (1,))
    for k, is_table in enumerate(parts_of(instruction.shape).is_tuple):
        if is_table:
            found[k] = base + k
    return found


def _collective_permute_start(
    table: ValueTable, instruction: Instruction, base: int
) -> list[int]:
    """((operands), (results), contexts...).

    XLA gives tables below the top no value, except for that of the results.
    """
    found = _define_all(table, instruction, base)
    parts = parts_of(instruction.shape)
    operands = instruction.operands
    if (0, 0) in parts.offsets:
        found[parts.offsets[0,]] = NO_VALUE
    operand = operands[0]
    if len(operands) > 1 and not is_in_place_permute(instruction):
        for k, one in enumerate(operands):
            found[parts.offsets[0, k]] = table.of(one)[0]
        return found
    if not operand.shape.is_tuple:
        found[parts.offsets[0,]] = table.of(operand)[0]
        return found
    for k in range(len(operand.shape.elements)):
        found[parts.offsets[0, k]] = table.below(operand, (k,))[0]
    return found


def is_in_place_permute(instruction: Instruction) -> bool:
    """Whether a collective-permute writes slices of an operand that receives them."""
    return "slice_sizes" in instruction.attributes


_RULES: Final[dict[str, Rule]] = {
    "get-tuple-element": _element,
    "tuple": _tuple,
    "copy": _copy,
    "copy-start": _copy_start,
    "copy-done": _copy_done,
    "send": _send,
    "recv-done": _recv_done,
    "all-gather-start": _all_gather_start,
    "all-gather-done": _all_gather_done,
    "collective-permute-start": _collective_permute_start,
    "collective-permute-done": _all_gather_done,
    "while": call_values.while_values,
    "conditional": call_values.conditional_values,
    "call": call_values.call_values,
    "async-start": call_values.async_start_values,
    "async-update": call_values.async_update_values,
    "async-done": call_values.async_done_values,
}

_SUGAR: Final[dict[str, Rule]] = {
    "start": call_values.async_start_values,
    "update": call_values.async_update_values,
    "done": call_values.async_done_values,
}


def _sugar_rule(opcode: str, sugar: Mapping[str, Rule]) -> Rule | None:
    """The rule of `reduce-scatter-start` and similar sugar; None for anything else."""
    row = facts(opcode)
    return sugar.get(row.half) if row.is_sugar else None


# -- the older analysis -----------------------------------------------------


def _pointing_start(
    table: ValueTable, instruction: Instruction, base: int
) -> list[int]:
    """((operands), results, contexts...): all but the operands are its own."""
    found = _define_all(table, instruction, base)
    parts = parts_of(instruction.shape)
    for k, operand in enumerate(instruction.operands):
        if (0, k) in parts.offsets:
            low, high = parts.span((0, k))
            found[low:high] = table.of(operand)
    return found


def _pointing_update(
    table: ValueTable, instruction: Instruction, base: int
) -> list[int]:
    """What the step before it points to, where the shapes agree."""
    before = instruction.operands[0]
    if before.shape == instruction.shape:
        return table.of(before)
    return _define_all(table, instruction, base)


def _pointing_done(table: ValueTable, instruction: Instruction, base: int) -> list[int]:
    found = table.below(instruction.operands[0], (1,))
    if len(found) == parts_of(instruction.shape).count:
        return found
    return _define_all(table, instruction, base)


_POINTING: Final = FORWARDING - {"all-reduce-done"}
_POINTS_TO_RULES: Final[dict[str, Rule]] = {
    **{
        opcode: _RULES[opcode]
        for opcode in (
            "get-tuple-element tuple copy copy-start copy-done send recv-done".split()
        )
    },
    "async-start": _pointing_start,
    "async-update": _pointing_update,
    "async-done": _pointing_done,
}
_POINTS_TO_SUGAR: Final[dict[str, Rule]] = {
    "start": _pointing_start,
    "update": _pointing_update,
    "done": _pointing_done,
}
