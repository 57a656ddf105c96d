"""What must run between a head that comes before it and a tail that comes after it.

    a 10 us, then i 40 us and j 40 us on one stream, each after its own work b and c
    (30 us), then t 5 us

    b and c can hide nothing of the first of i and j, and t hides nothing of the last:
    no order takes less than 10 + 30 + 40 + 40 + 5 us.

The head of an instruction is a time before which it cannot begin, its tail one that
cannot but follow after it. Choose all that has at least some head and at least some
tail: no part of it runs before that head, or once only that tail is left. So a step is
no shorter than head and tail and what lane and stream of the chosen need together, less
what of that can overlap: the bound of one machine with heads and tails, with the flow
of `overlap_bound` inside.

A head is the longest of

    the chain of instructions that need each other
    all of the lane that must come before
    all of one stream that must come before, and the least of its own heads
    both of them, less what can overlap

and a tail is the same, read backward.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from hlo_passes.scheduler.simulation.bound import (
    Bound,
    lane_bound,
    overlap_bound,
    section_bound,
)
from hlo_passes.scheduler.simulation.overlap_bound import Overlaps, Pair
from hlo_passes.scheduler.sums import sequential_sum

#: Steps that all searches of one computation may take: so many, so many more for each
#: instruction. Sections that are not looked at by then are left out.
_STEPS: Final = 300_000
_STEPS_PER_NODE: Final = 24
#: Changes of the head, then of the tail, that are tried at most.
_MOST_TURNS: Final = 6
#: A bound that exceeds another by less is the same.
_ROUNDING: Final = 1e-12


@dataclass(frozen=True, slots=True)
class Lanes:
    """The lane and the streams of one computation.

    Attributes:
        overlaps: edges and pairs.
        cost_us: by instruction, on the lane.
        room_us: by stream and instruction, how long a pair can run beside it.
        pairs: by stream.
        one_by_one: streams of which two pairs are never in flight together.
    """

    overlaps: Overlaps
    cost_us: Sequence[float]
    room_us: Mapping[int, Mapping[int, float]]
    pairs: Mapping[int, Sequence[Pair]]
    one_by_one: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Section:
    """A bound and what it consists of.

    Attributes:
        head_us, tail_us: before and after what is chosen.
        lane_us: of the lane, in between.
        stream: whose pairs are chosen, too; -1 for none.
        stream_us: of these pairs.
        most_us: the most of both that can overlap.
    """

    head_us: float = 0.0
    tail_us: float = 0.0
    lane_us: float = 0.0
    stream: int = -1
    stream_us: float = 0.0
    most_us: float = 0.0

    @property
    def us(self) -> float:
        """No order is below it."""
        between = self.lane_us + self.stream_us - self.most_us
        return self.head_us + between + self.tail_us


def longest_section(lanes: Lanes) -> Section:
    """The section with the greatest bound of those that are looked at."""
    return _Search(lanes).longest()


def bound_of(section: Section, names: Sequence[str], calls: bool = False) -> Bound:
    """A section as a bound with its sentence.

    Args:
        section: found.
        names: of the streams, by number.
        calls: whether the lane calls loops or other computations.
    """
    name = names[section.stream] if section.stream >= 0 else ""
    if not (section.head_us or section.tail_us or name):
        return lane_bound(section.lane_us)
    if not (section.head_us or section.tail_us):
        return overlap_bound(
            section.lane_us, name, section.stream_us, section.most_us, calls
        )
    return section_bound(
        section.head_us,
        section.tail_us,
        section.lane_us,
        name,
        section.stream_us,
        section.most_us,
    )


@dataclass(slots=True)
class _Search:
    """Heads and tails of a computation, and the sections between them."""

    lanes: Lanes
    heads: list[float] = field(init=False)
    tails: list[float] = field(init=False)
    last_step: int = field(init=False)
    known: dict[tuple[float, float], Section] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the edges forward for heads, and backward for tails."""
        lanes = self.lanes
        overlaps = lanes.overlaps
        count = len(overlaps.preds)
        budget = _STEPS + _STEPS_PER_NODE * count
        # A third for heads and a third for tails, as far as they need it.
        began = overlaps.steps
        users: list[list[int]] = [[] for _ in range(count)]
        preds: list[list[int]] = [[] for _ in range(count)]
        for v, near in enumerate(overlaps.preds):
            for p in near:
                if p < v:
                    users[p].append(v)
                    preds[v].append(p)
        forward = _Direction(lanes, preds, overlaps.before, is_forward=True)
        self.heads = forward.times(range(count), began + budget // 3)
        backward = _Direction(lanes, users, overlaps.after, is_forward=False)
        self.tails = backward.times(
            range(count - 1, -1, -1), overlaps.steps + budget // 3
        )
        self.last_step = began + budget

    def longest(self) -> Section:
        """Change the head, then the tail, as long as the bound grows."""
        best = self._section(0.0, 0.0)
        for first_is_head in (True, False):
            here = self._section(0.0, 0.0)
            is_head = first_is_head
            idle = 0
            for _ in range(_MOST_TURNS):
                found = self._turn(here, is_head)
                is_head = not is_head
                idle = 0 if found.us > here.us * (1 + _ROUNDING) else idle + 1
                here = found
                if idle == 2:
                    break
            if here.us > best.us * (1 + _ROUNDING):
                best = here
        whole = self._section(0.0, 0.0)
        refined = [self._refined(each) for each in (best, whole)]
        return max(refined, key=lambda each: each.us)

    def _refined(self, section: Section) -> Section:
        """A section whose instructions are in one window each."""
        lanes, k = self.lanes, section.stream
        if k not in lanes.one_by_one:
            return section
        head, tail = section.head_us, section.tail_us
        pairs, inside = self._runs(head, tail, k), self._work(head, tail)
        room = lanes.room_us[k]
        most = lanes.overlaps.most_in_one_window_us(
            pairs, {v: room[v] for v in inside if v in room}
        )
        return replace(section, most_us=min(most, section.most_us))

    def _runs(self, head: float, tail: float, stream: int) -> list[Pair]:
        """The pairs of a stream with such a head and such a tail."""
        own = self.lanes.pairs[stream]
        return [
            pair
            for pair, (first, last) in zip(own, map(self._span, own), strict=True)
            if first >= head and last >= tail
        ]

    def _work(self, head: float, tail: float) -> list[int]:
        """What takes time on the lane and has such a head and such a tail."""
        heads, tails = self.heads, self.tails
        return [
            v
            for v, us in enumerate(self.lanes.cost_us)
            if us > 0.0 and heads[v] >= head and tails[v] >= tail
        ]

    def _turn(self, here: Section, is_head: bool) -> Section:
        """The longest section with another head, or with another tail."""
        times = self.heads if is_head else self.tails
        other = here.tail_us if is_head else here.head_us
        chosen: set[float] = set()
        for pair in self._pairs():
            chosen.add(times[pair.start])
            if pair.done >= 0:
                chosen.add(times[pair.done])
        sure = self._without_flow(chosen, other, is_head)
        # Those with the greatest bound before any flow come first.
        for time in sorted(chosen, key=lambda time: (-sure[time], time)):
            if self.lanes.overlaps.steps > self.last_step:
                break
            head, tail = (time, other) if is_head else (other, time)
            found = self._section(head, tail, here.us)
            if found.us > here.us * (1 + _ROUNDING):
                here = found
        return here

    def _pairs(self) -> Iterable[Pair]:
        return (pair for own in self.lanes.pairs.values() for pair in own)

    def _without_flow(
        self, chosen: Iterable[float], other: float, is_head: bool
    ) -> dict[float, float]:
        """By head or tail, what lane or stream alone give."""
        times, against = self.heads, self.tails
        if not is_head:
            times, against = against, times
        items: list[tuple[float, int, float]] = []
        for v, us in enumerate(self.lanes.cost_us):
            if us > 0.0 and against[v] >= other:
                items.append((times[v], -1, us))
        for k, own in self.lanes.pairs.items():
            for pair in own:
                first, last = self._span(pair)
                head, tail = (first, last) if is_head else (last, first)
                if tail >= other:
                    items.append((head, k, pair.us))
        items.sort(reverse=True)
        self.lanes.overlaps.steps += len(times)
        found: dict[float, float] = {}
        busy: dict[int, float] = {}
        place = 0
        for time in sorted(chosen, reverse=True):
            while place < len(items) and items[place][0] >= time:
                _, k, us = items[place]
                busy[k] = busy.get(k, 0.0) + us
                place += 1
            found[time] = time + max(busy.values(), default=-time)
        return found

    def _span(self, pair: Pair) -> tuple[float, float]:
        """Head and tail of a pair's run."""
        return self.heads[pair.start], self.tails[pair.done] if pair.done >= 0 else 0.0

    def _section(self, head: float, tail: float, least_us: float = 0.0) -> Section:
        """The bound of all that has such a head and such a tail.

        Args:
            head: at least, us.
            tail: at least, us.
            least_us: a section that cannot be longer is of no interest.
        """
        lanes = self.lanes
        if (head, tail) in self.known:
            return self.known[head, tail]
        inside = self._work(head, tail)
        lanes.overlaps.steps += len(self.heads)
        lane_us = sequential_sum(lanes.cost_us[v] for v in inside)
        best = Section(head, tail, lane_us) if inside else Section()
        for k in sorted(lanes.pairs):
            pairs = self._runs(head, tail, k)
            if not pairs:
                continue
            busy_us = sequential_sum(pair.us for pair in pairs)
            if head + tail + lane_us + busy_us <= max(best.us, least_us):
                continue
            most = _most_us(lanes, k, pairs, inside)
            found = Section(head, tail, lane_us, k, busy_us, most)
            # The test is written so that it also refuses NaN.
            if found.us > best.us:
                best = found
        self.known[head, tail] = best
        return best


def _most_us(
    lanes: Lanes, stream: int, pairs: Sequence[Pair], inside: Iterable[int]
) -> float:
    room = lanes.room_us[stream]
    return lanes.overlaps.most_us(
        pairs,
        {v: room[v] for v in inside if v in room},
        one_by_one=stream in lanes.one_by_one,
    )


@dataclass(slots=True)
class _Direction:
    """Edges read forward, for heads, or backward, for tails.

    Attributes:
        lanes: of the computation.
        near: by instruction, those that come first in this direction.
        first_of: by instruction, as bits: the pairs whose first half it comes before.
        is_forward: whether the first half is the start.
    """

    lanes: Lanes
    near: list[list[int]]
    first_of: Sequence[int]
    is_forward: bool
    begins: dict[int, list[Pair]] = field(default_factory=dict)
    ends: dict[int, list[Pair]] = field(default_factory=dict)
    lane_us: dict[int, float] = field(default_factory=dict)

    def times(self, order: Iterable[int], last_step: int) -> list[float]:
        """Of each instruction, what cannot but come first, us.

        Args:
            order: in which `near` is known.
            last_step: of the flows, after which they are left out.
        """
        lanes = self.lanes
        stream: dict[int, int] = {}
        for k, own in lanes.pairs.items():
            for pair in own:
                stream[pair.start] = k
                first, last = self._halves(pair)
                if first >= 0:
                    self.begins.setdefault(first, []).append(pair)
                if last >= 0:
                    self.ends.setdefault(last, []).append(pair)
        cost = lanes.cost_us
        # What takes time, together where it comes before the same pairs.
        for v, us in enumerate(cost):
            if us > 0.0 and self.first_of[v]:
                mask = self.first_of[v]
                self.lane_us[mask] = self.lane_us.get(mask, 0.0) + us
        found = [0.0] * len(cost)
        for v in order:
            time = max([found[p] + cost[p] for p in self.near[v]], default=0.0)
            for pair in self.ends.get(v, ()):
                first, _ = self._halves(pair)
                time = max(time, self._over(found, first, pair))
            if v in self.begins:
                bits = [lanes.overlaps.bit(pair) for pair in self.begins[v]]
                if any(bits):
                    time = max(time, self._before(v, max(bits), found, last_step))
            found[v] = time
        return found

    def _halves(self, pair: Pair) -> tuple[int, int]:
        if self.is_forward:
            return pair.start, pair.done
        return pair.done, pair.start

    def _over(self, found: Sequence[float], first: int, pair: Pair) -> float:
        """When the last half can come, after the first half and the run."""
        if self.is_forward:
            return found[first] + pair.us
        # The run begins when the start begins, not when it ends.
        cost = self.lanes.cost_us
        then = found[first] + cost[first] if first >= 0 else 0.0
        return then + pair.us - cost[pair.start]

    def _before(
        self, v: int, bit: int, found: Sequence[float], last_step: int
    ) -> float:
        """What must run before one half, on the lane and on the streams."""
        lanes, first_of = self.lanes, self.first_of
        own_us = lanes.cost_us[v] if first_of[v] & bit else 0.0
        lane_us = sequential_sum(us for m, us in self.lane_us.items() if m & bit)
        lane_us -= own_us
        lanes.overlaps.steps += len(self.lane_us)
        best = max(0.0, lane_us)
        for k, all_of in lanes.pairs.items():
            pairs = []
            for pair in all_of:
                _, last = self._halves(pair)
                if last >= 0 and last != v and first_of[last] & bit:
                    pairs.append(pair)
            if not pairs:
                continue
            # One machine: the pairs from some head on, one after the other.
            busy_us = 0.0
            heads = [self._begin(found, pair) for pair in pairs]
            for k_th in sorted(range(len(pairs)), key=lambda n: (-heads[n], n)):
                busy_us += pairs[k_th].us
                best = max(best, heads[k_th] + busy_us)
            if lane_us + busy_us <= best or lanes.overlaps.steps > last_step:
                continue
            inside = [
                u
                for u, us in enumerate(lanes.cost_us)
                if us > 0.0 and u != v and first_of[u] & bit
            ]
            lanes.overlaps.steps += len(lanes.cost_us)
            together = lane_us + busy_us - _most_us(lanes, k, pairs, inside)
            if together > best:
                best = together
        return best

    def _begin(self, found: Sequence[float], pair: Pair) -> float:
        first, _ = self._halves(pair)
        return found[first] if first >= 0 else 0.0
