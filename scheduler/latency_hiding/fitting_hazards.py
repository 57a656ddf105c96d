"""Hazards of a module that lacks copies: those that some order can meet together.

    %sa = all-reduce-start(%p)    overwrites %p, so %sb must come before it
    %sb = all-reduce-start(%p)    overwrites %p, so %sa must come before it
    %v = add(%b, %p)              must come before both

XLA fails where edges close a cycle; copy insertion keeps it from meeting any. Here the
edge into the later of two starts is left out, and all edges are kept that close no
cycle with those before them: first the ones along the base order, so that what this
order keeps apart stays apart, then the others.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from hlo_passes.scheduler.latency_hiding.graph import ScheduleGraph
from hlo_passes.scheduler.latency_hiding.hazard_edges import readers_in_window
from hlo_passes.scheduler.latency_hiding.metrics import topological_order
from hlo_passes.scheduler.memory.alias_hazards import HazardTable


def connect_what_fits(graph: ScheduleGraph, table: HazardTable) -> None:
    """Add the hazards that close no cycle; note the others as dropped.

    Args:
        graph: with all its other edges.
        table: of uses.
    """
    order = topological_order(graph)
    if len(order) < len(graph):
        return
    places = _Places(graph, order)
    wanted = [
        readers_in_window(graph, table, done)
        for done, is_done in enumerate(graph.is_done)
        if is_done
    ]
    # All that follows the base order fits, so it comes first.
    for start, nodes in sorted(wanted, key=lambda window: window[0]):
        places.put_before({n for n in nodes if n < start}, start)
    for start, nodes in wanted:
        backward = dict.fromkeys(n for n in nodes if n > start)
        fits = places.put_before(backward.keys(), start)
        graph.dropped_hazards += [(n, start) for n in backward if n not in fits]


class _Places:
    """A topological order that is kept while edges are added to a graph.

    Source: Pearce and Kelly, A dynamic topological sort algorithm for directed acyclic
    graphs, 2006: only nodes placed between the ends of the edges are looked at.
    """

    def __init__(self, graph: ScheduleGraph, order: Sequence[int]) -> None:
        self._graph = graph
        self._place = [0] * len(graph)
        for place, node in enumerate(order):
            self._place[node] = place

    def put_before(self, nodes: Set[int], then: int) -> set[int]:
        """Give each node that fits an edge to `then`, unless others lead there already.

        Returns:
            the nodes that now come before it.
        """
        graph, place = self._graph, self._place
        if not nodes:
            return set()
        high = max(place[n] for n in nodes)
        after = self._found_from([then], graph.succs, place[then], high)
        fits = set(nodes) - after
        self._move([n for n in fits if place[n] > place[then]], after)
        low = min((place[n] for n in fits), default=place[then])
        before = self._found_from([then], graph.preds, low, place[then])
        # The last ones first: what comes before them needs no edge of its own.
        for n in sorted(fits - before, key=place.__getitem__, reverse=True):
            if n not in before:
                graph.connect(n, then)
                graph.hazards.append((n, then))
                before |= self._found_from([n], graph.preds, low, place[n])
        return fits

    def _move(self, firsts: list[int], after: set[int]) -> None:
        """Place nodes, and what leads to them, before all of some others."""
        if not firsts:
            return
        place = self._place
        low, high = min(place[n] for n in after), max(place[n] for n in firsts)
        before = self._found_from(firsts, self._graph.preds, low, high)
        moved = [
            *sorted(before, key=place.__getitem__),
            *sorted(after, key=place.__getitem__),
        ]
        for node, new in zip(moved, sorted(place[n] for n in moved), strict=True):
            place[node] = new

    def _found_from(
        self, nodes: list[int], neighbors: Sequence[Sequence[int]], low: int, high: int
    ) -> set[int]:
        """The nodes, and all that edges lead to without leaving a range of places."""
        place = self._place
        found = set(nodes)
        work = list(nodes)
        while work:
            for n in neighbors[work.pop()]:
                if n not in found and low <= place[n] <= high:
                    found.add(n)
                    work.append(n)
        return found
