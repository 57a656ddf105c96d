"""The TPU's tracker: kinds of collectives, and the links between chips that they use.

    all-gather-start            kAllGather, links of the grid        release
    collective-permute-start    kCollectivePermute, all six links    release
    copy-start (host)           kCopy                                release
    call on a SparseCore        kSparseCoreGather, kSparseCore0      release

Links have no limit that binds. They count with `resource-serializing`, where a
synchronous collective yields while they are busy. Found in logs of compilations
(docs/tpu.md); which links an all-gather uses by its mesh is not told apart here.
"""

from __future__ import annotations

from typing import Final

from hlo_passes.ir.async_form import work_of
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.opcodes import facts
from hlo_passes.scheduler.latency_hiding.resources import Holdings, Resource, Usage
from hlo_passes.scheduler.latency_hiding.tracker import (
    AsyncTracker,
    runs_on_another_thread,
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
#: Synchronous collectives that use links, also inside fusions.
_SYNCHRONOUS: Final = frozenset({"all-gather", "all-reduce", "collective-permute"})
_SPARSE_CORE: Final = (Resource.SPARSE_CORE_GATHER, Resource.SPARSE_CORE_0)


class TpuAsyncTracker(AsyncTracker):
    """Resources are kinds, links and SparseCores."""

    def _find_resources(self, instruction: Instruction) -> Holdings:
        half = facts(instruction.opcode).half
        if half in ("start", "done"):
            usage = self._usage(half)
            entries = super()._find_resources(instruction)
            if facts(instruction.opcode).spelling == "generic":
                if not entries and runs_on_another_thread(instruction):
                    return tuple((r, usage) for r in _SPARSE_CORE)
                return entries
            links = _LINKS_OF.get(work_of(instruction), ())
            return (*entries, *((link, usage) for link in links))
        if self.tracks_synchronous() and _uses_links(instruction):
            return tuple((link, Usage.NONE) for link in LINKS[:4])
        return super()._find_resources(instruction)

    def is_serial(self, resource: Resource) -> bool:
        """Links are."""
        return resource in LINKS

    def serial_usages(self) -> tuple[Usage, ...]:
        """Synchronous collectives name links without taking them."""
        return (Usage.NONE, Usage.OCCUPY)

    def tracks_synchronous(self) -> bool:
        """Whether links count."""
        return self.settings.resource_serializing


def _uses_links(instruction: Instruction) -> bool:
    if instruction.opcode in _SYNCHRONOUS:
        return True
    return instruction.opcode == "fusion" and any(
        inside.opcode in _SYNCHRONOUS
        for callee in instruction.called_computations
        for inside in callee.instructions
    )
