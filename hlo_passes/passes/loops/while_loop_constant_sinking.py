"""Lets a loop read its own constants instead of elements of its state.

Before:  while from tuple(%zero, %two):  %k = get-tuple-element(%state), index=1
                                         %y = multiply(%x, %k)
After:   while from tuple(%zero, %two):  %two..sunk = f32[] constant(2)
                                         %y = multiply(%x, %two..sunk)
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar, Final

from hlo_passes.ir.calls import call_instead
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.loops.loop_state import invariant_elements
from hlo_passes.passes.rewriting.cloning import clone_computation, name_with_suffix
from hlo_passes.passes.rewriting.unreached import remove_unreached_computations

_BODY, _CONDITION = 0, 1
#: XLA's suffix, in front of which it writes a dot of its own.
_SUFFIX: Final = ".sunk"


@dataclass(frozen=True, slots=True)
class WhileLoopConstantSinking(Pass):
    """Copy constants that a loop starts with into its body and condition.

    The pass looks for state elements that start as a constant and that the body returns
    unchanged. Instructions in the loop that read such an element then read a copy of
    the constant. The state keeps the element. The pass visits outer loops first, so a
    constant reaches the inner loops in the same run. If others also call a body or
    condition, the pass first copies that computation. If the pass sank anything, it
    removes computations that nothing calls, as XLA does.

    Constants get XLA's names: `%two..sunk`, with two dots, and then `%two..sunk2` in an
    inner loop. XLA copies every body and condition that it changes, and names the copy
    `%body.sunk`, for example. This pass copies only those that others also call, so
    that other instructions keep their names. XLA numbers the instructions of a copy by
    all names that the module has ever had, and its text does not show all of those
    names.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions.
    Source: openxla/xla `xla/service/while_loop_constant_sinking.cc`.

    Attributes:
        broadcasts: also copy broadcasts of constants.
        only_scalars: copy only scalars.
    """

    name: ClassVar[str] = "while-loop-constant-sinking"

    broadcasts: bool = False
    only_scalars: bool = False

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit the loops, outer ones first."""
        version = module.version
        calls = Counter[Computation]()
        for computation in module.computations:
            calls.update(_called(computation))
        work, seen = [module.entry], set[Computation]()
        while work:
            computation = work.pop()
            if computation in seen:
                continue
            seen.add(computation)
            for instruction in computation.instructions:
                if instruction.opcode == "while":
                    self._sink(instruction, calls, report)
                work += instruction.called_computations
        if module.version == version:
            return False
        remove_unreached_computations(module)
        return True

    def _sink(
        self, loop: Instruction, calls: Counter[Computation], report: Report
    ) -> None:
        """Sink what one loop starts with; `calls` is how often each one is called."""
        start = loop.operands[0]
        if start.opcode != "tuple":
            report.remark(f"not sunk: %{loop.name} starts from no tuple")
            return
        wanted = [
            element.tuple_index
            for element in invariant_elements(loop.called_computations[_BODY])
            if self._is_wanted(start.operands[element.tuple_index])
        ]
        if not wanted:
            report.remark(f"not sunk: %{loop.name} keeps no constant in its state")
        for index in wanted:
            for place in (_BODY, _CONDITION):
                callee = loop.called_computations[place]
                if not _readers(callee, place, index):
                    continue
                # Copy what others call before it is changed.
                if calls[callee] > 1:
                    calls[callee] -= 1
                    callee, _ = clone_computation(callee, name=f"{callee.name}.sunk")
                    call_instead(loop, place, callee)
                    calls[callee] = 1
                    # The copy calls what the original calls.
                    _count_calls(callee, calls)
                _read_constant(callee, place, index, start.operands[index])
                report.count("constants-sunk")

    def _is_wanted(self, value: Instruction) -> bool:
        if self.only_scalars and not value.shape.is_scalar:
            return False
        if value.opcode == "broadcast" and self.broadcasts:
            return value.operands[0].opcode == "constant"
        return value.opcode == "constant"


def _called(computation: Computation) -> list[Computation]:
    return [c for i in computation.instructions for c in i.called_computations]


def _count_calls(copy: Computation, calls: Counter[Computation]) -> None:
    """Count the calls of a new computation, and of those that were copied with it."""
    work = [copy]
    while work:
        for callee in _called(work.pop()):
            if not calls[callee]:
                work.append(callee)
            calls[callee] += 1


def _readers(
    computation: Computation, place: int, index: int
) -> list[tuple[Instruction, Instruction]]:
    """(element, reader) of an element of the state, the pass-through apart.

    None where nothing but the result reads it.
    """
    state, root = computation.parameters[0], computation.root
    found = []
    for element in state.users:
        if element.tuple_index_or_none != index or not element.users:
            continue
        readers = list(element.users)
        if place == _BODY:
            # One element is handed on, and only its other readers count.
            if root.operands[index] is not element or readers == [root]:
                continue
            if list(root.operands).count(element) == 1:
                readers = [reader for reader in readers if reader is not root]
        found += [(element, reader) for reader in readers]
        if element.is_root:
            found.append((element, element))
    return found


def _read_constant(
    computation: Computation, place: int, index: int, value: Instruction
) -> None:
    """Let the readers of an element read a copy of the constant instead."""
    copies: dict[Instruction, Instruction] = {}
    for element, reader in _readers(computation, place, index):
        if element not in copies:
            copies[element] = _copied(value, computation, element)
        copy = copies[element]
        if reader is element:
            computation.set_root(copy)
        elif reader is computation.root and place == _BODY:
            operands = [
                copy if o is element and k != index else o
                for k, o in enumerate(reader.operands)
            ]
            computation.set_operands(reader, operands)
        else:
            computation.replace_operand(reader, element, copy)
        if place == _CONDITION and not (element.users or element.is_root):
            computation.remove_with_dead_operands(element)


def _copied(
    value: Instruction, computation: Computation, after: Instruction
) -> Instruction:
    operands = [_copied(o, computation, after) for o in value.operands]
    return computation.new(
        value.opcode,
        value.shape,
        operands,
        dict(value.attributes),
        name=value.name if operands else name_with_suffix(value.name, _SUFFIX),
        literal=value.literal,
        before=after,
    )
