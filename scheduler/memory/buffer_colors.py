"""The memory that each buffer is asked to lie in, by whom, and what is copied first.

    %n = f32[8]{0:S(5)} copy(%p)         asks for the memory of the host, 5
    %r = f32[8] all-reduce(%n)           asks for registered memory, 1, of %n and %r
    colors   {buffer of %r: 1}
    conflict %n is asked to lie in memory 5 by %n and in memory 1 by %r

XLA calls these spaces the colors of buffers. The caller's arguments, constants and
results are not its own: they cannot be registered, and are copied first.

Source: openxla/xla `xla/service/gpu/gpu_memory_space_assignment.cc`,
`xla/service/gpu/gpu_compiler.cc` (GpuCollectiveBufferAnalysis).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import Shape
from hlo_passes.scheduler.memory.buffer_sizes import parts_of
from hlo_passes.scheduler.memory.buffers import Buffers

Path = tuple[int, ...]
#: The color of a buffer for which two are asked.
CONFLICT: Final = -1


@dataclass(frozen=True, slots=True)
class Wish:
    """That a buffer lies in some memory.

    Attributes:
        buffer: its number.
        space: the memory's.
        by: who asks.
    """

    buffer: int
    space: int
    by: Instruction


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two memories are asked for one buffer.

    Attributes:
        name: of the instruction that makes the first value of the buffer.
        one: the first wish in the order of the text.
        other: the first that differs from it.
    """

    name: str
    one: Wish
    other: Wish

    @property
    def text(self) -> str:
        """Who asks for what."""
        one, other = self.one, self.other
        return (
            f"%{self.name} is asked to lie in memory {one.space} by %{one.by.name} and "
            f"in memory {other.space} by %{other.by.name}"
        )


@dataclass(frozen=True, slots=True)
class Coloring:
    """The outcome: a memory for each buffer that somebody asked about.

    Attributes:
        spaces: buffer -> its memory, or `CONFLICT`.
        conflicts: in the order of their buffers.
    """

    spaces: dict[int, int]
    conflicts: tuple[Conflict, ...]


def color(buffers: Buffers, wishes: Iterable[Wish]) -> Coloring:
    """Settle what all wishes ask for."""
    first: dict[int, Wish] = {}
    against: dict[int, Wish] = {}
    for wish in wishes:
        one = first.setdefault(wish.buffer, wish)
        if one.space != wish.space:
            against.setdefault(wish.buffer, wish)
    names = _names(buffers, set(against))
    spaces = {b: CONFLICT if b in against else first[b].space for b in first}
    conflicts = tuple(Conflict(name, first[b], against[b]) for b, name in names)
    return Coloring(spaces, conflicts)


def _names(buffers: Buffers, numbers: set[int]) -> Iterator[tuple[int, str]]:
    """The instruction that makes the first value of each of some buffers."""
    flow = buffers.flow
    first: dict[int, int] = {}
    for v, b in buffers.of_value.items():
        if b in numbers:
            first[b] = min(v, first.get(b, v))
    for b, v in sorted(first.items(), key=lambda item: item[1]):
        yield b, flow.reached.instructions[flow.owner(v)].name


@dataclass(frozen=True, slots=True)
class PlannedCopy:
    """Parts of an argument, constant or result that are copied.

    Attributes:
        instruction: that makes them.
        paths: of the parts.
        role: 'argument', 'constant' or 'result'.
    """

    instruction: Instruction
    paths: frozenset[Path]
    role: str

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Of the parts."""
        parts = parts_of(self.instruction.shape)
        return tuple(parts.shapes[parts.offsets[path]] for path in sorted(self.paths))


def planned_copies(buffers: Buffers, wanted: set[int]) -> tuple[PlannedCopy, ...]:
    """What is copied so that these buffers are nobody else's, in the text's order."""
    flow = buffers.flow
    root = flow.reached.module.entry.root
    found: list[PlannedCopy] = []
    for n, instruction in enumerate(flow.reached.instructions):
        role = ""
        if instruction.opcode == "constant":
            role = "constant"
        elif instruction.opcode == "parameter" and instruction.computation.is_entry:
            role = "argument"
        elif instruction is root and instruction.opcode != "copy":
            role = "result"
        if not role:
            continue
        start, parts = flow.start[n], parts_of(instruction.shape)
        paths = frozenset(
            path
            for path, k in parts.offsets.items()
            if parts.shapes[k].is_array and wanted.intersection(buffers.at(start + k))
        )
        if paths:
            found.append(PlannedCopy(instruction, paths, role))
    return tuple(found)
