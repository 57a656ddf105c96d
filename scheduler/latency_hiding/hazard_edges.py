"""Edges that keep readers of a buffer out of the window in which a done writes it.

    u reads buffer B;  d = done writes B          u -> start of d

Where many starts read a buffer that they all write to, every two of them have such an
edge. Of these, an edge u -> v changes nothing if there are u -> w and w -> v, and is
left out: u cannot become a candidate before w is placed, nor be ready earlier.

Source: openxla/xla `latency_hiding_scheduler.cc`, HloScheduleGraph (Aug 2026).
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hlo_passes.scheduler.latency_hiding.reachability import below, reached

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlo_passes.scheduler.latency_hiding.graph import ScheduleGraph
    from hlo_passes.scheduler.memory.alias_hazards import HazardTable

#: The edges of a buffer with at most as many uses are all kept.
_FEW: Final = 16


@dataclass(slots=True)
class _Window:
    """What must come before one start.

    Attributes:
        start: the node.
        place: where in its predecessors the edges belong.
        before: nodes that must come before it, as bits.
        edges: those of them that no other edge keeps before it so far.
    """

    start: int
    place: int
    before: int
    edges: int


class _Below:
    """What a start leads to; it grows with the graph, and with the start.

    Attributes:
        start: the last one that it was made for.
        nodes: all of them, with the start.
        bits: those of them that use a shared buffer.
    """

    def __init__(self) -> None:
        self.start = -1
        self.nodes: set[int] = set()
        self.bits = 0
        self._unvisited: list[int] = []
        self._added = 0

    def grow(self, edges: HazardEdges, start: int, done: int) -> None:
        """Take in another start, that leads to the one before, when visiting its done.

        Of what was found before, new edges have: nodes visited since then, and those
        into starts.
        """
        nodes, bits_of, succs = self.nodes, edges.bits, edges.graph.succs
        unvisited = self._unvisited
        self.start = start
        work = []
        while unvisited and unvisited[0] <= done:
            work.append(heapq.heappop(unvisited))
        found = [start]
        for first, before, then in itertools.islice(edges.added, self._added, None):
            if first in nodes or self.bits & before:
                found.append(then)
        self._added = len(edges.added)
        while True:
            for n in found:
                if n not in nodes:
                    nodes.add(n)
                    if n > done:
                        heapq.heappush(unvisited, n)
                    # Most nodes are of no buffer, and have no edges so far.
                    if n in bits_of:
                        self.bits |= bits_of[n]
                        work.append(n)
                    elif succs[n]:
                        work.append(n)
            if not work:
                return
            n = work.pop()
            found = [*succs[n], *edges.waiting(n)] if n in bits_of else succs[n]


@dataclass(slots=True)
class _Shared:
    """Buffers that many instructions use.

    Attributes:
        places: node -> its places in the list of uses.
        nodes: all of them, as bits.
        window: the last one; its edges are not in the graph yet.
        below: what the start of the last window leads to.
    """

    places: dict[int, list[int]]
    nodes: int
    window: _Window | None = None
    below: _Below = field(default_factory=_Below)


def readers_in_window(
    graph: ScheduleGraph, table: HazardTable, done: int
) -> tuple[int, list[int]]:
    """The start of a done, and the nodes that should come before it.

    They use the memory of the done's result, and do not follow the done. One that uses
    it twice is there twice.
    """
    index = graph.index
    instruction = graph.instructions[done]
    start = index[instruction.operands[0]]
    found = [
        index[user]
        for user, operand in table.uses(instruction)
        if user in index and not user.operands[operand].shape.is_token
    ]
    later = reached(graph, done, {node for node in found if node != start})
    return start, [node for node in found if node != start and node not in later]


class HazardEdges:
    """Adds the edges of one graph, done by done.

    Attributes:
        graph: where to.
        bits: one for each node that uses a buffer of many uses.
        added: all so far: (node, 0, start), or (-1, bits of many nodes, start).
    """

    def __init__(self, graph: ScheduleGraph, table: HazardTable) -> None:
        """Find the buffers with many uses.

        Args:
            graph: without edges so far.
            table: of uses.
        """
        self.graph = graph
        self._table = table
        self.bits: dict[int, int] = {}
        self.added: list[tuple[int, int, int]] = []
        self._nodes: list[int] = []
        self._shared: dict[tuple[int, ...], _Shared] = {}
        self._shared_of: dict[int, list[_Shared]] = {}
        self._later: dict[int, int] = {}
        # Downwards, metrics read each edge.
        settings = graph.tracker.settings
        if settings.top_down_scheduling or settings.enable_selective_memcpy_overlap:
            return
        self._find_shared()
        if self._shared:
            self._find_later()

    def connect(self, done: int) -> None:
        """Put what may still use the memory of a done's result before its start."""
        graph = self.graph
        instruction = graph.instructions[done]
        if self._shared:
            shared = self._shared.get(self._table.buffers_of(instruction))
            if shared is not None:
                self._connect_many(shared, done)
                return
        start, nodes = readers_in_window(graph, self._table, done)
        if not nodes:
            return
        # An edge into the start changes nothing below it, so one search is enough.
        under = below(graph, start, self._shared_of, self.waiting)
        # A hazard's edge parallel to the operand's own does not change the order, but
        # how many nodes a start makes available (kCreatesMoreReadyNodes). Newer
        # releases leave it out: that is what their log shows for an all-reduce in place
        # of a bitcast's operand. Whether they leave out every edge that is there
        # already is a guess that nothing contradicts.
        repeats = graph.tracker.settings.release.repeats_hazard_edges
        for node in nodes:
            if node in under or (not repeats and start in graph.succs[node]):
                continue
            graph.connect(node, start)
            graph.hazards.append((node, start))
            self.added.append((node, 0, start))

    def finish(self) -> None:
        """Add the edges of the windows that were last in their buffers."""
        for shared in self._shared.values():
            self._close(shared)

    # -- buffers with many uses -----------------------------------------------

    def _find_shared(self) -> None:
        graph, table = self.graph, self._table
        index, instructions = graph.index, graph.instructions
        known: set[tuple[int, ...]] = set()
        members: set[int] = set()
        for done, is_done in enumerate(graph.is_done):
            if not is_done:
                continue
            buffers = table.buffers_of(instructions[done])
            if buffers in known:
                continue
            known.add(buffers)
            places: dict[int, list[int]] = {}
            uses = table.uses_of_buffers(buffers, graph.computation)
            if len(uses) <= _FEW:
                continue
            for place, (user, operand) in enumerate(uses):
                if user in index and not user.operands[operand].shape.is_token:
                    places.setdefault(index[user], []).append(place)
            shared = self._shared[buffers] = _Shared(places, 0)
            members |= places.keys()
            for node in places:
                self._shared_of.setdefault(node, []).append(shared)
        # Later nodes get lower bits, so that what is after a node is a small number.
        self._nodes = sorted(members, reverse=True)
        self.bits = {node: 1 << k for k, node in enumerate(self._nodes)}
        for shared in self._shared.values():
            shared.nodes = sum(map(self.bits.__getitem__, shared.places))

    def _find_later(self) -> None:
        """What edges of the computation lead to, of dones that write a shared buffer.

        Goes backwards. What follows a node is forgotten once the first node that leads
        there was visited.
        """
        graph = self.graph
        index, bits = graph.index, self.bits
        after: dict[int, int] = {}
        forgotten: dict[int, list[int]] = {}
        for n in range(len(graph) - 1, -1, -1):
            instruction = graph.instructions[n]
            found = bits.get(n, 0)
            for follower in (*instruction.users, *instruction.control_successors):
                found |= after.get(index[follower], 0)
            if graph.is_done[n] and self._table.buffers_of(instruction) in self._shared:
                self._later[n] = found
            if found:
                leading = (*instruction.operands, *instruction.control_predecessors)
                first = min((index[i] for i in leading), default=n)
                if first < n:
                    after[n] = found
                    forgotten.setdefault(first, []).append(n)
            for m in forgotten.pop(n, ()):
                del after[m]

    def _connect_many(self, shared: _Shared, done: int) -> None:
        graph, bits = self.graph, self.bits
        start = graph.index[graph.instructions[done].operands[0]]
        own = bits.get(start, 0)
        before = shared.nodes & ~self._later[done] & ~own
        if not before:
            return
        last = shared.window
        if last is None or not own & last.before or shared.below.start != last.start:
            shared.below = _Below()
        shared.below.grow(self, start, done)
        before &= ~shared.below.bits
        if not graph.tracker.settings.release.repeats_hazard_edges:
            for node in graph.preds[start]:
                before &= ~bits.get(node, 0)
        if not before:
            return
        edges = before
        if last is not None:
            if own & last.before:
                # What must come before this start comes before the last one, too.
                last.edges &= ~before
            elif bits.get(last.start, 0) & before:
                edges &= ~last.before
            self._close(shared)
        shared.window = _Window(start, len(graph.preds[start]), before, edges)
        self.added.append((-1, before, start))

    def _close(self, shared: _Shared) -> None:
        """Add the edges of the last window."""
        window = shared.window
        if window is None:
            return
        shared.window = None
        repeats = self.graph.tracker.settings.release.repeats_hazard_edges
        uses = sorted(
            (place, node)
            for node in self._of_bits(window.edges)
            for place in shared.places[node][: None if repeats else 1]
        )
        nodes = [node for _, node in uses]
        self.graph.connect_at(nodes, window.start, window.place)
        self.graph.hazards += [(node, window.start) for node in nodes]

    def _of_bits(self, bits: int) -> Iterator[int]:
        while bits:
            lowest = bits & -bits
            yield self._nodes[lowest.bit_length() - 1]
            bits ^= lowest

    def waiting(self, node: int) -> Iterator[int]:
        """The starts that come after a node by edges not yet in the graph."""
        for shared in self._shared_of.get(node, ()):
            window = shared.window
            if window is not None and window.before & self.bits[node]:
                yield window.start
