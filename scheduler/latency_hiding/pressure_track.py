"""Memory while one computation is placed, and how each candidate would change it.

A buffer that becomes live or ends changes only the numbers of the nodes that name it:
so they are updated instead of being summed at every comparison. That begins when a
comparison first needs them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping

from hlo_passes.scheduler.memory.pressure import ComputationMemory


class PressureTrack:
    """Usage, peak, and candidates' numbers; nodes are positions in the base order.

    Attributes:
        usage_bytes: live now.
        peak_delta_bytes: greatest growth so far over what was live at the start.
    """

    __slots__ = (
        "_dones_of", "_grown", "_increase", "_increases", "_initial", "_is_asked",
        "_live", "_memory", "_peaks", "_start_of", "_users", "peak_delta_bytes",
        "usage_bytes",
    )  # fmt: skip

    def __init__(self, memory: ComputationMemory, start_of: Mapping[int, int]) -> None:
        """Nothing placed yet.

        Args:
            memory: of the computation, in its base order.
            start_of: by done, the start that its numbers count with.
        """
        self._memory = memory
        self._live = set(memory.initial_live)
        self._initial = memory.initial_bytes
        self.usage_bytes = memory.initial_bytes
        self.peak_delta_bytes = 0
        count = len(memory.allocs)
        self._start_of = dict(start_of)
        self._dones_of: dict[int, list[int]] = {}
        for done, start in self._start_of.items():
            self._dones_of.setdefault(start, []).append(done)
        self._is_asked = False
        self._increase: list[int] = []
        self._grown: list[int] = []
        self._increases = array("q", [0]) * count
        self._peaks = array("q", [0]) * count
        self._users: dict[int, list[tuple[int, int, int]]] = {}

    def place(self, n: int) -> None:
        """Count a node that is placed now."""
        memory, live = self._memory, self._live
        sizes = memory.sizes_bytes
        delta = self.usage_bytes - self._initial
        inner = memory.inner_peak_bytes[n]
        if inner and delta + inner > self.peak_delta_bytes:
            self.peak_delta_bytes = delta + inner
        flipped: list[int] = []
        for b in memory.allocs[n]:
            if b not in live:
                live.add(b)
                delta += sizes[b]
                flipped.append(b)
        if delta > self.peak_delta_bytes:
            self.peak_delta_bytes = delta
        if self._is_asked:
            self._note(flipped, -1)
            flipped = []
        for b in memory.frees[n]:
            if b in live:
                live.remove(b)
                delta -= sizes[b]
                flipped.append(b)
        if self._is_asked:
            self._note(flipped, 1)
        self.usage_bytes = self._initial + delta

    @property
    def increases(self) -> array[int]:
        """What placing each node now adds, a done together with its start, bytes.

        Buffers count as often as the node's lists hold them, though `place` counts each
        once, as XLA does. The memory of the array stays the same.
        """
        if not self._is_asked:
            self._begin()
        return self._increases

    @property
    def peaks(self) -> array[int]:
        """How far placing each node now lifts memory on the way; the same holds."""
        if not self._is_asked:
            self._begin()
        return self._peaks

    def _begin(self) -> None:
        """Sum every node's numbers once, and record which nodes name which buffer."""
        memory, live = self._memory, self._live
        sizes = memory.sizes_bytes
        count = len(memory.allocs)
        self._is_asked = True
        self._increase, self._grown = [0] * count, [0] * count
        increase, grown, users = self._increase, self._grown, self._users
        for n in range(count):
            uses: dict[int, list[int]] = {}
            for b in memory.allocs[n]:
                uses.setdefault(b, [0, 0])[0] += 1
            for b in memory.frees[n]:
                uses.setdefault(b, [0, 0])[1] += 1
            for b, (born, ended) in uses.items():
                users.setdefault(b, []).append((n, born, ended))
                if b in live:
                    increase[n] -= sizes[b] * ended
                else:
                    increase[n] += sizes[b] * born
                    grown[n] += sizes[b] * born
        self._refresh(range(count))

    def _note(self, buffers: list[int], sign: int) -> None:
        """Buffers became live (-1) or ended (1): nodes that name them differ."""
        increase, grown = self._increase, self._grown
        sizes = self._memory.sizes_bytes
        changed: list[int] = []
        for b in buffers:
            size = sign * sizes[b]
            for n, born, ended in self._users.get(b, ()):
                increase[n] += size * (born + ended)
                grown[n] += size * born
                changed.append(n)
        self._refresh(changed)

    def _refresh(self, changed: Iterable[int]) -> None:
        """Compute what nodes and the dones of starts among them add."""
        increase, grown, starts = self._increase, self._grown, self._start_of
        inner, dones = self._memory.inner_peak_bytes, self._dones_of
        for n in changed:
            for done in dones.get(n, ()):
                self._refresh((done,))
            added, peak = increase[n], max(grown[n], inner[n])
            start = starts.get(n)
            if start is not None:
                added = min(added, increase[start])
                peak = max(peak, grown[start], inner[start])
            self._increases[n], self._peaks[n] = added, peak
