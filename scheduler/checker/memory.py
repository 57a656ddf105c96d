"""Peak memory of an order: every buffer counts from its creation to its last use.

    %a = f32[1024] fusion(...)     4096 bytes from here
    %b = f32[1024] add(%a, %c)     to here

A computation is walked once per set of buffers that are in use around its caller; what
its body needs beyond those is added to what is in use after the caller. A buffer
begins where the program first makes it: for the second of two branches that make the
same result, it exists from the top. Parameters of the entry are free (a limit already
leaves them out), a result that nobody uses takes nothing, and nothing fragments: this
is what XLA's scheduler calls the memory pressure peak.

It doubles `memory/pressure.py` on purpose: a judge that shares code with what it judges
shares its mistakes.

Source: openxla/xla `latency_hiding_scheduler.cc`, MemoryPressureTracker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.checker.buffers import Buffers, device_callees

#: They read the table of their operand, not the arrays that it points to.
_TOP_LEVEL_ONLY: Final = frozenset({"get-tuple-element", "bitcast"})


@dataclass(frozen=True, slots=True)
class Peak:
    """The most that is in use at one instruction, and where that is.

    Attributes:
        size_bytes: of the buffers in use.
        instruction: in the same computation, the first with that much.
    """

    size_bytes: int
    instruction: Instruction | None


def peak_memory(module: Module, buffers: Buffers | None = None) -> Peak:
    """The peak of a scheduled module, in the entry computation."""
    replay = _Replay(buffers or Buffers(module))
    return replay.peak(module.entry, frozenset())


@dataclass(frozen=True, slots=True)
class _Extents:
    """First and last position of every buffer that a computation touches.

    `made` is -1 for inputs through parameters, `read` is -1 for what is not used.
    """

    made: dict[int, int]
    read: dict[int, int]


@dataclass(slots=True)
class _Replay:
    buffers: Buffers
    free: frozenset[int] = frozenset()
    makers: dict[int, frozenset[Instruction]] = field(default_factory=dict)
    _extents: dict[Computation, _Extents] = field(default_factory=dict)
    _peaks: dict[tuple[Computation, frozenset[int]], Peak] = field(default_factory=dict)

    def __post_init__(self) -> None:
        entry = self.buffers.module.entry
        self.free = frozenset(
            self.buffers.buffer_of[place]
            for parameter in entry.parameters
            for place in self.buffers.places(parameter)
        )
        self._find_makers(entry, (), set())

    def _find_makers(
        self,
        computation: Computation,
        calls: tuple[Instruction, ...],
        walked: set[Computation],
    ) -> None:
        """The instruction that makes each buffer first; callees come before callers.

        The result holds that instruction and all calls that lead to it.
        """
        if computation in walked:
            return
        walked.add(computation)
        for instruction in computation.instructions:
            for callee in device_callees(instruction):
                self._find_makers(callee, (*calls, instruction), walked)
            for place in self.buffers.places(instruction):
                buffer = self.buffers.buffer_of[place]
                if buffer not in self.makers:
                    self.makers[buffer] = frozenset((*calls, instruction))

    def peak(self, computation: Computation, around: frozenset[int]) -> Peak:
        """Bytes beyond `around`, the buffers that are in use outside all the time."""
        extents = self._of(computation)
        known = self._peaks.get((computation, around))
        if known is not None:
            return known
        beginning, ending, base = self._changes(computation, extents, around)
        best, where = base, None
        using = base
        live = {
            b
            for b, made in extents.made.items()
            if made < 0 and (b in around or b in extents.read)
        }
        for position, instruction in enumerate(computation.instructions):
            for buffer in beginning.get(position, ()):
                using += self.buffers.size_bytes(buffer)
                live.add(buffer)
            most = using
            for buffer in ending.get(position, ()):
                using -= self.buffers.size_bytes(buffer)
                live.discard(buffer)
            callees = device_callees(instruction)
            if callees:
                most = max(most, using + self._inside(callees, live))
            if most > best:
                best, where = most, instruction
        found = Peak(best, where)
        self._peaks[computation, around] = found
        return found

    def _inside(self, callees: list[Computation], live: set[int]) -> int:
        """The most that a callee needs beyond what is in use after its caller."""
        most = 0
        for callee in callees:
            touched = self._of(callee).made
            around = frozenset(b for b in touched if b in live)
            most = max(most, self.peak(callee, around).size_bytes)
        return most

    def _changes(
        self, computation: Computation, extents: _Extents, around: frozenset[int]
    ) -> tuple[dict[int, list[int]], dict[int, list[int]], int]:
        """Buffers by where they begin and end, and the bytes in use at first.

        A buffer that is in use around the computation counts from where it is made, so
        fewer bytes are in use before that than around.
        """
        beginning: dict[int, list[int]] = {}
        ending: dict[int, list[int]] = {}
        base = 0
        size = self.buffers.size_bytes
        for buffer, made in extents.made.items():
            last = extents.read.get(buffer, -1)
            if buffer in self.free or not size(buffer):
                continue
            if buffer in around:
                if made >= 0:
                    base -= size(buffer)
                    beginning.setdefault(made, []).append(buffer)
                continue
            if last < 0:
                continue
            if made >= 0:
                beginning.setdefault(made, []).append(buffer)
            else:
                base += size(buffer)
            ending.setdefault(last, []).append(buffer)
        return beginning, ending, base

    def _of(self, computation: Computation) -> _Extents:
        known = self._extents.get(computation)
        if known is None:
            known = self._extents[computation] = self._read(computation)
        return known

    def _read(self, computation: Computation) -> _Extents:
        buffer_of, first = self.buffers.buffer_of, self.buffers.first
        places = self.buffers.places
        made: dict[int, int] = {}
        read: dict[int, int] = {}
        for parameter in computation.parameters:
            for place in places(parameter):
                made[buffer_of[place]] = -1
        for position, instruction in enumerate(computation.instructions):
            for place in places(instruction):
                buffer = buffer_of[place]
                is_maker = instruction in self.makers[buffer]
                made.setdefault(buffer, position if is_maker else -1)
            top_only = instruction.opcode in _TOP_LEVEL_ONLY
            for operand in instruction.operands:
                if top_only:
                    read[buffer_of[first[operand]]] = position
                else:
                    for place in places(operand):
                        read[buffer_of[place]] = position
        return _Extents(made, read)
