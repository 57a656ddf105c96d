"""Which calls are parts of the program: `while`, `conditional` and `call`.

    while(%t), condition=%c, body=%b     runs %c and %b, instruction by instruction
    reduce(%x, %zero), to_apply=%add     applies %add to elements
    fusion(%x), calls=%fused             is one kernel

An opcode's row says what it calls (`opcodes.Opcode.calls`), and
`Instruction.called_computations` are those computations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_passes.ir.opcodes import CALLEE_ATTRIBUTES, facts

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.ir.module import Module


def runs_callees(instruction: Instruction) -> bool:
    """Whether its callees run as parts of the program, each with its own schedule.

    An `async-start` also runs what it wraps, but next to its caller: it is not counted.
    """
    return facts(instruction.opcode).calls == "control-flow"


def scheduled_computations(module: Module) -> list[Computation]:
    """The computations that have a schedule of their own, in text order.

    The entry, bodies and conditions of loops, branches and called computations; not the
    bodies of fusions and reductions.
    """
    reached: dict[Computation, None] = {module.entry: None}
    work = [module.entry]
    for computation in work:
        for instruction in computation.instructions:
            if runs_callees(instruction):
                for callee in instruction.called_computations:
                    if callee not in reached:
                        reached[callee] = None
                        work.append(callee)
    return [c for c in module.computations if c in reached]


def call_instead(caller: Instruction, place: int, callee: Computation) -> None:
    """Let a caller call another computation, at one place of `called_computations`."""
    for name in CALLEE_ATTRIBUTES:
        text = caller.attributes.get(name)
        if text is None:
            continue
        names = [word.strip() for word in text.strip("{}").split(",") if word.strip()]
        if place >= len(names):
            place -= len(names)
            continue
        names[place] = f"%{callee.name}"
        joined = ", ".join(names)
        caller.set_attribute(name, f"{{{joined}}}" if text.startswith("{") else joined)
        return
