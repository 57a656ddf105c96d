"""Moves values that never change out of the bodies of loops: what both passes share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.analysis.trip_counts import TripCounts
from hlo_passes.analysis.while_loop_patterns import runs_at_most_once
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import Shape
from hlo_passes.passes.framework.base import Report
from hlo_passes.passes.loops.loop_state import hand_in, invariant_elements
from hlo_passes.passes.rewriting.cloning import Copies, clone_instruction
from hlo_passes.passes.rewriting.origins import name_of_iterations

#: The frontend attribute of loops out of which nothing may move.
_DISABLED: Final = "_xla_disable_loop_instr_hoisting"
_PARTITIONERS: Final = frozenset({'"SPMDFullToShardShape"', '"SPMDShardShapeToFull"'})


def loops_to_search(module: Module, report: Report) -> list[Instruction]:
    """The loops out of which something may move, callees first."""
    counts = TripCounts(module)
    found: list[Instruction] = []
    for computation in build_call_graph(module).post_order:
        for loop in computation.instructions:
            if loop.opcode == "while":
                reason = _reason_to_keep(loop, counts)
                if reason:
                    report.remark(f"nothing moves out: %{loop.name} {reason}")
                else:
                    found.append(loop)
    return found


def _reason_to_keep(loop: Instruction, counts: TripCounts) -> str:
    if "frontend_attributes" in loop.attributes and (
        _DISABLED in loop.frontend_attributes
    ):
        return f"has {_DISABLED}"
    if not loop.shape.is_tuple:
        return "has a state that is no tuple"
    count = counts.of(loop)
    if count is not None and count < 2:
        return f"runs {('never', 'once')[count]}"
    if runs_at_most_once(loop):
        return "runs at most once"
    if loop.called_computations[0].root.opcode != "tuple":
        return "has a body that returns no tuple"
    partitioned = any(
        i.opcode == "domain"
        or (
            i.opcode == "custom-call"
            and i.attributes.get("custom_call_target") in _PARTITIONERS
        )
        for i in loop.called_computations[0].instructions
    )
    return "is still to be partitioned" if partitioned else ""


def array_bytes(shape: Shape) -> int:
    """The bytes of all arrays in a shape."""
    return sum(leaf.byte_size for _, leaf in shape.leaves() if leaf.is_array)


@dataclass(slots=True)
class Hoisting:
    """What leaves one loop.

    Attributes:
        loop: the loop.
        copies: what replaces instructions of the body before the loop.
        moved: what leaves the body, in order.
    """

    loop: Instruction
    copies: Copies = field(default_factory=dict)
    moved: list[Instruction] = field(default_factory=list)

    @property
    def body(self) -> Computation:
        """The computation of one iteration."""
        return self.loop.called_computations[0]

    def invariant_arrays(self) -> Iterator[Instruction]:
        """The elements of the state that never change and are arrays."""
        return (e for e in invariant_elements(self.body) if e.shape.is_array)

    def has_moved(self, instruction: Instruction) -> bool:
        """Whether it is before the loop; the state itself is not."""
        return instruction.opcode != "parameter" and instruction in self.copies

    def move(self, instruction: Instruction) -> None:
        """Let the loop read a copy of it before the loop."""
        self.copy(instruction)
        self.moved.append(instruction)

    def copy(self, instruction: Instruction) -> Instruction:
        """Copy it before the loop, and what it needs; the copy."""
        parent, state = self.loop.computation, self.body.parameters[0]
        self.copies.setdefault(state, self.loop.operands[0])
        work = [instruction]
        while work:
            one = work[-1]
            missing = [o for o in one.operands if o not in self.copies]
            if one in self.copies:
                work.pop()
            elif missing:
                work += reversed(missing)
            else:
                operands = [self.copies[o] for o in one.operands]
                copy = clone_instruction(one, parent, operands, before=self.loop)
                name_of_iterations(copy, self.loop)
                self.copies[one] = copy
                work.pop()
        return self.copies[instruction]

    def finish(self, report: Report) -> Instruction | None:
        """Let the loop read what has moved; the new loop, None if nothing has."""
        if not self.moved:
            return None
        values = [self.copies[i] for i in self.moved]
        new, copies, handed_in = hand_in(self.loop, values)
        body = new.called_computations[0]
        for instruction, value in zip(self.moved, handed_in, strict=True):
            body.replace(copies[instruction], value)
        report.count("loops-changed")
        report.count("instructions-moved", len(self.moved))
        return new


def bytes_of(instructions: Iterable[Instruction]) -> int:
    """The bytes of the arrays of several instructions."""
    return sum(array_bytes(i.shape) for i in instructions)
