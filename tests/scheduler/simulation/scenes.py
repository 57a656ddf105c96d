"""Small scenes of instructions and pairs, of which all orders can be tried."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from hypothesis import strategies as st

from hlo_passes.scheduler.simulation.overlap_bound import Overlaps, Pair

#: Halves of whole numbers: sums are exact, so that ties are ties.
_TIMES = st.integers(0, 40).map(lambda n: n / 2)


@dataclass(frozen=True)
class Scene:
    """Instructions with what they need, and pairs on streams."""

    preds: list[list[int]]
    cost_us: list[float]
    pairs: list[Pair]
    stream: dict[int, int]

    def orders(self) -> Iterator[list[int]]:
        left = [len(near) for near in self.preds]
        order: list[int] = []

        def extend() -> Iterator[list[int]]:
            if len(order) == len(left):
                yield list(order)
            for v, count in enumerate(left):
                if count == 0:
                    order.append(v)
                    left[v] = -1
                    then = [s for s, near in enumerate(self.preds) if v in near]
                    for s in then:
                        left[s] -= 1
                    yield from extend()
                    for s in then:
                        left[s] += 1
                    left[v] = 0
                    order.pop()

        return extend()

    def step_us(self, order: list[int]) -> float:
        begun = {pair.start: pair for pair in self.pairs}
        ended = {pair.done: pair for pair in self.pairs}
        now, free, ends = 0.0, {0: 0.0, 1: 0.0}, {}
        for v in order:
            if v in begun:
                k = self.stream[v]
                free[k] = ends[v] = max(now, free[k]) + begun[v].us
            elif v in ended:
                now = max(now, ends[ended[v].start])
            now += self.cost_us[v]
        return now

    def has_one_by_one(self, order: list[int]) -> bool:
        """Whether no two pairs of a stream are in flight together."""
        place = {v: k for k, v in enumerate(order)}
        spans = sorted(
            (self.stream[p.start], place[p.start], place[p.done]) for p in self.pairs
        )
        return all(
            one[0] != two[0] or one[2] < two[1]
            for one, two in itertools.pairwise(spans)
        )

    def room(self) -> dict[int, float]:
        return {v: us for v, us in enumerate(self.cost_us) if us > 0.0}

    def bounds(self) -> dict[int, tuple[float, float]]:
        """By stream: (the bound, the greater of lane and stream)."""
        overlaps = Overlaps(self.preds, self.pairs)
        found = {}
        lane = sum(self.cost_us)
        for k in set(self.stream.values()):
            own = [pair for pair in self.pairs if self.stream[pair.start] == k]
            busy = sum(pair.us for pair in own)
            most = overlaps.most_us(own, self.room())
            found[k] = lane + busy - most, max(lane, busy)
        return found


@st.composite
def scenes(draw: st.DrawFn, *, most: int = 9) -> Scene:
    preds: list[list[int]] = []
    costs: list[float] = []
    pairs: list[Pair] = []
    stream: dict[int, int] = {}
    waiting: list[int] = []
    while len(preds) + len(waiting) < most:
        v = len(preds)
        kind = draw(st.sampled_from(["work", "work", "start", "done"]))
        if kind == "done" and not waiting:
            kind = "work"
        near = draw(st.sets(st.integers(0, v - 1), max_size=2)) if v else set()
        costs.append(draw(_TIMES) if kind == "work" else 0.0)
        if kind == "start":
            waiting.append(v)
            stream[v] = draw(st.sampled_from([0, 0, 1]))
        if kind == "done":
            start = waiting.pop(draw(st.integers(0, len(waiting) - 1)))
            pairs.append(Pair(start, v, draw(_TIMES)))
            near.add(start)
        preds.append(sorted(near))
    for start in waiting:
        pairs.append(Pair(start, len(preds), draw(_TIMES)))
        preds.append([start])
        costs.append(0.0)
    return Scene(preds, costs, pairs, stream)
