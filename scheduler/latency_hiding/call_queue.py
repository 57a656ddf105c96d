"""The queue of a TPU's calls on SparseCores: they run in the order of their starts.

    bottom-up placed so far:  %d2 = async-done(%s2), then %d1 = async-done(%s1)
    edge that this adds:      %s1 -> %s2, with the latency of the first call

A call joins when its done is placed. While the call that joined before it is still to
be started, its own start must come before that one, and earlier by what it takes: the
second call waits for the first. Without the edge calls would be priced as if all of
them ran at once.

Found in logs of compilations for tpu7x (docs/tpu.md): the start of a call has an edge
that the graph did not have, and becomes ready later by its latency.
"""

from __future__ import annotations

from typing import Protocol

from hlo_passes.scheduler.latency_hiding.edge_latency import PLAIN_LATENCY_US
from hlo_passes.scheduler.latency_hiding.graph import ScheduleGraph


class State(Protocol):
    """What the queue uses of a scheduling state (`SchedulingState` says what it is)."""

    graph: ScheduleGraph
    placed: bytearray
    below: list[list[int]]
    above: list[list[int]]
    above_us: list[list[float] | None]

    def hold(self, n: int) -> None:
        """Note that one more neighbor below a node is to be placed before it."""
        ...


class CallQueue:
    """Calls by their dones, and the one that joined last."""

    def __init__(self, starts: dict[int, int]) -> None:
        """Nobody has joined.

        Args:
            starts: of the calls, by done.
        """
        self._starts = starts
        self._last: int | None = None

    def join(self, state: State, n: int) -> None:
        """Let a call join whose done is being placed; any other node does not."""
        start = self._starts.get(n)
        if start is None:
            return
        then, self._last = self._last, start
        if then is None or state.placed[then] or _leads_to(state, then, start):
            return
        us = state.graph.latency_us(start, n)
        above, above_us = state.above[then], state.above_us[then]
        # Other lists: those of the graph stay as they are.
        state.above[then] = [*above, start]
        state.above_us[then] = [*(above_us or [PLAIN_LATENCY_US] * len(above)), us]
        state.below[start] = [*state.below[start], then]
        state.hold(start)


def call_queue(graph: ScheduleGraph) -> CallQueue | None:
    """The queue of a computation; None where no two calls could wait in one."""
    tracker = graph.tracker
    if not tracker.settings.sparse_core_queue:
        return None
    starts = {
        done: start
        for done, start in graph.starts_above.items()
        if tracker.is_queued(graph.instructions[start])
    }
    return CallQueue(starts) if len(starts) > 1 else None


def _leads_to(state: State, first: int, then: int) -> bool:
    """Whether a node must come before another: an edge back would close a cycle."""
    seen = {first}
    work = [first]
    while work:
        for n in state.below[work.pop()]:
            if n == then:
                return True
            if n not in seen and not state.placed[n]:
                seen.add(n)
                work.append(n)
    return False
