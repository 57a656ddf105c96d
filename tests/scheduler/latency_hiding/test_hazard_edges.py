"""Hazard edges that change nothing are left out, and nothing changes."""

from __future__ import annotations

import random

import pytest

import hlo_passes
from benchmarks.growth_graphs import GRAPHS
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.passes.framework.pipeline import Pipeline
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.latency_hiding import attempt, hazard_edges
from hlo_passes.scheduler.latency_hiding.edges import connect_all
from hlo_passes.scheduler.latency_hiding.graph import ScheduleGraph
from hlo_passes.scheduler.latency_hiding.metrics import topological_order
from hlo_passes.scheduler.memory.alias_hazards import HazardTable

_SHAPE = "f32[8]{0}"
_PASS = "latency-hiding-scheduler{parallel-collective-overlap-limit=64}"
_ALL = 10**9


def random_text(seed: int) -> str:
    """All-reduces, many of them of one operand, that others read before and after."""
    draw = random.Random(seed)
    near, control = draw.random(), draw.random() * 0.3
    lines = [f"%{name} = {_SHAPE} parameter({k})" for k, name in enumerate("pq")]
    names, unread, started = ["p", "q"], {}, []

    def finish(k: int, suffix: str = "") -> None:
        lines.append(f"%d.{k} = {_SHAPE} all-reduce-done(%s.{k}){suffix}")
        names.append(f"d.{k}")
        unread[f"d.{k}"] = None

    for k in range(draw.randint(8, 60)):
        kind, suffix = draw.random(), ""
        if len(names) > 2 and draw.random() < control:
            suffix = f", control-predecessors={{%{draw.choice(names[2:])}}}"
        if kind < 0.4:
            source = draw.choice(names[:3] if draw.random() < near else names)
            lines.append(
                f"%s.{k} = {_SHAPE} all-reduce-start(%{source}), channel_id={k + 1}, "
                "replica_groups=[1,8]<=[8], use_global_device_ids=true, to_apply=%add"
                f"{suffix}"
            )
            started.append(k)
            unread.pop(source, None)
        elif kind < 0.75 and started:
            finish(started.pop(draw.randrange(len(started))), suffix)
        else:
            one = draw.choice(names[-6:])
            other = draw.choice(names[:2] if draw.random() < near else names)
            work = f"add(%{one}, %{other})" if kind > 0.8 else f"tanh(%{one})"
            lines.append(f"%v.{k} = {_SHAPE} {work}{suffix}")
            names.append(f"v.{k}")
            unread.pop(one, None)
            unread[names[-1]] = None
    for k in started:
        finish(k)
    shapes = ", ".join([_SHAPE] * len(unread))
    results = ", ".join(f"%{name}" for name in unread)
    lines.append(f"ROOT %all = ({shapes}) tuple({results})")
    entry = "\n  ".join(lines)
    return (
        "HloModule hazards, is_scheduled=true, num_partitions=8\n\n"
        "%add (x: f32[], y: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n"
        "  %y = f32[] parameter(1)\n  ROOT %sum = f32[] add(%x, %y)\n}\n\n"
        f"ENTRY %main {{\n  {entry}\n}}\n"
    )


def _led_to(graph: ScheduleGraph) -> list[int]:
    """What each node leads to, as bits."""
    found = [0] * len(graph)
    for n in reversed(topological_order(graph)):
        for after in graph.succs[n]:
            found[n] |= found[after]
        found[n] |= 1 << n
    return found


def _is_within(part: list[int], whole: list[int]) -> bool:
    left = iter(whole)
    return all(n in left for n in part)


def scheduled(
    text: str, release: str, few: int, options: str = ""
) -> tuple[str, list[ScheduleGraph]]:
    """The text after the pass, and the graphs that it made."""
    graphs: list[ScheduleGraph] = []

    def connect(graph: ScheduleGraph, table: HazardTable | None = None) -> None:
        connect_all(graph, table)
        graphs.append(graph)

    module = hlo_passes.parse(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attempt, "connect_all", connect)
        patch.setattr(hazard_edges, "_FEW", few)
        context = PassContext(pricing=Pricing(xla=release))
        Pipeline.parse(_PASS.replace("}", f"{options}}}"), context).run(module)
    return module.to_text(), graphs


@pytest.mark.parametrize("release", ["0.10.2", "0.12.0.1"])
def test_orders_and_graphs_are_those_of_all_edges(release: str) -> None:
    left_out = backwards = dropped = 0
    for seed in range(60):
        text = random_text(seed)
        order, graphs = scheduled(text, release, few=1)
        order_of_all, graphs_of_all = scheduled(text, release, few=_ALL)
        assert order == order_of_all
        for graph, whole in zip(graphs, graphs_of_all, strict=True):
            assert _led_to(graph) == _led_to(whole)
            assert graph.dropped_hazards == whole.dropped_hazards
            for n in range(len(graph)):
                assert _is_within(graph.preds[n], whole.preds[n])
                assert len(graph.pred_us[n] or graph.preds[n]) == len(graph.preds[n])
                assert len(graph.succ_us[n] or graph.succs[n]) == len(graph.succs[n])
            less = sum(map(len, whole.preds)) - sum(map(len, graph.preds))
            left_out += less
            # Edges that go backwards need the others only where there is a cycle.
            if graph.runs_backwards and not graph.dropped_hazards:
                backwards += less
            dropped += len(graph.dropped_hazards)
    assert left_out > 100
    assert backwards > 0
    assert dropped > 0


@pytest.mark.parametrize(
    "options", ["top-down-scheduling=true", "enable-selective-memcpy-overlap=true"]
)
def test_metrics_that_read_each_edge_have_all(options: str) -> None:
    """A few modules of those from which edges are left out otherwise."""
    left_out = 0
    for seed in range(4):
        text = random_text(seed)
        _, graphs = scheduled(text, "0.12.0.1", 1, f",{options}")
        _, graphs_of_all = scheduled(text, "0.12.0.1", _ALL, f",{options}")
        _, usual = scheduled(text, "0.12.0.1", 1)
        for graph, whole, few in zip(graphs, graphs_of_all, usual, strict=True):
            assert graph.preds == whole.preds
            left_out += sum(map(len, whole.preds)) - sum(map(len, few.preds))
    assert left_out > 0


@pytest.mark.parametrize("family", ["all-reduces", "all-reduce chain"])
def test_edges_are_as_many_as_the_nodes(family: str) -> None:
    # A buffer that few use comes first.
    few = (
        "  %few = f32[8]{0} negate(%p)\n  %early = f32[8]{0} all-reduce(%few), "
        "channel_id=200, replica_groups=[1,8]<=[8], use_global_device_ids=true, "
        "to_apply=%add\n"
    )
    head, tail = GRAPHS[family].text(100).split("%p = f32[8]{0} parameter(0)\n")
    text = f"{head}%p = f32[8]{{0}} parameter(0)\n{few}{tail}"
    module = hlo_passes.parse(text)
    Pipeline.parse("async-collective-creator").run(module)
    _, graphs = scheduled(module.to_text(), "0.12.0.1", few=16)
    assert sum(map(len, graphs[0].preds)) < 5 * len(graphs[0])
    _, graphs = scheduled(module.to_text(), "0.12.0.1", few=_ALL)
    assert sum(map(len, graphs[0].preds)) > 20 * len(graphs[0])
