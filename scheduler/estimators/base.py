"""What an estimator answers, and what all of them ask of an instruction.

    node_cost(instruction)    how long it holds its resource, us
    latency(start, user)      from a start to its done (or to any user), us

An estimator that does not know answers None, and the next one of a stack is asked.
Source: openxla/xla `latency_hiding_scheduler.h`, LatencyEstimator.
"""

from __future__ import annotations

from typing import Final, Protocol

from hlo_passes.ir import opcodes
from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.fusions.fused_graph import transpose_is_bitcast
from hlo_passes.scheduler.latency.collectives import wrapped_collective
from hlo_passes.scheduler.latency.estimate import Estimate

#: XLA's abstract costs and latencies; they are compared with microseconds as they are.
LOW: Final = 1.0
MEDIUM: Final = 1000.0
HIGH: Final = 5000.0

_NOPS: Final = frozenset(
    "get-tuple-element bitcast constant parameter tuple partition-id replica-id "
    "opt-barrier".split()
)
_NS_PER_US: Final = 1000.0


class Estimator(Protocol):
    """The one interface of all estimators."""

    @property
    def name(self) -> str:
        """As `--estimator` spells it."""
        ...

    def node_cost(self, instruction: Instruction) -> Estimate | None:
        """Cost of an instruction; None when this estimator does not know."""
        ...

    def latency(self, start: Instruction, user: Instruction) -> Estimate | None:
        """Latency of the edge between two instructions; None when unknown."""
        ...


def is_nop(instruction: Instruction) -> bool:
    """Whether it generates no code."""
    opcode = instruction.opcode
    if opcode in _NOPS:
        return True
    return opcode == "transpose" and transpose_is_bitcast(instruction)


def is_send_or_recv(instruction: Instruction) -> bool:
    """send, recv; their dones excluded."""
    return instruction.opcode in ("send", "recv")


def is_async_collective(instruction: Instruction) -> bool:
    """Start or done of a collective, or a point-to-point op."""
    opcode = instruction.opcode
    if opcodes.facts(opcode).spelling == "transfer":
        return True
    if not opcode.endswith(("-start", "-done")):
        return False
    if instruction.async_role not in ("start", "done"):
        return False
    if opcode in ("async-start", "async-done"):
        return wrapped_collective(instruction.async_start) is not None
    return instruction.async_wrapped_opcode in opcodes.SYNC_COLLECTIVES


def is_start(instruction: Instruction) -> bool:
    """Start of anything asynchronous, send and recv included."""
    return is_send_or_recv(instruction) or (
        instruction.opcode.endswith("-start") and instruction.async_role == "start"
    )


def is_async_pair(start: Instruction, user: Instruction) -> bool:
    """Whether `user` is the done of `start`."""
    if start.opcode in ("send", "recv"):
        return user.opcode == f"{start.opcode}-done"
    return (
        user.opcode.endswith("-done")
        and start.opcode.endswith("-start")
        and user.async_role == "done"
        and start.async_role == "start"
        and user.async_wrapped_opcode == start.async_wrapped_opcode
    )


def done_of(start: Instruction) -> Instruction | None:
    """The done that a start leads to, through updates; None when there is none."""
    work = list(start.users)
    for user in work:
        if user.async_role == "done" or is_async_pair(start, user):
            return user
        if user.async_role == "update":
            work.extend(user.users)
    return None


def latency_of_metadata(instruction: Instruction) -> float | None:
    """Microseconds that the frontend attribute `latency_metadata` (ns) names."""
    if "latency_metadata" not in instruction.attributes.get("frontend_attributes", ""):
        return None
    text = instruction.frontend_attributes.get("latency_metadata", "")
    try:
        return int(text) / _NS_PER_US
    except ValueError:
        return None
