"""Adds control edges that keep the last readers of large buffers from being delayed.

    Before:  big = f32[4096] fusion(p)       u = f32[] reduce(big)
             s1 d1 ... s2 = all-gather-start(q)
    After:   s2 = all-gather-start(q), control-predecessors={u}

The scheduler moves work that is not needed soon out of the way of asynchronous
operations. Large buffers stay alive meanwhile. A window goes from a start to its done.
With the edges, a start waits for all readers of a buffer if the order so far finished
using that buffer some windows earlier.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar, Final

from hlo_passes.analysis.reachability import ancestors
from hlo_passes.errors import PassError
from hlo_passes.ir.async_form import done_of, is_start
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.scheduler.hardware.target import target
from hlo_passes.scheduler.memory.alias_hazards import ValueUses
from hlo_passes.scheduler.memory.buffers import Buffers, build_buffers
from hlo_passes.scheduler.memory.dataflow import ValueRanks
from hlo_passes.scheduler.memory.memory_limit import (
    DEFAULT_SLOP_PERCENT,
    scheduler_memory_limit_bytes,
)

#: The smallest buffer that is fenced, as a part of the memory limit.
_PART_OF_LIMIT: Final = 100


@dataclass(frozen=True, slots=True)
class SchedulerMemoryFencing(Pass):
    """Make asynchronous starts wait for the last readers of large buffers.

    The pass looks at every buffer that is as large as the threshold or larger, that a
    single computation defines (not by a parameter) and reads, and that is not a part of
    that computation's result. Among the windows that close after the buffer's last
    reader, in the order that the module has, the window that is
    `scheduler-memory-fencing-slack-windows` further on gets the edges, if it opens
    after that reader.

    Requires: a scheduled module (E023).
    Ensures: every edge goes forward in the schedule.
    Complexity: near-linear; for each window that gets edges, linear in what is between
        its start and the first reader.
    Source: openxla/xla `xla/service/scheduler_memory_fencing.cc`,
    `xla/service/gpu/gpu_hlo_schedule.cc`.

    Attributes:
        scheduler_memory_fencing_threshold_bytes: skip smaller buffers; 0: a hundredth
            of the memory limit; below 0: the pass does nothing.
        scheduler_memory_fencing_slack_windows: by how many windows readers may still be
            delayed.
        memory_limit_bytes: the scheduler's limit; `none`: from the target.
        memory_limit_slop_factor: the percentage to use of the memory that parameters
            and result leave.
    """

    name: ClassVar[str] = "scheduler-memory-fencing"

    scheduler_memory_fencing_threshold_bytes: int = 0
    scheduler_memory_fencing_slack_windows: int = 1
    memory_limit_bytes: int | None = None
    memory_limit_slop_factor: int = DEFAULT_SLOP_PERCENT

    def __post_init__(self) -> None:
        """Refuse windows before the reader's own window (U013)."""
        if self.scheduler_memory_fencing_slack_windows < 0:
            raise ValueError(
                "scheduler-memory-fencing-slack-windows must be at least 0"
            )
        if self.memory_limit_slop_factor < 0 or (self.memory_limit_bytes or 0) < 0:
            raise ValueError("a memory limit must not be negative")

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit all computations together."""
        if not module.is_scheduled:
            raise PassError(
                f"{self.name} needs a scheduled module",
                code="E023",
                hint="run hlo-memory-scheduler first",
            )
        threshold = self._threshold_bytes(module, context)
        if threshold is None:
            return False
        version = module.version
        buffers = build_buffers(module)
        fences = _Fences(buffers, self.scheduler_memory_fencing_slack_windows)
        for size, positions in _large_buffers(buffers, threshold, fences.ranks):
            report.count("buffers-considered")
            fences.fence(positions, size, report)
        for user, start in fences.edges():
            start.computation.add_control_edge(user, start)
            report.count("edges-added")
        return module.version != version

    def _threshold_bytes(self, module: Module, context: PassContext) -> int | None:
        """The threshold in bytes; None if the pass is switched off."""
        wanted = self.scheduler_memory_fencing_threshold_bytes
        if wanted < 0:
            return None
        limit = self.memory_limit_bytes
        if limit is None:
            limit = scheduler_memory_limit_bytes(
                module,
                target(context.pricing.target).memory_bytes,
                slop_percent=self.memory_limit_slop_factor,
            )
        return min(wanted or limit // _PART_OF_LIMIT, limit)


@dataclass(frozen=True, slots=True)
class Windows:
    """From starts to their dones, as places in the schedule, in the order of starts.

    Attributes:
        starts: the instructions that open a window.
        opens: their places.
        closed: the last place at which a window up to this one closes.
    """

    starts: tuple[Instruction, ...]
    opens: tuple[int, ...]
    closed: tuple[int, ...]

    def next_after(self, place: int, slack: int) -> int | None:
        """The window some windows after the first that closes after a place.

        It also opens after that place; None if there is no such window.
        """
        k = max(
            bisect_right(self.closed, place) + slack, bisect_right(self.opens, place)
        )
        return k if k < len(self.starts) else None


def windows_of(computation: Computation) -> Windows:
    """All windows of a computation; a window without a done closes at once."""
    place = {i: k for k, i in enumerate(computation.instructions)}
    starts = tuple(i for i in place if is_start(i))
    dones = (done_of(start) for start in starts)
    closes = (
        place[start] if done is None else place.get(done, place[start])
        for start, done in zip(starts, dones, strict=True)
    )
    return Windows(
        starts, tuple(place[start] for start in starts), tuple(accumulate(closes, max))
    )


def _large_buffers(
    buffers: Buffers, threshold_bytes: int, ranks: ValueRanks
) -> list[tuple[int, list[int]]]:
    """(bytes, positions) of buffers of at least that size, in XLA's order."""
    large = {b for b, n in enumerate(buffers.sizes_bytes) if n >= threshold_bytes}
    if not large:
        return []
    positions: dict[int, list[int]] = {}
    for position in range(len(buffers.of_position)):
        for b in buffers.at(position):
            if b in large:
                positions.setdefault(b, []).append(position)
    value = buffers.flow.value
    first = {b: min(ranks(value[p]) for p in of_b) for b, of_b in positions.items()}
    return [
        (buffers.sizes_bytes[b], positions[b])
        for b in sorted(positions, key=first.__getitem__)
    ]


class _Fences:
    """The readers that each start waits for."""

    def __init__(self, buffers: Buffers, slack_windows: int) -> None:
        self._buffers = buffers
        self.ranks = ValueRanks(buffers.flow)
        self._uses_of_value = ValueUses(buffers.flow)
        self._slack = slack_windows
        self._windows: dict[Computation, Windows] = {}
        self._places: dict[Computation, dict[Instruction, int]] = {}
        self._readers: dict[Instruction, dict[Instruction, None]] = {}

    def edges(self) -> list[tuple[Instruction, Instruction]]:
        """(reader, start), without those that the graph has already."""
        found: list[tuple[Instruction, Instruction]] = []
        for start, readers in self._readers.items():
            place = self._places[start.computation]
            above = ancestors((start,), place, min(place[r] for r in readers))
            found += [(reader, start) for reader in readers if reader not in above]
        return found

    def fence(self, positions: list[int], size: int, report: Report) -> None:
        """Let a start wait for the readers of the buffer at these positions."""
        computation = _only_computation(self._buffers, positions)
        if computation is None:
            return
        readers = self._readers_of(positions, computation)
        windows = self._windows_of(computation)
        place = self._places[computation]
        if not readers or not windows.starts:
            return
        last = max(place[reader] for reader in readers)
        k = windows.next_after(last, self._slack)
        if k is None:
            flow = self._buffers.flow
            owner = flow.reached.instructions[flow.owner(positions[0])]
            report.remark(
                f"not fenced: %{owner.name} ({size} bytes), no window opens far enough "
                "after its last reader"
            )
            return
        start = windows.starts[k]
        of_start = self._readers.setdefault(start, {})
        of_start |= dict.fromkeys(r for r in readers if r is not start)

    def _readers_of(
        self, positions: list[int], computation: Computation
    ) -> list[Instruction]:
        """Users of every value of the buffer; [] if the root is one of them."""
        flow = self._buffers.flow
        by_value: dict[int, list[int]] = {}
        for position in positions:
            by_value.setdefault(flow.value[position], []).append(position)
        found: dict[Instruction, None] = {}
        for value in sorted(by_value, key=self.ranks):
            at = sorted(by_value[value], key=lambda p, v=value: p != v)
            found |= dict.fromkeys(
                user for user, _ in self._uses_of_value(at, computation.root)
            )
        return [] if computation.root in found else list(found)

    def _windows_of(self, computation: Computation) -> Windows:
        if computation not in self._windows:
            self._windows[computation] = windows_of(computation)
            self._places[computation] = {
                i: k for k, i in enumerate(computation.instructions)
            }
        return self._windows[computation]


def _only_computation(buffers: Buffers, positions: list[int]) -> Computation | None:
    """The only computation with the buffer; None for parameters and results."""
    flow = buffers.flow
    owners = [flow.reached.instructions[flow.owner(p)] for p in positions]
    computation = owners[0].computation
    for owner in owners:
        if (
            owner.computation is not computation
            or owner is computation.root
            or owner.opcode == "parameter"
        ):
            return None
    return computation
