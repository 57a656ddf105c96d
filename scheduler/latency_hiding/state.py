"""The state of a computation while it is being placed: flat lists by node.

Bottom-up, the last instruction is placed first and time runs backwards from the end: a
start causes no stall once `now` has passed its done by the latency. Top-down is the
mirror image. This module does not decide what is placed next.

Source: openxla/xla `latency_hiding_scheduler.cc`, ScheduleNode (Aug 2026).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from hlo_passes.scheduler.latency_hiding.call_queue import CallQueue, call_queue
from hlo_passes.scheduler.latency_hiding.candidates import Array, Candidates
from hlo_passes.scheduler.latency_hiding.graph import ScheduleGraph
from hlo_passes.scheduler.latency_hiding.in_flight import InFlight
from hlo_passes.scheduler.latency_hiding.metrics import (
    async_depths,
    async_heights,
    depths,
    graph_depths,
    hops,
    topological_order,
)
from hlo_passes.scheduler.latency_hiding.pressure_track import PressureTrack
from hlo_passes.scheduler.latency_hiding.resources import (
    RESOURCE_NAMES,
    Resource,
    Usage,
    limits,
)
from hlo_passes.scheduler.latency_hiding.waiting_times import (
    StaleHeap,
    WaitingQueue,
    WaitingTimes,
)

if TYPE_CHECKING:
    from hlo_passes.scheduler.memory.pressure import ComputationMemory


#: What the start of a permute does to its resource.
_PERMUTE: Final = (Resource.COLLECTIVE_PERMUTE, Usage.RELEASE)


class Groups(Protocol):
    """The interface of scheduling groups that the state uses."""

    def group_of(self, n: int) -> int:
        """The group that a node belongs to now, -1 for none."""
        ...

    def without_group(self, nodes: Array) -> Array:
        """Those of some nodes that belong to no group now, in their order."""
        ...

    def note_placed(self, state: SchedulingState, n: int) -> None:
        """A node was placed."""
        ...

    def note_available(self, n: int, group: int) -> None:
        """A member of a group became a candidate."""
        ...


class SchedulingState:
    """One attempt at one computation.

    Numbers by node that change while nodes are placed are arrays whose memory NumPy
    shares (see `columns.py`).

    Attributes:
        graph: what is scheduled.
        now: time reached, us.
        ready: candidates; removal swaps with the last one, and the order matters.
        noops: placed before any candidate, last in first out.
        order: nodes placed so far.
        placed: by node.
        ready_at: time from which a node causes no stall, inf while not available;
            once placed, the time it was placed.
        free: instances left, by resource; `waiting`: available nodes that want one.
        unlocks: nodes that become available when a node is placed.
        resource_changes: how often `free` or `waiting` changed.
        queue: ready times of candidates that are not ready yet.
        memory: pressure, None if it is not tracked.
        memory_limit_bytes: of the memory rules, None for no limit.
        groups: scheduling groups, None if there are none.
        in_flight: None if it is not needed.
        calls: the queue of calls on SparseCores, None without one.
        selective_releasers: available starts of copies inside the GPU.
        delays_starts: rule E2 is on.
        preference: numbers of a search procedure; `is_preferred` says for which nodes.
        delay_after_target: set by flexible groups, by node.
    """

    def __init__(
        self,
        graph: ScheduleGraph,
        *,
        delays_starts: bool,
        memory: ComputationMemory | None = None,
        memory_limit_bytes: int | None = None,
    ) -> None:
        """Nothing placed; the roots are candidates after `seed`."""
        settings = graph.tracker.settings
        count = len(graph)
        self.graph = graph
        self.settings = settings
        self.top_down = settings.top_down_scheduling
        self.delays_starts = delays_starts
        # Bottom-up a placed node releases its predecessors.
        below, above = graph.succs, graph.preds
        below_us, above_us = graph.succ_us, graph.pred_us
        if self.top_down:
            below, above, below_us, above_us = above, below, above_us, below_us
        self.below, self.above = below, above
        self.below_us, self.above_us = below_us, above_us
        # The clock, the candidates, and when each node may be placed.
        self.now = 0.0
        self.ready = Candidates()
        self.noops: list[int] = []
        self.order: list[int] = []
        self.placed = bytearray(count)
        self.ready_at = array("d", [math.inf]) * count
        self._earliest = [0.0] * count
        self._left = [len(edges) for edges in below]
        # How many nodes become ready as soon as each node is placed.
        self.unlocks = array("q", [0]) * count
        for edges in below:
            if len(edges) == 1:
                self.unlocks[edges[0]] += 1
        # The resources: how many are free, and how many nodes wait for one.
        self.limits = limits(settings)
        self.free = list(self.limits)
        self.waiting = [0] * len(self.free)
        self.resource_changes = 0
        # The times at which candidates become ready, earliest first.
        self.is_selective = settings.enable_selective_memcpy_overlap
        self.selective_releasers: list[int] = []
        self.queue: WaitingQueue = (
            StaleHeap(self.ready_at)
            if self.is_selective
            else WaitingTimes(self.ready_at)
        )
        # The memory in use, if it is tracked.
        self.memory: PressureTrack | None = None
        if memory is not None:
            # Bottom-up a done is placed first, and brings its start's memory along.
            starts = {} if self.top_down else graph.starts_above
            self.memory = PressureTrack(memory, starts)
        self.memory_limit_bytes = memory_limit_bytes
        # Annotation groups, and collectives on several streams.
        self.groups: Groups | None = None
        self.in_flight: InFlight | None = None
        if settings.enable_collective_multi_streaming or settings.resource_serializing:
            self.in_flight = InFlight(graph)
        self._tests_in_flight = settings.enable_collective_multi_streaming
        # Preferences of a search procedure, and nodes to delay after a target.
        self.has_preferences = False
        self.preference = array("d", [0.0]) * count
        self.is_preferred = bytearray(count)
        self.delays_after_target = False
        self.delay_after_target = bytearray(count)
        # Calls that wait for each other: they add edges to the state's own lists.
        self.calls: CallQueue | None = None if self.top_down else call_queue(graph)
        if self.calls is not None:
            self.below, self.above = list(below), list(above)
            self.above_us = list(above_us)
        self._measure()

    def _measure(self) -> None:
        """Compute the metrics that some rule of these settings reads."""
        graph, settings = self.graph, self.settings
        way = topological_order(graph)
        aggressive = settings.aggressive_scheduling_policies
        self.async_depth = async_depths(graph, way) if aggressive else []
        self.async_height = async_heights(graph, way) if self.top_down else []
        self.depth = depths(graph, way) if self.delays_starts else []
        self.graph_depth = (
            graph_depths(graph, way)
            if settings.depth_based_memory_pressure_reduction
            else []
        )
        self.hops = hops(graph, way) if self.is_selective else []
        # Starts without asynchronous work above them; all, where depths do not count.
        self.is_top_start = bytearray(len(graph))
        for n in graph.resources:
            if graph.releases[n] and not (aggressive and self.async_depth[n]):
                self.is_top_start[n] = 1

    def prefer(self, numbers: Mapping[int, float]) -> None:
        """Note what a search procedure prefers, by node."""
        self.has_preferences = bool(numbers)
        for n, number in numbers.items():
            self.preference[n] = number
            self.is_preferred[n] = 1

    def seed(self) -> None:
        """Make candidates of the nodes that nothing holds back, in base order."""
        is_noop, is_preferred = self.graph.is_noop, self.is_preferred
        for n, edges in enumerate(self.below):
            if not edges:
                self.ready_at[n] = 0.0
                if is_noop[n] and not is_preferred[n]:
                    self.noops.append(n)
                else:
                    self.ready.add(n)

    def hold_back(self, n: int) -> None:
        """Note a node that a flexible group gave back, to be placed late."""
        self.delays_after_target = True
        self.delay_after_target[n] = 1

    # -- placing --------------------------------------------------------------

    def place(self, n: int) -> None:
        """Place a node that was taken; its neighbors may become candidates."""
        graph = self.graph
        self.order.append(n)
        self.placed[n] = 1
        if self.groups is not None:
            self.groups.note_placed(self, n)
        if self.is_selective:
            self._note_selective(n)
        net = graph.net.get(n)
        if net is not None:
            self.resource_changes += 1
            for resource, usage in net:
                if usage is Usage.RELEASE:
                    self.free[resource] += 1
                elif usage is Usage.OCCUPY:
                    self.free[resource] -= 1
                    self.waiting[resource] -= 1
        earliest = self._earliest[n]
        time = earliest if earliest > self.now else self.now
        self.ready_at[n] = time
        later = time + graph.cost[n]
        if self.calls is not None:
            self.calls.join(self, n)
        self.queue.drop_before(later)
        self._release_neighbors(n, time, later)
        if self.in_flight is not None:
            self.in_flight.note(n)
        if self.memory is not None:
            self.memory.place(n)
        self.now = later

    def hold(self, n: int) -> None:
        """Note that one more neighbor below a node is to be placed before it."""
        self._left[n] += 1

    def _release_neighbors(self, n: int, time: float, later: float) -> None:
        left, earliest = self._left, self._earliest
        latencies = self.above_us[n]
        plain = time + 1.0
        for k, p in enumerate(self.above[n]):
            reach = plain if latencies is None else time + latencies[k]
            if reach > earliest[p]:
                earliest[p] = reach
            remaining = left[p] - 1
            left[p] = remaining
            if not remaining:
                self._make_available(p, later)
            elif remaining == 1:
                # One unplaced neighbor is left: placing that one would release p.
                placed = self.placed
                for s in self.below[p]:
                    if not placed[s]:
                        self.unlocks[s] += 1
                        break

    def _make_available(self, p: int, later: float) -> None:
        graph = self.graph
        reach = self._earliest[p]
        ready_at = reach if reach > later else later
        self.ready_at[p] = ready_at
        entries = graph.resources.get(p)
        if entries is not None:
            self.resource_changes += 1
            for resource, usage in entries:
                if usage is Usage.OCCUPY:
                    self.waiting[resource] += 1
        group = -1 if self.groups is None else self.groups.group_of(p)
        if graph.is_noop[p] and group == -1 and not self.is_preferred[p]:
            self.noops.append(p)
            return
        self.ready.add(p)
        if group != -1 and self.groups is not None:
            self.groups.note_available(p, group)
        if ready_at > later:
            self.queue.push(p)
        if self.is_selective and graph.releases[p] and self._releases_selectively(p):
            self.selective_releasers.append(p)

    def _releases_selectively(self, n: int) -> bool:
        graph = self.graph
        return graph.tracker.releases_selectively(graph.instructions[n])

    def _note_selective(self, n: int) -> None:
        """Let work that hides no copy push the copies' starts further out."""
        graph, releasers = self.graph, self.selective_releasers
        if graph.releases[n] and n in releasers:
            releasers.remove(n)
        if graph.not_valuable[n]:
            for start in releasers:
                self.ready_at[start] += graph.cost[n]

    # -- what rules ask -------------------------------------------------------

    def fits(self, n: int) -> bool:
        """Whether the resources that a node needs are free."""
        if self._tests_in_flight and self.in_flight is not None:
            return self.in_flight.fits(n, self.free)
        free = self.free
        for resource, count in self.graph.needs.get(n, ()):
            if count > free[resource]:
                return False
        return True

    def misfit(self, n: int) -> str:
        """Why a candidate is not considered, in words."""
        name = f"%{self.graph.name(n)}"
        if self.groups is not None and self.groups.group_of(n) != -1:
            return f"{name} waits for scheduling group {self.groups.group_of(n)}"
        short = [
            f"{count} of {RESOURCE_NAMES[r]} ({self.free[r]} free)"
            for r, count in self.graph.needs.get(n, ())
            if count > self.free[r]
        ]
        if short:
            return f"{name} needs {', '.join(short)}"
        return f"{name} shares ranks with what is in flight"

    def is_constrained(self, n: int) -> bool:
        """Whether it holds an exhausted resource that an available node wants."""
        free, waiting = self.free, self.waiting
        for resource, _ in self.graph.resources.get(n, ()):
            if free[resource] == 0 and waiting[resource] > 0:
                return True
        return False

    def stall(self, n: int) -> float:
        """How long placing a node now would stall, us."""
        return max(self.ready_at[n] - self.now, 0.0)

    def past_due(self, n: int) -> float:
        """How long ago it should have released a resource that cannot wait, us."""
        if not self.graph.releases_nonextendable[n]:
            return 0.0
        return max(self.now - self.ready_at[n], 0.0)

    def cost_distance(self, n: int) -> float:
        """How far its cost is from the time until the next candidate becomes ready."""
        top = self.queue.top()
        return 0.0 if top is None else abs(top - self.now - self.graph.cost[n])

    def permute_ready_in(self, n: int) -> float:
        """When a permute's start became ready, 0 or less; -inf for all others, us.

        Counted from now, as XLA does: times that differ by less than the clock resolves
        are equal.
        """
        ready_in = self.ready_at[n] - self.now
        if ready_in <= 0.0 and _PERMUTE in self.graph.resources.get(n, ()):
            return ready_in
        return -math.inf

    def delays_host_send(self, n: int) -> bool:
        """Whether it ends a send to the host that can wait."""
        graph = self.graph
        start = graph.host_sends.get(n)
        if start is None:
            return False
        latencies = graph.succ_us[start]
        estimated = 0.0
        for k, s in enumerate(graph.succs[start]):
            if self.ready_at[s] == math.inf:
                return False
            us = 1.0 if latencies is None else latencies[k]
            estimated = max(estimated, self.ready_at[s] + us)
        return estimated - self.now > graph.latency_us(start, n)

    def serial_conflicts(self, n: int) -> int:
        """How many hold the serial resources that it uses."""
        in_flight, tracker = self.in_flight, self.graph.tracker
        if in_flight is None:
            return 0
        usages = tracker.serial_usages()
        return sum(
            in_flight.count(r)
            for r, usage in self.graph.resources.get(n, ())
            if usage in usages and tracker.is_serial(r)
        )

    def hides_near_copy(self, n: int) -> bool:
        """Whether it could hide a copy that is near; XLA then holds it back."""
        if self.graph.not_valuable[n]:
            return False
        nearest = min((self.hops[y] for y in self.ready if y != n), default=2**63 - 1)
        return nearest <= self.settings.max_hops_to_closest_selective_overlap

    # -- memory ---------------------------------------------------------------

    def is_memory_tight(self) -> bool:
        """Whether the memory rules apply: usage is above half the limit."""
        limit = self.memory_limit_bytes
        return (
            limit is not None
            and self.memory is not None
            and self.memory.usage_bytes > limit // 2
        )

    def is_memory_over(self) -> bool:
        """Whether usage is at the limit or above it."""
        return (
            self.memory is not None
            and self.is_memory_tight()
            and self.memory.usage_bytes >= (self.memory_limit_bytes or 0)
        )

    def memory_increase(self, n: int) -> int:
        """What placing a node adds; a done is taken with its start, bytes."""
        return 0 if self.memory is None else self.memory.increases[n]

    def keeps_peak(self, n: int) -> bool:
        """Whether placing a node, a done with its start, keeps the peak below."""
        memory, limit = self.memory, self.memory_limit_bytes or 0
        return memory is not None and memory.usage_bytes + memory.peaks[n] <= limit
