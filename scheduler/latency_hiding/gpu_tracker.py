"""The GPU's tracker: streams instead of kinds, and which halves the GPU overlaps.

    start on the p2p stream                     kGpuAsyncStreamCollectivesP2P
    send, recv                                  kGpuAsyncStreamSend0 ... Recv1
    collectives, collective stream, groups      kGpuAsyncStreamCollectives
    copies inside the GPU by dynamic slice      kGpuAsyncStreamMemcpy
    all other asynchronous work                 kGpuAsyncStreamComputes

Source: openxla/xla `gpu_latency_hiding_scheduler.cc`, GpuAsyncTracker (Aug 2026).
"""

from __future__ import annotations

from typing import Final

from hlo_passes.analysis import transfer_attributes
from hlo_passes.ir.async_form import (
    is_collective,
    is_done,
    is_fusion,
    is_generic,
    is_start,
    is_transfer,
    work_of,
    wrapped_instruction,
)
from hlo_passes.ir.gpu_config import is_marked_sync
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.opcodes import facts
from hlo_passes.scheduler.latency_hiding import attributes as attr
from hlo_passes.scheduler.latency_hiding.resources import Holdings, Resource, Usage
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.latency_hiding.slice_copies import is_slice_copy
from hlo_passes.scheduler.latency_hiding.tpu_tracker import TpuAsyncTracker
from hlo_passes.scheduler.latency_hiding.tracker import (
    AsyncTracker,
    is_on_host,
    runs_on_another_thread,
)


def make_tracker(settings: SchedulerSettings) -> AsyncTracker:
    """The tracker of the settings' flavour."""
    if settings.flavour == "gpu":
        return GpuAsyncTracker(settings)
    if settings.flavour == "tpu":
        return TpuAsyncTracker(settings)
    return AsyncTracker(settings)


class GpuAsyncTracker(AsyncTracker):
    """Resources are streams; a collective marked synchronous is not supported."""

    def _find_supported(self, instruction: Instruction) -> bool:
        """Whether the GPU overlaps a half."""
        if (
            is_transfer(instruction)
            or is_collective(instruction)
            or is_collectives_group(instruction)
        ):
            start = instruction.operands[0] if is_done(instruction) else instruction
            return not is_marked_sync(start)
        if facts(instruction.opcode).spelling == "native":
            return True  # a copy
        if runs_on_another_thread(instruction):
            return True
        return _is_slicing_copy(wrapped_instruction(instruction))

    def _find_resources(self, instruction: Instruction) -> Holdings:
        half = facts(instruction.opcode).half
        if half not in ("start", "done"):
            return super()._find_resources(instruction)
        usage = Usage.RELEASE if half == "start" else Usage.OCCUPY
        if (
            self.settings.release.slice_copies_have_a_resource
            and is_generic(instruction)
            and is_slice_copy(wrapped_instruction(instruction))
        ):
            return ((Resource.GPU_MEMCPY, self._usage(half)),)
        start = instruction if half == "start" else instruction.operands[0]
        if transfer_attributes.is_on_p2p_stream(start):
            return ((Resource.GPU_COLLECTIVES_P2P, usage),)
        if is_transfer(instruction):
            kind = work_of(instruction)
            return ((_transfer_stream(instruction, kind), usage),)
        if (
            is_collective(instruction)
            or is_stream_collective(instruction)
            or is_collectives_group(instruction)
        ):
            return ((Resource.GPU_COLLECTIVES, usage),)
        return ((Resource.GPU_COMPUTES, usage),)

    def instances_needed(self, instruction: Instruction) -> dict[Resource, int]:
        """As in the base class, but an explicit group of collectives is one launch."""
        if is_collectives_group(instruction):
            return self._own_occupations(instruction)
        return super().instances_needed(instruction)

    def instances_of_one(self, resource: Resource, instruction: Instruction) -> int:
        """As in the base class, minus one if a loop passes a transfer to a done."""
        count = super().instances_of_one(resource, instruction)
        if (
            count > 0
            and instruction.opcode == "while"
            and Resource.GPU_SEND_0 <= resource <= Resource.GPU_COLLECTIVES
            and _feeds_done(instruction, resource)
        ):
            # XLA's range ends one too late, so it includes collectives.
            return count - 1
        return count

    def is_selective(self, resource: Resource) -> bool:
        """Copies inside the GPU, if that is asked for."""
        return (
            self.settings.enable_selective_memcpy_overlap
            and resource is Resource.GPU_MEMCPY
        )

    def writes_slice_to_host(self, instruction: Instruction) -> bool:
        """Whether it starts a fusion that updates a slice.

        XLA 0.10.2 ignores where the slice is; later releases leave slices of device
        memory alone (they log kLessStall where this rule would have decided).
        """
        if not (is_start(instruction) and is_generic(instruction)):
            return False
        wrapped = wrapped_instruction(instruction)
        if not is_fusion(wrapped):
            return False
        anywhere = self.settings.release.slices_to_anywhere_are_early
        if not (anywhere or is_on_host(wrapped.shape)):
            return False
        return any(
            inner.opcode == "dynamic-update-slice"
            for body in wrapped.called_computations
            for inner in body.instructions
        )


def is_stream_collective(instruction: Instruction) -> bool:
    """Whether an annotation puts a generic half on the collective stream."""
    if not is_generic(instruction):
        return False
    text = attr.frontend(instruction, attr.STREAM_ANNOTATION)
    return text is not None and text.lower() == "collective"


def is_group_start(instruction: Instruction) -> bool:
    """Whether it starts an explicit group of collectives."""
    return (
        is_start(instruction)
        and is_generic(instruction)
        and attr.frontend(instruction, attr.COLLECTIVES_GROUP) is not None
    )


def is_collectives_group(instruction: Instruction) -> bool:
    """Whether it is a half of an explicit group of collectives."""
    if not is_generic(instruction):
        return False
    if is_done(instruction):
        return is_group_start(instruction.operands[0])
    return is_group_start(instruction)


def _is_slicing_copy(wrapped: Instruction) -> bool:
    """Whether a wrapped fusion copies from or to the host, or by dynamic slice."""
    if not is_fusion(wrapped):
        return False
    source = wrapped.operands[0].shape if wrapped.operands else None
    return (
        is_on_host(wrapped.shape)
        or (source is not None and is_on_host(source))
        or is_slice_copy(wrapped)
    )


def _transfer_stream(instruction: Instruction, kind: str) -> Resource:
    second = attr.frontend(instruction, transfer_attributes.PIPELINE) == "1"
    if kind == "send":
        return Resource.GPU_SEND_1 if second else Resource.GPU_SEND_0
    return Resource.GPU_RECV_1 if second else Resource.GPU_RECV_0


_FED_DONES: Final = {
    Resource.GPU_SEND_0: ("send-done", False),
    Resource.GPU_SEND_1: ("send-done", True),
    Resource.GPU_RECV_0: ("recv-done", False),
}


def _feeds_done(loop: Instruction, resource: Resource) -> bool:
    """Whether an element of a loop goes to a done of the resource's stream."""
    opcode, second = _FED_DONES.get(resource, ("recv-done", True))
    for element in loop.users:
        if element.opcode != "get-tuple-element":
            continue
        for user in element.users:
            if user.opcode == opcode:
                return (
                    attr.frontend(user, transfer_attributes.PIPELINE) == "1"
                ) == second
    return False
