"""Memory while one computation is placed, with what each candidate would do to it.

A buffer that becomes live or ends changes the numbers of the nodes that name it, and
of no others: so they are kept up to date instead of being summed at every comparison.
That begins when a comparison first asks.
"""

from __future__ import annotations

from hlo_passes.scheduler.memory.pressure import ComputationMemory


class PressureTrack:
    """Usage, peak, and candidates' numbers; nodes are positions in the base order.

    Attributes:
        usage_bytes: live now.
        peak_delta_bytes: greatest growth so far over what was live at the start.
        changed: nodes whose numbers changed, for whoever follows them; None for nobody.
    """

    __slots__ = (
        "_grown", "_increase", "_initial", "_live", "_memory", "_users",
        "changed", "peak_delta_bytes", "usage_bytes",
    )  # fmt: skip

    def __init__(self, memory: ComputationMemory) -> None:
        """Nothing placed yet."""
        self._memory = memory
        self._live = set(memory.initial_live)
        self._initial = memory.initial_bytes
        self.usage_bytes = memory.initial_bytes
        self.peak_delta_bytes = 0
        self.changed: list[int] | None = None
        self._increase: list[int] | None = None
        self._grown: list[int] = []
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
        if self._increase is not None:
            self._note(flipped, -1)
            flipped = []
        for b in memory.frees[n]:
            if b in live:
                live.remove(b)
                delta -= sizes[b]
                flipped.append(b)
        if self._increase is not None:
            self._note(flipped, 1)
        self.usage_bytes = self._initial + delta

    def query(self, n: int) -> tuple[int, int]:
        """(increase, peak) in bytes of placing a node now.

        Buffers count as often as the node's lists hold them, though `place` counts
        each once: XLA does so.
        """
        if self._increase is None:
            self._begin()
        assert self._increase is not None
        grown, inner = self._grown[n], self._memory.inner_peak_bytes[n]
        return self._increase[n], grown if grown > inner else inner

    def _begin(self) -> None:
        """Sum every node's numbers once, and note who names which buffer."""
        memory, live = self._memory, self._live
        sizes = memory.sizes_bytes
        count = len(memory.allocs)
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

    def _note(self, buffers: list[int], sign: int) -> None:
        """Buffers became live (-1) or ended (1): nodes that name them differ."""
        increase, grown, changed = self._increase or [], self._grown, self.changed
        sizes = self._memory.sizes_bytes
        for b in buffers:
            size = sign * sizes[b]
            for n, born, ended in self._users.get(b, ()):
                increase[n] += size * (born + ended)
                grown[n] += size * born
                if changed is not None:
                    changed.append(n)
