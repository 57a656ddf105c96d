"""Puts collectives in one order on all devices, with control edges.

    Before:  a = all-reduce-start(x)    da = all-reduce-done(a)
             b = all-reduce-start(y)    db = all-reduce-done(b)
    After:   b = all-reduce-start(y), control-predecessors={da}

When XLA tunes convolutions while compiling, they may use different scratch memory on
different devices. The devices' programs then differ, and so may the order of their
collectives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from hlo_passes.analysis.call_graph import computations_post_order
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.reachability import reaches
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir import opcodes
from hlo_passes.ir.async_form import is_collective, is_start
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.gpu_config import is_convolution_fusion
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report

#: Custom calls into cuDNN's convolutions.
#: Source: openxla/xla `xla/service/gpu/cublas_cudnn.cc`.
_CONVOLUTIONS: Final = frozenset(
    f"__cudnn$conv{kind}"
    for kind in (
        "Forward", "ForwardGraph", "BackwardInput", "BackwardFilter",
        "BiasActivationForward",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CollectivesScheduleLinearizer(Pass):
    """Add control edges so that the collectives of a computation run in one order.

    The pass visits the collectives and asynchronous starts of a computation in post
    order. It adds an edge from the previous collective's done to the next start, unless
    one of the two already depends on the other. It ignores dones, sends and recvs. In a
    scheduled module, it adds no edge against the schedule.

    XLA's GPU compiler runs the pass if it tunes on a real GPU and the module has a
    cuDNN convolution. Here, this corresponds to `autotune-level` above 0 and
    `when=convolutions`.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions, unless control edges lead into dones.
    Source: openxla/xla
    `xla/hlo/transforms/collectives/collectives_schedule_linearizer.cc`; when it runs,
    `xla/service/gpu/gpu_compiler.cc`.

    Attributes:
        when: `convolutions`: only in modules with a convolution, as in XLA; or
            `always`.
        autotune_level: XLA's flag; at 0, convolutions do not count.
    """

    name: ClassVar[str] = "collectives-schedule-linearizer"

    when: Literal["convolutions", "always"] = "convolutions"
    autotune_level: int = 4

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit each computation except fusion bodies."""
        version = module.version
        computations = computations_post_order(module, fusions=False)
        if self.when == "convolutions" and not (
            self.autotune_level and any(map(_has_convolution, computations))
        ):
            report.remark("not ordered: no convolution is tuned here")
            return False
        for computation in computations:
            _linearize(computation, report)
            if not module.is_scheduled:
                restore_text_order(computation)
        return module.version != version


def _has_convolution(computation: Computation) -> bool:
    for instruction in computation.instructions:
        if instruction.opcode == "custom-call":
            target = instruction.attributes.get("custom_call_target", "").strip('"')
            if target in _CONVOLUTIONS:
                return True
        elif is_convolution_fusion(instruction):
            return True
    return False


def _linearize(computation: Computation, report: Report) -> None:
    order = post_order(computation)
    pairs = [pair for i in order if (pair := _halves(i)) is not None]
    latest = _latest_done_before(order, pairs)
    position = {i: k for k, i in enumerate(computation.instructions)}
    is_scheduled = computation.module.is_scheduled
    previous: Instruction | None = None
    for k, (start, done) in enumerate(pairs):
        if previous is not None and not _connected(start, previous, k, latest):
            if is_scheduled and position[previous] > position[start]:
                report.remark(
                    f"not ordered: %{previous.name} comes after %{start.name} "
                    "in the schedule"
                )
            else:
                computation.add_control_edge(previous, start)
                report.count("edges-added")
        previous = done


def _halves(instruction: Instruction) -> tuple[Instruction, Instruction] | None:
    """The begin and the end of a collective; None for anything else."""
    if instruction.opcode in opcodes.SYNC_COLLECTIVES:
        return instruction, instruction
    if not (is_start(instruction) and is_collective(instruction)):
        return None
    if len(instruction.users) != 1:
        return None
    return instruction, instruction.users[0]


def _latest_done_before(
    order: tuple[Instruction, ...], pairs: list[tuple[Instruction, Instruction]]
) -> dict[Instruction, int] | None:
    """Start -> index of the latest collective (by post order) whose done reaches it.

    It is None if control edges lead into dones: a later start may then reach an earlier
    done, and one index is not enough.
    """
    if any(d is not s and d._control_predecessors for s, d in pairs):
        return None
    index = {done: k for k, (_, done) in enumerate(pairs)}
    starts = {start for start, _ in pairs}
    latest: dict[Instruction, int] = {}
    found: dict[Instruction, int] = {}
    for instruction in order:
        before = -1
        for needed in (*instruction.operands, *instruction._control_predecessors):
            before = max(before, latest[needed])
        if instruction in starts:
            found[instruction] = before
        latest[instruction] = max(before, index.get(instruction, -1))
    return found


def _connected(
    start: Instruction,
    previous: Instruction,
    k: int,
    latest: dict[Instruction, int] | None,
) -> bool:
    """Whether the done before reaches collective `k`'s start, or is reached by it."""
    if latest is not None:
        # The edges added so far make every earlier done reach the previous one.
        return latest[start] == k - 1
    return reaches(previous, start) or reaches(start, previous)
