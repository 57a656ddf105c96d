"""The most that lives in a TPU's memories beside its cores, in whole tiles.

    %u = (..S(1).., ...) copy-start(%x)       bf16[256,512] lives from here on,
    %c = ..S(1).. copy-done(%u)               262,144 bytes of VMEM,
    %f = ... fusion(%c)                       to here; while it runs, it takes
                                              used_scoped_memory_configs for itself

Only the compiler's last modules say what lives there. Buffers are those of the other
memory (`buffers.py`), but the parts that a ConcatBitcast joins are one buffer from the
first of them on: they lie side by side. S(1) is VMEM; S(3), of v4 alone, CMEM.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from hlo_passes.ir.calls import scheduled_computations
from hlo_passes.ir.shapes import Shape
from hlo_passes.ir.tpu_calls import joins_parts
from hlo_passes.ir.tpu_config import scoped_bytes
from hlo_passes.scheduler.memory.buffer_sizes import PartSizes, memory_space
from hlo_passes.scheduler.memory.buffers import buffers_of_values
from hlo_passes.scheduler.memory.dataflow import Dataflow
from hlo_passes.scheduler.memory.pressure import ModuleMemory
from hlo_passes.scheduler.memory.tpu_sizes import padded_bytes

_NAMES: Final = {"VMEM": 1, "CMEM": 3}


@dataclass(frozen=True, slots=True)
class OnChip:
    """One of these memories.

    Attributes:
        name: 'VMEM' or 'CMEM'.
        peak_bytes: the most that lives there at once.
        scoped_bytes: the most that one instruction takes besides, while it runs.
    """

    name: str
    peak_bytes: int
    scoped_bytes: int

    def to_json(self) -> dict[str, Any]:
        """An entry of `memory` in `simulate --json`."""
        return {"peak_bytes": self.peak_bytes, "scoped_bytes": self.scoped_bytes}


def on_chip_memories(memory: ModuleMemory) -> tuple[OnChip, ...]:
    """Those that a module for a TPU uses.

    Complexity: that of `ModuleMemory`, which reads the module, for each memory.
    """
    flow = _with_joined_parts(memory.buffers.flow)
    found = []
    for name, space in _NAMES.items():
        peak = _peak_bytes(memory, flow, _InSpace(space))
        scoped = max(
            scoped_bytes(instruction, space)
            for computation in scheduled_computations(memory.module)
            for instruction in computation.instructions
        )
        if peak or scoped:
            found.append(OnChip(name, peak, scoped))
    return tuple(found)


def _with_joined_parts(flow: Dataflow) -> Dataflow:
    """Parts that are joined share the buffer of the whole."""
    pairs = [
        (flow.value[flow.position(whole, ())], flow.value[flow.position(part, path)])
        for whole in flow.reached.instructions
        if joins_parts(whole)
        for part in whole.operands
        for path, leaf in part.shape.leaves()
        if leaf.is_array
    ]
    return replace(flow, merged=[*flow.merged, *pairs])


def _peak_bytes(memory: ModuleMemory, flow: Dataflow, sizes_in: PartSizes) -> int:
    buffers = buffers_of_values(flow, sizes_in)
    sizes = list(buffers.sizes_bytes)
    for whole in flow.reached.instructions:
        if joins_parts(whole):
            for buffer in buffers.at(flow.position(whole, ())):
                sizes[buffer] = sizes_in(whole.shape)
    if not any(sizes):
        return 0
    buffers = replace(buffers, sizes_bytes=sizes, is_counted=[True] * len(sizes))
    return ModuleMemory(memory.module, buffers=buffers).module_peak_bytes


@dataclass(frozen=True, slots=True)
class _InSpace:
    """Bytes of an array in whole tiles if it is in a memory; else 0."""

    space: int

    def __call__(self, shape: Shape) -> int:
        if not shape.is_array or memory_space(shape) != self.space:
            return 0
        layout = shape.layout
        has_tiles = layout is not None and bool(layout.tiles)
        return padded_bytes(shape) if has_tiles else shape.byte_size
