"""Classes of nodes that resources and hints treat alike.

Facts that only depend on them are computed once per class, and again only when
resources change: a computation of 60,000 nodes has about ten classes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hlo_passes.scheduler.latency_hiding.state import SchedulingState


class Classes:
    """The classes of a computation, and whether resources allow them now.

    Attributes:
        of: class by node; `of_array` is the same.
        members: a node of every class.
        fits: whether classes fit, as of the last `refresh`.
        flags: what fits and what is constrained, as one value.
    """

    def __init__(self, state: SchedulingState, *, tests_fit: bool) -> None:
        """Group the nodes.

        Args:
            state: of the computation.
            tests_fit: whether `fits` goes by class; it does not where it depends on
                what is in flight, and every class fits then.
        """
        self._state = state
        self._tests_fit = tests_fit
        self.of, self.members = _classes(state)
        self.of_array = np.array(self.of, np.int64)
        self._seen = -1
        self.fits = b""
        self.flags = b""
        self._constrained: npt.NDArray[np.bool_] | None = None

    def refresh(self) -> None:
        """Update what fits and what is constrained, if resources changed."""
        state = self._state
        if state.resource_changes == self._seen:
            return
        self._seen = state.resource_changes
        self._constrained = None
        self.fits = bytes([not self._tests_fit or state.fits(n) for n in self.members])
        self.flags = self.fits + bytes([state.is_constrained(n) for n in self.members])

    def constrained(self) -> npt.NDArray[np.bool_]:
        """Which classes are constrained."""
        self.refresh()
        if self._constrained is None:
            constrained = self.flags[len(self.members) :]
            self._constrained = np.frombuffer(constrained, np.bool_)
        return self._constrained


def _classes(state: SchedulingState) -> tuple[list[int], list[int]]:
    """Class by node, and a node of every class.

    Equal are all facts that a rule by class may read: see `Rule.by_class`.
    """
    graph = state.graph
    flags = (
        graph.force_early,
        graph.force_delay,
        graph.is_start,
        graph.is_done,
        graph.writes_to_host,
        state.is_top_start,
    )
    # Most nodes hold no resource and have none of the flags: skip them.
    flagged = np.zeros(len(graph), np.bool_)
    for column in flags:
        flagged |= np.frombuffer(column, np.bool_)
    if any(graph.delay_priority):
        flagged |= np.array(graph.delay_priority) != 0
    special = {*graph.resources, *graph.needs, *flagged.nonzero()[0].tolist()}
    found = [-1] * len(graph)
    numbers: dict[tuple[object, ...], int] = {}
    members: list[int] = []
    for n in sorted(special):
        key = (
            graph.resources.get(n),
            graph.needs.get(n),
            graph.delay_priority[n],
            *[column[n] for column in flags],
        )
        number = numbers.setdefault(key, len(members))
        if number == len(members):
            members.append(n)
        found[n] = number
    if len(special) < len(graph):
        members.append(found.index(-1))
        plain = len(members) - 1
        found = [plain if number < 0 else number for number in found]
    return found, members
