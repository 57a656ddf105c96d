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
from hlo_passes.scheduler.memory.reached import has_own_instructions

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation


@dataclass(slots=True)
class _Replayed:
    """One replay of a computation.

    Attributes:
        peak: growth in bytes over what lives below.
        calls: (callee, calling instruction, buffers below the call, replay of the
            callee; None if it is embedded), in order of the replay.
    """

    peak: int = 0
    calls: list[tuple[Computation, int, frozenset[int], _Replayed | None]] = field(
        default_factory=list
    )


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
                    self._call(callee, n, live, replayed)
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

    def _call(
        self, callee: Computation, site: int, live: set[int], caller: _Replayed
    ) -> None:
        """Replay a callee with the buffers that live below its call."""
        if callee in self._embedded:
            self._called_at[callee] = site
            caller.calls.append((callee, site, frozenset(), None))
            if callee not in self.stored_peaks:
                replayed = self._backwards(callee, frozenset())
                self.stored_peaks[callee] = replayed.peak
            return
        below = frozenset(live)
        if len(self._reached.call_sites[callee]) == 1 and len(self._callees[site]) == 1:
            replayed = self._backwards(callee, below)
        else:
            # What it does not touch changes nothing, and differs from call to call.
            key = (callee, below & self._touched_by(callee))
            replayed = self._replayed.get(key) or self._backwards(*key)
            self._replayed[key] = replayed
        caller.calls.append((callee, site, below, replayed))
        self.stored_peaks[callee] = replayed.peak

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
        called_at: dict[Computation, int] = {}
        # Per open call: the computation, what lives below it, how much of that its
        # callees do not see because it was replayed without, and the calls that remain.
        nothing: frozenset[int] = frozenset()
        stack = [(entry, nothing, nothing, iter(reversed(replayed.calls)))]
        while stack:
            computation, below, unseen, remaining = stack[-1]
            call = next(remaining, None)
            if call is None:
                self._initial.setdefault(computation, below)
                stack.pop()
                continue
            callee, site, seen, replay = call
            if replay is None:
                called_at.setdefault(callee, site)
            elif callee not in self._initial:
                below = seen | unseen
                if (
                    callee,
                    seen & self._touched.get(callee, nothing),
                ) in self._replayed:
                    unseen = below - self._touched[callee]
                stack.append((callee, below, unseen, iter(reversed(replay.calls))))
                self.stored_peaks[callee] = replay.peak
        self._called_at.update(called_at)
