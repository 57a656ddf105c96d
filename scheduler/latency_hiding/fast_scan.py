"""XLA's choice without comparing pair by pair: rule after rule over all candidates.

The scan keeps the better of two, one rule after the other, in list order. All rules up
to kAsyncDepth compare a number per candidate, so together they are one preorder, and a
candidate that is not greatest in it can neither win nor change who wins: after the
first greatest one is met, only a greatest one can replace it. Hence the scan over all
candidates and the scan over the greatest ones, in list order, choose the same.

    resources that are not free -> hints -> memory -> target rules -> done
      -> stall -> depth 0 / backed up -> async depth          each a filter, in NumPy
    kAvoidWaste   a number too, unless starts and other work are left side by side:
                  then those few are compared pair by pair, in list order
    unlocks done, unlocks more, shrinks memory, position      one number

What only depends on hints and resources is worked out per class of candidates, when the
resources change.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from hlo_passes.scheduler.latency_hiding.rule import Rule
from hlo_passes.scheduler.latency_hiding.rules import RULES, active_rules
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.latency_hiding.state import SchedulingState
from hlo_passes.scheduler.latency_hiding.target_rules import writes_slice_to_host

#: What is left of the list once settings are the GPU's: this module knows these.
_KNOWN: Final = frozenset(
    "force-early force-delay force-delay-priority preference "
    "decrease-memory-over-limit memory-peak-over-limit delay-start-for-compute "
    "delay-start-for-depth delay-host-writes schedule-done delay-done-of-delayed-start "
    "release-nonextendable less-stall start-at-zero-depth free-backed-up-resource "
    "async-depth avoid-waste unlock-done creates-more-ready-nodes decrease-memory "
    "original-order".split()
)
_UNFIT: Final = -1
#: Tail of the comparison in one number: done below, unlocks, memory shrinks, position.
_DONE_SHIFT: Final = 62
_UNLOCKS_SHIFT: Final = 36
_SHRINKS: Final = 1 << 35

#: Arrays that hold a number per slot.
_BY_SLOT: Final = (
    "_class", "_cost", "_depth", "_increase", "_node", "_peak", "_ready_at", "_tail",
)  # fmt: skip
Array = npt.NDArray[np.int64]


def knows(rules: tuple[Rule, ...], settings: SchedulerSettings) -> bool:
    """Whether a list of rules is XLA's and of settings that this module covers."""
    own = active_rules(settings, RULES)
    return (
        rules == own
        and all(rule.name in _KNOWN for rule in own)
        and settings.aggressive_scheduling_policies
        and not settings.top_down_scheduling
        and not settings.resource_serializing
    )


def is_regular(state: SchedulingState) -> bool:
    """Whether a computation has nothing that the filters leave out.

    Groups, preferences, tests of what is in flight, host transfers, dones of delayed
    starts are left to the scan pair by pair.
    """
    graph = state.graph
    if state.groups is not None or state.preference or state.in_flight is not None:
        return False
    for n in range(len(graph)):
        if graph.is_done[n]:
            start = graph.start_of(n)
            if start is not None and graph.force_delay[start]:
                return False
    return not _holds_host_transfer(state)


def _holds_host_transfer(state: SchedulingState) -> bool:
    if state.settings.flavour == "gpu":
        return False
    opcodes = (i.opcode for i in state.graph.instructions)
    return any(opcode == "send-done" for opcode in opcodes)


class FastScan:
    """Filters over arrays that follow `state.ready`, slot by slot."""

    def __init__(self, state: SchedulingState) -> None:
        """For one state, before it is seeded or after."""
        self._state = state
        graph = state.graph
        self._class_of = _classes(state)
        self._members = _representatives(self._class_of)
        self._operand_is_done = graph.operand_is_done
        self.runner_up: int | None = None
        self._count = 0
        self._taken: int | None = None
        self._capacity = 64
        self._class = np.zeros(self._capacity, np.int64)
        self._ready_at = np.zeros(self._capacity)
        self._depth = np.zeros(self._capacity)
        self._cost = np.zeros(self._capacity)
        self._tail = np.zeros(self._capacity, np.int64)
        self._node = np.zeros(self._capacity, np.int64)
        self._increase = np.zeros(self._capacity, np.int64)
        self._peak = np.zeros(self._capacity, np.int64)
        self._follows_memory = False
        self._done_of = _dones_by_first_start(state)
        self._slot_of: dict[int, int] = {}
        self._resources_seen: tuple[list[int], list[int]] | None = None
        classes = len(self._members)
        self._hint_rank = np.zeros(classes, np.int64)
        self._target_rank = np.zeros(classes, np.int64)
        self._late_rank = np.zeros(classes, np.int64)
        self._all_rank = np.zeros(classes, np.int64)
        self._releases = np.array(
            [bool(graph.releases[n]) for n in self._members], dtype=bool
        )
        self._static = [self._hints_of(n) for n in self._members]
        order = sorted(set(self._static))
        self._hint_number = [order.index(s) for s in self._static]
        self._writes = [writes_slice_to_host(state, n) for n in self._members]
        self._keeps = np.array([not w for w in self._writes], dtype=bool)

    def _hints_of(self, n: int) -> tuple[int, int, int]:
        graph = self._state.graph
        return (
            graph.force_early[n],
            -graph.force_delay[n],
            -graph.delay_priority.get(n, 0),
        )

    # -- following the list of candidates -------------------------------------

    def _follow(self) -> None:
        """Bring the arrays up to date with `state.ready`."""
        state = self._state
        if self._taken is not None:
            self._drop(self._taken)
            self._taken = None
        ready = state.ready
        while len(ready) > self._capacity:
            self._grow()
        graph, slot_of = state.graph, self._slot_of
        for slot in range(self._count, len(ready)):
            n = ready[slot]
            slot_of[n] = slot
            self._node[slot] = n
            self._class[slot] = self._class_of[n]
            self._ready_at[slot] = state.ready_at[n]
            self._depth[slot] = state.async_depth[n]
            self._cost[slot] = graph.cost[n]
            self._tail[slot] = self._tail_of(n)
            if self._follows_memory:
                self._increase[slot], self._peak[slot] = state.memory_change(n)
        self._count = len(ready)
        if state.unlocked:
            for n in state.unlocked:
                slot = slot_of.get(n)
                if slot is not None:
                    self._tail[slot] = self._tail_of(n)
            state.unlocked.clear()

    def _follow_memory(self, is_tight: bool) -> None:
        """Keep what candidates would do to memory, as long as somebody asks."""
        state = self._state
        memory = state.memory
        if memory is None or not (is_tight or self._follows_memory):
            return
        if not is_tight:
            self._follows_memory, memory.changed = False, None
            return
        slot_of, done_of = self._slot_of, self._done_of
        if self._follows_memory and memory.changed is not None:
            slots = [slot_of.get(n) for n in memory.changed]
            slots += [slot_of.get(done_of.get(n, -1)) for n in memory.changed]
        else:
            slots = list(range(self._count))
        self._follows_memory, memory.changed = True, []
        for slot in slots:
            if slot is not None:
                n = int(self._node[slot])
                self._increase[slot], self._peak[slot] = state.memory_change(n)

    def _tail_of(self, n: int) -> int:
        unlocks = self._state.unlocks[n] << _UNLOCKS_SHIFT
        return (self._operand_is_done[n] << _DONE_SHIFT) + unlocks + n

    def _drop(self, slot: int) -> None:
        last = self._count - 1
        del self._slot_of[int(self._node[slot])]
        if slot != last:
            for array in self._arrays():
                array[slot] = array[last]
            self._slot_of[int(self._node[slot])] = slot
        self._count = last

    def _arrays(self) -> tuple[npt.NDArray[np.generic], ...]:
        return tuple(getattr(self, name) for name in _BY_SLOT)

    def _grow(self) -> None:
        self._capacity *= 2
        for name in _BY_SLOT:
            array = getattr(self, name)
            setattr(self, name, np.concatenate((array, np.zeros_like(array))))

    # -- what depends on resources --------------------------------------------

    def _rank_classes(self) -> None:
        """Numbers of the rules that hints and resources decide, per class."""
        state = self._state
        seen = self._resources_seen
        if seen is not None and seen[0] == state.free and seen[1] == state.waiting:
            return
        self._resources_seen = list(state.free), list(state.waiting)
        graph = state.graph
        for c, n in enumerate(self._members):
            constrained = state.is_constrained(n)
            releases = bool(graph.releases[n])
            fits = state.fits(n)
            occupies = graph.occupies[n]
            if state.delays_starts:
                # A pair with an occupier is left to kScheduleDone, which it decides.
                if occupies:
                    rank = 3
                elif releases and not constrained:
                    rank = 0
                else:
                    rank = 1 + (not self._writes[c])
            else:
                rank = 2 * (not self._writes[c]) + occupies
            self._hint_rank[c] = self._hint_number[c] if fits else _UNFIT
            self._target_rank[c] = rank
            self._all_rank[c] = self._hint_number[c] * 8 + rank if fits else _UNFIT
            late = 1
            if releases and constrained:
                late = 2
            elif releases and state.async_depth[n] == 0:
                late = 0
            self._late_rank[c] = late

    # -- choosing -------------------------------------------------------------

    def pick(self, state: SchedulingState) -> int | None:
        """Slot of the choice in `state.ready`; None when nothing fits."""
        self._follow()
        self._rank_classes()
        is_tight = state.is_memory_tight()
        self._follow_memory(is_tight)
        count = self._count
        if count == 1:
            return self._only()
        classes = self._class[:count]
        ranks = (self._hint_rank if is_tight else self._all_rank)[classes]
        best = ranks.max()
        if best == _UNFIT:
            return None
        rivals = slots = (ranks == best).nonzero()[0]
        if len(slots) == 1:
            rivals = (ranks != _UNFIT).nonzero()[0]
        if len(slots) > 1 and is_tight:
            slots = self._by_memory(slots)
            slots = _greatest(slots, self._target_rank[classes[slots]])
        if len(slots) > 1 and state.delays_starts:
            rivals, slots = slots, self._by_chain(slots)
        if len(slots) > 1:
            stalls = np.maximum(self._ready_at[slots] - state.now, 0.0)
            rivals, slots = slots, slots[stalls == stalls.min()]
        if len(slots) > 1:
            rivals = slots
            slots = _greatest(slots, self._late_rank[self._class[slots]])
        if len(slots) > 1:
            rivals, slots = slots, _greatest(slots, self._depth[slots])
        if len(slots) > 1:
            rivals, slots = slots, self._by_tail(slots, is_tight)
        self._taken = int(slots[0])
        self.runner_up = self._rival(rivals)
        return self._taken

    def _only(self) -> int | None:
        """The choice where there is one candidate: it, if it fits."""
        fits = self._all_rank[self._class[0]] != _UNFIT
        self._taken = 0 if fits else None
        if fits:
            self.runner_up = None
        return self._taken

    def _rival(self, slots: Array) -> int | None:
        """One of those that the last filter left behind."""
        if len(slots) < 2:
            return None
        last = int(slots[-1])
        return int(self._node[int(slots[0]) if last == self._taken else last])

    def _by_memory(self, slots: Array) -> Array:
        state = self._state
        assert state.memory is not None
        usage, limit = state.memory.usage_bytes, state.memory_limit_bytes or 0
        if usage >= limit:
            increases = self._increase[slots]
            slots = slots[increases == increases.min()]
        below = self._peak[slots] <= limit - usage
        return slots[below] if below.any() else slots

    def _by_chain(self, slots: Array) -> Array:
        """Of free starts alone, those under the deepest chain."""
        state = self._state
        n = int(self._node[slots[0]])
        if not state.graph.releases[n] or state.graph.occupies[n]:
            return slots
        if state.is_constrained(n):
            return slots
        depth = state.depth
        chains = np.array([depth[n] for n in self._node[slots].tolist()])
        slots = _greatest(slots, chains)
        return _greatest(slots, self._keeps[self._class[slots]])

    def _by_tail(self, slots: Array, is_tight: bool) -> Array:
        state = self._state
        top = state.queue.top()
        if top is not None:
            releases = self._releases[self._class[slots]]
            if not releases.any():
                distances = np.abs((top - state.now) - self._cost[slots])
                slots = slots[distances == distances.min()]
            elif not releases.all():
                return self._pair_by_pair(slots, top - state.now, is_tight)
        if len(slots) == 1:
            return slots
        tails = self._tail[slots]
        if is_tight:
            tails = tails + self._shrinks(slots)
        return slots[tails.argmax() :][:1]

    def _shrinks(self, slots: Array) -> Array:
        return (self._increase[slots] < 0) * _SHRINKS

    def _pair_by_pair(self, slots: Array, wait: float, is_tight: bool) -> Array:
        """The scan itself, from kAvoidWaste on: here the relation is not transitive."""
        tails = self._tail[slots]
        if is_tight:
            tails = tails + self._shrinks(slots)
        releases = self._releases[self._class[slots]].tolist()
        distances = np.abs(wait - self._cost[slots]).tolist()
        numbers = tails.tolist()
        best = 0
        for k in range(1, len(slots)):
            if not releases[k] and distances[k] < distances[best]:
                best = k
            elif not releases[best] and distances[best] < distances[k]:
                continue
            elif numbers[k] > numbers[best]:
                best = k
        return slots[best:][:1]


def _greatest(slots: Array, numbers: npt.NDArray[np.generic]) -> Array:
    return slots[numbers == numbers.max()]


def _classes(state: SchedulingState) -> list[int]:
    """Class by node: equal hints, resources, needs and place among target rules."""
    graph = state.graph
    numbers: dict[tuple[object, ...], int] = {}
    plain = numbers.setdefault((0, 0, 0, None, None, False, False), 0)
    found = [plain] * len(graph)
    special = {*graph.resources, *graph.needs, *graph.delay_priority}
    special.update(n for n in range(len(graph)) if graph.force_early[n])
    special.update(n for n in range(len(graph)) if graph.force_delay[n])
    for n in sorted(special):
        key = (
            graph.force_early[n],
            graph.force_delay[n],
            graph.delay_priority.get(n, 0),
            graph.resources.get(n),
            graph.needs.get(n),
            bool(graph.releases[n]) and state.async_depth[n] == 0,
            writes_slice_to_host(state, n),
        )
        found[n] = numbers.setdefault(key, len(numbers))
    return found


def _dones_by_first_start(state: SchedulingState) -> dict[int, int]:
    """Dones whose memory numbers are those of a start as well, by that start."""
    graph = state.graph
    return {
        graph.preds[n][0]: n
        for n in range(len(graph))
        if graph.is_done[n] and graph.preds[n] and graph.is_start[graph.preds[n][0]]
    }


def _representatives(class_of: list[int]) -> list[int]:
    """A node of every class; class 0 may have none, any node stands for it then."""
    found: dict[int, int] = {}
    for n, c in enumerate(class_of):
        found.setdefault(c, n)
    return [found.get(c, -1) for c in range(max(class_of, default=0) + 1)]
