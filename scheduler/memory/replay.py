"""Replays a program from its end: each computation's peak, and what lives below it.

    entry:  ... w = while(t), body=%body ... r     r first, upwards to w;
                                                   then body, upwards, with what lives
                                                   below w; then w itself

A computation that is called from several places is replayed for each, once for each
set of its buffers that live below; the last replay, that of the first call in program
order, is kept.

Source: openxla/xla `xla/service/latency_hiding_scheduler.cc`, ModulePressureState (Aug
2026).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hlo_passes.scheduler.memory.buffer_table import BufferTable

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation


@dataclass(slots=True)
class _Replayed:
    """One replay of a computation.

    Attributes:
        peak: growth in bytes over what lives below.
        calls: in order of the replay.
    """

    peak: int = 0
    calls: list[_Call] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that a replay met.

    Attributes:
        callee: what is called.
        below: buffers that live below the call, of those that the callee touches.
        grown: bytes that live below the call beyond those below the caller.
        replay: of the callee.
    """

    callee: Computation
    below: frozenset[int]
    grown: int
    replay: _Replayed


@dataclass(frozen=True, slots=True)
class Below:
    """What lives below a computation.

    Attributes:
        live: the buffers of it that begin or end in the computation, or in what it
            calls. Others make no difference to it, and there may be very many.
        bytes: of all that live, those others too.
    """

    live: frozenset[int]
    bytes: int


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
        self._below: dict[Computation, Below] = {}
        self.stored_peaks: dict[Computation, int] = {}
        self._touched: dict[Computation, frozenset[int]] = {}
        self._replayed: dict[tuple[Computation, frozenset[int]], _Replayed] = {}

    def run(self) -> None:
        """Replay the entry, and what it calls."""
        entry = self._reached.module.entry
        replayed = self._backwards(entry, frozenset())
        self.stored_peaks[entry] = replayed.peak
        self._keep_last(entry, replayed)

    def inner_peak_bytes(self, n: int) -> int:
        """Greatest stored peak of what instruction `n` calls."""
        return max(
            (self.stored_peaks.get(c, 0) for c in self._callees.get(n, ())), default=0
        )

    def below(self, computation: Computation) -> Below:
        """What lives below a computation that is replayed, at its last replay."""
        return self._below[computation]

    def _in_replay_order(self, computation: Computation) -> Sequence[int]:
        block = self._blocks[computation]
        return block if self._top_down else block[::-1]

    def _backwards(self, computation: Computation, below: frozenset[int]) -> _Replayed:
        """Replay one computation with the buffers that live below it."""
        allocs, frees = self._table.allocs, self._table.frees
        sizes = self._table.buffers.sizes_bytes
        callees = self._callees
        replayed = _Replayed()
        live = set(below)
        delta = peak = 0
        for n in self._in_replay_order(computation):
            if n in callees:
                for callee in callees[n]:
                    replayed.calls.append(self._call(callee, live, delta))
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
        replayed.peak = peak
        return replayed

    def _call(self, callee: Computation, live: set[int], grown: int) -> _Call:
        """Replay a callee with the buffers that live below its call."""
        # What it does not touch changes nothing, and differs from call to call.
        below = self._touched_by(callee) & live
        replayed = self._replayed.get((callee, below))
        if replayed is None:
            replayed = self._backwards(callee, below)
            self._replayed[callee, below] = replayed
        self.stored_peaks[callee] = replayed.peak
        return _Call(callee, below, grown, replayed)

    def _touched_by(self, computation: Computation) -> frozenset[int]:
        """The buffers that begin or end in a computation, or in what it calls."""
        known = self._touched.get(computation)
        if known is None:
            allocs, frees = self._table.allocs, self._table.frees
            found: set[int] = set()
            for n in self._blocks[computation]:
                found.update(allocs[n], frees[n])
                for callee in self._callees.get(n, ()):
                    found |= self._touched_by(callee)
            known = self._touched[computation] = frozenset(found)
        return known

    def _keep_last(self, entry: Computation, replayed: _Replayed) -> None:
        """Keep the last replay of each computation that the entry runs.

        Read backwards, the first replay of a computation is its last. Earlier ones of
        it need no reading: each calls the same computations.
        """
        # Per open call: the computation, what lives below it, the calls that remain.
        begun = Below(frozenset(), 0)
        stack = [(entry, begun, iter(reversed(replayed.calls)))]
        while stack:
            computation, below, remaining = stack[-1]
            call = next(remaining, None)
            if call is None:
                self._below.setdefault(computation, below)
                stack.pop()
                continue
            callee = call.callee
            if callee in self._below:
                continue
            inner = Below(call.below, below.bytes + call.grown)
            stack.append((callee, inner, iter(reversed(call.replay.calls))))
            self.stored_peaks[callee] = call.replay.peak
