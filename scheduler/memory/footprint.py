"""Whether a step fits: its peak with parameters, what lives there, and the device.

    found = footprint(ModuleMemory(module)).on(target("h100_sxm"))
    found.peak_bytes, found.parameters_bytes     102.1e9, 34.5e9
    found.available_bytes                        63.7e9: 75% of 84.9e9
    found.fits, found.largest[0].name            False, 'fusion.12'

The peak is the greatest value of the memory curve, with the entry's parameters, which
live from first to last, and the result: what lives at once. What XLA allocates differs:
a heap cannot close its gaps, but a result may take the place of an operand that dies.
So whether a step fits is a question for the heap (`packed_bytes`).

Sources: `data/device_memory.csv`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from hlo_passes.analysis.program_places import ProgramPlaces, program_places
from hlo_passes.scheduler.latency.data_tables import rows
from hlo_passes.scheduler.memory.buffer_sizes import parts_of
from hlo_passes.scheduler.memory.fragmentation import packed_bytes
from hlo_passes.scheduler.memory.memory_limit import device_bytes
from hlo_passes.scheduler.memory.pressure import (
    ComputationMemory,
    ModuleMemory,
    PressureState,
)

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.ir.module import Module
    from hlo_passes.ir.shapes import Shape
    from hlo_passes.scheduler.hardware.target import Target
    from hlo_passes.scheduler.memory.on_chip import OnChip
    from hlo_passes.scheduler.tpu.chips import Chip

#: The environment variable that replaces XLA's own share.
FRACTION_VARIABLE: Final = "XLA_CLIENT_MEM_FRACTION"
#: Largest buffers that are listed.
_MOST_LISTED: Final = 20


@dataclass(frozen=True, slots=True)
class LiveBuffer:
    """A buffer that lives at the peak.

    Attributes:
        name: of the instruction that makes it, or of the parameter.
        computation: of that instruction.
        bytes: its size.
        shape: of what is in it first.
        kind: 'parameter' or 'temporary'.
        op_name: what the user's framework calls the instruction; '' if nothing does.
        file: source file, '' if unknown.
        line: in it, 0 if unknown.
    """

    name: str
    computation: str
    bytes: int
    shape: str
    kind: str
    op_name: str
    file: str
    line: int

    @property
    def source(self) -> str:
        """'model.py:41', or '' ."""
        return f"{self.file}:{self.line}" if self.file and self.line else self.file

    def to_json(self) -> dict[str, Any]:
        """The entry of `simulate --json`."""
        source = {"file": self.file, "line": self.line} if self.file else None
        return {
            "name": self.name,
            "computation": self.computation,
            "bytes": self.bytes,
            "shape": self.shape,
            "kind": self.kind,
            "op_name": self.op_name,
            "source": source,
        }


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory of one step on one device.

    Attributes:
        peak_bytes: the most that lives at once, parameters included.
        parameters_bytes: of the entry's parameters.
        at: name of the instruction that runs at the peak.
        largest: the largest buffers that live there, largest first.
        device_bytes: memory of the device, 0 if unknown.
        available_bytes: of it, what XLA's allocator takes by default; 0 if unknown.
        packed_bytes: all that XLA's buffer assignment takes, as packed here; None for a
            module too large for that, and for a TPU.
        assigned_bytes: what XLA's buffer assignment needs, if XLA dumped that.
        near_memories: those beside a TPU's cores, if the module says what is there.
    """

    peak_bytes: int
    parameters_bytes: int
    at: str
    largest: tuple[LiveBuffer, ...]
    device_bytes: int = 0
    available_bytes: int = 0
    packed_bytes: int | None = None
    assigned_bytes: int | None = None
    near_memories: tuple[OnChip, ...] = ()

    @property
    def needed_bytes(self) -> int:
        """What the step takes of the device: packed, else what lives at the peak."""
        return self.peak_bytes if self.packed_bytes is None else self.packed_bytes

    @property
    def fits(self) -> bool | None:
        """Whether XLA's allocator has that much; None if nobody knows what it has."""
        if not self.available_bytes:
            return None
        return self.needed_bytes <= self.available_bytes

    @property
    def fits_device(self) -> bool | None:
        """Whether the device has that much; None if it is unknown."""
        return self.needed_bytes <= self.device_bytes if self.device_bytes else None

    @property
    def needed_fraction(self) -> float:
        """The share of the device that the step needs, rounded up to hundredths."""
        return math.ceil(100 * self.needed_bytes / self.device_bytes) / 100

    def on(self, part: Target) -> Footprint:
        """The same on a device, whose description may not know its memory."""
        return replace(
            self,
            device_bytes=part.memory_bytes,
            available_bytes=available_bytes(part.memory_bytes),
        )

    def on_chip(self, part: Chip) -> Footprint:
        """The same on a device of a TPU.

        It fits at most if its elements do: tiles, which take more, are not counted.
        """
        return replace(self, device_bytes=part.device_bytes)

    def to_json(self) -> dict[str, Any]:
        """`memory` of `simulate --json`; figures that nobody knows are null."""
        return {
            "peak_bytes": self.peak_bytes,
            "packed_bytes": self.packed_bytes,
            "parameters_bytes": self.parameters_bytes,
            "device_bytes": self.device_bytes or None,
            "available_bytes": self.available_bytes or None,
            "fits": self.fits,
            "xla_buffer_assignment_bytes": self.assigned_bytes,
            "at": self.at,
            "largest": [buffer.to_json() for buffer in self.largest],
            **{each.name.lower(): each.to_json() for each in self.near_memories},
        }


def available_bytes(memory_bytes: int) -> int:
    """What XLA's allocator takes of a device's memory unless the user says more."""
    table = {row["name"]: int(row["value"]) for row in rows("device_memory")}
    grain = table["granularity_bytes"]
    taken = memory_bytes * table["allocator_percent"] // 100
    return min(memory_bytes, -(-taken // grain) * grain)


def footprint(memory: ModuleMemory, *, packs: bool = True) -> Footprint:
    """The footprint of a module in its text order, without a device.

    Args:
        memory: of the module.
        packs: whether to pack it as XLA:GPU does, which XLA:TPU does not.
    """
    module = memory.module
    found = _Peak(memory, module.entry, _result_buffers(memory))
    parameters = sum(device_bytes(p.shape) for p in module.entry.parameters)
    places = program_places(module)
    buffers = [*_parameters(module, places), *_temporaries(memory, found.live, places)]
    buffers.sort(key=lambda b: (-b.bytes, b.name))
    return Footprint(
        parameters + found.bytes,
        parameters,
        found.at.name if found.at is not None else "",
        tuple(buffers[:_MOST_LISTED]),
        packed_bytes=packed_bytes(module, memory.buffers) if packs else None,
    )


class _Peak:
    """The moment at which most lives in a computation, with what lives then.

    Attributes:
        bytes: what lives, without the entry's parameters.
        live: the buffers.
        at: the instruction that runs then, the innermost one; None if nothing lives.
    """

    def __init__(
        self, memory: ModuleMemory, computation: Computation, result: frozenset[int]
    ) -> None:
        """Find it; `result` also lives while the root runs."""
        tables = memory.of(computation)
        where, inside, self.bytes = _greatest(tables, result)
        self.at: Instruction | None = None
        self.live: set[int] = set(tables.initial_live)
        if where < 0:
            return
        self.at = tables.order[where]
        # Place again what comes after the peak: that is live below it.
        state = PressureState(tables)
        for k in range(len(tables.order) - 1, where, -1):
            state.place(k)
        self.live = state.live
        if not inside:
            self.live.update(tables.allocs[where])
            if self.at is computation.root:
                self.live |= result
            return
        # The peak is inside what is called: follow the callee that has it.
        reached = memory.buffers.flow.reached
        callees = reached.callees[reached.number[self.at]]
        callee = max(callees, key=memory.stored_peak_bytes)
        inner = _Peak(memory, callee, frozenset())
        below = memory.of(callee).initial_live
        # What the callee makes for its caller does not live yet.
        self.live -= below - inner.live
        self.live |= inner.live - below
        self.at = inner.at or self.at


def _greatest(
    tables: ComputationMemory, result: frozenset[int]
) -> tuple[int, bool, int]:
    """(position of the peak or -1, whether a callee has it, bytes that live)."""
    state = PressureState(tables)
    sizes = tables.sizes_bytes
    best, where, inside = tables.initial_bytes, -1, False
    for k in range(len(tables.order) - 1, -1, -1):
        begun = dict.fromkeys(tables.allocs[k])
        if tables.order[k] is tables.computation.root:
            begun |= dict.fromkeys(result)
        grown = sum(sizes[b] for b in begun if b not in state.live)
        inner = tables.inner_peak_bytes[k]
        using = state.usage_bytes + max(grown, inner)
        if using > best:
            best, where, inside = using, k, inner > grown
        state.place(k)
    return where, inside, best


def _result_buffers(memory: ModuleMemory) -> frozenset[int]:
    """Buffers of the entry's result that are not those of a parameter."""
    buffers, first = memory.buffers, memory.table.first
    flow = buffers.flow
    n = flow.reached.number[memory.module.entry.root]
    entry = memory.module.entry
    return frozenset(
        b
        for position in range(flow.start[n], flow.start[n + 1])
        for b in buffers.at(position)
        if buffers.is_counted[b]
        and not _is_parameter_of(entry, flow.reached.instructions[first[b]])
    )


def _is_parameter_of(computation: Computation, instruction: Instruction) -> bool:
    return instruction.opcode == "parameter" and instruction.computation is computation


def _parameters(module: Module, places: ProgramPlaces) -> Iterator[LiveBuffer]:
    """A buffer for each array of the entry's parameters."""
    for parameter in module.entry.parameters:
        parts = parts_of(parameter.shape)
        for shape, size, is_default in zip(
            parts.shapes, parts.sizes_bytes, parts.is_default_space, strict=True
        ):
            if is_default and not shape.is_tuple:
                yield _buffer(parameter, shape, size, "parameter", places)


def _temporaries(
    memory: ModuleMemory, live: set[int], places: ProgramPlaces
) -> Iterator[LiveBuffer]:
    """The other buffers that live, by the instruction that first holds each."""
    buffers, flow = memory.buffers, memory.buffers.flow
    largest = sorted(live, key=lambda b: (-memory.sizes_bytes[b], b))[:_MOST_LISTED]
    for b in largest:
        n = memory.table.first[b]
        position = next(
            p for p in range(flow.start[n], flow.start[n + 1]) if b in buffers.at(p)
        )
        shape = flow.parts(n).shapes[position - flow.start[n]]
        instruction = flow.reached.instructions[n]
        size = memory.sizes_bytes[b]
        if size:
            yield _buffer(instruction, shape, size, "temporary", places)


def _buffer(
    instruction: Instruction, shape: Shape, size: int, kind: str, places: ProgramPlaces
) -> LiveBuffer:
    place = places.plain(instruction)
    return LiveBuffer(
        instruction.name,
        instruction.computation.name,
        size,
        shape.text,
        kind,
        place.op_name,
        place.file,
        place.line,
    )
