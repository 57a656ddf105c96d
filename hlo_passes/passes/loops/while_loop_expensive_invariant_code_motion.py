"""Computes expensive values before a loop if each iteration computes the same.

Before:  while (16 times): %both = f32[8,8] dot(%a, %b)              neither changes
                           %new = add(%x, %both)
After:   %both = f32[8,8] dot(%a, %b)
         while (16 times): %both = get-tuple-element(%state), index=3
                           %new = add(%x, %both)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from hlo_passes.analysis.effects import has_control_edges, has_side_effect
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.async_form import half
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.cleanup.hlo_dce import HloDce
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.loops.hoisting import Hoisting, array_bytes, loops_to_search


@dataclass(frozen=True, slots=True)
class WhileLoopExpensiveInvariantCodeMotion(Pass):
    """Compute expensive loop invariants before the loop, if that takes no more memory.

    The pass moves an operation if its opcode is in `opcodes`, if nothing that it is
    computed from ever changes, if its result is not larger than all of those inputs
    together, and if the body no longer reads any of those inputs. Operations with side
    effects or control edges stay. So does everything in loops that run at most once or
    have the frontend attribute `_xla_disable_loop_instr_hoisting`.

    XLA does not run the pass on GPUs. The pass removes dead code afterward.

    Complexity: linear in instructions.
    Source: openxla/xla `xla/service/while_loop_expensive_invariant_code_motion.cc`.

    Attributes:
        opcodes: the opcodes that are worth moving, separated by spaces.
    """

    name: ClassVar[str] = "while-loop-expensive-invariant-code-motion"

    opcodes: str = "convolution dot"

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit every loop that was there at the start."""
        version = module.version
        wanted = frozenset(self.opcodes.split())
        for loop in loops_to_search(module, report):
            search = _Search(Hoisting(loop), wanted)
            search.run()
            new = search.hoisting.finish(report)
            if new is None:
                report.remark(
                    f"nothing moves out: %{loop.name} computes nothing alike that is "
                    "worth it"
                )
            else:
                restore_text_order(new.called_computations[0])
        if module.version == version:
            return False
        HloDce().run(module, context, Report())
        return True


@dataclass(slots=True)
class _Invariant:
    """A value that never changes.

    Attributes:
        readers: how many in the body, the root apart, are not known to be invariant.
        given: bytes of all that it is computed from.
        waiting: what could move if nobody but invariant values read this one.
    """

    readers: int
    given: int = 0
    waiting: list[Instruction] = field(default_factory=list)


@dataclass(slots=True)
class _Search:
    hoisting: Hoisting
    wanted: frozenset[str]
    _known: dict[Instruction, _Invariant] = field(default_factory=dict)
    #: What could move -> on how many operands it waits.
    _blocked: dict[Instruction, int] = field(default_factory=dict)

    def run(self) -> None:
        """Move what can move."""
        body = self.hoisting.body
        for element in self.hoisting.invariant_arrays():
            size = array_bytes(element.shape)
            self._known[element] = _Invariant(element.user_count - 1, size)
        for instruction in post_order(body):
            if (
                instruction.opcode == "parameter"
                or instruction is body.root
                or has_side_effect(instruction)
                or has_control_edges(instruction)
                or half(instruction)
                or not all(o in self._known for o in instruction.operands)
            ):
                continue
            readers = instruction.user_count - (body.root in instruction.users)
            mine = self._known[instruction] = _Invariant(readers)
            waits = self._enter(instruction, mine)
            if array_bytes(instruction.shape) > mine.given or (
                instruction.opcode not in self.wanted
            ):
                continue
            if waits:
                self._blocked[instruction] = waits
            else:
                self.hoisting.move(instruction)

    def _enter(self, instruction: Instruction, mine: _Invariant) -> int:
        """Note that it reads its operands; on how many of them it has to wait."""
        waits, seen = 0, set[Instruction]()
        for operand in instruction.operands:
            known = self._known[operand]
            if operand not in seen:
                seen.add(operand)
                mine.given += known.given
                known.readers -= 1
            if known.readers:
                waits += 1
                if not known.waiting or known.waiting[-1] is not instruction:
                    known.waiting.append(instruction)
                continue
            for reader in known.waiting:
                if reader in self._blocked:
                    self._blocked[reader] -= 1
                    if not self._blocked[reader]:
                        del self._blocked[reader]
                        self.hoisting.move(reader)
            known.waiting.clear()
        return waits
