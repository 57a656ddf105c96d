"""What rules read of a state, with the same names, for arrays of nodes.

    columns = Columns(state)
    columns.ready_at[nodes], columns.graph.cost[nodes], columns.is_constrained(nodes)

Numbers that change share the state's memory; facts of the graph are copied when first
read. What is not by node (`now`, `settings`, `free`) is the state's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hlo_passes.scheduler.latency_hiding.candidates import Array
from hlo_passes.scheduler.latency_hiding.classes import Classes
from hlo_passes.scheduler.latency_hiding.graph import ScheduleGraph
from hlo_passes.scheduler.latency_hiding.state import SchedulingState

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

#: Facts of the graph by node, as rules read them.
_OF_GRAPH: Final = frozenset(
    "cost delay_priority done_kind force_delay force_early is_delayed_done is_done "
    "is_noop is_start not_valuable occupies operand_is_done releases "
    "releases_nonextendable user_is_start writes_to_host".split()
)
#: Facts of the state by node that do not change.
_FIXED: Final = frozenset(
    "async_depth async_height depth graph_depth hops is_preferred is_top_start "
    "preference".split()
)


def _column(values: Any) -> npt.NDArray[Any]:
    """An array of facts; bytes become integers, so that differences can be negative."""
    if isinstance(values, bytearray):
        return np.frombuffer(values, np.uint8).astype(np.int64)
    return np.array(values)


class GraphColumns:
    """Facts of a graph by node; everything else is the graph's own."""

    def __init__(self, graph: ScheduleGraph) -> None:
        """Nothing is copied yet."""
        self._graph = graph

    def __len__(self) -> int:
        """Number of nodes."""
        return len(self._graph)

    def __getattr__(self, name: str) -> Any:
        """A column that is read for the first time, or what the graph has."""
        value = getattr(self._graph, name)
        if name in _OF_GRAPH:
            value = _column(value)
            setattr(self, name, value)
        return value


class Columns:
    """A state's numbers for arrays of nodes.

    Attributes:
        graph: its facts.
        now: as the state's; callers of rules set it before.
        ready_at, unlocks, placed, delay_after_target: live.
    """

    def __init__(self, state: SchedulingState, classes: Classes) -> None:
        """Views of a state; `classes` say what fits and what is constrained."""
        self._state = state
        self._classes = classes
        self.graph = GraphColumns(state.graph)
        self.now = state.now
        self.ready_at: Floats = np.frombuffer(state.ready_at)
        self.unlocks: Array = np.frombuffer(state.unlocks, np.int64)
        self.placed = np.frombuffer(state.placed, np.uint8)
        self.delay_after_target = np.frombuffer(state.delay_after_target, np.uint8)
        self._memory_views: tuple[Array, Array] | None = None

    def __getattr__(self, name: str) -> Any:
        """A column that is read for the first time, or what the state has."""
        value = getattr(self._state, name)
        if name in _FIXED:
            value = _column(value)
            setattr(self, name, value)
        return value

    # -- what the state answers for one node ----------------------------------

    def fits(self, nodes: Array) -> Flags:
        """Whether the resources that each node needs are free."""
        return self._each(self._state.fits, nodes, np.bool_)

    def is_constrained(self, nodes: Array) -> Flags:
        """Whether each holds an exhausted resource that somebody available wants."""
        return self._classes.constrained()[self._classes.of_array[nodes]]

    def stall(self, nodes: Array) -> Floats:
        """How long placing each now would stall, us."""
        stalls = self.ready_at.take(nodes)
        stalls -= self.now
        return np.maximum(stalls, 0.0, out=stalls)

    def past_due(self, nodes: Array) -> Floats:
        """For how long each should have released what cannot wait, us."""
        due = np.maximum(self.now - self.ready_at[nodes], 0.0)
        return np.where(self.graph.releases_nonextendable[nodes], due, 0.0)

    def cost_distance(self, nodes: Array) -> Floats:
        """How far costs are from the time until the next candidate becomes ready."""
        top = self._state.queue.top()
        if top is None:
            return np.zeros(len(nodes))
        distances: Floats = self.graph.cost.take(nodes)
        np.subtract(top - self.now, distances, out=distances)
        return np.abs(distances, out=distances)

    def permute_ready_in(self, nodes: Array) -> Floats:
        """When starts of permutes became ready, 0 or less; -inf for all others, us."""
        return self._each(self._state.permute_ready_in, nodes, np.float64)

    def delays_host_send(self, nodes: Array) -> Flags:
        """Whether each ends a send to the host that can wait."""
        if not self._state.graph.host_sends:
            return np.zeros(len(nodes), np.bool_)
        return self._each(self._state.delays_host_send, nodes, np.bool_)

    def serial_conflicts(self, nodes: Array) -> Array:
        """How many hold the serial resources that each occupies."""
        return self._each(self._state.serial_conflicts, nodes, np.int64)

    def hides_near_copy(self, nodes: Array) -> Flags:
        """Whether each could hide a copy that is near."""
        state = self._state
        hops = self.hops[state.ready.nodes]
        limit = state.settings.max_hops_to_closest_selective_overlap
        near = state.ready.nodes[hops <= limit]
        # A candidate does not count for itself.
        others = len(near) - np.isin(nodes, near)
        return (others > 0) & (self.graph.not_valuable[nodes] == 0)

    def memory_increase(self, nodes: Array) -> Array:
        """What placing each adds; a done is taken with its start, bytes."""
        return self._memory()[0][nodes]

    def keeps_peak(self, nodes: Array) -> Flags:
        """Whether placing each (a done with its start) keeps the peak in the limit."""
        state = self._state
        assert state.memory is not None
        room = (state.memory_limit_bytes or 0) - state.memory.usage_bytes
        return self._memory()[1][nodes] <= room

    def _memory(self) -> tuple[Array, Array]:
        """Increases and peaks by node, live."""
        if self._memory_views is None:
            memory = self._state.memory
            assert memory is not None
            self._memory_views = (
                np.frombuffer(memory.increases, np.int64),
                np.frombuffer(memory.peaks, np.int64),
            )
        return self._memory_views

    def _each(
        self, ask: Callable[[int], Any], nodes: Array, kind: type[np.generic]
    ) -> npt.NDArray[Any]:
        """Answers for one node after the other."""
        return np.array([ask(n) for n in nodes.tolist()], kind)
