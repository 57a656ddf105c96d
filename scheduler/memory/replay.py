"""Replays a program from its end: each computation's peak, and what lives below it.

    entry:  ... w = while(t), body=%body ... r     r first, upwards to w;
                                                   then body, upwards, with what lives
                                                   below w; then w itself

A computation that is called from several places is replayed for each; the last replay,
that of the first call in program order, is kept.

Source: openxla/xla `xla/service/latency_hiding_scheduler.cc`, ModulePressureState (Aug
2026).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hlo_passes.scheduler.memory.buffer_table import BufferTable
from hlo_passes.scheduler.memory.reached import has_own_instructions

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation


class Replay:
    """Peaks of all computations that run.

    Attributes:
        stored_peaks: growth in bytes over what lives below, by computation, in the
            order in which they were first replayed.
    """

    def __init__(
        self,
        table: BufferTable,
        blocks: Mapping[Computation, Sequence[int]],
        *,
        top_down: bool,
    ) -> None:
        """Start with nothing replayed."""
        self._table = table
        self._reached = table.buffers.flow.reached
        self._blocks = blocks
        self._top_down = top_down
        self._callees = {
            n: tuple(c for c in targets if self._reached.runs_on(c))
            for n, targets in self._reached.callees.items()
        }
        self._initial: dict[Computation, frozenset[int]] = {}
        # Adders, comparators and the like touch nothing of their caller: their peak is
        # the same at each call, so the last call alone determines what lived at that
        # time.
        self._called_at: dict[Computation, int] = {}
        self._embedded = {
            c
            for c, sites in self._reached.call_sites.items()
            if sites
            and not any(
                has_own_instructions(self._reached.instructions[n]) for n in sites
            )
        }
        self.stored_peaks: dict[Computation, int] = {}

    def run(self) -> None:
        """Replay the entry, and what it calls."""
        entry = self._reached.module.entry
        self._initial[entry] = frozenset()
        self.stored_peaks[entry] = self._backwards(entry, set())

    def inner_peak_bytes(self, n: int) -> int:
        """Greatest stored peak of what instruction `n` calls."""
        return max(
            (self.stored_peaks.get(c, 0) for c in self._callees.get(n, ())), default=0
        )

    def initial_live(self, computation: Computation) -> frozenset[int]:
        """Buffers that live below a computation."""
        known = self._initial.get(computation)
        if known is not None:
            return known
        site = self._called_at[computation]
        caller = self._reached.instructions[site].computation
        live = set(self.initial_live(caller))
        allocs, frees = self._table.allocs, self._table.frees
        for n in self._in_replay_order(caller):
            if n == site:
                break
            live.update(allocs[n])
            live.difference_update(frees[n])
        self._initial[computation] = frozenset(live)
        return self._initial[computation]

    def _in_replay_order(self, computation: Computation) -> Sequence[int]:
        block = self._blocks[computation]
        return block if self._top_down else block[::-1]

    def _backwards(self, computation: Computation, live: set[int]) -> int:
        """The peak of one computation; `live` becomes what lives above it."""
        allocs, frees = self._table.allocs, self._table.frees
        sizes = self._table.buffers.sizes_bytes
        callees = self._callees
        delta = peak = 0
        for n in self._in_replay_order(computation):
            if n in callees:
                for callee in callees[n]:
                    self._call(callee, n, live)
                peak = max(peak, delta + self.inner_peak_bytes(n))
            for b in allocs[n]:
                if b not in live:
                    live.add(b)
                    delta += sizes[b]
            if delta > peak:
                peak = delta
            for b in frees[n]:
                if b in live:
                    live.remove(b)
                    delta -= sizes[b]
        return peak

    def _call(self, callee: Computation, site: int, live: set[int]) -> None:
        """Replay a callee with the buffers that live below its call."""
        if callee in self._embedded:
            self._called_at[callee] = site
            if callee not in self.stored_peaks:
                self.stored_peaks[callee] = self._backwards(callee, set())
            return
        self._initial[callee] = frozenset(live)
        self.stored_peaks[callee] = self._backwards(callee, set(live))
