"""Computes before a loop what is the same in each iteration.

Before:  while (16 times): %w = get-tuple-element(%state), index=1   never changes
                           %square = f32[8,8] dot(%w, %w)
                           %new = add(%x, %square)
After:   %square = f32[8,8] dot(%weights, %weights)
         while (16 times): %square = get-tuple-element(%state), index=3
                           %new = add(%x, %square)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from hlo_passes.analysis.effects import has_control_edges, has_side_effect
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.async_form import half
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.cleanup.hlo_dce import HloDce
from hlo_passes.passes.cleanup.tuple_simplifier import TupleSimplifier
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.loops.hoisting import (
    Hoisting,
    array_bytes,
    bytes_of,
    loops_to_search,
)

#: What moves only with something that reads it.
_NOT_ALONE: Final = frozenset(
    {"bitcast", "broadcast", "iota", "reverse", "slice", "transpose", "tuple"}
)
_NEVER: Final = frozenset({"after-all", "parameter"})
_MOVES: Final = frozenset({'"MoveToDevice"', '"MoveToHost"'})


@dataclass(frozen=True, slots=True)
class WhileLoopInvariantCodeMotion(Pass):
    """Move operations out of a loop if every iteration computes the same.

    The pass moves an operation if it reads only constants, state elements that the body
    returns unchanged, and operations that move as well. Broadcasts, slices and similar
    operations move only together with an operation that reads them. Operations with
    side effects or control edges stay, and so do starts and dones. The pass leaves a
    loop alone if it runs at most once, if it moves slices to or from the host, or if it
    has the frontend attribute `_xla_disable_loop_instr_hoisting`.

    A moved value becomes an element of the loop's state and lives as long as the loop
    runs. XLA does not run the pass on GPUs. The pass cleans up dead code and tuples
    afterward.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions.
    Source: openxla/xla `xla/service/while_loop_invariant_code_motion.cc`.

    Attributes:
        constants: also move constants.
        reshapes: also move reshapes on their own.
        others: move anything except constants and reshapes.
        growth: how many times as large as its operands a result may be; 0: any size.
    """

    name: ClassVar[str] = "while-loop-invariant-code-motion"

    constants: bool = False
    reshapes: bool = False
    others: bool = True
    growth: float = 0.0

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit every loop that was there at the start."""
        version = module.version
        for loop in loops_to_search(module, report):
            hoisting = Hoisting(loop)
            problem = self._search(hoisting)
            if problem:
                report.remark(f"nothing moves out: %{loop.name} {problem}")
            new = hoisting.finish(report)
            if new is not None:
                restore_text_order(new.called_computations[0])
        if module.version == version:
            return False
        HloDce().run(module, context, Report())
        TupleSimplifier().run(module, context, Report())
        return True

    def _search(self, hoisting: Hoisting) -> str:
        """Move what can move; a text says why nothing does."""
        waiting = set(hoisting.invariant_arrays())
        if not waiting and not self.constants:
            return "changes all arrays of its state"
        order = post_order(hoisting.body)
        if any(
            i.opcode == "custom-call"
            and i.attributes.get("custom_call_target") in _MOVES
            for i in order
        ):
            return "moves arrays to or from the host"
        for instruction in order:
            if (
                instruction.opcode in _NEVER
                or has_side_effect(instruction)
                or has_control_edges(instruction)
                or half(instruction)
                or not self._is_wanted(instruction)
                or not all(
                    o.opcode == "constant" or o in waiting or hoisting.has_moved(o)
                    for o in instruction.operands
                )
            ):
                continue
            if self._moves_not_alone(instruction):
                waiting.add(instruction)
            else:
                hoisting.move(instruction)
        return "" if hoisting.moved else "computes nothing alike"

    def _is_wanted(self, instruction: Instruction) -> bool:
        if instruction.opcode == "constant":
            return True
        if not self.others and instruction.opcode != "reshape":
            return False
        if not self.growth:
            return True
        given = bytes_of(instruction.operands)
        return array_bytes(instruction.shape) <= given * self.growth

    def _moves_not_alone(self, instruction: Instruction) -> bool:
        opcode = instruction.opcode
        if opcode == "custom-call":
            return instruction.attributes.get("custom_call_target") == '"Sharding"'
        if opcode == "constant":
            return not self.constants
        if opcode == "reshape":
            return not self.reshapes
        return opcode in _NOT_ALONE
