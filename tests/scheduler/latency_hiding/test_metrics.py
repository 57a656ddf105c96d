"""Depths, heights and hops of a small graph, by hand; when rule E2 is on."""

from __future__ import annotations

from typing import Any

import pytest

from hlo_passes.scheduler.latency_hiding.graph import ScheduleGraph
from hlo_passes.scheduler.latency_hiding.metrics import (
    async_depths,
    async_heights,
    depths,
    graph_depths,
    hops,
    topological_order,
)
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.latency_hiding.state import SchedulingState
from tests.scheduler.latency_hiding.graphs import graph_of

#: Two pairs, one after the other, beside a chain of work that both join.
TEXT = """HloModule m, is_scheduled=true, num_partitions=2

ENTRY %main (p: f32[8], q: f32[8]) -> f32[8] {
  %p = f32[8] parameter(0)
  %q = f32[8] parameter(1)
  %w = f32[8] negate(%q)
  %sa = (f32[8], f32[8]) collective-permute-start(%p), channel_id=1, source_target_pairs={{0,1},{1,0}}
  %da = f32[8] collective-permute-done(%sa)
  %x = f32[8] add(%da, %w)
  %sb = (f32[8], f32[8]) collective-permute-start(%x), channel_id=2, source_target_pairs={{0,1},{1,0}}
  %y = f32[8] negate(%w)
  %db = f32[8] collective-permute-done(%sb)
  ROOT %r = f32[8] add(%db, %y)
}
"""
COSTS = {"w": 3.0, "sa": 1.0, "da": 2.0, "x": 7.0, "sb": 1.0, "y": 90.0, "db": 2.0}
LATENCIES = {"sa": 20.0, "sb": 50.0}


def by_name(graph: ScheduleGraph, numbers: list[Any]) -> dict[str, Any]:
    return {graph.name(n): number for n, number in enumerate(numbers)}


def test_depths_above_each_node() -> None:
    graph = graph_of(TEXT, costs=COSTS, latencies=LATENCIES)
    way = topological_order(graph)
    assert list(way) == list(range(10))
    found = by_name(graph, async_depths(graph, way))
    assert found == {
        "p": 0, "q": 0, "w": 0, "sa": 0, "da": 20, "x": 20, "sb": 20, "y": 0,
        "db": 70, "r": 70,
    }  # fmt: skip
    found = by_name(graph, async_heights(graph, way))
    assert found == {
        "p": 70, "q": 50, "w": 50, "sa": 70, "da": 50, "x": 50, "sb": 50, "y": 0,
        "db": 0, "r": 0,
    }  # fmt: skip
    # An edge that no estimate names takes 1 us.
    found = by_name(graph, depths(graph, way))
    assert found == {
        "p": 0, "q": 0, "w": 1, "sa": 1, "da": 22, "x": 25, "sb": 33, "y": 5,
        "db": 84, "r": 96,
    }  # fmt: skip
    found = by_name(graph, graph_depths(graph, way))
    assert found == {
        "p": 0, "q": 0, "w": 1, "sa": 1, "da": 2, "x": 3, "sb": 4, "y": 2,
        "db": 5, "r": 6,
    }  # fmt: skip


def test_pairs_that_take_no_longer_than_any_edge() -> None:
    """Latencies of 1 are those of plain edges: the graph keeps no list of them."""
    graph = graph_of(TEXT, latencies={"sa": 1.0, "sb": 1.0})
    way = topological_order(graph)
    assert by_name(graph, async_depths(graph, way))["r"] == 2
    assert by_name(graph, async_heights(graph, way))["p"] == 2


def test_hops_to_the_nearest_copy_wrap_as_in_xla(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nodes with no copy above them hold 2^31 - 1, and one edge further -2^31."""
    graph = graph_of(TEXT)
    monkeypatch.setattr(
        graph.tracker, "occupies_selectively", lambda i: i.name in ("da", "db")
    )
    found = by_name(graph, hops(graph, topological_order(graph)))
    far = 2**31
    assert found == {
        "p": far - 1, "q": far - 1, "w": -far, "sa": -far, "da": 0, "x": 1 - far,
        "sb": 2 - far, "y": 1 - far, "db": 0, "r": 2 - far,
    }  # fmt: skip


@pytest.mark.parametrize("first", ["x", "z"])
def test_an_edge_takes_as_long_from_both_ends(first: str) -> None:
    """Whether edges that take longer come before plain ones or after them."""
    graph = graph_of(
        f"""HloModule m, is_scheduled=true

ENTRY %main (p: f32[8]) -> f32[8] {{
  %p = f32[8] parameter(0)
  %{first} = f32[8] negate(%p)
  %{"xz".replace(first, "")} = f32[8] sine(%p)
  ROOT %y = f32[8] add(%x, %z)
}}
""",
        latencies={"x": 3.0},
    )
    into = zip(graph.preds[3], graph.pred_us[3] or (), strict=True)
    assert {graph.name(n): us for n, us in into} == {"x": 3.0, "z": 1.0}
    assert [graph.latency_us(n, 3) for n in graph.preds[3]] == graph.pred_us[3]


def test_an_order_of_edges_that_go_backwards() -> None:
    graph = graph_of(TEXT)
    graph.connect(7, 3)  # the start of the first pair after %y
    way = list(topological_order(graph))
    assert sorted(way) == list(range(10))
    assert way.index(7) < way.index(3)
    for n, followers in enumerate(graph.succs):
        assert all(way.index(n) < way.index(s) for s in followers)
    graph.connect(9, 2)  # a cycle: all that follows %w cannot be placed
    assert set(topological_order(graph)) == {0, 1}


def test_a_state_measures_what_its_rules_read() -> None:
    graph = graph_of(TEXT, costs=COSTS, latencies=LATENCIES)
    state = SchedulingState(graph, delays_starts=True)
    assert state.async_depth[9] == 70
    assert state.depth[9] == 96
    assert state.async_height == state.graph_depth == state.hops == []
    tops = {graph.name(n) for n, top in enumerate(state.is_top_start) if top}
    assert tops == {"sa"}
    state = SchedulingState(graph, delays_starts=False)
    assert state.depth == []
    bare = SchedulerSettings.generic(
        top_down_scheduling=True, depth_based_memory_pressure_reduction=True
    )
    graph = graph_of(TEXT, bare, COSTS, LATENCIES)
    state = SchedulingState(graph, delays_starts=False)
    assert state.async_height[0] == 70
    assert state.graph_depth[9] == 6
    assert state.async_depth == []
    # Top-down dones release; without depths each of them is a top start.
    tops = {graph.name(n) for n, top in enumerate(state.is_top_start) if top}
    assert tops == {"da", "db"}


@pytest.mark.parametrize(
    ("changes", "estimator", "expected"),
    [
        ({}, "sol", False),
        ({"collective_start_as_early_as_possible": True}, "sol", False),
        ({"collective_start_as_early_as_possible": True,
          "parallel_collective_overlap_limit": 2}, "sol", True),
        ({"parallel_collective_overlap_limit": 2}, "sol", False),
        ({"parallel_collective_overlap_limit": 2, "start_delay": "auto"}, "sol", True),
        ({"parallel_collective_overlap_limit": 1, "start_delay": "auto"}, "sol", False),
        ({"parallel_collective_overlap_limit": 2, "start_delay": "auto"},
         "profile+sol", False),
        ({"start_delay": "on"}, "profile", True),
        ({"start_delay": "off", "collective_start_as_early_as_possible": True,
          "parallel_collective_overlap_limit": 2}, "sol", False),
        ({"start_delay": "on", "flavour": "generic"}, "sol", False),
        ({"start_delay": "on", "aggressive_scheduling_policies": False}, "sol", False),
    ],
)  # fmt: skip
def test_when_starts_yield_to_compute(
    changes: dict[str, Any], estimator: str, expected: bool
) -> None:
    assert SchedulerSettings(**changes).delays_starts(estimator) is expected


def test_settings_at_the_edge_of_their_range() -> None:
    SchedulerSettings(
        memory_limit_bytes=0, rerun=0, max_hops_to_closest_selective_overlap=0,
        copy_overlap_limit=1,
    )  # fmt: skip
    for name in ("memory_limit_bytes", "rerun"):
        with pytest.raises(ValueError, match="must not be negative"):
            SchedulerSettings(**dict[str, Any]({name: -1}))
    with pytest.raises(ValueError, match="copy-overlap-limit must be 1 or more"):
        SchedulerSettings(copy_overlap_limit=0)
    with pytest.raises(ValueError, match="parallel-async-compute-limit must be 1"):
        SchedulerSettings(parallel_async_compute_limit=0)
