"""Keeps collectives on one stream that could wait for each other in a cycle.

    a = all-gather-start(x), replica_groups={{0,1}}     communication 0
    b = all-gather-start(y), replica_groups={{0,1}}     communication 1 -> 0
    da = all-gather-done(a)

While a is in flight, b may begin: on device 0 after a, on device 1 before it. On one
stream all devices run both in the same order. In a scheduled module everything between
start and done runs beside it; in any other, everything that depends on neither.

This is not part of XLA's pass: its scheduler puts no such two in flight together if it
may use several streams (`collective_multi_streaming`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hlo_passes.analysis.post_order import post_order
from hlo_passes.ir.async_form import is_done, is_transfer, start_of
from hlo_passes.ir.calls import runs_callees
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.passes.device_groups import DeviceGroups
from hlo_passes.scheduler.passes.stream_values import Stream, annotated_number

Pair = tuple[Instruction, Instruction]


@dataclass(frozen=True, slots=True)
class Moved:
    """A start that changed streams, or should have if no annotation forbade it.

    Attributes:
        start: the collective.
        stream: where it is now.
        before: the stream that the round-robin chose.
        beside: a collective that runs at the same time.
        shared: devices in one group of both; () if any device may take part.
    """

    start: Instruction
    stream: Stream
    before: Stream
    beside: Instruction
    shared: tuple[int, ...]

    def to_text(self) -> str:
        """The remark."""
        devices = ", ".join(map(str, self.shared)) if self.shared else "all devices"
        who = f"%{self.start.name} and %{self.beside.name}"
        common = f"run at the same time and share {devices}"
        if self.stream == self.before:
            return (
                f"not moved: {who} {common}, on two streams they could wait for each "
                "other in a cycle, but their stream annotations say so"
            )
        return (
            f"moved: %{self.start.name} from {self.before} to {self.stream}, since "
            f"{who} {common} and could wait for each other in a cycle"
        )


def moves_against_cyclic_waits(
    module: Module, streams: Mapping[Instruction, Stream]
) -> tuple[Moved, ...]:
    """The changes needed so that no two collectives can wait in a cycle."""
    eligible = {
        start: stream
        for start, stream in streams.items()
        if stream.kind == "communication" and not is_transfer(start)
    }
    if len(set(eligible.values())) < 2:
        return ()
    groups = DeviceGroups(module)
    of_start = {start: groups.of_start(start) for start in eligible}
    classes = _Classes({start: k for k, start in enumerate(eligible)})
    for one, other in _concurrent_pairs(module, eligible):
        shared = groups.shared(of_start[one], of_start[other])
        if shared is None or shared:
            classes.join(one, other, shared or ())
    return tuple(_moves(classes, eligible))


class _Classes:
    """Starts that must share a stream; the earliest in order leads each class."""

    def __init__(self, rank: dict[Instruction, int]) -> None:
        self.rank = rank
        self.leader = {start: start for start in rank}
        self.reasons: dict[Instruction, tuple[Instruction, tuple[int, ...]]] = {}

    def find(self, start: Instruction) -> Instruction:
        while self.leader[start] is not start:
            self.leader[start] = self.leader[self.leader[start]]
            start = self.leader[start]
        return start

    def join(
        self, one: Instruction, other: Instruction, shared: tuple[int, ...]
    ) -> None:
        self.reasons.setdefault(one, (other, shared))
        self.reasons.setdefault(other, (one, shared))
        first, second = self.find(one), self.find(other)
        if self.rank[second] < self.rank[first]:
            first, second = second, first
        self.leader[second] = first


def _moves(classes: _Classes, streams: Mapping[Instruction, Stream]) -> Iterator[Moved]:
    common: dict[Instruction, Stream] = {}
    is_annotated = {
        start: annotated_number(start) is not None for start in classes.reasons
    }
    for start in sorted(classes.reasons, key=classes.rank.__getitem__):
        leader = classes.find(start)
        if is_annotated[start] and not is_annotated.get(leader, False):
            common.setdefault(leader, streams[start])
    for start in sorted(classes.reasons, key=classes.rank.__getitem__):
        leader = classes.find(start)
        wanted = common.get(leader, streams[leader])
        if streams[start] == wanted:
            continue
        beside, shared = classes.reasons[start]
        stream = streams[start] if is_annotated[start] else wanted
        yield Moved(start, stream, streams[start], beside, shared)


def _concurrent_pairs(
    module: Module, starts: Mapping[Instruction, Stream]
) -> Iterator[Pair]:
    """Pairs of these starts that may be in flight together, in order."""
    inside = _Inside(starts)
    owners = dict.fromkeys(start.computation for start in starts)
    for computation in owners:
        if module.is_scheduled:
            yield from _overlapping(computation, starts, inside)
        else:
            yield from _independent(computation, starts, inside)


class _Inside:
    """Starts in the computations that a call, conditional or while enters."""

    def __init__(self, starts: Iterable[Instruction]) -> None:
        self._own: dict[Computation, list[Instruction]] = {}
        for start in starts:
            self._own.setdefault(start.computation, []).append(start)
        self._known: dict[Computation, tuple[Instruction, ...]] = {}

    def of(self, caller: Instruction) -> tuple[Instruction, ...]:
        """All starts below, each once."""
        if not runs_callees(caller):
            return ()
        found: dict[Instruction, None] = {}
        for callee in caller.called_computations:
            found |= dict.fromkeys(self._below(callee))
        return tuple(found)

    def _below(self, computation: Computation) -> tuple[Instruction, ...]:
        stack = [computation]
        while stack:
            current = stack[-1]
            callees = [
                callee
                for i in current.instructions
                if runs_callees(i)
                for callee in i.called_computations
            ]
            missing = [c for c in callees if c not in self._known]
            if current in self._known or not missing:
                stack.pop()
                found = dict.fromkeys(self._own.get(current, ()))
                for callee in callees:
                    found |= dict.fromkeys(self._known[callee])
                self._known.setdefault(current, tuple(found))
            else:
                stack += missing
        return self._known[computation]


def _overlapping(
    computation: Computation, starts: Mapping[Instruction, Stream], inside: _Inside
) -> Iterator[Pair]:
    """The instructions between a start and its done in the schedule."""
    flying: dict[Instruction, None] = {}
    for instruction in computation.instructions:
        if instruction in starts:
            yield from ((other, instruction) for other in flying)
            flying[instruction] = None
        elif is_done(instruction):
            flying.pop(start_of(instruction), None)
        elif flying:
            for below in inside.of(instruction):
                yield from ((other, below) for other in flying)


def _independent(
    computation: Computation, starts: Mapping[Instruction, Stream], inside: _Inside
) -> Iterator[Pair]:
    """The instructions that no path of operands and control edges orders."""
    finished: dict[Instruction, int] = {}
    items: list[tuple[tuple[Instruction, ...], int, int]] = []
    bit_of: dict[Instruction, int] = {}
    for instruction in post_order(computation):
        before = 0
        for needed in (*instruction.operands, *instruction.control_predecessors):
            before |= finished.get(needed, 0)
        members = (instruction,) if instruction in starts else inside.of(instruction)
        done = before
        if members:
            bit = 1 << len(items)
            for others, other_bit, _ in items:
                if not before & other_bit:
                    yield from ((a, b) for a in others for b in members)
            items.append((members, bit, before))
            bit_of[instruction] = bit
            if instruction not in starts:
                done |= bit
        elif is_done(instruction):
            done |= bit_of.get(start_of(instruction), 0)
        finished[instruction] = done
