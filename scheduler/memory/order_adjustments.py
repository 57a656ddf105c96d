"""The changes that XLA's GPU back end makes to every memory scheduler's order.

    s x y d      s marked synchronous:            x y s d
    a x s d y    s an asynchronous start of a:    a s x y d, as far as users allow

Source: openxla/xla `xla/service/gpu/gpu_hlo_schedule.cc` (Aug 2026).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from hlo_passes.ir.async_form import is_collective, is_done, is_start, is_transfer
from hlo_passes.ir.gpu_config import is_marked_sync
from hlo_passes.ir.opcodes import facts

if TYPE_CHECKING:
    from hlo_passes.ir.instruction import Instruction


def adjusted(order: Sequence[Instruction]) -> list[Instruction]:
    """The order with synchronous pairs together, starts early and dones late."""
    together = _synchronous_together(order)
    early = _pulled(
        together,
        _is_early,
        lambda i: (i._users, i.control_successors),
        lambda i: (i.operands, i.control_predecessors),
    )
    late = _pulled(
        reversed(early),
        _is_late,
        lambda i: (i.operands, i.control_predecessors),
        lambda i: (i._users, i.control_successors),
    )
    return late[::-1]


def _pulled(
    order: Iterable[Instruction],
    is_pulled: Callable[[Instruction], bool],
    following: Callable[[Instruction], tuple[Iterable[Instruction], ...]],
    needed: Callable[[Instruction], tuple[Iterable[Instruction], ...]],
) -> list[Instruction]:
    """Each instruction, directly followed by everything that it makes ready to move."""
    found: list[Instruction] = []
    placed: set[Instruction] = set()
    waits_for: dict[Instruction, list[Instruction]] = {}

    def is_ready(candidate: Instruction) -> bool:
        """Whether all is placed; what was found placed once is not asked for again."""
        if candidate not in waits_for:
            groups = needed(candidate)
            waits_for[candidate] = [i for group in groups for i in group][::-1]
        rest = waits_for[candidate]
        while rest and rest[-1] in placed:
            rest.pop()
        return not rest

    for instruction in order:
        if instruction in placed:
            continue
        placed.add(instruction)
        found.append(instruction)
        for candidates in following(instruction):
            for candidate in candidates:
                if (
                    candidate not in placed
                    and is_pulled(candidate)
                    and is_ready(candidate)
                ):
                    placed.add(candidate)
                    found.append(candidate)
    return found


def _is_early(instruction: Instruction) -> bool:
    if instruction.opcode == "custom-call":
        return instruction.attributes.get("schedule") == "SCHEDULE_EARLIEST"
    row = facts(instruction.opcode)
    if row.half != "start":
        return False
    if row.spelling == "native":
        return row.is_collective and not is_marked_sync(instruction)
    return row.spelling == "generic"


def _is_late(instruction: Instruction) -> bool:
    if instruction.opcode == "custom-call":
        return instruction.attributes.get("schedule") == "SCHEDULE_LATEST"
    row = facts(instruction.opcode)
    if row.half != "done":
        return False
    if row.spelling == "native":
        return row.is_collective and _is_early(instruction.operands[0])
    return row.spelling == "generic"


def _synchronous_together(order: Iterable[Instruction]) -> list[Instruction]:
    """Move starts marked synchronous directly before their dones."""
    found: list[Instruction] = []
    for instruction in order:
        if _is_collective_start(instruction) and is_marked_sync(instruction):
            continue
        if _is_collective_done(instruction):
            start = instruction.operands[0]
            if _is_collective_start(start) and is_marked_sync(start):
                found.append(start)
        found.append(instruction)
    return found


def _is_collective_start(instruction: Instruction) -> bool:
    return is_start(instruction) and (
        is_transfer(instruction) or is_collective(instruction)
    )


def _is_collective_done(instruction: Instruction) -> bool:
    return is_done(instruction) and _is_collective_start(instruction.operands[0])
