"""Computations with work that the compiler's costs lack.

    %fusion.58 = (...) fusion(...), calls=%async_collective_fusion.58
    why_unpriced(body, costs)      'the costs lack %fusion.58 and 1 more'

The costs are of one moment of one compilation. What the compiler or a pass makes later
has none, and no order of it can be judged: such work would count as one cycle, and
whatever it hides as exposed. So these computations keep the order that they have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from hlo_passes.ir.async_form import done_of
from hlo_passes.ir.calls import runs_callees
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.opcodes import facts
from hlo_passes.ir.shapes import Shape
from hlo_passes.scheduler.estimators.table import is_priced_whole
from hlo_passes.scheduler.tpu.costs import TpuCosts

#: What the compiler's scheduler never gives more than a cycle, whatever its size.
LEAST_WORK: Final = frozenset(
    [
        "parameter", "constant", "bitcast", "get-tuple-element", "tuple", "iota",
        "after-all", "add-dependency", "opt-barrier", "partition-id", "replica-id",
        "copy",
    ]
)  # fmt: skip


def why_unpriced(computation: Computation, costs: TpuCosts) -> str:
    """Which work of a computation has no cost, '' if all has.

    Complexity: linear in instructions.
    """
    return _told(_unpriced(computation, costs))


def why_unsearched(computation: Computation, costs: TpuCosts) -> str:
    """Why no search may judge orders of a computation, '' if one may.

    Complexity: linear in the instructions that it runs.
    """
    late = [i.name for i in computation.instructions if i.name in costs.edge_cycles]
    if late:
        return f"no statistic counts when another slice has what %{late[0]} sends"
    return why_unpriced_within(computation, costs)


def why_unpriced_within(computation: Computation, costs: TpuCosts) -> str:
    """The same, also of what the computation runs: loops, branches and calls.

    One that the compiler priced without a look inside has its cost.
    Complexity: linear in the instructions that it runs.
    """
    reached = {computation}
    left = [computation]
    for each in left:
        if why := why_unpriced(each, costs):
            return why if each is computation else f"it runs %{each.name}, where {why}"
        for instruction in each.instructions:
            if runs_callees(instruction) and not _is_whole(instruction, costs):
                new = set(instruction.called_computations) - reached
                left.extend(sorted(new, key=lambda each: each.name))
                reached |= new
    return ""


def _is_whole(caller: Instruction, costs: TpuCosts) -> bool:
    return is_priced_whole(caller, costs.node_cycles, costs.latency_cycles)


def _told(found: Iterable[Instruction]) -> str:
    names = [f"%{each.name}" for each in found]
    if not names:
        return ""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"the costs lack {names[0]}{more}"


def _unpriced(computation: Computation, costs: TpuCosts) -> Iterator[Instruction]:
    for instruction in computation.instructions:
        name, half = instruction.name, facts(instruction.opcode).half
        if half:
            is_pair = half == "start" and done_of(instruction) is not None
            if is_pair and name not in costs.latency_cycles:
                yield instruction
        elif name not in costs.node_cycles and may_take_time(instruction):
            yield instruction


def may_take_time(instruction: Instruction) -> bool:
    """Whether it may take more than a cycle; what counts a loop does not."""
    if instruction.opcode in LEAST_WORK:
        return False
    if instruction.called_computations or instruction.opcode == "custom-call":
        return True
    shapes = (instruction.shape, *(each.shape for each in instruction.operands))
    return not all(map(_is_one_number, shapes))


def _is_one_number(shape: Shape) -> bool:
    return not shape.is_tuple and shape.element_count == 1
