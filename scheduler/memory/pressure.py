"""Memory pressure of a schedule, as XLA's latency-hiding scheduler counts it.

    a = f32[256] fusion(p)      placed last:   a dies above (its definition frees it)
    ROOT r = f32[] reduce(a)    placed first:  a becomes live (its use allocates it)

Counting runs from the bottom up: placing an instruction makes the buffers of its
operands live and ends those that it is the first to define. A computation that an
instruction calls (loop body, branch, wrapped collective, adder) adds its own peak while
it runs. Buffers of entry parameters never count: the memory limit has subtracted them.

All tables hold integers. The index of an instruction is its position in the
order that its computation had when the `ModuleMemory` was made:

    memory = ModuleMemory(module)
    c = memory.of(computation)             # callees' peaks as they are now
    c.allocs[k], c.frees[k]                # buffer ids, with multiplicity
    state = PressureState(c); state.place(k); state.usage_bytes

Source: openxla/xla `xla/service/latency_hiding_scheduler.{h,cc}` (Aug 2026).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hlo_passes.garbage import garbage_collection_paused
from hlo_passes.scheduler.memory.alias_hazards import HazardTable
from hlo_passes.scheduler.memory.buffer_sizes import PartSizes
from hlo_passes.scheduler.memory.buffer_table import (
    Orders,
    build_buffer_table,
    ordered_blocks,
)
from hlo_passes.scheduler.memory.buffers import Buffers, build_buffers
from hlo_passes.scheduler.memory.replay import Replay

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.ir.module import Module


@dataclass(frozen=True, slots=True)
class ComputationMemory:
    """How each instruction of one computation changes memory when it is placed.

    Attributes:
        computation: whose tables these are.
        order: the instructions; position in it is the index into the lists.
        index: instruction -> its position in `order`.
        allocs: per instruction, buffers that live after it is placed (bottom-up: those
            of its operands). An id occurs as often as an operand position holds it.
        frees: per instruction, buffers that end after it is placed (bottom-up: those
            that it is the first to define), with multiplicity.
        inner_peak_bytes: per instruction, the greatest peak of what it calls.
        initial_live: buffers that live below the computation, at its first call, of
            those that begin or end in it or in what it calls.
        initial_bytes: of all buffers that live below it; 0 for the entry.
        sizes_bytes: bytes by buffer id, of the whole module.
        is_tracked: False if the entry never reaches it: its tables are empty.
    """

    computation: Computation
    order: tuple[Instruction, ...]
    index: dict[Instruction, int]
    allocs: list[tuple[int, ...]]
    frees: list[tuple[int, ...]]
    inner_peak_bytes: list[int]
    initial_live: frozenset[int]
    initial_bytes: int
    sizes_bytes: list[int]
    is_tracked: bool = True

    def peak_bytes(self, order: Iterable[Instruction] | None = None) -> int:
        """Memory pressure peak of an order of this computation, in bytes.

        It is `initial_bytes` plus the greatest growth over it: the figure that XLA
        prints as 'Memory pressure peak (bytes)'. Without an order it is that of
        `self.order`.
        """
        return self.initial_bytes + self.peak_delta_bytes(order)

    def peak_delta_bytes(self, order: Iterable[Instruction] | None = None) -> int:
        """Like `peak_bytes` without `initial_bytes`: what the caller sees inside."""
        state = PressureState(self)
        backwards = (
            range(len(self.order) - 1, -1, -1)
            if order is None
            else [self.index[i] for i in reversed(list(order))]
        )
        for k in backwards:
            state.place(k)
        return state.peak_delta_bytes


class PressureState:
    """Memory while the instructions of a computation are placed one by one.

    Attributes:
        live: buffers that live now, including those below the computation.
        delta_bytes: growth over `initial_bytes`; may be negative.
        peak_delta_bytes: its greatest value so far, including callees.
    """

    __slots__ = ("delta_bytes", "live", "memory", "peak_delta_bytes")

    def __init__(self, memory: ComputationMemory) -> None:
        """Start with nothing placed."""
        self.memory = memory
        self.live = set(memory.initial_live)
        self.delta_bytes = 0
        self.peak_delta_bytes = 0

    @property
    def usage_bytes(self) -> int:
        """Bytes live now."""
        return self.memory.initial_bytes + self.delta_bytes

    def place(self, k: int) -> None:
        """Place the instruction of index `k`."""
        memory, live = self.memory, self.live
        sizes = memory.sizes_bytes
        delta = self.delta_bytes
        peak = max(self.peak_delta_bytes, delta + memory.inner_peak_bytes[k])
        for b in memory.allocs[k]:
            if b not in live:
                live.add(b)
                delta += sizes[b]
        self.peak_delta_bytes = max(peak, delta)
        for b in memory.frees[k]:
            if b in live:
                live.remove(b)
                delta -= sizes[b]
        self.delta_bytes = delta

    def query(self, k: int) -> tuple[int, int]:
        """(increase, peak) in bytes of placing `k` now, as XLA estimates it.

        Buffers are summed as often as they are in the lists: `add(x, x)` with a dead
        `x` counts `x` twice, though `place` counts it once.
        """
        memory, live = self.memory, self.live
        sizes = memory.sizes_bytes
        grown = sum(sizes[b] for b in memory.allocs[k] if b not in live)
        shrunk = sum(sizes[b] for b in memory.frees[k] if b in live)
        return grown - shrunk, max(grown, memory.inner_peak_bytes[k])


class ModuleMemory:
    """The buffers of a module, and the memory pressure of every computation.

    Attributes:
        module: whose memory this is.
        buffers: its buffers; unchanged by any order.
        table: where buffers begin and end in the given orders.
        blocks: computation -> numbers of its instructions (`reached`), in order.
        sizes_bytes: bytes by buffer id (a tuple counts its pointers).
    """

    def __init__(
        self,
        module: Module,
        orders: Orders | None = None,
        *,
        top_down: bool = False,
        buffers: Buffers | None = None,
        sizes: PartSizes | None = None,
    ) -> None:
        """Build the tables and replay the entry.

        Args:
            module: with every reached computation in a valid order.
            orders: replaces the text order of some computations.
            top_down: swap the roles: outputs allocate, last uses free.
            buffers: those of the module, if they are known already.
            sizes: of parts, if not the GPU's.
        """
        self.module = module
        self._top_down = top_down
        with garbage_collection_paused():
            self.buffers = (
                buffers if buffers is not None else build_buffers(module, sizes)
            )
            self.blocks = ordered_blocks(self.buffers.flow.reached, orders or {})
            self.table = build_buffer_table(
                self.buffers, self.blocks, top_down=top_down
            )
            self._replay = Replay(self.table, self.blocks, top_down=top_down)
            self._replay.run()
        self.sizes_bytes = self.buffers.sizes_bytes
        self._hazards: HazardTable | None = None

    @property
    def computations(self) -> tuple[Computation, ...]:
        """Computations that run, callees before callers."""
        peaks = self._replay.stored_peaks
        return tuple(c for c in self.buffers.flow.reached.computations if c in peaks)

    def of(self, computation: Computation) -> ComputationMemory:
        """Tables of one computation, with the callees' peaks that are stored now."""
        reached = self.buffers.flow.reached
        block = self.blocks.get(computation, ())
        tracked = computation in self._replay.stored_peaks
        order = (
            tuple([reached.instructions[n] for n in block])
            if computation in self.blocks
            else computation.instructions
        )
        if not tracked:
            return ComputationMemory(
                computation=computation,
                order=order,
                index={i: k for k, i in enumerate(order)},
                allocs=[()] * len(order),
                frees=[()] * len(order),
                inner_peak_bytes=[0] * len(order),
                initial_live=frozenset(),
                initial_bytes=0,
                sizes_bytes=self.sizes_bytes,
                is_tracked=False,
            )
        allocs, frees = self.table.allocs, self.table.frees
        inner, callees = self._replay.inner_peak_bytes, reached.callees
        below = self._replay.below(computation)
        return ComputationMemory(
            computation=computation,
            order=order,
            index={i: k for k, i in enumerate(order)},
            allocs=[allocs[n] for n in block],
            frees=[frees[n] for n in block],
            inner_peak_bytes=[inner(n) if n in callees else 0 for n in block],
            initial_live=below.live,
            initial_bytes=below.bytes,
            sizes_bytes=self.sizes_bytes,
        )

    def rescheduled(self, computation: Computation, peak_delta_bytes: int) -> None:
        """Store the peak of a computation's new order; callers use it from now on."""
        self._replay.stored_peaks[computation] = peak_delta_bytes

    def stored_peak_bytes(self, computation: Computation) -> int:
        """The stored peak (growth over `initial_bytes`) of a computation."""
        return self._replay.stored_peaks.get(computation, 0)

    @property
    def module_peak_bytes(self) -> int:
        """Greatest stored peak of all computations that run; it decides reruns."""
        return max(self._replay.stored_peaks.values())

    def replayed(self, orders: Orders | None = None) -> ModuleMemory:
        """The same buffers under other orders, with new tables and peaks.

        It serves reruns, and the figures after scheduling.
        """
        return ModuleMemory(
            self.module, orders, top_down=self._top_down, buffers=self.buffers
        )

    def alias_hazards(self) -> HazardTable:
        """Uses of everything that shares memory with the results of dones."""
        if self._hazards is None:
            self._hazards = HazardTable(self.buffers)
        return self._hazards
