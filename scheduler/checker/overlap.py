"""What is in flight together: limits by lane, and devices that two collectives share.

    s1 = all-gather-start(a)
    s2 = all-gather-start(b)     C030: 2 in flight on the lane of collectives, limit 1
    d1 = all-gather-done(s1)     C031: both bring devices 0 and 1 together
    d2 = all-gather-done(s2)

A lane is a kind of asynchronous resource of the GPU. Operations that are marked
synchronous run in place of their start and do not count. At a loop or call, the most
that its body has in flight is added, except for what XLA's GPU scheduler does not
overlap there: a fusion on the caller's own thread. Source: openxla/xla
`gpu_latency_hiding_scheduler.h`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from hlo_passes.ir import opcodes
from hlo_passes.ir.async_form import is_done, is_start, start_of, work_of
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.gpu_config import gpu_config, is_marked_sync, operation_queue_id
from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.checker.asynchronous import flights
from hlo_passes.scheduler.checker.participants import (
    Machine,
    Participants,
    collectives_in,
    participants_of,
)
from hlo_passes.verify.finding import Report

COLLECTIVES: Final = "collectives"
COMPUTE: Final = "asynchronous compute"
#: The most in flight together on each lane of point-to-point transfers.
#: Source: openxla/xla `gpu_latency_hiding_scheduler.cc`, GetNumAvailableResources.
_POINT_TO_POINT_LIMIT: Final = 4
_COMMUNICATIONS: Final = opcodes.SYNC_COLLECTIVES | opcodes.TRANSFERS
_HOST_MEMORY_SPACE: Final = 5
_P2P: Final = "point-to-point collectives"
_MEMCPY: Final = "memory copies"
#: Transfers of XLA's generic tracker.
TRANSFERS: Final = "send and recv"
HOST_TRANSFERS: Final = ("send of the host", "recv of the host")
_TRANSFER_LANES: Final = tuple(f"{t} {n}" for t in ("send", "recv") for n in (0, 1))


@dataclass(frozen=True, slots=True)
class Limits:
    """The most operations in flight on a lane; a lane without a limit does not count.

    Attributes:
        by_lane: lanes of the GPU, or kinds of work with `by_kind`.
        by_kind: one lane per kind of work, as in XLA's generic tracker.
    """

    by_lane: Mapping[str, int]
    by_kind: bool = False

    @staticmethod
    def of_gpu(collectives: int, compute: int) -> Limits:
        """Limits of the GPU's lanes; 0 means not checked."""
        point_to_point = _POINT_TO_POINT_LIMIT if collectives else 0
        return Limits(
            {
                COLLECTIVES: collectives,
                COMPUTE: compute,
                **dict.fromkeys((_P2P, *_TRANSFER_LANES), point_to_point),
            }
        )

    def lane_of(self, half: Instruction) -> str:
        """The lane of a start or done."""
        if not self.by_kind:
            return lane_of(half)
        work = work_of(half)
        if work not in opcodes.TRANSFERS:
            return work
        host = half.attributes.get("is_host_transfer") == "true"
        return HOST_TRANSFERS[work == "recv"] if host else TRANSFERS


def lane_of(half: Instruction) -> str:
    """The lane of a start or done on the GPU."""
    start = start_of(half)
    text = start.attributes.get("frontend_attributes", "")
    frontend: Mapping[str, str] = start.frontend_attributes if text else {}
    work = work_of(half)
    if work == "fusion" and _copies_a_slice(start):
        return _MEMCPY
    if frontend.get("_xla_gpu_collective_stream") == "p2p":
        return _P2P
    if work in opcodes.TRANSFERS:
        own: Mapping[str, str] = half.frontend_attributes if text else {}
        second = own.get("_xla_send_recv_pipeline") == "1"
        return f"{work} {int(second)}"
    if (
        work in opcodes.SYNC_COLLECTIVES
        or frontend.get("_xla_stream_annotation", "").lower() == "collective"
        or "_collectives_group" in frontend
    ):
        return COLLECTIVES
    return COMPUTE


def _counts_in_callers(half: Instruction) -> bool:
    """Whether a caller of its computation adds it to its own.

    Source: openxla/xla `gpu_latency_hiding_scheduler.cc`, IsGpuAsyncDone.
    """
    start = start_of(half)
    work = work_of(half)
    if not is_start(start) or start.opcode == "copy-start" or work in _COMMUNICATIONS:
        return True
    attributes = start.attributes
    if "_collectives_group" in attributes.get("frontend_attributes", ""):
        return True
    if work == "fusion" and (_copies_a_slice(start) or _is_of_the_host(start)):
        return True
    thread = attributes.get("async_execution_thread", '"main"').strip('"')
    if start.opcode == "async-start":
        thread = start.called_computations[0].execution_thread
    return thread != start.computation.execution_thread


def _is_of_the_host(start: Instruction) -> bool:
    """Whether a started fusion's result or first operand is in the host's memory."""
    shapes = (start.shape.elements[1], *(o.shape for o in start.operands[:1]))
    return any(
        shape.layout is not None and shape.layout.memory_space == _HOST_MEMORY_SPACE
        for shape in shapes
    )


def _copies_a_slice(start: Instruction) -> bool:
    """Whether a generic start wraps a fusion that only moves one slice.

    Such a fusion ends in a dynamic-slice or dynamic-update-slice whose backend config
    describes the copy. Source: openxla/xla `gpu/ir_emission_utils.h`.
    """
    for wrapped in start.called_computations:
        fusion = wrapped.root
        config = str(gpu_config(fusion))
        if "dynamic_slice" in config or "dynamic_memcpy" in config:
            return True
        for body in fusion.called_computations:
            root = body.root
            while root.opcode in ("bitcast", "reshape"):
                root = root.operands[0]
            if root.opcode in ("dynamic-slice", "dynamic-update-slice") and (
                "dynamic_slice_config" in gpu_config(root)
            ):
                return True
    return False


class OverlapCheck:
    """Counts over one module; computations are asked callees first."""

    def __init__(self, machine: Machine, limits: Limits, *, rank_overlap: bool) -> None:
        """`rank_overlap`: always check C031, not only for two streams."""
        self.machine = machine
        self.limits = limits
        self.rank_overlap = rank_overlap
        self._peaks: dict[Computation, dict[str, int]] = {}

    def check(self, computation: Computation, report: Report) -> None:
        """Report what is in flight together beyond the limits."""
        changes = self._changes(computation)
        flying: dict[str, dict[Instruction, None]] = {}
        peaks: dict[str, int] = {}
        for position, instruction in enumerate(computation.instructions):
            for half in changes.ending.get(position, ()):
                flying.get(self.limits.lane_of(half), {}).pop(half, None)
            nested = self._nested(instruction)
            for lane, number in nested.items():
                together = _counted(flying.get(lane, ())) + number
                peaks[lane] = max(peaks.get(lane, 0), together)
                self._judge(instruction, lane, flying.get(lane, {}), number, report)
            for half in changes.beginning.get(position, ()):
                lane = self.limits.lane_of(half)
                others = flying.setdefault(lane, {})
                if lane_of(half) == COLLECTIVES:
                    self._compare(half, others, report)
                others[half] = None
                peaks[lane] = max(peaks.get(lane, 0), _counted(others))
                if half is instruction:
                    self._judge(instruction, lane, others, 0, report)
        self._peaks[computation] = peaks

    def _changes(self, computation: Computation) -> _Changes:
        beginning: dict[int, list[Instruction]] = {}
        ending: dict[int, list[Instruction]] = {}
        for flight in flights(computation):
            if is_marked_sync(flight.half):
                continue
            beginning.setdefault(max(flight.begin, 0), []).append(flight.half)
            ending.setdefault(flight.end, []).append(flight.half)
        return _Changes(beginning, ending)

    def _nested(self, instruction: Instruction) -> dict[str, int]:
        if (
            is_start(instruction)
            or is_done(instruction)
            or instruction.opcode == "fusion"
        ):
            return {}
        found: dict[str, int] = {}
        for callee in instruction.called_computations:
            for lane, number in self._peaks.get(callee, {}).items():
                if not number:
                    continue
                found[lane] = max(found.get(lane, 0), number)
        return found

    def _judge(
        self,
        instruction: Instruction,
        lane: str,
        flying: Mapping[Instruction, None],
        nested: int,
        report: Report,
    ) -> None:
        limit = self.limits.by_lane.get(lane)
        together = len(flying) + nested
        if limit is None or together <= limit or (nested and not flying):
            return  # the body itself reports what it does alone
        names = ", ".join(f"%{i.name}" for i in flying)
        inside = f" and {nested} inside %{instruction.name}" if nested else ""
        report.add(
            instruction, "C030",
            f"{together} in flight on the lane of {lane}, the limit is {limit}: "
            f"{names}{inside}",
        )  # fmt: skip

    def _compare(
        self, start: Instruction, others: Mapping[Instruction, None], report: Report
    ) -> None:
        """Report two collectives that share devices and could wait in a cycle.

        They cannot if one stream keeps their order.
        """
        for other in others:
            if not self.rank_overlap and not _on_two_streams(other, start):
                continue
            shared = self._shared(other, start)
            if shared is None:
                what = "the devices of one of them are unknown"
            elif shared:
                listed = ", ".join(map(str, shared))
                what = f"both bring devices {listed} together"
            else:
                continue
            report.add(
                start, "C031", f"in flight together with %{other.name}, and {what}"
            )

    def _shared(self, one: Instruction, other: Instruction) -> tuple[int, ...] | None:
        """Devices of the first two groups with more than one in common; None: unknown.

        Collectives that a stream annotation placed there do not count.
        """
        if any(
            "_xla_stream_annotation" in i.attributes.get("frontend_attributes", "")
            for i in (one, other)
        ):
            return ()
        mine, theirs = self._participants(one), self._participants(other)
        if not mine or not theirs:
            return None
        for a in mine:
            for b in theirs:
                found = _in_common(a, b)
                if found:
                    return found
        return ()

    def _participants(self, start: Instruction) -> tuple[Participants, ...]:
        return tuple(
            participants_of(collective, self.machine)
            for collective in collectives_in(start)
        )


def _counted(flying: Iterable[Instruction]) -> int:
    return sum(map(_counts_in_callers, flying))


def _on_two_streams(one: Instruction, other: Instruction) -> bool:
    mine, theirs = operation_queue_id(one), operation_queue_id(other)
    return mine != theirs and 0 not in (mine, theirs)


@dataclass(frozen=True, slots=True)
class _Changes:
    """What begins and what ends at a position."""

    beginning: dict[int, list[Instruction]]
    ending: dict[int, list[Instruction]]


@lru_cache(maxsize=4096)
def _in_common(one: Participants, other: Participants) -> tuple[int, ...]:
    for mine in one.sets:
        for theirs in other.sets:
            if len(mine & theirs) > 1:
                return tuple(sorted(mine & theirs))
    return ()
