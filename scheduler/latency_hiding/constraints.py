"""Constraints on order in the program itself: groups, barriers, control edges.

    with set_xla_metadata(_scheduling_group_id="1"): ...    a group
    jax.lax.optimization_barrier((x, y))                    %b = opt-barrier(%tuple)
    jax.experimental.overlap.program_order                  control edges, or barriers

They hold whatever the rules say, and an explanation lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from hlo_passes.ir.async_form import half, is_transfer
from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.latency_hiding.graph import ScheduleGraph
from hlo_passes.scheduler.latency_hiding.groups import find_groups

_BARRIER: Final = "opt-barrier"
#: Opcodes that only pass a value on to a barrier or from it.
_HANDED_ON: Final = frozenset(["tuple", "get-tuple-element", "bitcast", "copy"])
#: The most names in one line; the others are counted.
_NAMED: Final = 8


def constraints_of(graph: ScheduleGraph, n: int) -> list[str]:
    """A line for every constraint that the program puts on a node's place."""
    instruction = graph.instructions[n]
    lines = [
        f"scheduling group {group}: one after the other with "
        f"{_named(graph.instructions[m] for m in members if m != n)}"
        for group, members in find_groups(graph).items()
        if n in members and len(members) > 1
    ]
    after = [*_barriers(instruction, lambda i: i.operands)]
    before = [*_barriers(instruction, lambda i: i.users)]
    if after:
        lines.append(f"after optimization barrier {_named(after)}")
    if before:
        lines.append(f"before optimization barrier {_named(before)}")
    if instruction.control_predecessors:
        lines.append(f"after {_named(instruction.control_predecessors)}: control edge")
    if instruction.control_successors:
        lines.append(f"before {_named(instruction.control_successors)}: control edge")
    return lines


def _barriers(
    instruction: Instruction, near: Callable[[Instruction], Iterable[Instruction]]
) -> Iterator[Instruction]:
    """Barriers next to an instruction.

    It leaves out opcodes that only pass values on, and the other half of a pair.
    """
    seen: dict[Instruction, None] = {}
    stack = [*near(instruction)]
    while stack:
        current = stack.pop()
        if current in seen:
            continue
        seen[current] = None
        if current.opcode == _BARRIER:
            yield current
        elif current.opcode in _HANDED_ON or (
            half(current) and not is_transfer(current)
        ):
            stack += near(current)


def _named(instructions: Iterable[Instruction]) -> str:
    names = [f"%{i.name}" for i in instructions]
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
