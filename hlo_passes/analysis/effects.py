"""What an instruction does besides its result, and whether it is removable if unused.

    send, recv, rng, infeed, outfeed, native starts and dones     always
    all-reduce(...), channel_id=1                   in a module that is not partitioned
    all-gather(...), constrain_layout=true          always
    custom-call(...), custom_call_has_side_effect=true
    while, call, async-start ...                    if anything that they call does

Source: openxla/xla `xla/hlo/ir/hlo_instruction.cc`, `hlo_computation.cc`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_passes.ir import opcodes
from hlo_passes.ir.async_form import start_of

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.ir.module import Module

_ALWAYS: Final = frozenset(
    ["rng", "rng-get-and-update-state", "infeed", "outfeed", "collective-broadcast"]
) | {
    opcode
    for opcode, row in opcodes.ROWS.items()
    if row.spelling == "transfer" or (row.is_collective and row.half)
}
_WITH_LAYOUT_CONSTRAINT: Final = frozenset(
    ["all-to-all", "all-gather", "all-reduce", "reduce-scatter"]
)
_WITH_CHANNEL: Final = _WITH_LAYOUT_CONSTRAINT | {"collective-permute"}


def channels_carry_meaning(module: Module) -> bool:
    """Whether equal channel ids tie instructions together.

    XLA asks whether the module went through SPMD partitioning, which the text does not
    say; a module with several partitions did.
    """
    return module.num_partitions == 1


def has_side_effect(
    instruction: Instruction, known: dict[Computation, bool] | None = None
) -> bool:
    """Whether it, or anything that it calls, does more than return a result.

    An unknown opcode counts as having one. A generic update or done acts if its start
    does: XLA would remove a dead done and keep its start.

    `known` keeps, between calls, which computations act; it holds as long as they do
    not change.
    """
    if acts_itself(instruction):
        return True
    start = start_of(instruction)
    if start is not instruction:
        instruction = start
        if acts_itself(start):
            return True
    known = {} if known is None else known
    return any(_acts(c, known) for c in instruction.called_computations)


def _acts(computation: Computation, known: dict[Computation, bool]) -> bool:
    """Whether anything in a computation, or in what it calls, acts."""
    if computation in known:
        return known[computation]
    called_by: dict[Computation, Computation | None] = {computation: None}
    work = [computation]
    while work:
        current = work.pop()
        callees = dict.fromkeys(
            callee
            for instruction in current.instructions
            for callee in instruction.called_computations
        )
        if any(known.get(callee) for callee in callees) or any(
            map(acts_itself, current.instructions)
        ):
            # So do those that led here; nothing is known of the others.
            acting: Computation | None = current
            while acting is not None:
                known[acting] = True
                acting = called_by[acting]
            return True
        for callee in callees:
            if callee not in called_by and callee not in known:
                called_by[callee] = current
                work.append(callee)
    known.update(dict.fromkeys(called_by, False))
    return False


def acts_itself(instruction: Instruction) -> bool:
    """Whether it does more than return a result, apart from its callees."""
    opcode = instruction.opcode
    if opcode in _ALWAYS:
        return True
    row = opcodes.facts(opcode)
    if not row.is_known:
        return True
    if row.is_sugar:
        # Sugar: the start is the wrapped instruction; update and done are nothing.
        if row.half != "start":
            return False
        opcode = row.work
        if opcode in _ALWAYS:
            return True
    if opcode == "custom-call":
        attributes = instruction.attributes
        return attributes.get("custom_call_has_side_effect") == "true"
    if opcode not in _WITH_CHANNEL:
        return False
    attributes = instruction.attributes
    if (
        opcode in _WITH_LAYOUT_CONSTRAINT
        and attributes.get("constrain_layout") == "true"
    ):
        return True
    return "channel_id" in attributes and channels_carry_meaning(
        instruction.computation.module
    )


def has_control_edges(instruction: Instruction) -> bool:
    """Whether any control edge starts or ends here."""
    return bool(instruction.control_predecessors or instruction.control_successors)


def is_safely_removable(instruction: Instruction) -> bool:
    """Whether removing it loses no ordering and no parameter."""
    return instruction.opcode != "parameter" and not has_control_edges(instruction)


def follows_a_bound_start(instruction: Instruction) -> bool:
    """Whether it is an update or done after a start or update with control edges.

    That one must stay, and so must what follows it; XLA would keep only the start.
    """
    start = start_of(instruction)
    while instruction is not start:
        (instruction,) = instruction.operands
        if has_control_edges(instruction):
            return True
    return False


def is_removable(instruction: Instruction) -> bool:
    """Whether it can be removed once nothing uses it: safely, and without effects."""
    return (
        is_safely_removable(instruction)
        and not has_side_effect(instruction)
        and not follows_a_bound_start(instruction)
    )
