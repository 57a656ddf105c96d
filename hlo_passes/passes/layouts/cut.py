"""The smallest cut between two nodes of a graph, by the largest flow.

    source --4--> a --1--> sink          cut: a -> sink, 1; a stays with the source

Edges are found level by level from the source, and flow goes along them until no path
is left (Dinic, 1970): as many cuts are tried as there are different path lengths.
"""

from __future__ import annotations

from math import inf
from typing import Final

SOURCE: Final = 0
SINK: Final = 1


class Network:
    """A graph with capacities; nodes are numbers, 0 the source, 1 the sink."""

    def __init__(self) -> None:
        """Only the source and the sink."""
        # Edge 2k and its reverse 2k+1, by number.
        self._head: list[int] = []
        self._left: list[float] = []
        self._edges: list[list[int]] = [[], []]

    def node(self) -> int:
        """A new node."""
        self._edges.append([])
        return len(self._edges) - 1

    def add(self, tail: int, head: int, capacity: float) -> None:
        """An edge from `tail` to `head`; the cut pays if it parts them this way."""
        self._edges[tail].append(len(self._head))
        self._edges[head].append(len(self._head) + 1)
        self._head += [head, tail]
        self._left += [capacity, 0]

    def sink_side(self) -> list[bool]:
        """By node, whether the smallest cut puts it with the sink.

        Of several cuts, the one with the fewest nodes there.
        """
        while level := self._levels():
            self._fill(level)
        # What can still reach the sink, along edges that are not full.
        found = [False] * len(self._edges)
        found[SINK] = True
        work = [SINK]
        while work:
            for edge in self._edges[work.pop()]:
                tail = self._head[edge]
                if self._left[edge ^ 1] and not found[tail]:
                    found[tail] = True
                    work.append(tail)
        return found

    def _levels(self) -> list[int]:
        """Distance of each node from the source, -1 if none; [] without a path."""
        level = [-1] * len(self._edges)
        level[SOURCE] = 0
        front = [SOURCE]
        while front:
            following = []
            for tail in front:
                for edge in self._edges[tail]:
                    head = self._head[edge]
                    if self._left[edge] and level[head] < 0:
                        level[head] = level[tail] + 1
                        following.append(head)
            if level[SINK] >= 0:
                return level
            front = following
        return []

    def _fill(self, level: list[int]) -> None:
        """Send flow along shortest paths until every one is full."""
        head, left, edges = self._head, self._left, self._edges
        untried = [len(each) for each in edges]
        path: list[int] = []
        node = SOURCE
        while True:
            if node == SINK:
                flow = min(left[edge] for edge in path)
                first_full = len(path)
                for k in range(len(path) - 1, -1, -1):
                    edge = path[k]
                    if left[edge] != inf:
                        left[edge] -= flow
                        if not left[edge]:
                            first_full = k
                    left[edge ^ 1] += flow
                node = head[path[first_full] ^ 1]
                del path[first_full:]
            elif untried[node]:
                edge = edges[node][untried[node] - 1]
                if left[edge] and level[head[edge]] == level[node] + 1:
                    path.append(edge)
                    node = head[edge]
                else:
                    untried[node] -= 1
            elif path:
                edge = path.pop()
                node = head[edge ^ 1]
                untried[node] -= 1
            else:
                return
