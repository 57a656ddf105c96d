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

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Final

from hlo_passes.analysis import transfer_attributes
from hlo_passes.ir import opcodes
from hlo_passes.ir.async_form import (
    is_done,
    is_host_transfer,
    is_start,
    start_of,
    work_of,
)
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
from hlo_passes.scheduler.checker.tpu_lanes import tpu_lanes
from hlo_passes.verify.finding import Report

COLLECTIVES: Final = "collectives"
COMPUTE: Final = "asynchronous compute"
#: The most in flight together on each lane of point-to-point transfers.
#: Source: openxla/xla `gpu_latency_hiding_scheduler.cc`, GetNumAvailableResources.
_POINT_TO_POINT_LIMIT: Final = 4
#: Operations and devices that a message names.
_MOST_NAMED: Final = 8
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
        of_tpu: the same, but calls on SparseCores hold their kind and their cores.
    """

    by_lane: Mapping[str, int]
    by_kind: bool = False
    of_tpu: bool = False

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

    def lanes_of(self, half: Instruction) -> tuple[str, ...]:
        """The lanes of a start or done."""
        if not self.by_kind:
            return (lane_of(half),)
        if self.of_tpu and work_of(half) not in opcodes.TRANSFERS:
            return tpu_lanes(half)
        return (self._kind_of(half),)

    def _kind_of(self, half: Instruction) -> str:
        work = work_of(half)
        if work not in opcodes.TRANSFERS:
            return work
        if is_host_transfer(half):
            return HOST_TRANSFERS[work == "recv"]
        return TRANSFERS


def lane_of(half: Instruction) -> str:
    """The lane of a start or done on the GPU."""
    start = start_of(half)
    text = start.attributes.get("frontend_attributes", "")
    frontend: Mapping[str, str] = start.frontend_attributes if text else {}
    work = work_of(half)
    if work == "fusion" and _copies_a_slice(start):
        return _MEMCPY
    if frontend.get(transfer_attributes.STREAM) == transfer_attributes.P2P:
        return _P2P
    if work in opcodes.TRANSFERS:
        own: Mapping[str, str] = half.frontend_attributes if text else {}
        second = own.get(transfer_attributes.PIPELINE) == "1"
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
        lanes: defaultdict[str, _Lane] = defaultdict(_Lane)
        collectives = _Alike()
        for position, instruction in enumerate(computation.instructions):
            for half in changes.ending.get(position, ()):
                for name in self.limits.lanes_of(half):
                    lanes[name].remove(half)
                collectives.remove(half)
            for name, number in self._nested(instruction).items():
                lane = lanes[name]
                lane.most = max(lane.most, lane.counted + number)
                self._judge(instruction, name, lane, number, report)
            for half in changes.beginning.get(position, ()):
                if lane_of(half) == COLLECTIVES:
                    self._compare(half, collectives, report)
                for name in self.limits.lanes_of(half):
                    lane = lanes[name]
                    lane.add(half)
                    if half is instruction:
                        self._judge(instruction, name, lane, 0, report)
        self._peaks[computation] = {name: lane.most for name, lane in lanes.items()}

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
        name: str,
        lane: _Lane,
        nested: int,
        report: Report,
    ) -> None:
        limit = self.limits.by_lane.get(name)
        flying = lane.flying
        together = len(flying) + nested
        if limit is None or together <= limit or (nested and not flying):
            return  # the body itself reports what it does alone
        names = ", ".join(f"%{i.name}" for i in islice(flying, _MOST_NAMED))
        if len(flying) > _MOST_NAMED:
            names += f", {len(flying) - _MOST_NAMED} more"
        inside = f" and {nested} inside %{instruction.name}" if nested else ""
        report.add(
            instruction, "C030",
            f"{together} in flight on the lane of {name}, the limit is {limit}: "
            f"{names}{inside}",
        )  # fmt: skip

    def _compare(self, start: Instruction, others: _Alike, report: Report) -> None:
        """Report two collectives that share devices and could wait in a cycle.

        They cannot if one stream keeps their order, nor if a stream annotation placed
        one of them there.
        """
        queue = operation_queue_id(start)
        if "_xla_stream_annotation" in start.attributes.get("frontend_attributes", ""):
            return
        if not self.rank_overlap and not queue:
            return
        mine = self._participants(start)
        for (other_queue, theirs), starts in others.by_kind.items():
            if not self.rank_overlap and queue == other_queue:
                continue
            shared = _first_in_common(mine, theirs)
            if shared is None:
                what = "the devices of one of them are unknown"
            elif shared:
                listed = ", ".join(map(str, shared[:_MOST_NAMED]))
                if len(shared) > _MOST_NAMED:
                    listed += f" and {len(shared) - _MOST_NAMED} more"
                what = f"both bring devices {listed} together"
            else:
                continue
            for other in starts:
                report.add(
                    start, "C031", f"in flight together with %{other.name}, and {what}"
                )
        others.add(start, (queue, mine))

    def _participants(self, start: Instruction) -> tuple[Participants, ...]:
        return tuple(
            participants_of(collective, self.machine)
            for collective in collectives_in(start)
        )


class _Lane:
    """What is in flight on one lane.

    Attributes:
        flying: the operations, each with whether callers count it.
        counted: the number of those.
        most: the greatest number so far, with what bodies add.
    """

    def __init__(self) -> None:
        self.flying: dict[Instruction, bool] = {}
        self.counted = 0
        self.most = 0

    def add(self, half: Instruction) -> None:
        counts = self.flying[half] = _counts_in_callers(half)
        self.counted += counts
        self.most = max(self.most, self.counted)

    def remove(self, half: Instruction) -> None:
        self.counted -= self.flying.pop(half, False)


#: The stream of a collective, and who takes part.
_Kind = tuple[int, tuple[Participants, ...]]


class _Alike:
    """Collectives in flight; those of one kind need one comparison with another."""

    def __init__(self) -> None:
        self.by_kind: dict[_Kind, dict[Instruction, None]] = {}
        self._kinds: dict[Instruction, _Kind] = {}

    def add(self, start: Instruction, kind: _Kind) -> None:
        self._kinds[start] = kind
        self.by_kind.setdefault(kind, {})[start] = None

    def remove(self, half: Instruction) -> None:
        kind = self._kinds.pop(half, None)
        if kind is not None:
            del self.by_kind[kind][half]
            if not self.by_kind[kind]:
                del self.by_kind[kind]


def _first_in_common(
    mine: tuple[Participants, ...], theirs: tuple[Participants, ...]
) -> tuple[int, ...] | None:
    """Devices of the first two groups with more than one in common; None: unknown."""
    if not mine or not theirs:
        return None
    for a in mine:
        for b in theirs:
            found = _in_common(a, b)
            if found:
                return found
    return ()


@dataclass(frozen=True, slots=True)
class _Changes:
    """What begins and what ends at a position."""

    beginning: dict[int, list[Instruction]]
    ending: dict[int, list[Instruction]]


@lru_cache(maxsize=4096)
def _in_common(one: Participants, other: Participants) -> tuple[int, ...]:
    sets_of: dict[int, list[int]] = {}
    for number, mine in enumerate(one.sets):
        for device in mine:
            sets_of.setdefault(device, []).append(number)
    best: tuple[int, frozenset[int]] | None = None
    for theirs in other.sets:
        met = Counter(k for device in theirs for k in sets_of.get(device, ()))
        first = min((k for k, count in met.items() if count > 1), default=None)
        if first is not None and (best is None or first < best[0]):
            best = (first, one.sets[first] & theirs)
            if first == 0:
                break
    return tuple(sorted(best[1])) if best is not None else ()
