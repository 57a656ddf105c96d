"""How often a step runs each of its parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hlo_passes.scheduler.simulation.accounts import executions


@dataclass(eq=False)
class _Part:
    """A run, as far as what it calls and what its asynchronous calls run."""

    called: dict[str, list[tuple[_Part, float]]] = field(default_factory=dict)
    bodies: dict[str, _Part] = field(default_factory=dict)


def test_what_runs_asynchronously_is_not_on_the_lane() -> None:
    shared = _Part()
    body = _Part({"x": [(shared, 2.0)], "y": [(shared, 3.0)]})
    loop = _Part({"z": [(shared, 5.0)]})
    entry: Any = _Part({"w": [(loop, 4.0)], "v": [(shared, 1.0)]}, {"s": body})
    counts = executions(entry)
    assert counts[entry] == (1.0, 1.0)
    assert counts[body] == (1.0, 0.0)
    assert counts[loop] == (4.0, 4.0)
    # Once, in each of four trips five times, and five times beside the lane.
    assert counts[shared] == (1.0 + 20.0 + 5.0, 1.0 + 20.0)


def test_what_runs_on_the_lane_and_beside_it_counts_twice() -> None:
    both = _Part()
    entry: Any = _Part({"c": [(both, 2.0), (both, 0.5)]}, {"s": both, "t": both})
    assert executions(entry)[both] == (4.5, 2.5)
