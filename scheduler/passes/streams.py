"""The GPU stream of each asynchronous operation, as XLA's runtime decides.

    assigned = assign_streams(module, communication_streams=2)
    assigned.of(start)         Stream('communication', 1)
    assigned.of(its done)      the same; of(an add): DEFAULT_STREAM
    stream_of(start)           only what is written on the instruction, None if nothing

Streams are assigned to starts round-robin, compute and communication separately,
computation by computation from the entry on, in post order (not in schedule order).
Source: openxla/xla `xla/service/gpu/execution_stream_assignment.cc` (Aug 2026).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from hlo_passes.analysis import transfer_attributes
from hlo_passes.analysis.followed_release import followed_release
from hlo_passes.analysis.post_order import post_order
from hlo_passes.ir import opcodes
from hlo_passes.ir.calls import runs_callees
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.passes.send_recv import is_pipelined_transfer
from hlo_passes.scheduler.passes.stream_guard import Moved, moves_against_cyclic_waits
from hlo_passes.scheduler.passes.stream_values import (
    DEFAULT_COMMUNICATION_STREAMS,
    DEFAULT_COMPUTE_STREAMS,
    DEFAULT_STREAM,
    Stream,
    StreamKind,
    annotated_number,
    runs_synchronously,
    scope_kind,
    scope_start,
    stream_of,
)
from hlo_passes.xla_release import XlaRelease

__all__ = [
    "DEFAULT_STREAM",
    "Stream",
    "StreamAssignment",
    "assign_streams",
    "stream_of",
]

#: More visits than this (calls of calls of one computation) are not repeated.
_MOST_VISITS: Final = 100_000


@dataclass(frozen=True, slots=True)
class StreamAssignment(Mapping[Instruction, Stream]):
    """Streams of a module's starts; a mapping from start to stream, in XLA's order.

    Attributes:
        scopes: start -> stream in XLA's numbering, also for starts that then run
            synchronously; including moves of the guard.
        synchronous: starts that run on the default stream.
        moved: the changes of the guard, and why.
        bodies: computations inside asynchronous ones -> start that runs them.
    """

    scopes: dict[Instruction, Stream]
    synchronous: frozenset[Instruction]
    moved: tuple[Moved, ...]
    bodies: dict[Computation, Instruction]

    def of(self, instruction: Instruction) -> Stream:
        """The stream of any instruction.

        Starts, their updates and dones have the start's stream. An instruction in the
        computation of an asynchronous start has that start's. All others have the
        default.
        """
        start = scope_start(instruction)
        if start not in self.scopes:
            outer = self.bodies.get(instruction.computation)
            return DEFAULT_STREAM if outer is None else self.of(outer)
        return self[start]

    def __getitem__(self, start: Instruction) -> Stream:
        """The stream of a start; KeyError for other or unreached instructions."""
        stream = self.scopes[start]
        return DEFAULT_STREAM if start in self.synchronous else stream

    def __iter__(self) -> Iterator[Instruction]:
        """The starts in the order in which XLA visits them."""
        return iter(self.scopes)

    def __len__(self) -> int:
        """How many starts there are."""
        return len(self.scopes)


def assign_streams(
    module: Module,
    *,
    communication_streams: int = DEFAULT_COMMUNICATION_STREAMS,
    compute_streams: int = DEFAULT_COMPUTE_STREAMS,
    parallel_collective_overlap_limit: int = 1,
    guard: bool = True,
    release: XlaRelease | None = None,
) -> StreamAssignment:
    """The streams that XLA's runtime will use; the module does not change.

    Args:
        module: scheduled or not.
        communication_streams: at least 1; XLA: 1, with multi-streaming 2.
        compute_streams: at least 1; XLA: 4.
        parallel_collective_overlap_limit: above 1, collectives marked `is_sync` keep
            their streams.
        guard: keep collectives that could wait for each other in a cycle on one
            stream (XLA leaves that to its scheduler).
        release: of XLA; None: as `followed_release` finds it. XLA 0.10.2 counts groups
            of collectives as compute; later ones have streams for copies to and from
            the host.

    Raises:
        PassError: E020, an invalid stream annotation.
        ValueError: a number of streams below 1.
    """
    if communication_streams < 1 or compute_streams < 1:
        msg = "each kind has at least one stream"
        raise ValueError(msg)
    turns = _Turns(communication_streams, compute_streams)
    scopes: dict[Instruction, Stream] = {}
    for start, stream in _in_xla_order(
        module, turns, release or followed_release(module)
    ):
        scopes.setdefault(start, stream)
    moved: tuple[Moved, ...] = ()
    if guard:
        moved = moves_against_cyclic_waits(module, scopes)
        scopes |= {m.start: m.stream for m in moved}
    synchronous = frozenset(
        start
        for start in scopes
        if runs_synchronously(
            start,
            parallel_collective_overlap_limit=parallel_collective_overlap_limit,
        )
    )
    return StreamAssignment(scopes, synchronous, moved, _bodies(scopes))


@dataclass(slots=True)
class _Turns:
    """The round-robin over the streams of each kind."""

    communication_streams: int
    compute_streams: int
    next_communication: int = 0
    next_compute: int = 0

    def stream(self, start: Instruction, kind: StreamKind) -> Stream:
        if kind not in ("compute", "communication"):
            return Stream(kind)
        number = annotated_number(start)
        if number is not None:
            return Stream(kind, number)
        if kind == "compute":
            number = self.next_compute
            self.next_compute = (number + 1) % self.compute_streams
            return Stream("compute", number)
        if self.communication_streams > 1 and is_pipelined_transfer(start):
            second = start.frontend_attributes.get(transfer_attributes.PIPELINE) == "1"
            return Stream("communication", 2 if second else 1)
        number = self.next_communication
        self.next_communication = (number + 1) % self.communication_streams
        return Stream("communication", number)


def _in_xla_order(
    module: Module, turns: _Turns, release: XlaRelease
) -> Iterator[tuple[Instruction, Stream]]:
    """Breadth first from the entry; a shared callee is counted each time."""
    waiting = deque([module.entry])
    plans: dict[Computation, _Plan] = {}
    visits = 0
    while waiting:
        computation = waiting.popleft()
        visits += 1
        plan = plans.get(computation)
        if plan is None:
            plan = plans[computation] = _Plan.of(computation, release)
        elif visits > _MOST_VISITS:
            continue
        for start, kind in plan.starts:
            yield start, turns.stream(start, kind)
        waiting.extend(plan.entered)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What one computation contributes, in post order."""

    starts: tuple[tuple[Instruction, StreamKind], ...]
    entered: tuple[Computation, ...]

    @staticmethod
    def of(computation: Computation, release: XlaRelease) -> _Plan:
        starts: list[tuple[Instruction, StreamKind]] = []
        entered: list[Computation] = []
        for instruction in post_order(computation):
            kind = scope_kind(instruction, release)
            if kind is not None:
                starts.append((instruction, kind))
            elif runs_callees(instruction):
                entered += instruction.called_computations
        return _Plan(tuple(starts), tuple(entered))


def _bodies(scopes: Mapping[Instruction, Stream]) -> dict[Computation, Instruction]:
    """Computations that asynchronous starts run, nested ones too."""
    bodies: dict[Computation, Instruction] = {}
    for start in scopes:
        if opcodes.facts(start.opcode).spelling == "native":
            continue  # what they call is a reduction, if anything
        stack = [*start.called_computations]
        while stack:
            body = stack.pop()
            if body in bodies:
                continue
            bodies[body] = start
            for instruction in body.instructions:
                stack += instruction.called_computations
    return bodies
