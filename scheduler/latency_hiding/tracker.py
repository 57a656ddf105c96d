"""Tracks which instructions are asynchronous, and which resources they hold.

    tracker = make_tracker(settings)
    tracker.is_supported_start(i), tracker.is_supported_done(i)
    tracker.resources(i)            ((Resource.GPU_COLLECTIVES, Usage.RELEASE),)
    tracker.instances_needed(i)     {Resource.GPU_COLLECTIVES: 1}, callees included

An unsupported half (a collective marked synchronous) can still hold resources.

Source: openxla/xla `latency_hiding_scheduler.cc`, AsyncTracker (Aug 2026).
"""

from __future__ import annotations

from typing import Final

from hlo_passes.ir import async_form, opcodes
from hlo_passes.ir.calls import runs_callees
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.opcodes import facts
from hlo_passes.ir.shapes import Shape
from hlo_passes.scheduler.latency_hiding.resources import (
    RESOURCE_OF_KIND,
    Holdings,
    Resource,
    Usage,
)
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings

_HOST_MEMORY_SPACE: Final = 5
_SUPPORTED_KINDS: Final = opcodes.SYNC_COLLECTIVES | {"copy"}


class AsyncTracker:
    """The tracker of every back end; the GPU has one that is built on it.

    Attributes:
        settings: of the run.
    """

    def __init__(self, settings: SchedulerSettings) -> None:
        """Start with nothing known about any instruction."""
        self.settings = settings
        swapped = settings.top_down_scheduling
        self._start_usage = Usage.OCCUPY if swapped else Usage.RELEASE
        self._done_usage = Usage.RELEASE if swapped else Usage.OCCUPY
        self._resources: dict[Instruction, Holdings] = {}
        self._supported: dict[Instruction, bool] = {}
        self._peak_use: dict[Computation, dict[Resource, int]] = {}

    # -- what is asynchronous -------------------------------------------------

    def is_supported_start(self, instruction: Instruction) -> bool:
        """Whether it starts something that the scheduler overlaps."""
        return facts(instruction.opcode).half == "start" and self._is_supported(
            instruction
        )

    def is_supported_done(self, instruction: Instruction) -> bool:
        """Whether it ends something that the scheduler overlaps."""
        return facts(instruction.opcode).half == "done" and self._is_supported(
            instruction
        )

    def _is_supported(self, instruction: Instruction) -> bool:
        known = self._supported.get(instruction)
        if known is None:
            known = self._supported[instruction] = self._find_supported(instruction)
        return known

    def _find_supported(self, instruction: Instruction) -> bool:
        """Whether the scheduler overlaps a half."""
        spelling = facts(instruction.opcode).spelling
        if spelling == "transfer":
            return self.settings.schedule_send_recvs
        if spelling == "generic" and runs_on_another_thread(instruction):
            return True
        return async_form.work_of(instruction) in _SUPPORTED_KINDS

    # -- resources held -------------------------------------------------------

    def resources(self, instruction: Instruction) -> Holdings:
        """(resource, usage) entries of an instruction, its own."""
        known = self._resources.get(instruction)
        if known is None:
            known = self._resources[instruction] = self._find_resources(instruction)
        return known

    def _find_resources(self, instruction: Instruction) -> Holdings:
        opcode = instruction.opcode
        half = facts(opcode).half
        if async_form.is_transfer(instruction):
            return ((self._transfer_resource(instruction), self._usage(half)),)
        if half in ("start", "done"):
            kind = RESOURCE_OF_KIND.get(async_form.work_of(instruction))
            return () if kind is None else ((kind, self._usage(half)),)
        if opcode == "after-all":
            return ((Resource.SEND_HOST, Usage.NONE),)
        if opcode == "while":
            return self._holdings_of_body(instruction)
        if self.settings.track_sync_op_resource_usage and opcode in RESOURCE_OF_KIND:
            kind = RESOURCE_OF_KIND[opcode]
            return ((kind, Usage.OCCUPY), (kind, Usage.RELEASE))
        return ()

    def _usage(self, half: str) -> Usage:
        return self._start_usage if half == "start" else self._done_usage

    def _transfer_resource(self, instruction: Instruction) -> Resource:
        if not is_host_transfer(async_form.start_of(instruction)):
            return Resource.SEND_RECV
        if async_form.work_of(instruction) == "send":
            return Resource.SEND_HOST
        if self.settings.force_send_recv_to_use_same_resource:
            return Resource.SEND_HOST
        return Resource.RECV_HOST

    def _holdings_of_body(self, loop: Instruction) -> Holdings:
        """Distinct entries of a loop's body, nested loops included."""
        found: dict[tuple[Resource, Usage], None] = {}
        for instruction in loop.called_computations[0].instructions:
            for entry in self.resources(instruction):
                found[entry] = None
        return tuple(found)

    def net_resources(self, instruction: Instruction) -> Holdings:
        """The effect of placing it: for a loop, only what it leaves unbalanced."""
        entries = self.resources(instruction)
        if instruction.opcode != "while":
            return entries
        occupied = {r for r, usage in entries if usage is Usage.OCCUPY}
        released = {r for r, usage in entries if usage is Usage.RELEASE}
        return tuple(
            (r, usage)
            for r, usage in entries
            if (usage is Usage.OCCUPY and r not in released)
            or (usage is Usage.RELEASE and r not in occupied)
        )

    # -- how much of it -------------------------------------------------------

    def instances_needed(self, instruction: Instruction) -> dict[Resource, int]:
        """Instances that must be free to place it, called computations included."""
        needed: dict[Resource, int] = {}
        called = instruction.called_computations
        if not called or async_form.is_generic(instruction):
            needed = self._own_occupations(instruction)
        for callee in called:
            # Callees never run at the same time: the greatest need counts.
            for resource, count in self.peak_use(callee).items():
                needed[resource] = max(needed.get(resource, 0), count)
        return needed

    def instances_of_one(self, resource: Resource, instruction: Instruction) -> int:
        """Like `instances_needed` for one resource, as the test in flight counts it.

        Generic halves count their own entries only; of several callees the first that
        uses the resource counts.
        """
        called = instruction.called_computations
        if not called or async_form.is_generic(instruction):
            return self._own_occupations(instruction).get(resource, 0)
        for callee in called:
            count = self.peak_use(callee).get(resource)
            if count is not None:
                return count
        return 0

    def _own_occupations(self, instruction: Instruction) -> dict[Resource, int]:
        own: dict[Resource, int] = {}
        for resource, usage in self.resources(instruction):
            if usage is Usage.OCCUPY:
                own[resource] = own.get(resource, 0) + 1
        return own

    def peak_use(self, computation: Computation) -> dict[Resource, int]:
        """Most instances in use at once inside a computation, by its present order."""
        known = self._peak_use.get(computation)
        if known is None:
            known = self._peak_use[computation] = self._find_peak_use(computation)
        return known

    def _find_peak_use(self, computation: Computation) -> dict[Resource, int]:
        live: dict[Resource, int] = {}
        peak: dict[Resource, int] = {}
        for instruction in reversed(computation.instructions):
            if self.is_supported_done(instruction):
                for resource, _ in self.resources(instruction):
                    live[resource] = live.get(resource, 0) + 1
                    peak[resource] = max(peak.get(resource, 0), live[resource])
            elif self.is_supported_start(instruction):
                for resource, _ in self.resources(instruction):
                    live[resource] = live.get(resource, 0) - 1
            if may_run_async(instruction):
                for resource, count in self.instances_needed(instruction).items():
                    used = live.get(resource, 0) + count
                    peak[resource] = max(peak.get(resource, 0), used)
        return peak

    def forget_order(self, computation: Computation) -> None:
        """Drop counts for an order that has changed."""
        self._peak_use.pop(computation, None)

    # -- hints of a back end --------------------------------------------------

    def releases_selectively(self, instruction: Instruction) -> bool:
        """Whether it starts something that only valuable work may hide."""
        return self._has_selective(instruction, Usage.RELEASE)

    def occupies_selectively(self, instruction: Instruction) -> bool:
        """Whether it ends something that only valuable work may hide."""
        return self._has_selective(instruction, Usage.OCCUPY)

    def _has_selective(self, instruction: Instruction, usage: Usage) -> bool:
        return any(
            u is usage and self.is_selective(r) for r, u in self.resources(instruction)
        )

    def is_selective(self, resource: Resource) -> bool:
        """Whether only valuable work may hide latency on a resource."""
        del resource
        return False

    def writes_slice_to_host(self, instruction: Instruction) -> bool:
        """Whether it starts a fusion that updates a slice; none here."""
        del instruction
        return False

    def is_serial(self, resource: Resource) -> bool:
        """Whether holders of a resource run one after the other; none here."""
        del resource
        return False

    def serial_usages(self) -> tuple[Usage, ...]:
        """Usages of a serial resource that conflict with what holds it."""
        return (Usage.OCCUPY,)

    def tracks_synchronous(self) -> bool:
        """Whether synchronous collectives have resources, too."""
        return self.settings.track_sync_op_resource_usage

    def is_queued(self, start: Instruction) -> bool:
        """Whether what it starts waits in a queue for what was started before."""
        del start
        return False

    def is_nonextendable(self, resource: Resource) -> bool:
        """Whether a resource must be released as soon as it is due; none here."""
        del resource
        return False


def may_run_async(instruction: Instruction) -> bool:
    """Whether its callees may have asynchronous halves.

    Bodies of fusions, reductions, sorts and the like are single kernels.
    """
    opcode = instruction.opcode
    if opcode == "custom-call":
        return bool(instruction.called_computations)
    return runs_callees(instruction) or opcode == "async-start"


def is_host_transfer(start: Instruction) -> bool:
    """Whether a send or recv exchanges with the host."""
    return start.opcode in opcodes.TRANSFERS and async_form.is_host_transfer(start)


def is_on_host(shape: Shape) -> bool:
    """Whether an array is in the host's memory."""
    layout = None if shape.is_tuple else shape.layout
    return layout is not None and layout.memory_space == _HOST_MEMORY_SPACE


def runs_on_another_thread(half: Instruction) -> bool:
    """Whether a generic half runs its computation on another thread."""
    return async_form.thread_of(half) != half.computation.execution_thread
