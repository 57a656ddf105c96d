"""Makes the collectives of passes synchronous, as XLA's CPU back end needs them.

    Before:  %s = (f32[8], f32[64]) all-gather-start(%p), dimensions={0}
             %m = f32[8] multiply(%q, %q)
             %d = f32[64] all-gather-done(%s)
    After:   %m = f32[8] multiply(%q, %q)
             %d = f32[64] all-gather(%p), dimensions={0}

The CPU back end has no starts and no dones. A schedule that uses them is kept: the
collective runs in the place of its done, and everything else in the order of the
schedule. `runtime.load` does the same. An operation without a synchronous form is
refused by name; XLA would refuse it with a shorter message.
"""

from __future__ import annotations

from typing import Final

from hlo_passes.errors import PassError
from hlo_passes.ir.async_form import (
    half,
    is_collective,
    is_done,
    is_transfer,
    start_of,
)
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.asynchrony.convert_async_collectives_to_sync import (
    has_sync_form,
    replace_by_sync,
)
from hlo_passes.passes.framework.base import Report

#: Collectives that the CPU back end does not know in any form.
_UNKNOWN: Final = frozenset(["collective-broadcast", "ragged-all-to-all"])


class NotForCpuError(PassError):
    """The passes made an operation that XLA's CPU back end does not know."""

    default_code = "E050"


def bring_to_cpu(module: Module) -> None:
    """Make the collectives of a module synchronous, in place of their dones.

    Raises:
        NotForCpuError: E050, an operation has no synchronous form, or a control edge
        keeps
            the collective before the place of its done.
    """
    asynchronous: list[Instruction] = []
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.opcode in _UNKNOWN:
                raise _refused(instruction, "XLA's CPU back end does not know it")
            if half(instruction) and not is_transfer(instruction):
                asynchronous.append(instruction)
    wrapped: dict[Computation, None] = {}
    for instruction in asynchronous:
        if is_done(instruction):
            start = start_of(instruction)
            if is_collective(start):
                wrapped |= dict.fromkeys(start.called_computations)
                _make_synchronous(start, instruction)
    for instruction in asynchronous:
        if not instruction.removed:
            raise _refused(
                instruction, "XLA's CPU back end has no asynchronous operations"
            )
    for body in wrapped:
        if not module.callers(body):
            module.remove_computation(body)


def _make_synchronous(start: Instruction, done: Instruction) -> None:
    report = Report()
    if done.operands[0] is not start or not has_sync_form(start, report):
        raise _refused(start, "; ".join(report.remarks) or "it is updated on its way")
    followers = tuple(start.control_successors)
    order = {}
    if followers:
        order = {i: k for k, i in enumerate(done.computation.instructions)}
    for successor in followers:
        if successor is not done and order[successor] < order[done]:
            raise _refused(
                start,
                f"it must run before %{successor.name}, but its done comes after that",
            )
    before = done.control_predecessors
    plain = replace_by_sync(start, done, done.frontend_attributes)
    for predecessor in before:
        if predecessor is not start:
            plain.computation.add_control_edge(predecessor, plain)
    for successor in followers:
        if successor is not done:
            plain.computation.add_control_edge(plain, successor)


def _refused(instruction: Instruction, why: str) -> NotForCpuError:
    return NotForCpuError(
        f"%{instruction.name} = {instruction.opcode}(...) cannot run on CPUs: {why}",
        hint='run these passes with platforms="cuda"',
    )
