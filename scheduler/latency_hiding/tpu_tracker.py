"""The TPU's tracker: kinds of collectives, and the links between chips that they use.

    all-gather-start            kAllGather, links of the grid        release
    collective-permute-start    kCollectivePermute, all six links    release
    copy-start (host)           kCopy                                release
    slice from, to the host     kHostToDevice, kDeviceToHost         release
    slice inside a device       nothing, and yet it is overlapped
    call on SparseCores         the kind of its collective, or       release
                                kSparseCoreGather; its cores

Links have no limit that binds. They count with `resource-serializing`, where a
synchronous collective yields while they are busy. Found in logs of compilations
(docs/tpu.md); which links an all-gather uses by its mesh is not told apart here.
"""

from __future__ import annotations

from typing import Final

from hlo_passes.ir.async_form import (
    is_generic,
    start_of,
    work_of,
    wrapped_instruction,
)
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.opcodes import facts
from hlo_passes.scheduler.latency_hiding.resources import (
    RESOURCE_OF_KIND,
    Holdings,
    Resource,
    Usage,
)
from hlo_passes.scheduler.latency_hiding.tracker import AsyncTracker, is_on_host
from hlo_passes.scheduler.tpu.sparse_core import (
    cores_of,
    is_on_sparse_core,
    offloaded_collective,
)

LINKS: Final = (
    Resource.ICI_X_PLUS,
    Resource.ICI_X_MINUS,
    Resource.ICI_Y_PLUS,
    Resource.ICI_Y_MINUS,
    Resource.ICI_Z_PLUS,
    Resource.ICI_Z_MINUS,
)
_LINKS_OF: Final = {
    "all-gather": LINKS[:4],
    "collective-permute": LINKS,
}
#: Work of generic halves that is overlapped on the thread that starts it. A done whose
#: start is in another trip of a loop does not say its work.
_SLICES: Final = frozenset({"dynamic-slice", "dynamic-update-slice", ""})
#: Synchronous collectives that use links, also inside fusions.
_SYNCHRONOUS: Final = frozenset({"all-gather", "all-reduce", "collective-permute"})
_CORES: Final = (
    Resource.SPARSE_CORE_0,
    Resource.SPARSE_CORE_1,
    Resource.SPARSE_CORE_2,
    Resource.SPARSE_CORE_3,
)


class TpuAsyncTracker(AsyncTracker):
    """Resources are kinds, links and SparseCores."""

    def _find_supported(self, instruction: Instruction) -> bool:
        """Whether a half is overlapped: slices are, too."""
        return _copies_slice(instruction) or super()._find_supported(instruction)

    def _find_resources(self, instruction: Instruction) -> Holdings:
        half = facts(instruction.opcode).half
        if half in ("start", "done"):
            usage = self._usage(half)
            start = start_of(instruction)
            if is_on_sparse_core(start):
                return tuple((r, usage) for r in _resources_of_call(start))
            if _copies_slice(instruction):
                return tuple((r, usage) for r in _resources_of_slice(instruction))
            entries = super()._find_resources(instruction)
            if is_generic(instruction):
                return entries
            links = _LINKS_OF.get(work_of(instruction), ())
            return (*entries, *((link, usage) for link in links))
        if self.tracks_synchronous() and _uses_links(instruction):
            return tuple((link, Usage.NONE) for link in LINKS[:4])
        return super()._find_resources(instruction)

    def is_queued(self, start: Instruction) -> bool:
        """Calls on SparseCores do, if that is set."""
        return self.settings.sparse_core_queue and is_on_sparse_core(start)

    def is_nonextendable(self, resource: Resource) -> bool:
        """Gathers on SparseCores start as soon as they are due."""
        return resource is Resource.SPARSE_CORE_GATHER

    def is_serial(self, resource: Resource) -> bool:
        """Links are."""
        return resource in LINKS

    def serial_usages(self) -> tuple[Usage, ...]:
        """Synchronous collectives name links without taking them."""
        return (Usage.NONE, Usage.OCCUPY)

    def tracks_synchronous(self) -> bool:
        """Whether links count."""
        return self.settings.resource_serializing


def _resources_of_call(start: Instruction) -> tuple[Resource, ...]:
    """What a call on SparseCores takes: its kind, links, and cores."""
    cores = tuple(_CORES[k] for k in cores_of(start) if k < len(_CORES))
    collective = offloaded_collective(start)
    if collective is None:
        return (Resource.SPARSE_CORE_GATHER, *cores)
    kind = RESOURCE_OF_KIND.get(collective.opcode)
    links = LINKS[:4]
    return (*links, *cores) if kind is None else (kind, *links, *cores)


def _copies_slice(half: Instruction) -> bool:
    """Whether a generic half reads or writes a slice."""
    return is_generic(half) and work_of(half) in _SLICES


def _resources_of_slice(half: Instruction) -> tuple[Resource, ...]:
    """Which way a slice goes between a device and its host; none inside a device."""
    wrapped = wrapped_instruction(half)
    if is_on_host(wrapped.shape):
        return (Resource.DEVICE_TO_HOST,)
    if wrapped.operands and is_on_host(wrapped.operands[0].shape):
        return (Resource.HOST_TO_DEVICE,)
    return ()


def _uses_links(instruction: Instruction) -> bool:
    if instruction.opcode in _SYNCHRONOUS:
        return True
    return instruction.opcode == "fusion" and any(
        inside.opcode in _SYNCHRONOUS
        for callee in instruction.called_computations
        for inside in callee.instructions
    )
