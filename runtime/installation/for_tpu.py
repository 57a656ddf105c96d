"""Keeps the schedule of a module that goes back to XLA's TPU compiler.

    Before:  %s = ... collective-permute-start(%p)       the order of the passes
             %f = f32[8] fusion(%q), ...
             %d = f32[8] collective-permute-done(%s)
    After:   %s = ... collective-permute-start(%p)       the same, at `pre-scheduler`
             %f = f32[8] fusion(%q), ..., control-predecessors={%s}
             %d = f32[8] collective-permute-done(%s), control-predecessors={%f}

XLA:TPU hands over a scheduled module at both stages. Without a schedule in what comes
back, it ends the process at `pre-scheduler` (segmentation fault, libtpu 0.0.52), and at
`post-scheduler` makes an order of its own without a word. So nothing goes back without
its schedule: it is refused before XLA sees it.

At `pre-scheduler` XLA's own scheduler is still to run. It keeps an order only where
control edges leave it no choice, so an order that a scheduler of ours made is pinned by
them. A copy's start is pinned from above alone (`_chain`). Some computations cannot be
pinned (`unpinnable`). They go back in the order in which they came, unless passes
changed more than that: the compiler's scheduler would make something else of another
one, which nobody has judged.

At `post-scheduler` these fusions exist. What a cut all-gather overlaps with is inside
them, and the compiler's costs do not have them; the order of a computation with one
stays the compiler's, unless passes changed more than the order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from hlo_passes import proto_wire as wire
from hlo_passes.analysis.partitioning import custom_call_target
from hlo_passes.analysis.scheduling_annotations import is_annotated
from hlo_passes.errors import PassError
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.tpu_config import hands_over
from hlo_passes.proto_messages import SCHEDULE
from hlo_passes.scheduler.tpu.sparse_core import is_on_sparse_core

#: Passes whose order is to be the program's.
SCHEDULERS: Final = frozenset(["latency-hiding-scheduler", "schedule-improver"])
#: What the steps of a cut all-gather begin and end with.
_CUT_GATHER: Final = ("AsyncCollectiveStart", "AsyncCollectiveDone")
#: What takes no time and has no place that matters, so that nobody has to pin it.
NOWHERE: Final = frozenset(
    ["parameter", "constant", "bitcast", "get-tuple-element", "tuple", "iota"]
)

_COPY_START: Final = "copy-start"
#: Why an order is not pinned. v5e makes fusions of all-gathers and products after
#: `pre-scheduler`. The compiler's check finds a call on SparseCores before what an edge
#: tells it to follow (libtpu 0.0.52; which pass puts it there is not known). Edges in a
#: module with an open loop end the process. Groups in fusions become those of the
#: fusions.
_GATHERS: Final = "edges would keep XLA:TPU from cutting its all-gathers"
_SPARSE_CORES: Final = "XLA:TPU does not keep calls on SparseCores where edges put them"
_OPEN_LOOP: Final = "a loop takes a transfer to its next iteration"
_GROUPS: Final = "XLA:TPU has yet to settle what is in its scheduling groups"

Orders = Mapping[Computation, tuple[Instruction, ...]]


class NotForTpuError(PassError):
    """The passes left a module without the schedule that XLA's TPU compiler needs."""

    default_code = "E052"


def orders_of(module: Module) -> Orders:
    """The order of each computation, to compare with what the passes make of it."""
    return {each: each.instructions for each in module.computations}


def bring_to_tpu(
    module: Module, stage: str, came: Orders, changed_by: Collection[str]
) -> tuple[str, ...]:
    """Make what passes left fit for a stage of XLA's TPU compiler.

    Args:
        module: after the passes.
        stage: "pre-scheduler" or "post-scheduler".
        came: from `orders_of`, before the passes.
        changed_by: names of the passes that changed the module.

    Returns:
        Names of the computations whose order could not be given to the compiler.

    Raises:
        NotForTpuError: E052, the module has no schedule.

    Complexity: linear in instructions.
    """
    if not module.is_scheduled:
        raise _without_schedule(stage)
    if stage == "post-scheduler":
        return _keep_cut_gathers(module, came)
    if SCHEDULERS.isdisjoint(changed_by):
        return ()
    return _pin(module, came)


def require_schedule(data: bytes, stage: str) -> bytes:
    """A module's proto as it is; NotForTpuError E052 if it holds no schedule."""
    for each in wire.fields(data):
        if each.number == SCHEDULE and each.end > each.value:
            return data
    raise _without_schedule(stage)


def _without_schedule(stage: str) -> NotForTpuError:
    return NotForTpuError(
        f"the passes left the module without its schedule at {stage}, where XLA's TPU "
        "compiler needs one",
        hint="a pass that makes new computations gives each an order and keeps "
        "is_scheduled=true",
    )


# -- post-scheduler -----------------------------------------------------------------


def _keep_cut_gathers(module: Module, came: Orders) -> tuple[str, ...]:
    """Give computations with cut all-gathers the order back that they came with."""
    cut = computations_with_cut_gathers(module)
    return tuple(each.name for each in cut if _gets_its_order_back(each, came))


def _gets_its_order_back(computation: Computation, came: Orders) -> bool:
    """Give back an order if nothing else changed; returns whether it had changed."""
    before, now = came.get(computation), computation.instructions
    if before is None or before == now or not _is_order_of(before, now):
        return False
    computation.set_order(before)
    return True


def _is_order_of(order: Sequence[Instruction], all_of: Sequence[Instruction]) -> bool:
    """Whether an order has all instructions, and each after what it depends on."""
    if set(order) != set(all_of):
        return False
    placed: set[Instruction] = set()
    for each in order:
        if not placed.issuperset((*each.operands, *each.control_predecessors)):
            return False
        placed.add(each)
    return True


def computations_with_cut_gathers(module: Module) -> list[Computation]:
    """Computations that hold a step of an all-gather cut into fusions (v5e).

    Callees stand before their callers in a module.
    """
    found: dict[Computation, None] = {}
    for computation in module.computations:
        if any(_is_cut_gather(each, found) for each in computation.instructions):
            found[computation] = None
    return list(found)


def _is_cut_gather(instruction: Instruction, known: Collection[Computation]) -> bool:
    if instruction.opcode == "custom-call":
        return custom_call_target(instruction).startswith(_CUT_GATHER)
    return instruction.opcode == "fusion" and any(
        callee in known for callee in instruction.called_computations
    )


# -- pre-scheduler ------------------------------------------------------------------


def _pin(module: Module, came: Orders) -> tuple[str, ...]:
    """Chain the computations whose order is another one by control edges."""
    left = []
    reasons = unpinnable(module)
    for computation in module.computations:
        if came.get(computation) == computation.instructions:
            continue
        if computation in reasons:
            _gets_its_order_back(computation, came)
            left.append(computation.name)
            continue
        _chain(computation)
    return tuple(left)


def unpinnable(module: Module) -> dict[Computation, str]:
    """Computations in which control edges would break something, and what.

    Complexity: linear in instructions.
    """
    inside = [(each, i) for each in module.computations for i in each.instructions]
    if any(hands_over(i) for _, i in inside):
        return dict.fromkeys(module.computations, _OPEN_LOOP)
    found: dict[Computation, str] = {}
    for computation, instruction in inside:
        if instruction.opcode == "all-gather-start":
            found.setdefault(computation, _GATHERS)
        elif is_on_sparse_core(instruction):
            found.setdefault(computation, _SPARSE_CORES)
        elif is_annotated(instruction):
            found.setdefault(computation, _GROUPS)
    return found


def _chain(computation: Computation) -> None:
    """A control edge from each instruction to the next, but none out of a copy's start.

    One of those ends the process (libtpu 0.0.52): the compiler's scheduler asks for the
    layout of a tuple. So such a start is only kept from being earlier.
    """
    before: Instruction | None = None
    for then in computation.instructions:
        if then.opcode in NOWHERE:
            continue
        if before is not None and before not in then.operands:
            computation.add_control_edge(before, then)
        if then.opcode != _COPY_START:
            before = then
