"""When the next candidates become ready: a heap whose top alone is read.

`WaitingTimes` is enough while nobody changes the ready time of a queued node. If that
happens (copies inside the GPU), the heap's order becomes stale in XLA; `StaleHeap`
becomes stale in the same way, step by step like C++'s push_heap and pop_heap.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Protocol


class WaitingQueue(Protocol):
    """Ready times of candidates that are not ready yet."""

    def push(self, n: int) -> None:
        """Add a candidate."""
        ...

    def drop_before(self, time: float) -> None:
        """Remove tops whose ready time is earlier than `time`."""
        ...

    def top(self) -> float | None:
        """The earliest ready time, None when empty."""
        ...


class WaitingTimes:
    """A plain heap of times."""

    __slots__ = ("_ready_at", "_times")

    def __init__(self, ready_at: Sequence[float]) -> None:
        """Empty; `ready_at` holds ready times by node."""
        self._ready_at = ready_at
        self._times: list[float] = []

    def push(self, n: int) -> None:
        """Add a candidate."""
        heapq.heappush(self._times, self._ready_at[n])

    def drop_before(self, time: float) -> None:
        """Remove tops whose ready time is earlier than `time`."""
        times = self._times
        while times and times[0] < time:
            heapq.heappop(times)

    def top(self) -> float | None:
        """The earliest ready time, None when empty."""
        return self._times[0] if self._times else None


class StaleHeap:
    """A heap of nodes whose times may change while they are queued."""

    __slots__ = ("_nodes", "_ready_at")

    def __init__(self, ready_at: Sequence[float]) -> None:
        """Empty; `ready_at` holds ready times by node, and changes."""
        self._ready_at = ready_at
        self._nodes: list[int] = []

    def push(self, n: int) -> None:
        """Add a candidate at the end and let it rise."""
        self._nodes.append(n)
        self._rise(len(self._nodes) - 1, n)

    def _rise(self, hole: int, n: int) -> None:
        nodes, ready_at = self._nodes, self._ready_at
        while hole:
            parent = (hole - 1) // 2
            if ready_at[nodes[parent]] <= ready_at[n]:
                break
            nodes[hole] = nodes[parent]
            hole = parent
        nodes[hole] = n

    def drop_before(self, time: float) -> None:
        """Remove tops whose ready time is earlier than `time`."""
        while self._nodes and self._ready_at[self._nodes[0]] < time:
            self._pop()

    def _pop(self) -> None:
        """Let the hole at the top sink to a leaf, then the last one rise from there."""
        nodes, ready_at = self._nodes, self._ready_at
        last = nodes.pop()
        count = len(nodes)
        if not count:
            return
        hole = 0
        child = 2
        while child < count:
            if ready_at[nodes[child]] > ready_at[nodes[child - 1]]:
                child -= 1
            nodes[hole] = nodes[child]
            hole, child = child, 2 * child + 2
        if child == count:
            nodes[hole] = nodes[child - 1]
            hole = child - 1
        self._rise(hole, last)

    def top(self) -> float | None:
        """The ready time of the top, None when empty."""
        return self._ready_at[self._nodes[0]] if self._nodes else None
