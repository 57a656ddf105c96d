"""What the iterations of a loop compute alike, and its way out of the loop.

    body:   %w = get-tuple-element(%state), index=1          invariant
            %g = all-gather(%w), ...                         computed alike
            ROOT tuple(%next, %w, %g)                        element 2 is recomputed

    found = Invariants(loop)
    move_collectives(loop, [g])           the loop reads what is gathered before it
    keep_elements(loop, [2])              starts with it, and hands it on

Nothing here asks whether that pays, or how often the loop runs: that must be at least
once, known, and on all devices alike.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from hlo_passes.analysis.effects import has_control_edges, has_side_effect
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.scheduling_annotations import is_annotated
from hlo_passes.analysis.structure import Structure
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.async_form import half, is_collective
from hlo_passes.ir.calls import runs_callees
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.passes.framework.base import Report
from hlo_passes.passes.loops.hoisting import Hoisting, bytes_of
from hlo_passes.passes.loops.loop_state import invariant_elements
from hlo_passes.passes.rewriting.cloning import element_of, wait_likewise

_STAYS: Final = frozenset({"after-all", "parameter"})


@dataclass(slots=True)
class Invariants:
    """What one loop computes alike in each iteration.

    Attributes:
        loop: its body returns a tuple.
        elements: of the state, which never change.
        values: what the body computes from them and from constants, in post order,
            operands first. It has no side effects.
    """

    loop: Instruction
    elements: dict[Instruction, None] = field(init=False)
    values: dict[Instruction, None] = field(init=False)

    def __post_init__(self) -> None:
        """Find them."""
        body = self.loop.called_computations[0]
        self.elements = dict.fromkeys(
            e for e in invariant_elements(body) if e.shape.is_array
        )
        self.values = {}
        for instruction in post_order(body):
            if instruction not in self.elements and not self.reason(instruction):
                self.values[instruction] = None

    def reason(self, instruction: Instruction) -> str:
        """Why it does not leave the loop; '' if it can."""
        if instruction.opcode in _STAYS or runs_callees(instruction):
            return f"is a {instruction.opcode}"
        if half(instruction):
            return "is asynchronous"
        if has_control_edges(instruction):
            return "has control edges"
        if is_annotated(instruction):
            return "is in a scheduling group"
        if instruction.is_root:
            return "is the result"
        if has_side_effect(instruction):
            return "has a side effect"
        for operand in instruction.operands:
            if operand not in self.values and operand not in self.elements:
                return f"needs %{operand.name}, which is not the same in each iteration"
        return ""

    def needed_by(
        self, instructions: Collection[Instruction]
    ) -> dict[Instruction, None]:
        """These and all values that they are computed from, in post order."""
        wanted, work = set(instructions), list(instructions)
        while work:
            for operand in work.pop().operands:
                if operand in self.values and operand not in wanted:
                    wanted.add(operand)
                    work.append(operand)
        return {value: None for value in self.values if value in wanted}

    def read_by_loop(
        self, instructions: Collection[Instruction]
    ) -> tuple[Instruction, ...]:
        """Collectives that the body still reads once these are outside, in post order.

        What else they are computed from is computed once more in the body, if the body
        needs that for something else.
        """
        outside = self.needed_by(instructions)
        inside: set[Instruction] = set()
        for value in reversed(outside):
            if any(u not in outside or _stays(u, inside) for u in value.users):
                inside.add(value)
        return tuple(v for v in outside if v in inside and is_collective(v))

    def bytes_outside(self, instructions: Collection[Instruction]) -> int:
        """Bytes that live as long as the loop does, once these are outside."""
        return bytes_of(self.read_by_loop(instructions))


def _stays(value: Instruction, inside: Collection[Instruction]) -> bool:
    """Whether the body computes it, although a copy of it is outside."""
    return value in inside and not is_collective(value)


def move_collectives(
    loop: Instruction, collectives: Collection[Instruction], report: Report
) -> None:
    """Compute invariant collectives, and what they need, before a loop.

    The old loop and its body stay as dead code; nothing is done if all are dead.
    """
    hoisting, invariants = Hoisting(loop), Invariants(loop)
    for collective in invariants.read_by_loop(collectives):
        hoisting.move(collective)
    _wait_for_the_same(hoisting)
    new = hoisting.finish(report)
    if new is not None:
        restore_text_order(new.called_computations[0])
        restore_text_order(new.computation)


def _wait_for_the_same(hoisting: Hoisting) -> None:
    """Let what is copied before a loop wait for what the loop waits for.

    A collective could begin, on some device, before what all of them must do first.
    """
    state = hoisting.body.parameters[0]
    copies = [copy for one, copy in hoisting.copies.items() if one is not state]
    wait_likewise(hoisting.loop, copies)


# -- elements of the state ---------------------------------------------------------


def recomputed_elements(invariants: Invariants) -> dict[int, str]:
    """Elements of the state that each iteration computes alike, by index.

    The text says why one has to stay: its first iteration reads something else. ''
    means that the loop can start with what its iterations compute.
    """
    loop = invariants.loop
    body, condition = loop.called_computations
    states = body.parameters[0], condition.parameters[0]
    if any(u.opcode != "get-tuple-element" for state in states for u in state.users):
        return {}
    found: dict[int, str] = {}
    for index, end in enumerate(body.root.operands):
        if (
            (end in invariants.elements and end.tuple_index == index)
            or (end not in invariants.values and end not in invariants.elements)
            or end.shape.text != loop.shape.elements[index].text
        ):
            continue
        readers = [u for s in states for u in s.users if u.tuple_index == index]
        is_read = any(u.user_count for u in readers)
        is_other = is_read and not _starts_with(invariants, index, end)
        found[index] = "its first iteration reads another value" if is_other else ""
    return found


def _starts_with(invariants: Invariants, index: int, end: Instruction) -> bool:
    """Whether an element of the state begins with what each iteration computes."""
    start = invariants.loop.operands[0]
    if start.opcode != "tuple":
        return False
    structure = Structure(layout_sensitive=True)
    work = [(start.operands[index], end)]
    seen = set(work)
    while work:
        outside, inside = work.pop()
        if inside in invariants.elements:
            if outside is not start.operands[inside.tuple_index]:
                return False
            continue
        if not structure.equal_apart_from_operands(outside, inside):
            return False
        for pair in zip(outside.operands, inside.operands, strict=True):
            if pair not in seen:
                seen.add(pair)
                work.append(pair)
    return True


def keep_elements(loop: Instruction, indices: Sequence[int]) -> None:
    """Start a loop with what its iterations compute alike, and let them hand that on.

    The computations must be those of this loop alone. What was computed in the body
    stays as dead code.

    Args:
        loop: changed in place.
        indices: of `recomputed_elements` without a reason.
    """
    body, computation = loop.called_computations[0], loop.computation
    invariants, hoisting = Invariants(loop), Hoisting(loop)
    start = loop.operands[0]
    is_tuple = start.opcode == "tuple"
    starts = [
        start.operands[k] if is_tuple else element_of(start, k, before=loop)
        for k in range(len(loop.shape.elements))
    ]
    ends = list(body.root.operands)
    for index in indices:
        end = body.root.operands[index]
        if end in invariants.elements:
            starts[index] = starts[end.tuple_index]
        elif not is_tuple or not _starts_with(invariants, index, end):
            starts[index] = hoisting.copy(end)
        ends[index] = _element(body, index)
    _wait_for_the_same(hoisting)
    # What else reads such a value reads the first element that has it.
    for index in indices:
        end = body.root.operands[index]
        if end in invariants.values:
            for user in end.users:
                if user is not body.root:
                    body.replace_operand(user, end, ends[index])
    new = computation.new("tuple", start.shape, starts, before=loop)
    if is_tuple and "sharding" in start.attributes:
        new.set_attribute("sharding", start.attributes["sharding"])
    computation.set_operands(loop, [new])
    body.set_operands(body.root, ends)
    restore_text_order(body)
    restore_text_order(computation)


def _element(body: Computation, index: int) -> Instruction:
    """The element of the state with an index; a new one if nothing reads it yet."""
    state = body.parameters[0]
    for user in state.users:
        if user.tuple_index_or_none == index:
            return user
    return element_of(state, index, before=body.root)
